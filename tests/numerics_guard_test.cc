// The law's guard for numerics/: the hash of every function's results over its grid. A failure here means that bytes
// moved. The constants were made on x86-64 by the scalar code; every back end and every compiler flag must meet them.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "numerics/guard.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kExpected[kGuardedCount] = {
    0x5090f2da09218c45u,  // divide
    0xbf631a78e0d08582u,  // sqrt
    0x4564ffd663d7fb21u,  // fma
    0xd05c48bbcfe19dbau,  // subnormal
    0x84dec68cccff8291u,  // divide64
    0xfb1dd76fecf7b1d2u,  // fma64
    0x1c06ac463dd3c638u,  // f16
    0x090610bf7e95414du,  // bf16
    0xe4d48f5de38b40e2u,  // e4m3
    0xd15e37d9eb03d949u,  // e2m1
    0xfa5785e7c435a223u,  // fp8_block
    0x0854797233f65f14u,  // fp4_block
    0xcccaa3bae78e875du,  // int8_block
    0x07e560f13eb8e9c3u,  // exp
    0xa5fc071347e0ce94u,  // log
    0x379d661c914af987u,  // sigmoid
    0x3cf94d4694a4d0feu,  // silu
    0x10aeb0746406865du,  // softplus
    0x629363eb57081acdu,  // sqrt_softplus
    0xf3b073b629eab2eeu,  // sin
    0x546058f81b7a37ceu,  // cos
    0x3f76299d35210573u,  // random
};

class Guard : public testing::TestWithParam<int> {};

TEST_P(Guard, results_over_the_grid_have_the_golden_hash) {
  std::vector<std::uint32_t> results(kGuardPoints);
  for (std::uint32_t i = 0; i < kGuardPoints; ++i) results[i] = guard_result(static_cast<Guarded>(GetParam()), i);
  const std::uint64_t hash = guard_hash(results.data(), results.size());
  std::printf("%-14s 0x%016llx\n", kGuardedNames[GetParam()], static_cast<unsigned long long>(hash));
  EXPECT_EQ(hash, kExpected[GetParam()]) << kGuardedNames[GetParam()];
}

INSTANTIATE_TEST_SUITE_P(Functions, Guard, testing::Range(0, kGuardedCount),
                         [](const auto& tested) { return std::string(kGuardedNames[tested.param]); });

}  // namespace
}  // namespace lockstep
