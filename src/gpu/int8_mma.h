// Exact products on int8 tensor cores (CUDA only).
//
// A sum of int8 products starts at kMagicBits, so that its bits are those of the float 12582912 + sum (kMagic), as long
// as the sum stays within 22 bits: then no conversion is needed, and one fma takes kMagic times the scale off again.
#pragma once

#include "gpu/device.h"

namespace lockstep::gpu {

#if defined(__CUDACC__)

constexpr int kMagicBits = 0x4B400000;
constexpr float kMagic = 12582912.0f;

/// Four 8 x 8 matrices of 16-bit units, as the fragments of an mma; `from` is a shared address.
LOCKSTEP_DEVICE void load_matrices(std::uint32_t (&r)[4], std::uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}
/// Dots of all 32 values of a block, from kMagicBits on.
LOCKSTEP_DEVICE void multiply32(int (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(kMagicBits));
}
/// Dots of 16 values, likewise.
LOCKSTEP_DEVICE void multiply16(int (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a0), "r"(a1), "r"(b), "r"(kMagicBits));
}

#endif

}  // namespace lockstep::gpu
