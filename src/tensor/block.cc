// decode_block: the choice of a decoder. The decoders lie in block_plain.cc, block_k.cc, block_iq.cc and block_rocm.cc.
#include "tensor/block.h"

#include "base/error.h"
#include "tensor/block_decoders.h"

namespace lockstep {

Block decode_block(DType dtype, const std::byte* row, std::int64_t index) {
  switch (dtype) {
    case DType::q8_0:
      return decode_q8_0(row, index);
    case DType::q4_0:
      return decode_q4_0(row, index);
    case DType::q4_1:
      return decode_q4_1(row, index);
    case DType::q5_0:
      return decode_q5_0(row, index);
    case DType::q5_1:
      return decode_q5_1(row, index);
    case DType::q2_k:
      return decode_q2_k(row, index);
    case DType::q3_k:
      return decode_q3_k(row, index);
    case DType::q4_k:
      return decode_q4_k(row, index);
    case DType::q5_k:
      return decode_q5_k(row, index);
    case DType::q6_k:
      return decode_q6_k(row, index);
    case DType::iq1_s:
      return decode_iq1_s(row, index);
    case DType::iq1_m:
      return decode_iq1_m(row, index);
    case DType::iq2_xxs:
      return decode_iq2_xxs(row, index);
    case DType::iq2_xs:
      return decode_iq2_xs(row, index);
    case DType::iq2_s:
      return decode_iq2_s(row, index);
    case DType::iq3_xxs:
      return decode_iq3_xxs(row, index);
    case DType::iq3_s:
      return decode_iq3_s(row, index);
    case DType::iq4_nl:
      return decode_iq4_nl(row, index);
    case DType::iq4_xs:
      return decode_iq4_xs(row, index);
    case DType::mxfp4:
      return decode_mxfp4(row, index);
    case DType::nvfp4:
      return decode_nvfp4(row, index);
    case DType::rocmfp4:
      return decode_rocmfp4(row, index);
    case DType::rocmfp4_fast:
      return decode_rocmfp4_fast(row, index);
    case DType::rocmfp6:
      return decode_rocmfp6(row, index);
    case DType::rocmfp8:
      return decode_rocmfp8(row, index);
    case DType::rocmfp3:
      return decode_rocmfp3(row, index);
    case DType::rocmfp2:
      return decode_rocmfp2(row, index);
    case DType::rocmfp2_affine:
      return decode_rocmfp2_affine(row, index);
    case DType::rocmfp2_s40:
      return decode_rocmfp2_s40(row, index);
    case DType::rocmi4:
      return decode_rocmi4(row, index);
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::i32:
    case DType::f8_e4m3_b128:
    case DType::rocmfp3_mix:
    case DType::rocmfp2_mix:
      break;
  }
  LOCKSTEP_CHECK(info_of(dtype).quantised);
  return {};
}

}  // namespace lockstep
