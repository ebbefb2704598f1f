// The golden hashes of the law: this machine must meet tests/law/golden.txt on every level, and a sum with two
// additions swapped must not.
#include <gtest/gtest.h>

#include <cstring>

#include "base/hash.h"
#include "cpu/level.h"
#include "engine/law_check.h"
#include "engine_runs.h"
#include "numerics/random.h"
#include "ops/dot.h"

namespace lockstep {
namespace {

void expect_golden(std::span<const LawLine> lines, const std::string& path) {
  static const std::vector<LawLine> golden = golden_lines();
  for (const LawLine& line : lines) {
    const auto expected = find_line(golden, line.name);
    ASSERT_TRUE(expected.has_value()) << line.name << " has no golden hash";
    EXPECT_EQ(line.hash, *expected) << line.name << " on " << path;
  }
}

TEST(Law, every_function_meets_its_golden_hash) { expect_golden(function_lines(), "the host"); }

TEST(Law, every_format_meets_its_golden_hash_on_every_level) {
  for (const cpu::Level* level : cpu::available_levels())
    expect_golden(dot_lines(*cpu::make_cpu_ops({2, std::string(level->name)})), std::string(level->name));
  expect_golden(dot_lines(*make_reference_ops()), "the reference loops");
}

class LawModel : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Types, LawModel, ::testing::ValuesIn(law_models()),
                         [](const auto& test) { return test.param.substr(test.param.find('-') + 1); });

TEST_P(LawModel, meets_its_golden_hash_on_every_level_with_every_number_of_threads_by_every_schedule) {
  const auto path = std::filesystem::path(::testing::TempDir()) / ("lockstep-law-" + GetParam() + ".gguf");
  write_law_model(GetParam(), path);
  for (const Mode mode : {Mode::official, Mode::plain}) {
    const std::string name = "model " + GetParam() + (mode == Mode::official ? " official" : " plain");
    for (const cpu::Level* level : cpu::available_levels()) {
      const bool is_scalar = level->name == "scalar";  // 20 times slower: one run
      for (const int threads : is_scalar ? std::vector<int>{2} : std::vector<int>{1, 2, 3}) {
        const auto engine = testing::make_engine(path, mode, std::string(level->name), threads);
        const auto sequences = law_tokens(engine->config().vocabulary);
        for (const char* schedule : {"chunk:64", "tokenwise", "chunk:3", "chunk:129", "mixed:1", "mixed:2"}) {
          const LawLine line{name, model_hash(*engine, sequences, parse_schedule(schedule))};
          expect_golden({&line, 1},
                        std::string(level->name) + ", " + std::to_string(threads) + " threads, " + schedule);
          if (is_scalar) break;
        }
      }
    }
  }
  std::filesystem::remove(path);
}

/// Hash of float dots whose lanes are added by `add_lanes`.
template <class AddLanes>
std::uint64_t hash_of_folds(const AddLanes& add_lanes) {
  Hasher hasher;
  for (std::uint64_t row = 0; row < 64; ++row) {
    float lane[kMaxLanes];
    for (int l = 0; l < kMaxLanes; ++l) lane[l] = random_normal(row, static_cast<std::uint64_t>(l));
    const float sum = add_lanes(lane);
    hasher.add_values(std::span(&sum, 1));
  }
  return hasher.value();
}

TEST(Law, one_swapped_addition_changes_the_hash) {
  const std::uint64_t right = hash_of_folds([](const float* lane) { return fold(lane, kMaxLanes); });
  EXPECT_EQ(right, hash_of_folds([](const float* lane) {
              float copy[kMaxLanes];
              std::memcpy(copy, lane, sizeof copy);
              return fold(copy, kMaxLanes);
            }));
  EXPECT_NE(right, hash_of_folds([](const float* lane) {  // the last two columns change places
              float swapped[kMaxLanes];
              std::memcpy(swapped, lane, sizeof swapped);
              for (int l = 6; l < kMaxLanes; l += kColumns) std::swap(swapped[l], swapped[l + 1]);
              return fold(swapped, kMaxLanes);
            }));
  EXPECT_NE(right, hash_of_folds([](const float* lane) {  // two lanes of one column
              float swapped[kMaxLanes];
              std::memcpy(swapped, lane, sizeof swapped);
              std::swap(swapped[16], swapped[24]);
              return fold(swapped, kMaxLanes);
            }));
}

}  // namespace
}  // namespace lockstep
