// Eight floats at a time, for the searches of the quantisers.
//
// GCC's vector types rather than intrinsics: one source for every instruction set, and each operation is the IEEE one,
// lane by lane, so that a file made with AVX2 is the file made without. A sum always has these eight lanes and this
// fold, whatever the width of a machine's registers.
#pragma once

#include <cstdint>
#include <cstring>

// Compiles a row function once for plain x86-64 and once for AVX2, the better one chosen when the program starts;
// everything that it calls is inlined into both. Not with the thread sanitizer, which is not ready yet when a program
// chooses.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define LOCKSTEP_QUANTISE_ROW __attribute__((flatten, target_clones("avx2", "default")))
#else
#define LOCKSTEP_QUANTISE_ROW
#endif

namespace lockstep::quantise {

using F8 = float __attribute__((vector_size(32)));
using I8 = std::int32_t __attribute__((vector_size(32)));

#define LOCKSTEP_INLINE [[gnu::always_inline]] inline
#define LOCKSTEP_INLINE_LAMBDA __attribute__((always_inline))

LOCKSTEP_INLINE F8 load8(const float* from) {
  F8 v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
LOCKSTEP_INLINE void store8(float* to, F8 v) { std::memcpy(to, &v, sizeof v); }
LOCKSTEP_INLINE F8 splat(float x) { return F8{x, x, x, x, x, x, x, x}; }
LOCKSTEP_INLINE F8 min8(F8 a, F8 b) { return a < b ? a : b; }
LOCKSTEP_INLINE F8 max8(F8 a, F8 b) { return a > b ? a : b; }
LOCKSTEP_INLINE F8 clamp8(F8 v, float low, float high) { return min8(max8(v, splat(low)), splat(high)); }
LOCKSTEP_INLINE F8 abs8(F8 v) { return (F8)((I8)v & 0x7fffffff); }

/// To the nearest integer, ties to even; |v| <= 2^22 (numerics/round.h, kRoundMagic).
LOCKSTEP_INLINE F8 round8(F8 v) { return (v + 12582912.0f) - 12582912.0f; }

LOCKSTEP_INLINE float sum_of(F8 v) { return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])); }
LOCKSTEP_INLINE float max_of(F8 v) {
  float most = v[0];
  for (int i = 1; i < 8; ++i) most = v[i] > most ? v[i] : most;
  return most;
}
LOCKSTEP_INLINE float min_of(F8 v) {
  float least = v[0];
  for (int i = 1; i < 8; ++i) least = v[i] < least ? v[i] : least;
  return least;
}

}  // namespace lockstep::quantise
