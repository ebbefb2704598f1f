// Codebooks and grids of the quantised formats: the levels that a code stands for, before any scale.
//
// A grid row is packed into one 16-bit word, element 0 in the lowest bits, because 4608 words are easier to move (to a
// device, into a cache) than 33 kB of bytes; the small level tables beside each grid unpack it. Kernels may expand the
// words into whatever shape they like when they are set up.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

// Eight elements of two bits: an index into kLevelIq2.
extern const std::uint16_t kGridIq2Xxs[256];
extern const std::uint16_t kGridIq2Xs[512];
extern const std::uint16_t kGridIq2S[1024];
inline constexpr std::int16_t kLevelIq2[3] = {8, 25, 43};

// Four elements of three bits: an index into the level table of the format.
extern const std::uint16_t kGridIq3Xxs[256];
extern const std::uint16_t kGridIq3S[512];
inline constexpr std::int16_t kLevelIq3Xxs[8] = {4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr std::int16_t kLevelIq3S[8] = {1, 3, 5, 7, 9, 11, 13, 15};

// Eight elements of two bits: the level plus one. IQ1_S and IQ1_M share it.
extern const std::uint16_t kGridIq1[2048];

// IQ4_NL and IQ4_XS.
inline constexpr std::int16_t kLevelIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

// E2M1 doubled: MXFP4 and NVFP4 halve their scale instead, which keeps the levels whole.
inline constexpr std::int16_t kLevelE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// ROCmFP4: E2M1 doubled with 12 replaced by 10.
inline constexpr std::int16_t kLevelRocmfp4[16] = {0, 1, 2, 3, 4, 6, 8, 10, 0, -1, -2, -3, -4, -6, -8, -10};
inline constexpr std::int16_t kLevelRocmfp3[8] = {0, 1, 2, 4, 0, -1, -2, -4};
inline constexpr std::int16_t kLevelRocmfp2[4] = {-1, 0, 1, 2};
inline constexpr std::int16_t kLevelRocmfp2S40[4] = {-4, -1, 1, 4};

/// The sign mask of eight elements (bit j set: element j is negative) from its seven stored bits: the eighth makes the
/// number of negative elements even.
constexpr unsigned even_signs(unsigned seven_bits) {
  return seven_bits | (static_cast<unsigned>(std::popcount(seven_bits)) & 1u) << 7;
}

}  // namespace lockstep
