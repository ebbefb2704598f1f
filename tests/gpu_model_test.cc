// Whole models on the GPU: the golden hashes of the law, by every way of cutting the tokens into steps, and steps that
// are recorded and played again against steps that are not.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <tuple>

#include "engine/law_check.h"
#include "engine_runs.h"
#include "gpu/gpu_ops.h"

namespace lockstep {
namespace {

std::unique_ptr<Engine> make_gpu_engine(const std::filesystem::path& model, Mode mode, int max_rows) {
  EngineOptions options;
  options.model = model;
  options.mode = mode;
  options.max_rows = max_rows;
  return std::make_unique<Engine>(options, gpu::make_gpu_ops({}));
}

using GoldenCase = std::tuple<std::string, Mode, const char*>;  // type set, mode, schedule

std::string name_of(const GoldenCase& golden) {
  const auto& [name, mode, schedule] = golden;
  std::string out = name + (mode == Mode::official ? "_official_" : "_plain_") + schedule;
  for (char& letter : out)
    if (letter == ':' || letter == '-') letter = '_';
  return out;
}

class GpuGolden : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(GpuGolden, the_hash_is_met) {
  const auto& [name, mode, schedule] = GetParam();
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("lockstep-gpu-" + std::to_string(::getpid()) + ".gguf");
  write_law_model(name, file);
  const auto engine = make_gpu_engine(file, mode, 256);
  std::filesystem::remove(file);
  EXPECT_EQ(model_hash(*engine, law_tokens(engine->config().vocabulary), parse_schedule(schedule)),
            find_line(golden_lines(), "model " + name + (mode == Mode::official ? " official" : " plain")));
}

INSTANTIATE_TEST_SUITE_P(Every, GpuGolden,
                         ::testing::Combine(::testing::ValuesIn(law_models()),
                                            ::testing::Values(Mode::official, Mode::plain),
                                            ::testing::Values("chunk:64", "tokenwise", "chunk:129", "mixed:1")),
                         [](const auto& info_of) { return name_of(info_of.param); });

TEST(GpuModel, a_long_sequence_selects_the_rows_that_the_cpu_selects) {
  // More than 2048 tokens, so that the indexer has more rows than it may attend.
  std::vector<Token> tokens;
  for (int i = 0; i < 2300; ++i) tokens.push_back(static_cast<Token>((i * 37 + i / 11) % 512));
  const std::filesystem::path model = testing::data("golden/nano-a.gguf");
  for (const Mode mode : {Mode::official, Mode::plain}) {
    const auto cpu = testing::make_engine(model, mode, "auto", 0), gpu = make_gpu_engine(model, mode, 512);
    const testing::RunResult expected = testing::run(*cpu, {tokens}, "chunk:512");
    for (const char* schedule : {"chunk:512", "chunk:77"}) {
      const testing::RunResult actual = testing::run(*gpu, {tokens}, schedule);
      EXPECT_TRUE(testing::same_bits(expected.logits[0], actual.logits[0])) << schedule;
      EXPECT_EQ(expected.cache_bytes, actual.cache_bytes) << schedule;
    }
  }
}

}  // namespace
}  // namespace lockstep
