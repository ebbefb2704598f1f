// Random numbers as a function of (seed, position, stream): nothing advances, so nothing depends on who asked before.
//
// The generator is Philox-4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011),
// written from the paper and checked against its published answers. The key is the seed; the counter is the position in
// its first two words and the stream in the third, low words first; the fourth word is 0.
#pragma once

#include <cstdint>

#include "numerics/order.h"

namespace lockstep {

struct Random4 {
  std::uint32_t word[4];
};

/// Ten rounds of Philox-4x32 on a 128-bit counter with a 64-bit key.
LOCKSTEP_HOST_DEVICE constexpr Random4 philox4x32(Random4 counter, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xd2511f53u} * counter.word[0];
    const std::uint64_t b = std::uint64_t{0xcd9e8d57u} * counter.word[2];
    counter = {{static_cast<std::uint32_t>(b >> 32) ^ counter.word[1] ^ key0, static_cast<std::uint32_t>(b),
                static_cast<std::uint32_t>(a >> 32) ^ counter.word[3] ^ key1, static_cast<std::uint32_t>(a)}};
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return counter;
}

/// 128 random bits. `stream` separates uses that share a seed and a position.
LOCKSTEP_HOST_DEVICE constexpr Random4 random_words(std::uint64_t seed, std::uint64_t position,
                                                    std::uint32_t stream = 0) {
  return philox4x32({{static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), stream, 0}},
                    static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
}

/// 64 random bits: the first two words, the first one low.
LOCKSTEP_HOST_DEVICE constexpr std::uint64_t random_u64(std::uint64_t seed, std::uint64_t position,
                                                        std::uint32_t stream = 0) {
  const Random4 words = random_words(seed, position, stream);
  return static_cast<std::uint64_t>(words.word[1]) << 32 | words.word[0];
}

/// Uniform in [0, 1): a multiple of 2^-24, from the upper 24 bits of the first word. Never 1.
LOCKSTEP_HOST_DEVICE constexpr float random_uniform(std::uint64_t seed, std::uint64_t position,
                                                    std::uint32_t stream = 0) {
  return static_cast<float>(random_words(seed, position, stream).word[0] >> 8) * 0x1p-24f;
}

/// Nearly normal, mean 0, deviation 1, within +-4.9: the sum of the eight 16-bit halves, an exact integer, centred and
/// scaled once. For synthetic weights, where speed and equal bytes matter and tails do not.
LOCKSTEP_HOST_DEVICE constexpr float random_normal(std::uint64_t seed, std::uint64_t position,
                                                   std::uint32_t stream = 0) {
  const Random4 words = random_words(seed, position, stream);
  int centred = -4 * 65535;  // minus the mean of the sum
  for (int i = 0; i < 4; ++i) {
    centred += static_cast<int>((words.word[i] & 0xffffu) + (words.word[i] >> 16));
  }
  return static_cast<float>(centred) * 0x1.3988e2p-16f;  // 1 / sqrt(8 * (65536^2 - 1) / 12)
}

}  // namespace lockstep
