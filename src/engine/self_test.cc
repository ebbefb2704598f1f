#include "engine/self_test.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <string>

#include "base/error.h"
#include "engine/law_check.h"
#include "ops/forwarding_ops.h"

namespace lockstep {
namespace {

/// A golden model by the back end, made in memory.
LawLine model_line(Ops& ops, const std::string& types, Mode mode, const char* schedule) {
  EngineOptions options;
  options.synth = law_model_plan("nano-" + types);
  options.mode = mode;
  options.max_rows = 64;
  Engine engine(options, std::make_unique<ForwardingOps>(ops));
  return {"model nano-" + types + (mode == Mode::official ? " official" : " plain"),
          model_hash(engine, law_tokens(engine.config().vocabulary), parse_schedule(schedule))};
}

}  // namespace

SelfTestResult self_test(Ops& ops) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<LawLine> golden = golden_lines();
  SelfTestResult result;
  const auto check = [&](const LawLine& line) {
    const std::optional<std::uint64_t> expected = find_line(golden, line.name);
    LOCKSTEP_CHECK(expected.has_value());
    ++result.hashes;
    if (*expected == line.hash) return;
    throw Error(Error::Kind::device,
                fmt::format("{}: does not give the golden bytes, so nothing is run on it: {} is {:016x}, expected "
                            "{:016x}; lockstep check shows all that differs",
                            ops.description(), line.name, line.hash, *expected));
  };
  for (const LawLine& line : dot_lines(ops)) check(line);
  check(model_line(ops, "q2", Mode::official, "chunk:64"));
  check(model_line(ops, "q4", Mode::plain, "mixed:1"));
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace lockstep
