#include "engine/synth_blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "numerics/random.h"
#include "numerics/round.h"
#include "tensor/dequantize.h"

namespace lockstep {
namespace {

constexpr int kTableBits = 12;
constexpr std::uint32_t kScaleStream = 0x5ca1e;  // of the words that choose the scales of four blocks
constexpr std::uint32_t kTableStream = 0x7ab1e;
constexpr int kMeasuredBlocks = 2048;

/// 16 random bytes of a block, `part` counting from 0.
void put_random(std::byte* out, std::uint64_t key, std::int64_t block, std::uint32_t part, std::size_t bytes = 16) {
  const Random4 random = random_words(key, static_cast<std::uint64_t>(block), part);
  std::memcpy(out, random.word, bytes);
}

/// The scale of one group: between 0.7 and 1.3 of `scale`, from the low four bits.
float varied(float scale, std::uint32_t bits) { return scale * (0.7f + 0.04f * static_cast<float>(bits & 15u)); }

/// The UE4M3 byte below or above `scale`, at random (12 bits), so that its mean is right: the steps are as large as the
/// scales of small weights.
std::byte ue4m3_near(float scale, std::uint32_t bits) {
  std::uint8_t below = 1;  // never 0: a block of zeros says nothing
  for (std::uint8_t step = 64; step > 0; step = static_cast<std::uint8_t>(step / 2)) {
    const int next = below + step;
    if (next <= 0x7e && ue4m3_half_to_f32(static_cast<std::uint8_t>(next)) <= scale)
      below = static_cast<std::uint8_t>(next);
  }
  if (below == 0x7e) return std::byte{below};
  const float low = ue4m3_half_to_f32(below);
  const float high = ue4m3_half_to_f32(static_cast<std::uint8_t>(below + 1));
  const float fraction = static_cast<float>(bits & 4095u) * 0x1p-12f;
  return std::byte{static_cast<std::uint8_t>(low + fraction * (high - low) < scale ? below + 1 : below)};
}

/// The E8M0 byte of the power of two below or above, at random so that the mean square is right.
std::byte e8m0_near(float scale, std::uint32_t bits) {
  const std::uint32_t pattern = std::bit_cast<std::uint32_t>(scale);
  const int exponent = static_cast<int>(pattern >> 23);  // scale is positive and normal
  const float mantissa = std::bit_cast<float>((pattern & 0x7fffffu) | 0x3f800000u);
  const float fraction = static_cast<float>(bits & 4095u) * 0x1p-12f;
  const bool up = fraction < (mantissa * mantissa - 1.0f) / 3.0f;
  return std::byte{static_cast<std::uint8_t>(std::clamp(up ? exponent + 1 : exponent, 1, 254))};
}

/// -1, 0, 0 or 1.
int wobble(std::uint32_t bits) { return (bits & 3u) == 0 ? -1 : (bits & 3u) == 1 ? 1 : 0; }

void fill_q8_0(std::byte* b, std::uint64_t key, std::int64_t block, float scale) {
  store_as<std::uint16_t>(b, f32_to_f16(scale));
  put_random(b + 2, key, block, 0);
  put_random(b + 18, key, block, 1);
  for (int i = 2; i < 34; ++i) b[i] = b[i] == std::byte{0x80} ? std::byte{0} : b[i];  // no encoder writes -128
}

// Codes 0..3 have mean 1.5, so a minimum of 1.5 scales centres a group; it wobbles by one of some ten steps.
void fill_q2_k(std::byte* b, std::uint64_t key, std::int64_t block, float scale) {
  put_random(b, key, block, 0);
  for (int g = 0; g < 16; ++g) {
    const auto bits = std::to_integer<std::uint32_t>(b[g]);
    const int sub_scale = 7 + static_cast<int>(bits & 7u);
    b[g] = std::byte{static_cast<std::uint8_t>(sub_scale | (sub_scale + wobble(bits >> 3)) << 4)};
  }
  for (std::uint32_t part = 0; part < 4; ++part) put_random(b + 16 + 16 * part, key, block, part + 1);
  store_as<std::uint16_t>(b + 80, f32_to_f16(scale));
  store_as<std::uint16_t>(b + 82, f32_to_f16(1.5f * scale));
}

// Codes 0..15 have mean 7.5.
void fill_q4_k(std::byte* b, std::uint64_t key, std::int64_t block, float scale) {
  store_as<std::uint16_t>(b, f32_to_f16(scale));
  store_as<std::uint16_t>(b + 2, f32_to_f16(7.5f * scale));
  std::byte random[16];
  put_random(random, key, block, 0);
  unsigned sub_scale[8], sub_min[8];
  for (int g = 0; g < 8; ++g) {
    const auto bits = load_as<std::uint16_t>(random + 2 * g);
    sub_scale[g] = 32 + bits % 31u;
    sub_min[g] = static_cast<unsigned>(static_cast<int>(sub_scale[g]) + wobble(bits >> 10));
  }
  for (int g = 0; g < 4; ++g) {
    const auto put = [&](int at, unsigned value) { b[4 + at] = std::byte{static_cast<std::uint8_t>(value)}; };
    put(g, sub_scale[g] | sub_scale[g + 4] >> 4 << 6);
    put(g + 4, sub_min[g] | sub_min[g + 4] >> 4 << 6);
    put(g + 8, (sub_scale[g + 4] & 15u) | (sub_min[g + 4] & 15u) << 4);
  }
  for (std::uint32_t part = 0; part < 8; ++part) put_random(b + 16 + 16 * part, key, block, part + 1);
}

// Every bit pattern behind the scale is a point of the grid with signs and a sub-scale.
void fill_iq2_xxs(std::byte* b, std::uint64_t key, std::int64_t block, float scale) {
  store_as<std::uint16_t>(b, f32_to_f16(scale));
  for (std::uint32_t part = 0; part < 4; ++part) put_random(b + 2 + 16 * part, key, block, part);
}

// Two codes of ROCmFP2 from a random byte. Of 16 cases 5, 7, 3 and 1 are the levels -1, 0, 1 and 2: mean 0, and near
// the frequencies of encoded weights, by which the three formats that share a type id are told apart.
constexpr std::array<std::uint8_t, 256> kTwoCodes = [] {
  std::array<std::uint8_t, 256> table{};
  const auto code = [](int nibble) { return nibble < 5 ? 0 : nibble < 12 ? 1 : nibble < 15 ? 2 : 3; };
  for (int i = 0; i < 256; ++i)
    table[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(code(i & 15) | code(i >> 4) << 2);
  return table;
}();

void fill_rocmfp2_codes(std::byte* b, std::uint64_t key, std::int64_t block) {
  std::byte random[16];
  put_random(random, key, block, 0);
  const auto codes = [&](int i) { return kTwoCodes[std::to_integer<std::size_t>(random[i])]; };
  for (int i = 0; i < 8; ++i) b[i] = std::byte{static_cast<std::uint8_t>(codes(2 * i) | codes(2 * i + 1) << 4)};
}

bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16; }

}  // namespace

RandomBlocks::RandomBlocks(DType dtype, float rms, std::uint64_t key)
    : dtype_(dtype),
      key_(key),
      run_bytes_(static_cast<std::size_t>(info_of(dtype).block_bytes) * (is_float(dtype) ? kFloatRun : 1)) {
  switch (dtype) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::q8_0:
    case DType::q2_k:
    case DType::q4_k:
    case DType::iq2_xxs:
    case DType::mxfp4:
    case DType::rocmfp2:
    case DType::rocmfp3:
    case DType::rocmfp4:
    case DType::rocmfp4_fast:
      break;
    default:
      throw Error(Error::Kind::unsupported, "random blocks of " + std::string(info_of(dtype).name) + ": not made");
  }
  if (!is_float(dtype)) {
    // The size of the values that random codes make at scale 1 is measured: one rule for all formats, and no table to
    // keep in step with the code above.
    scale_ = static_cast<float>(static_cast<double>(rms) / measured_rms());
    return;
  }
  for (std::uint64_t i = 0; i < (1u << kTableBits) / 2; ++i) {
    const float value = rms * random_normal(key, i, kTableStream);
    for (const float x : {value, -value})
      table_.push_back(dtype == DType::f32   ? std::bit_cast<std::uint32_t>(x)
                       : dtype == DType::f16 ? f32_to_f16(x)
                                             : f32_to_bf16(x));
  }
}

void RandomBlocks::fill(std::int64_t first_run, std::span<std::byte> out) const {
  std::byte last[256];
  LOCKSTEP_CHECK(run_bytes_ <= sizeof last);
  Random4 scales{};
  std::int64_t scales_of = -1;
  for (std::int64_t run = first_run; !out.empty(); ++run) {
    if (table_.empty() && run / 4 != scales_of) {
      scales_of = run / 4;
      scales = random_words(key_, static_cast<std::uint64_t>(scales_of), kScaleStream);
    }
    const std::size_t bytes = std::min(run_bytes_, out.size());
    std::byte* to = bytes == run_bytes_ ? out.data() : last;
    if (table_.empty()) {
      fill_run(run, scales.word[run % 4], to);
    } else {
      fill_floats(run, to);
    }
    if (to == last) std::memcpy(out.data(), last, bytes);
    out = out.subspan(bytes);
  }
}

void RandomBlocks::fill_floats(std::int64_t run, std::byte* out) const {
  const Random4 random = random_words(key_, static_cast<std::uint64_t>(run));
  for (int i = 0; i < kFloatRun; ++i) {
    const std::uint32_t bits = random.word[i / 2] >> (16 * (i % 2));
    const std::uint32_t value = table_[bits & ((1u << kTableBits) - 1)];
    if (dtype_ == DType::f32) {
      store_as(out + 4 * i, value);
    } else {
      store_as(out + 2 * i, static_cast<std::uint16_t>(value));
    }
  }
}

void RandomBlocks::fill_run(std::int64_t run, std::uint32_t scale_bits, std::byte* out) const {
  const float scale = varied(scale_, scale_bits);
  // Formats with scales of their own a half: the second one has other bits.
  const auto ue4m3 = [&](int half) {
    const std::uint32_t bits = scale_bits >> (16 * half);
    return ue4m3_near(varied(scale_, bits), bits >> 4);
  };
  switch (dtype_) {
    case DType::q8_0:
      return fill_q8_0(out, key_, run, scale);
    case DType::q2_k:
      return fill_q2_k(out, key_, run, scale);
    case DType::q4_k:
      return fill_q4_k(out, key_, run, scale);
    case DType::iq2_xxs:
      return fill_iq2_xxs(out, key_, run, scale);
    case DType::mxfp4:
      out[0] = e8m0_near(scale, scale_bits >> 4);
      return put_random(out + 1, key_, run, 0);
    case DType::rocmfp4:
      put_random(out, key_, run, 0);
      out[16] = ue4m3(0);
      out[17] = ue4m3(1);
      return;
    case DType::rocmfp4_fast:
      put_random(out, key_, run, 0);
      out[16] = ue4m3(0);
      return;
    case DType::rocmfp3:
      put_random(out, key_, run, 0, 12);
      out[12] = ue4m3(0);
      out[13] = ue4m3(1);
      return;
    default:  // rocmfp2: the constructor lets no other one through
      fill_rocmfp2_codes(out, key_, run);
      out[8] = ue4m3(0);
      out[9] = ue4m3(1);
      return;
  }
}

double RandomBlocks::measured_rms() const {
  std::vector<std::byte> blocks(run_bytes_ * kMeasuredBlocks);
  fill(0, blocks);
  const std::int64_t values = static_cast<std::int64_t>(info_of(dtype_).block_values) * kMeasuredBlocks;
  std::vector<float> decoded(static_cast<std::size_t>(values));
  dequantize_row(dtype_, blocks.data(), values, decoded.data());
  double squares = 0;
  for (const float value : decoded) squares += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(squares / static_cast<double>(values));
}

}  // namespace lockstep
