// The kernels of formats of 256 values with small scales of their own, and of those with grids.
#include "gpu/matvec.h"
#include "gpu/matvec_tables.h"

namespace lockstep::gpu {
namespace {

template <DType kType>
constexpr FormatKernels kKernels = kernels_for<kType, false>();

}  // namespace

const FormatKernels* grid_kernels_of(DType dtype) {
  switch (dtype) {
    case DType::q3_k:
      return &kKernels<DType::q3_k>;
    case DType::q5_k:
      return &kKernels<DType::q5_k>;
    case DType::q6_k:
      return &kKernels<DType::q6_k>;
    case DType::iq1_s:
      return &kKernels<DType::iq1_s>;
    case DType::iq1_m:
      return &kKernels<DType::iq1_m>;
    case DType::iq2_xs:
      return &kKernels<DType::iq2_xs>;
    case DType::iq2_s:
      return &kKernels<DType::iq2_s>;
    case DType::iq3_xxs:
      return &kKernels<DType::iq3_xxs>;
    case DType::iq3_s:
      return &kKernels<DType::iq3_s>;
    case DType::iq4_xs:
      return &kKernels<DType::iq4_xs>;
    default:
      return nullptr;
  }
}

}  // namespace lockstep::gpu
