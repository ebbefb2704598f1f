// exp, log, sin, cos and what is made of them: the same straight line of IEEE operations on every back end.
//
// Header-only, host and device, no state, no table, no libm. Each function's comment spells its sequence; vector code
// that performs the same operations in the same order on each lane has the same bytes. exp, sigmoid and silu run over
// every attention score and every expert channel, so they are f32. log, softplus and the rotary sin and cos are few (a
// value an expert, a pair a position), so they are f64 inside and rounded once: almost always the correctly rounded
// result. The polynomials are our own minimax fits (Remez, relative error); their errors stand beside them.
//
// Largest error measured against f64 libm, over every f32 of the range (tests/numerics_exhaustive_test.cc):
//
//   function           range            max ulp   not correctly rounded
//   exp_f32            [-87.3, 88.3]    0.91      0.47 %
//   sigmoid_f32        [-88.3, 128]     1.65      7.7 %
//   silu_f32           [-88.3, 128]     1.86      6.4 %
//   log_f32            all positive     0.5       none
//   softplus_f32       [-104, 128]      0.5       none
//   sqrt_softplus_f32  [-87.3, 128]     0.85      4.0 %
//   sin_cos, sin       [0, 2^20]        0.5       none
//   sin_cos, cos       [0, 2^20]        0.5       none
//
// NaN in gives NaN out; which NaN is not defined.
#pragma once

#include <cstdint>

#include "numerics/primitives.h"

namespace lockstep {

inline constexpr float kExpLowest = -87.3f;  // below, exp_f32 is 0: its value would soon be subnormal
inline constexpr float kExpHighest = 88.3f;  // above, exp_f32 is infinity: 2^127 is the largest power there is

/// e^x = power + slope * factor, power = 2^n, slope = power * r with |r| <= 0.3466.
struct ExpParts {
  float power, slope, factor;
};

/// The parts of e^x, kExpLowest <= x <= kExpHighest (outside, garbage that may be NaN: select afterwards).
///   t = fma(x, log2(e), 1.5 * 2^23);  n = t - 1.5 * 2^23;  r = fma(n, -ln2_high, x);  r = fma(n, -ln2_low, r);
///   factor = five fmas, Horner in r, the last with 1;  power = the bits of t, plus 127, shifted left by 23;
///   slope = power * r, exact unless it is subnormal (n < -124)
/// 1 + r * factor is within 2^-28 of e^r.
LOCKSTEP_HOST_DEVICE inline ExpParts exp_parts(float x) {
  const float t = fma_f32(x, 0x1.715476p+0f, 12582912.0f);
  const float n = t - 12582912.0f;
  float r = fma_f32(n, -0x1.62e43p-1f, x);
  r = fma_f32(n, 0x1.05c61p-29f, r);
  float factor = 0x1.6a247ap-10f;
  factor = fma_f32(factor, r, 0x1.1239e2p-7f);
  factor = fma_f32(factor, r, 0x1.5558f2p-5f);
  factor = fma_f32(factor, r, 0x1.555492p-3f);
  factor = fma_f32(factor, r, 0x1.fffffcp-2f);
  factor = fma_f32(factor, r, 1.0f);
  // The low bits of t hold n; the shift drops the others, and 127 is the bias.
  const float power = f32_of((bits_of(t) + 127u) << 23);
  return {power, power * r, factor};
}

/// e^x within 1 ulp: exp_parts, fma(slope, factor, power), two selects on x. exp(0) = 1 exactly; x < -87.3, -infinity
/// included, gives 0; x > 88.3 gives infinity (so the half octave below the largest f32 is given up). Never a
/// subnormal.
LOCKSTEP_HOST_DEVICE inline float exp_f32(float x) {
  const ExpParts e = exp_parts(x);
  const float y = fma_f32(e.slope, e.factor, e.power);
  return x < kExpLowest ? 0.0f : x > kExpHighest ? f32_of(kInfinity) : y;
}

/// 1 + e^x, x first brought into [kExpLowest, kExpHighest] by two selects: the divisor of sigmoid and silu.
///   exp_parts;  power > 1:  power + fma(slope, factor, 1);  else  (1 + power) + fma(slope, factor, 0)
/// as one addition of two selects. So the last addition is the only rounding that counts; 1 + exp(x) would have two,
/// and sigmoid an error of 2.5 ulp.
LOCKSTEP_HOST_DEVICE inline float one_plus_exp_f32(float x) {
  x = x < kExpLowest ? kExpLowest : x;
  x = x > kExpHighest ? kExpHighest : x;
  const ExpParts e = exp_parts(x);
  const float base = e.power > 1.0f ? e.power : 1.0f + e.power;
  const float small = e.power > 1.0f ? 1.0f : 0.0f;
  return base + fma_f32(e.slope, e.factor, small);
}

/// 1 / (1 + e^-z): one_plus_exp, one division, one select: 0 for z < -88.3.
LOCKSTEP_HOST_DEVICE inline float sigmoid_f32(float z) {
  const float y = 1.0f / one_plus_exp_f32(-z);
  return z < -kExpHighest ? 0.0f : y;
}

/// z * sigmoid(z), as z / (1 + e^-z): one_plus_exp, one division, one select: -0 for z < -88.3.
LOCKSTEP_HOST_DEVICE inline float silu_f32(float z) {
  const float y = z / one_plus_exp_f32(-z);
  return z < -kExpHighest ? -0.0f : y;
}

// ---- f64 inside -----------------------------------------------------------------------------------------------------

inline constexpr double kRoundMagic64 = 0x1.8p52;  // as kRoundMagic, for f64

/// e^x, |x| <= 700, within about 1 ulp of f64. As exp_f32, with f64 constants and one polynomial of eleven fmas,
/// the last two with 1; times 2^n. No selects.
LOCKSTEP_HOST_DEVICE inline double exp_f64(double x) {
  const double t = fma_f64(x, 0x1.71547652b82fep+0, kRoundMagic64);
  const double n = t - kRoundMagic64;
  double r = fma_f64(n, -0x1.62e42fefa3800p-1, x);
  r = fma_f64(n, -0x1.ef35793c76730p-45, r);
  double p = 0x1.ad7f6533e6a0ep-26;  // within 2^-57
  p = fma_f64(p, r, 0x1.28ad729155eecp-22);
  p = fma_f64(p, r, 0x1.71df2557cadb5p-19);
  p = fma_f64(p, r, 0x1.a0199a0cacd8dp-16);
  p = fma_f64(p, r, 0x1.a01a012a5599cp-13);
  p = fma_f64(p, r, 0x1.6c16c18429f5bp-10);
  p = fma_f64(p, r, 0x1.1111111127beap-7);
  p = fma_f64(p, r, 0x1.555555555087dp-5);
  p = fma_f64(p, r, 0x1.55555555554fap-3);
  p = fma_f64(p, r, 0x1.000000000000ap-1);
  p = fma_f64(p, r, 1.0);
  p = fma_f64(p, r, 1.0);
  return p * f64_of((bits_of(t) + 1023u) << 52);
}

/// 2 * atanh(s) = ln((1 + s) / (1 - s)), |s| <= 1/3:  w = s * s;  p = eight fmas, Horner in w;  2 * fma(s * w, p, s).
LOCKSTEP_HOST_DEVICE inline double twice_atanh_f64(double s) {
  const double w = s * s;
  double p = 0x1.6b7f4feb70ee0p-4;  // within 2^-54
  p = fma_f64(p, w, 0x1.956f1c9fa1a85p-5);
  p = fma_f64(p, w, 0x1.16444fb26e0e7p-4);
  p = fma_f64(p, w, 0x1.3aa89d745d2d6p-4);
  p = fma_f64(p, w, 0x1.746258dd4ecc4p-4);
  p = fma_f64(p, w, 0x1.c71c4a1811153p-4);
  p = fma_f64(p, w, 0x1.249249790cafep-3);
  p = fma_f64(p, w, 0x1.99999998e9981p-3);
  p = fma_f64(p, w, 0x1.5555555555947p-2);
  return 2.0 * fma_f64(s * w, p, s);
}

/// ln x for normal x > 0, within a few ulp of f64. x = 2^k * m, m in [sqrt(1/2), sqrt(2)) by integer operations;
/// s = (m - 1) / (m + 1);  fma(k, ln2_high, fma(k, ln2_low, twice_atanh(s))).
LOCKSTEP_HOST_DEVICE inline double log_f64(double x) {
  const std::int64_t offset = static_cast<std::int64_t>(bits_of(x) - 0x3fe6a09e667f3bcdu);
  const std::int64_t k = offset >> 52;
  const double m = f64_of(bits_of(x) - (static_cast<std::uint64_t>(k) << 52));
  const double y = twice_atanh_f64((m - 1.0) / (m + 1.0));
  const double n = static_cast<double>(static_cast<int>(k));
  return fma_f64(n, 0x1.62e42fefa3800p-1, fma_f64(n, 0x1.ef35793c76730p-45, y));
}

/// ln x, log_f64 rounded once. Subnormals count; 0 gives -infinity, infinity itself, a negative x NaN.
LOCKSTEP_HOST_DEVICE inline float log_f32(float x) {
  const float y = static_cast<float>(log_f64(static_cast<double>(x)));
  if (x > 0.0f) return x == f32_of(kInfinity) ? x : y;
  return x == 0.0f ? -f32_of(kInfinity) : f32_of(kQuietNaN);
}

/// ln(1 + e^z) = max(z, 0) + ln(1 + u), u = e^-|z|, all in f64 and rounded once:  u = exp_f64(max(-|z|, -200));
/// twice_atanh(u / (2 + u));  one addition. From z = 20 on that is z itself. Results may be subnormal; below z = -104
/// they are 0.
LOCKSTEP_HOST_DEVICE inline float softplus_f32(float z) {
  const double falling = -static_cast<double>(f32_of(magnitude_bits(z)));
  const double u = exp_f64(falling < -200.0 ? -200.0 : falling);
  const double rest = twice_atanh_f64(u / (2.0 + u));
  return static_cast<float>((z > 0.0f ? static_cast<double>(z) : 0.0) + rest);
}

/// The router's score: the f32 square root of the f32 softplus (below z = -87.3 that is a subnormal and has fewer
/// digits).
LOCKSTEP_HOST_DEVICE inline float sqrt_softplus_f32(float z) { return sqrt_f32(softplus_f32(z)); }

struct SinCos {
  float sin, cos;
};

/// sin and cos of an angle in radians, |angle| <= 2^20 (beyond, the results are worthless but still the same
/// everywhere).
///   f64 throughout: n = angle * 2/pi to the nearest integer by the magic addition;  r = angle - n * pi/2 by two fmas
///   with pi/2 as high + low;  w = r * r;  s = fma(r * w, five fmas, r);  c = fma(w * w, five fmas, fma(w, -0.5, 1));
///   the two low bits of n choose between s and c and set the signs; each is rounded once to f32.
/// Both polynomials are within 2^-58. The last fma of r is rounded relative to r, so nothing is lost near a multiple of
/// pi/2.
LOCKSTEP_HOST_DEVICE inline SinCos sin_cos(float angle) {
  const double x = static_cast<double>(angle);
  const double t = fma_f64(x, 0x1.45f306dc9c883p-1, kRoundMagic64);
  const double n = t - kRoundMagic64;
  double r = fma_f64(n, -0x1.921fb54442d18p+0, x);
  r = fma_f64(n, -0x1.1a62633145c07p-54, r);
  const double w = r * r;
  double s = 0x1.5d93019a190cep-33;
  s = fma_f64(s, w, -0x1.ae5e663d05b00p-26);
  s = fma_f64(s, w, 0x1.71de3577ba59ep-19);
  s = fma_f64(s, w, -0x1.a01a019c119ecp-13);
  s = fma_f64(s, w, 0x1.111111110f87bp-7);
  s = fma_f64(s, w, -0x1.5555555555549p-3);
  s = fma_f64(r * w, s, r);
  double c = -0x1.8fae9e1136e03p-37;
  c = fma_f64(c, w, 0x1.1ee9ebecf7160p-29);
  c = fma_f64(c, w, -0x1.27e4f809f77f6p-22);
  c = fma_f64(c, w, 0x1.a01a019cb1c99p-16);
  c = fma_f64(c, w, -0x1.6c16c16c1517ep-10);
  c = fma_f64(c, w, 0x1.555555555554cp-5);
  c = fma_f64(w * w, c, fma_f64(w, -0.5, 1.0));
  const std::uint64_t quadrant = bits_of(t);
  const double sine = (quadrant & 1) != 0 ? c : s;
  const double cosine = (quadrant & 1) != 0 ? s : c;
  return {static_cast<float>((quadrant & 2) != 0 ? -sine : sine),
          static_cast<float>(((quadrant + 1) & 2) != 0 ? -cosine : cosine)};
}

/// The rotation of a channel pair at an absolute position < 2^20: the angle is ONE f32 product, as the model was
/// trained.
LOCKSTEP_HOST_DEVICE inline SinCos rope_sin_cos(int position, float frequency) {
  return sin_cos(static_cast<float>(position) * frequency);
}

}  // namespace lockstep
