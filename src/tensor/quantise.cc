#include "tensor/quantise.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "numerics/round.h"
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

}  // namespace lockstep
