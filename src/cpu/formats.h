// The quantised formats of a level file, each with its unpacking: one list for every kernel that is made a format.
#pragma once

#include "cpu/unpack.h"
#include "cpu/unpack_iq.h"
#include "cpu/unpack_k.h"
#include "tensor/dtype.h"

namespace lockstep::cpu {
namespace {

/// Calls body.operator()<Format>() for the struct of a quantised format. False if dtype is not quantised.
template <class Body>
LOCKSTEP_INLINE bool with_format(DType dtype, Body&& body) {
#define LOCKSTEP_FORMAT(name, type)   \
  case DType::name:                   \
    body.template operator()<type>(); \
    return true;
  switch (dtype) {
    LOCKSTEP_FORMAT(q8_0, UnpackQ8_0)
    LOCKSTEP_FORMAT(q4_0, UnpackQ4_0)
    LOCKSTEP_FORMAT(q4_1, UnpackQ4_1)
    LOCKSTEP_FORMAT(q5_0, UnpackQ5_0)
    LOCKSTEP_FORMAT(q5_1, UnpackQ5_1)
    LOCKSTEP_FORMAT(q2_k, UnpackQ2K)
    LOCKSTEP_FORMAT(q3_k, UnpackQ3K)
    LOCKSTEP_FORMAT(q4_k, UnpackQ4K)
    LOCKSTEP_FORMAT(q5_k, UnpackQ5K)
    LOCKSTEP_FORMAT(q6_k, UnpackQ6K)
    LOCKSTEP_FORMAT(iq1_s, UnpackIq1S)
    LOCKSTEP_FORMAT(iq1_m, UnpackIq1M)
    LOCKSTEP_FORMAT(iq2_xxs, UnpackIq2Xxs)
    LOCKSTEP_FORMAT(iq2_xs, UnpackIq2Xs)
    LOCKSTEP_FORMAT(iq2_s, UnpackIq2S)
    LOCKSTEP_FORMAT(iq3_xxs, UnpackIq3Xxs)
    LOCKSTEP_FORMAT(iq3_s, UnpackIq3S)
    LOCKSTEP_FORMAT(iq4_nl, UnpackIq4Nl)
    LOCKSTEP_FORMAT(iq4_xs, UnpackIq4Xs)
    LOCKSTEP_FORMAT(mxfp4, UnpackMxfp4)
    LOCKSTEP_FORMAT(nvfp4, UnpackNvfp4)
    LOCKSTEP_FORMAT(rocmfp4, UnpackRocmfp4)
    LOCKSTEP_FORMAT(rocmfp4_fast, UnpackRocmfp4Fast)
    LOCKSTEP_FORMAT(rocmfp6, UnpackRocmfp6)
    LOCKSTEP_FORMAT(rocmfp8, UnpackRocmfp8)
    LOCKSTEP_FORMAT(rocmfp3, UnpackRocmfp3)
    LOCKSTEP_FORMAT(rocmfp2, UnpackRocmfp2)
    LOCKSTEP_FORMAT(rocmfp2_affine, UnpackRocmfp2Affine)
    LOCKSTEP_FORMAT(rocmfp2_s40, UnpackRocmfp2S40)
    LOCKSTEP_FORMAT(rocmi4, UnpackRocmi4)
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::i32:
    case DType::f8_e4m3_b128:
    case DType::rocmfp3_mix:
    case DType::rocmfp2_mix:
      break;
  }
#undef LOCKSTEP_FORMAT
  return false;
}

/// What is taken off a level's byte, with the offset that makes an int8 unsigned where the level's dot wants that.
template <class Format>
inline constexpr int kByteOffset = Format::kSigned ? (kSignedNeedsOffset ? 128 : 0) : Format::kOffset;

/// A superblock at `p` of which `blocks` exist: p itself, or a copy padded with zeros if the unpacking would read what
/// does not exist. `blocks` is even for NVFP4, whose blocks are of 64.
template <class Format>
LOCKSTEP_INLINE const std::byte* readable(const std::byte* p, int blocks, const std::byte* end, std::byte* copy) {
  if (blocks >= 8 && end - p >= Format::kSpan) [[likely]]
    return p;
  const int bytes = (blocks < 8 ? blocks : 8) * (Format::kBytes / 8);
  const int whole =
      blocks >= 8 ? Format::kBytes : bytes;  // 256-value formats do not divide by 8, and are never partial
  __builtin_memset(copy, 0, Format::kSpan);
  __builtin_memcpy(copy, p, static_cast<std::size_t>(whole));
  return copy;
}
inline constexpr int kMaxSpan = 320;

}  // namespace
}  // namespace lockstep::cpu
