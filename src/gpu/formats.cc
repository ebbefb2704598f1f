// Where a format's kernels are, the tables that they read, and what several products in one launch share.
#include <algorithm>

#include "base/error.h"
#include "gpu/matmul.h"
#include "gpu/matvec_tables.h"
#include "tensor/tables.h"

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

Tables make_tables() {
  Tables t = {};
  std::copy_n(kGridIq2Xxs, 256, t.iq2_xxs);
  std::copy_n(kGridIq2Xs, 512, t.iq2_xs);
  std::copy_n(kGridIq2S, 1024, t.iq2_s);
  std::copy_n(kGridIq3Xxs, 256, t.iq3_xxs);
  std::copy_n(kGridIq3S, 512, t.iq3_s);
  std::copy_n(kGridIq1, 2048, t.iq1);
  const auto levels = [](const std::int16_t* from, int n, std::int8_t* to) {
    for (int i = 0; i < n; ++i) to[i] = static_cast<std::int8_t>(from[i]);
  };
  levels(kLevelIq2, 3, t.level_iq2);
  levels(kLevelIq3Xxs, 8, t.level_iq3_xxs);
  levels(kLevelIq3S, 8, t.level_iq3_s);
  levels(kLevelIq4, 16, t.level_iq4);
  levels(kLevelE2m1, 16, t.level_e2m1);
  levels(kLevelRocmfp4, 16, t.level_rocmfp4);
  levels(kLevelRocmfp3, 8, t.level_rocmfp3);
  levels(kLevelRocmfp2, 4, t.level_rocmfp2);
  levels(kLevelRocmfp2S40, 4, t.level_rocmfp2_s40);
  for (int row = 0; row < 256; ++row)
    for (int i = 0; i < 8; ++i) {
      const auto level = static_cast<std::uint32_t>(t.level_iq2[kGridIq2Xxs[row] >> (2 * i) & 3]);
      t.bytes_iq2_xxs[row][i / 4] |= level << (8 * (i % 4));
    }
  return t;
}

}  // namespace lockstep::gpu
