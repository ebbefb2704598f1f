// The kernels of formats with one or two scales for 32 values.
#include "gpu/matvec.h"
#include "gpu/matvec_tables.h"

namespace lockstep::gpu {
namespace {

template <DType kType>
constexpr FormatKernels kKernels = kernels_for<kType, false>();

}  // namespace

const FormatKernels* plain_kernels_of(DType dtype) {
  switch (dtype) {
    case DType::q4_0:
      return &kKernels<DType::q4_0>;
    case DType::q4_1:
      return &kKernels<DType::q4_1>;
    case DType::q5_0:
      return &kKernels<DType::q5_0>;
    case DType::q5_1:
      return &kKernels<DType::q5_1>;
    case DType::iq4_nl:
      return &kKernels<DType::iq4_nl>;
    case DType::nvfp4:
      return &kKernels<DType::nvfp4>;
    case DType::rocmfp4:
      return &kKernels<DType::rocmfp4>;
    case DType::rocmfp4_fast:
      return &kKernels<DType::rocmfp4_fast>;
    case DType::rocmfp6:
      return &kKernels<DType::rocmfp6>;
    case DType::rocmfp8:
      return &kKernels<DType::rocmfp8>;
    case DType::rocmfp3:
      return &kKernels<DType::rocmfp3>;
    case DType::rocmfp2:
      return &kKernels<DType::rocmfp2>;
    case DType::rocmfp2_affine:
      return &kKernels<DType::rocmfp2_affine>;
    case DType::rocmfp2_s40:
      return &kKernels<DType::rocmfp2_s40>;
    case DType::rocmi4:
      return &kKernels<DType::rocmi4>;
    default:
      return nullptr;
  }
}

}  // namespace lockstep::gpu
