#include "tensor/quantise.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "numerics/round.h"
#include "tensor/dequantize.h"
#include "tensor/quantise_grid.h"
#include "tensor/quantise_rows.h"

namespace lockstep {
namespace {

using MakeRow = void (*)(const quantise::Row&);

constexpr DType kMade[] = {
    DType::f32,         DType::f16,     DType::bf16,    DType::q8_0,    DType::q4_0,
    DType::q2_k,        DType::q3_k,    DType::q4_k,    DType::q5_k,    DType::q6_k,
    DType::iq2_xxs,     DType::iq3_xxs, DType::mxfp4,   DType::rocmfp4, DType::rocmfp4_fast,
    DType::rocmfp6,     DType::rocmfp8, DType::rocmfp3, DType::rocmfp2, DType::rocmfp2_affine,
    DType::rocmfp2_s40,
};

MakeRow make_row_of(DType dtype) {
  switch (dtype) {
    case DType::q8_0:
      return quantise::make_q8_0;
    case DType::q4_0:
      return quantise::make_q4_0;
    case DType::q2_k:
      return quantise::make_q2_k;
    case DType::q3_k:
      return quantise::make_q3_k;
    case DType::q4_k:
      return quantise::make_q4_k;
    case DType::q5_k:
      return quantise::make_q5_k;
    case DType::q6_k:
      return quantise::make_q6_k;
    case DType::iq2_xxs:
      return quantise::make_iq2_xxs;
    case DType::iq3_xxs:
      return quantise::make_iq3_xxs;
    case DType::mxfp4:
      return quantise::make_mxfp4;
    case DType::rocmfp4:
      return quantise::make_rocmfp4;
    case DType::rocmfp4_fast:
      return quantise::make_rocmfp4_fast;
    case DType::rocmfp6:
      return quantise::make_rocmfp6;
    case DType::rocmfp8:
      return quantise::make_rocmfp8;
    case DType::rocmfp3:
      return quantise::make_rocmfp3;
    case DType::rocmfp2:
      return quantise::make_rocmfp2;
    case DType::rocmfp2_affine:
      return quantise::make_rocmfp2_affine;
    case DType::rocmfp2_s40:
      return quantise::make_rocmfp2_s40;
    default:
      return nullptr;  // f32, f16, bf16: converted; the others cannot be made
  }
}

constexpr float kUsual = 256;  // largest magnitude of a row that every format holds without a look
constexpr int kSafe = 6;       // a row whose largest magnitude is about 2^kSafe is far from the ends of every format

float tamed(float x) {
  if (!std::isfinite(x)) return 0;
  return std::clamp(x, -quantise::kLargest, quantise::kLargest);
}

}  // namespace

std::span<const DType> quantisable_dtypes() { return kMade; }

bool can_quantise(DType dtype) { return std::find(std::begin(kMade), std::end(kMade), dtype) != std::end(kMade); }

Quantiser::Quantiser(DType dtype) : dtype_(dtype) {
  if (!can_quantise(dtype)) {
    std::string names;
    for (const DType made : kMade) names += (names.empty() ? "" : ", ") + std::string(info_of(made).name);
    throw Error(Error::Kind::unsupported,
                std::string(info_of(dtype).name) + ": this format is read but not made; expected one of " + names);
  }
  if (dtype == DType::iq2_xxs || dtype == DType::iq3_xxs) grid_ = std::make_unique<const GridTables>(dtype);
}

Quantiser::~Quantiser() = default;
Quantiser::Quantiser(Quantiser&&) noexcept = default;
Quantiser& Quantiser::operator=(Quantiser&&) noexcept = default;

void Quantiser::quantise_row(std::span<const float> values, std::span<const float> importance, std::byte* out) const {
  LOCKSTEP_CHECK(values.size() % static_cast<std::size_t>(info_of(dtype_).block_values) == 0);
  LOCKSTEP_CHECK(importance.empty() || importance.size() == values.size());
  const std::size_t width = values.size();
  switch (dtype_) {
    case DType::f32:
      std::memcpy(out, values.data(), values.size_bytes());
      return;
    case DType::f16:
      for (std::size_t i = 0; i < width; ++i) store_as(out + 2 * i, f32_to_f16(values[i]));
      return;
    case DType::bf16:
      for (std::size_t i = 0; i < width; ++i) store_as(out + 2 * i, f32_to_bf16(values[i]));
      return;
    default:
      break;
  }
  const auto is_tame = [](float x) { return std::fabs(x) <= quantise::kLargest; };
  std::vector<float> tame;
  if (!std::all_of(values.begin(), values.end(), is_tame)) {
    tame.resize(width);
    std::transform(values.begin(), values.end(), tame.begin(), tamed);
    values = tame;
  }
  make_row_of(dtype_)({values.data(), importance.empty() ? nullptr : importance.data(),
                       static_cast<std::int64_t>(width), out, grid_.get()});
}

std::optional<std::size_t> first_unheld(const Quantiser& quantiser, std::span<const float> values,
                                        std::span<const float> importance, const std::byte* made) {
  float largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return i;
    largest = std::max(largest, std::fabs(values[i]));
  }
  const DType dtype = quantiser.dtype();
  if (largest <= kUsual || dtype == DType::f32) return std::nullopt;
  const std::size_t width = values.size(), block = static_cast<std::size_t>(info_of(dtype).block_values);
  std::vector<float> back(width), fair(width);
  dequantize_row(dtype, made, static_cast<std::int64_t>(width), back.data());
  if (block == 1) {
    const auto lost = std::find_if(back.begin(), back.end(), [](float x) { return !std::isfinite(x); });
    return lost == back.end() ? std::nullopt : std::optional(static_cast<std::size_t>(lost - back.begin()));
  }
  // A power of two changes no code, only scales: what differs then is what the scales did not reach. The row is made
  // again once for every such power that a block needs, so that no block's scales end at the other side.
  std::vector<float> small(width);
  std::vector<std::byte> row(row_bytes(dtype, static_cast<std::int64_t>(width)));
  std::optional<int> made_with;
  for (std::size_t first = 0; first < width; first += block) {
    float most = 0;
    for (std::size_t i = first; i < first + block; ++i) most = std::max(most, std::fabs(values[i]));
    if (most <= kUsual) continue;
    const int shift = kSafe - std::ilogb(most);
    if (made_with != shift) {
      made_with = shift;
      std::transform(values.begin(), values.end(), small.begin(), [&](float x) { return std::ldexp(x, shift); });
      quantiser.quantise_row(small, importance, row.data());
      dequantize_row(dtype, row.data(), static_cast<std::int64_t>(width), fair.data());
    }
    for (std::size_t i = first; i < first + block; ++i)  // smaller values may be rounded to anything
      if (std::fabs(values[i]) == most && !(std::fabs(std::ldexp(back[i], shift)) >= 0.75f * std::fabs(fair[i])))
        return i;
  }
  return std::nullopt;
}

}  // namespace lockstep
