// Exact products on int8 tensor cores: mma on CUDA, WMMA on HIP, with different fragments.
//
// A sum of int8 products starts at kMagicBits, so that its bits are those of the float 12582912 + sum (kMagic), as long
// as the sum stays within 22 bits: then no conversion is needed, and one fma takes kMagic times the scale off again.
#pragma once

#include "gpu/device.h"

#if defined(LOCKSTEP_GPU_EMULATED)
#include <cstring>
#endif

namespace lockstep::gpu {

constexpr int kMagicBits = 0x4B400000;
constexpr float kMagic = 12582912.0f;

/// What a product leaves, with kMagic still in it.
LOCKSTEP_DEVICE float magic_float(int dot) { return f32_of(static_cast<std::uint32_t>(dot)); }

#if defined(LOCKSTEP_HAS_MMA)

#if defined(LOCKSTEP_GPU_EMULATED)

/// A warp's fragments, as PTX lays them out: thread 4 g + t holds of row or column g the values 4 t to 4 t + 3 of a
/// word.
struct Fragments {
  std::uint32_t a[4], b[2];
};
/// d += a b, 16 x 8 outputs over kWords * 16 values.
template <int kWords>
LOCKSTEP_DEVICE void multiply_fragments(int (&d)[4], const Fragments& own) {
  static_assert(sizeof(Fragments) <= emulator::kHandInBytes);
  const std::byte* all = emulator::exchange(kWords == 2 ? "mma of 32" : "mma of 16", &own, sizeof own, true);
  const auto of = [&](int thread) -> const Fragments& {
    return *reinterpret_cast<const Fragments*>(all + static_cast<std::size_t>(thread) * emulator::kHandInBytes);
  };
  const int group = lane_index() / 4, column = lane_index() % 4 * 2;
  for (int i = 0; i < 4; ++i) {
    d[i] = kMagicBits;
    for (int word = 0; word < kWords; ++word)
      for (int t = 0; t < 4; ++t)
        d[i] = dot4(of(4 * group + t).a[2 * word + i / 2], of(4 * (column + i % 2) + t).b[word], d[i]);
  }
}
LOCKSTEP_DEVICE void load_matrices(std::uint32_t (&r)[4], std::uint32_t from) {
  const std::byte* all = emulator::exchange("ldmatrix", &from, sizeof from, true);
  for (int matrix = 0; matrix < 4; ++matrix) {
    const int thread = 8 * matrix + lane_index() / 4;
    const auto row =
        *reinterpret_cast<const std::uint32_t*>(all + static_cast<std::size_t>(thread) * emulator::kHandInBytes);
    r[matrix] = *reinterpret_cast<const std::uint32_t*>(emulator::shared_memory() + row + lane_index() % 4 * 4);
  }
}
LOCKSTEP_DEVICE void multiply32(int (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  multiply_fragments<2>(d, {{a[0], a[1], a[2], a[3]}, {b0, b1}});
}
LOCKSTEP_DEVICE void add_multiply32(int (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  int own[4];
  multiply32(own, a, b0, b1);
  for (int i = 0; i < 4; ++i) d[i] += own[i] - kMagicBits;
}
LOCKSTEP_DEVICE void multiply16(int (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t b) {
  multiply_fragments<1>(d, {{a0, a1, 0, 0}, {b, 0}});
}

#else

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
/// Adds dots of 32 values to d; zeros to begin with cost nothing.
LOCKSTEP_DEVICE void add_multiply32(int (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  const int c[4] = {d[0], d[1], d[2], d[3]};
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}
/// Dots of 16 values, likewise.
LOCKSTEP_DEVICE void multiply16(int (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a0), "r"(a1), "r"(b), "r"(kMagicBits));
}

#endif

#else

/// Dots of a thread: value i is of row 2 i + lane / 16 of a and column lane % 16 of b, of 16 each.
struct Dots {
  int value[8];
};
LOCKSTEP_DEVICE constexpr Dots magic_dots() {
  return {{kMagicBits, kMagicBits, kMagicBits, kMagicBits, kMagicBits, kMagicBits, kMagicBits, kMagicBits}};
}

/// What comes later is not begun before: or operands are loaded far ahead until registers spill.
LOCKSTEP_DEVICE void keep_order() {
#if defined(__HIP_DEVICE_COMPILE__)
  __builtin_amdgcn_sched_barrier(0);
#endif
}

#if defined(LOCKSTEP_GPU_EMULATED)

/// c + a b over 16 values. A thread hands in row lane % 16 of a and column lane % 16 of b, so that each is there twice,
/// as it must be.
LOCKSTEP_DEVICE Dots add_products(const Words4& a, const Words4& b, const Dots& c) {
  struct Fragments {
    Words4 a, b;
  } const own = {a, b};
  static_assert(sizeof own <= emulator::kHandInBytes);
  const std::byte* all = emulator::exchange("wmma of 16", &own, sizeof own, true);
  const auto of = [&](int thread) -> const Fragments& {
    return *reinterpret_cast<const Fragments*>(all + static_cast<std::size_t>(thread) * emulator::kHandInBytes);
  };
  const int half = lane_index() / 16, column = lane_index() % 16;
  if (std::memcmp(&of(column), &of(column + 16), sizeof own) != 0)
    emulator::refuse("and the one 16 lanes away have handed different operands to wmma");
  Dots d = c;
  for (int i = 0; i < 8; ++i)
    for (int word = 0; word < 4; ++word)
      d.value[i] = dot4(of(2 * i + half).a.word[word], of(column).b.word[word], d.value[i]);
  return d;
}

#elif defined(__HIP_DEVICE_COMPILE__)

using Vector4 = int __attribute__((ext_vector_type(4)));
using Vector8 = int __attribute__((ext_vector_type(8)));
/// c + a b over 16 values. A thread hands in row lane % 16 of a and column lane % 16 of b, so that each is there twice.
LOCKSTEP_DEVICE Dots add_products(const Words4& a, const Words4& b, const Dots& c) {
  return __builtin_bit_cast(Dots, __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, __builtin_bit_cast(Vector4, a), true,
                                                                             __builtin_bit_cast(Vector4, b),
                                                                             __builtin_bit_cast(Vector8, c), false));
}

#else

LOCKSTEP_DEVICE Dots add_products(const Words4&, const Words4&, const Dots& c) { return c; }  // the host's pass

#endif

#endif

}  // namespace lockstep::gpu
