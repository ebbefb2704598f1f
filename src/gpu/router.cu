// The router's product and the choice of experts in one launch, for one token.
//
// A warp makes the logit of one expert and its score; the block that is done last chooses. A lane of the law is a
// thread with its eight places, as in float_matmul.cu; all weights are asked for before the launch before is waited
// for. Bytes: the F16 weights, once.
//
// It lets the next launch begin only once it has waited itself. So what is launched next needs not wait for the
// activations, and may do what does not depend on the choice beside it (Product::is_input_known).
#include "gpu/device.h"
#include "gpu/route.h"
#include "gpu/router.h"
#include "numerics/functions.h"
#include "numerics/order.h"
#include "numerics/round.h"

namespace lockstep::gpu {
namespace {

constexpr int kRouterThreads = 64, kRouterWarps = kRouterThreads / kWarp, kMostRouted = 256;
constexpr int kOctets = kChunk / (kWarp * kOctet);  // of a lane

LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kRouterThreads, 1) router_kernel(LOCKSTEP_PARAMETER RouterCall c) {
  LOCKSTEP_SHARED float scores[kMostRouted];
  LOCKSTEP_SHARED std::uint32_t keys[kMostRouted];
  LOCKSTEP_SHARED std::int32_t chosen[kMostUsed];
  LOCKSTEP_SHARED int before;
  const int t = thread_index(), lane = lane_index(), experts = c.w.rows, row = block_x() * kRouterWarps + t / kWarp;
  const std::uint8_t* from = c.w.data + (row < experts ? row : experts - 1) * c.w.row_bytes;
  Words4 words[kOctets];
#pragma unroll
  for (int u = 0; u < kOctets; ++u) words[u] = load_once(from + (u * kWarp + lane) * (2 * kOctet));
  prefetch(c.bias, experts);
  wait_for_launch_before();
  let_next_launch_begin();
  float partial[kOctet] = {};
#pragma unroll
  for (int u = 0; u < kOctets; ++u) {
    const auto* x = reinterpret_cast<const Floats4*>(c.x + (u * kWarp + lane) * kOctet);
    const Floats4 half[2] = {x[0], x[1]};
#pragma unroll
    for (int i = 0; i < kOctet; ++i)
      partial[i] =
          fma_f32(half[i / 4].value[i % 4], widen_f16(words[u].word[i / 2] >> (16 * (i % 2)) & 0xffffu), partial[i]);
  }
  float sum = partial[0];
#pragma unroll
  for (int i = 1; i < kOctet; ++i) sum = sum + partial[i];
  float column = shuffle(sum, lane % kColumns);
#pragma unroll
  for (int l = kColumns; l < kWarp; l += kColumns) column = column + shuffle(sum, lane % kColumns + l);
  float logit = shuffle(column, 0);
#pragma unroll
  for (int i = 1; i < kColumns; ++i) logit = logit + shuffle(column, i);
  if (lane == 0 && row < experts) c.room[row] = sqrt_softplus_f32(logit);
  block_barrier();
  if (t == 0) {
    device_fence();
    before = atomic_add(c.done, 1);
  }
  block_barrier();
  if (before + 1 < c.blocks) return;
  device_fence();
  for (int e = t; e < experts; e += kRouterThreads) {
    scores[e] = read_fresh(c.room + e);
    keys[e] = route_key(scores[e], c.bias, e);
  }
  if (t == 0) *c.done = 0;  // for the next launch
  block_barrier();
  if (t >= kWarp) return;
  choose_by_warp<kMostRouted / kWarp>(
      c.route, 0, chosen, [&](int e) { return keys[e]; }, [&](int e) { return scores[e]; }, experts, c.table, c.tokens,
      c.scale);
}

}  // namespace

bool can_route(DType dtype, const Matrix& w, ConstRows x) {
  return dtype == DType::f16 && x.rows == 1 && w.width == kChunk && w.rows <= kMostRouted && w.row_bytes % 16 == 0;
}

void route_by_product(Runtime& runtime, RouterCall call) {
  call.blocks = static_cast<int>(blocks_for(call.w.rows, kRouterWarps));
  launch(runtime, router_kernel, {static_cast<unsigned>(call.blocks)}, kRouterThreads, 0, call);
}

}  // namespace lockstep::gpu
