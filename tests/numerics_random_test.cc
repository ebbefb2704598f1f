// The counter generator: the published answers of Philox-4x32-10, and what our layout of the counter promises.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>

#include "numerics/random.h"

namespace lockstep {
namespace {

// Source: the known-answer file of Random123, the authors' own library.
TEST(Philox, gives_the_published_answers) {
  constexpr struct {
    const char* name;
    Random4 counter;
    std::uint32_t key[2];
    Random4 answer;
  } kCases[] = {
      {"zeros", {{0, 0, 0, 0}}, {0, 0}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
      {"ones",
       {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
       {0xffffffff, 0xffffffff},
       {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
      {"digits of pi",
       {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
       {0xa4093822, 0x299f31d0},
       {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
  };
  for (const auto& c : kCases) {
    const Random4 words = philox4x32(c.counter, c.key[0], c.key[1]);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(words.word[i], c.answer.word[i]) << c.name << " word " << i;
  }
}

TEST(Random, seed_and_position_fill_key_and_counter_low_word_first) {
  const Random4 words = random_words(0x299f31d0a4093822u, 0x85a308d3243f6a88u, 7);
  const Random4 expected = philox4x32({{0x243f6a88, 0x85a308d3, 7, 0}}, 0xa4093822, 0x299f31d0);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(words.word[i], expected.word[i]);
  EXPECT_EQ(random_u64(0, 0), 0xe169c58d6627e8d5u);
  EXPECT_EQ(random_uniform(0, 0), static_cast<float>(0x6627e8) / 16777216.0f);
}

TEST(Random, every_seed_position_and_stream_differs) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed : {0ull, 1ull, 1ull << 32, ~0ull})
    for (std::uint64_t position : {0ull, 1ull, 1ull << 32, ~0ull})
      for (std::uint32_t stream : {0u, 1u, ~0u}) seen.insert(random_u64(seed, position, stream));
  EXPECT_EQ(seen.size(), 48u);
}

TEST(Random, uniform_stays_below_one_and_is_even) {
  constexpr int kCount = 1 << 20;
  int bucket[16] = {};
  for (int i = 0; i < kCount; ++i) {
    const float u = random_uniform(42, static_cast<std::uint64_t>(i));
    ASSERT_TRUE(u >= 0 && u < 1);
    ++bucket[static_cast<int>(u * 16)];
  }
  for (int count : bucket) EXPECT_NEAR(count, kCount / 16, 6 * std::sqrt(kCount / 16.0));  // six deviations
}

TEST(Random, normal_has_mean_zero_and_deviation_one) {
  constexpr int kCount = 1 << 20;
  double sum = 0, squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = random_normal(42, static_cast<std::uint64_t>(i));
    ASSERT_LT(std::fabs(x), 4.9);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.006);
  EXPECT_NEAR(squares / kCount, 1, 0.01);
}

}  // namespace
}  // namespace lockstep
