// The kernels of the formats that most files use.
#include "gpu/matvec.h"
#include "gpu/matvec_tables.h"

namespace lockstep::gpu {

void prepare_matvecs(Runtime& runtime) {
  allow_lanes<DType::iq2_xxs, 16>(runtime);
  allow_lanes<DType::iq2_xxs, 8>(runtime);
  allow_lanes<DType::q2_k, 16>(runtime);
  allow_lanes<DType::q2_k, 8>(runtime);
}

const FormatKernels* common_kernels_of(DType dtype) {
  static constexpr FormatKernels kQ8_0 = kernels_for<DType::q8_0, true>(), kQ2K = kernels_for<DType::q2_k, true>(),
                                 kQ4K = kernels_for<DType::q4_k, true>(), kIq2Xxs = kernels_for<DType::iq2_xxs, true>(),
                                 kMxfp4 = kernels_for<DType::mxfp4, true>();
  switch (dtype) {
    case DType::q8_0:
      return &kQ8_0;
    case DType::q2_k:
      return &kQ2K;
    case DType::q4_k:
      return &kQ4K;
    case DType::iq2_xxs:
      return &kIq2Xxs;
    case DType::mxfp4:
      return &kMxfp4;
    default:
      return nullptr;
  }
}

}  // namespace lockstep::gpu
