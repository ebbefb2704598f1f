// Where a format's kernels are, and what several products in one launch share.
#include "base/error.h"
#include "gpu/matmul.h"
#include "gpu/matvec_tables.h"

namespace lockstep::gpu {

ProductList list_of(const Product* products, int count, int a_block) {
  LOCKSTEP_CHECK(count > 0 && count <= kMostParts);
  ProductList list;
  list.count = count;
  for (int i = 0; i < count; ++i) {
    LOCKSTEP_CHECK(products[i].w.width == products[0].w.width && products[i].out.rows == products[0].out.rows);
    list.part[i] = products[i];
    list.first_block[i + 1] = list.first_block[i] + static_cast<int>(blocks_for(products[i].w.rows, a_block));
  }
  return list;
}

const FormatKernels* kernels_of(DType dtype) {
  if (const FormatKernels* kernels = common_kernels_of(dtype); kernels != nullptr) return kernels;
  if (const FormatKernels* kernels = plain_kernels_of(dtype); kernels != nullptr) return kernels;
  return grid_kernels_of(dtype);
}

}  // namespace lockstep::gpu
