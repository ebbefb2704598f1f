// The table of element formats. Names are those of the public test vectors, sizes those of the format descriptions in
// docs/formats.md. Row order is the enumerator order, so a lookup by DType is an index.
#include "tensor/dtype.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {
namespace {

// The formats that are not "quantised" widen to f32 instead of being multiplied with int8 activations: f8 because its
// values are floats already, the two MIX formats because their codebooks are.
constexpr DTypeInfo kDTypes[kDTypeCount] = {
    {DType::f32, "f32", 0, 1, 4, false},
    {DType::f16, "f16", 1, 1, 2, false},
    {DType::bf16, "bf16", 30, 1, 2, false},
    {DType::i32, "i32", 26, 1, 4, false},
    {DType::q8_0, "q8_0", 8, 32, 34, true},
    {DType::q4_0, "q4_0", 2, 32, 18, true},
    {DType::q4_1, "q4_1", 3, 32, 20, true},
    {DType::q5_0, "q5_0", 6, 32, 22, true},
    {DType::q5_1, "q5_1", 7, 32, 24, true},
    {DType::q2_k, "q2_K", 10, 256, 84, true},
    {DType::q3_k, "q3_K", 11, 256, 110, true},
    {DType::q4_k, "q4_K", 12, 256, 144, true},
    {DType::q5_k, "q5_K", 13, 256, 176, true},
    {DType::q6_k, "q6_K", 14, 256, 210, true},
    {DType::iq1_s, "iq1_s", 19, 256, 50, true},
    {DType::iq1_m, "iq1_m", 29, 256, 56, true},
    {DType::iq2_xxs, "iq2_xxs", 16, 256, 66, true},
    {DType::iq2_xs, "iq2_xs", 17, 256, 74, true},
    {DType::iq2_s, "iq2_s", 22, 256, 82, true},
    {DType::iq3_xxs, "iq3_xxs", 18, 256, 98, true},
    {DType::iq3_s, "iq3_s", 21, 256, 110, true},
    {DType::iq4_nl, "iq4_nl", 20, 32, 18, true},
    {DType::iq4_xs, "iq4_xs", 23, 256, 136, true},
    {DType::mxfp4, "mxfp4", 39, 32, 17, true},
    {DType::nvfp4, "nvfp4", 40, 64, 36, true},
    {DType::f8_e4m3_b128, "f8_e4m3_b128", 42, 128, 129, false},
    {DType::rocmfp4, "q4_0_rocmfp4", 100, 32, 18, true},
    {DType::rocmfp4_fast, "q4_0_rocmfp4_fast", 101, 32, 17, true},
    {DType::rocmfp6, "q6_0_rocmfpx", 102, 32, 26, true},
    {DType::rocmfp8, "q8_0_rocmfpx", 103, 32, 33, true},
    {DType::rocmfp3, "q3_0_rocmfpx", 104, 32, 14, true},
    {DType::rocmfp3_mix, "q3_1_rocmfp3_mix", 105, 32, 14, false},
    {DType::rocmfp2_mix, "q2_1_rocmfp2_mix", 106, 32, 10, false},
    {DType::rocmfp2, "q2_0_rocmfp2", 107, 32, 10, true},
    {DType::rocmfp2_affine, "q2_0_rocmfp2_affine", 107, 32, 10, true},
    {DType::rocmfp2_s40, "q2_0_rocmfpx_s40", 107, 32, 10, true},
    {DType::rocmi4, "q4_0_rocmi4", 108, 32, 17, true},
};

constexpr bool rows_follow_enumerators() {
  for (int i = 0; i < kDTypeCount; ++i) {
    if (static_cast<int>(kDTypes[i].dtype) != i) return false;
  }
  return true;
}
static_assert(rows_follow_enumerators());

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace

const DTypeInfo& info_of(DType dtype) {
  const int i = static_cast<int>(dtype);
  LOCKSTEP_CHECK(i < kDTypeCount);
  return kDTypes[i];
}

std::optional<DType> dtype_named(std::string_view name) {
  // The name of the rule under which code 32 of a 6-bit block is -32. It reads files of either kind, so it is the only
  // one we have (docs/formats.md).
  if (same_name(name, "q6_0_rocmfpx_m32")) return DType::rocmfp6;
  for (const DTypeInfo& info : kDTypes) {
    if (same_name(name, info.name)) return info.dtype;
  }
  return std::nullopt;
}

std::span<const DTypeInfo> all_dtypes() { return kDTypes; }

}  // namespace lockstep
