// Every level's products against the literal loops of ops/dot.h, bit for bit, for every format.
//
// Rows are random bytes made valid: the bytes that hold scales are replaced by sound ones. Every product is made twice.
// With ordinary data all blocks weigh alike, so that a sum in another order has other bits. With extreme data scales
// are subnormal, huge or zero, and activations include zeros, blocks of -127 and 127, and scales from the smallest
// (whose products vanish, sometimes to -0) to large; there a few blocks outweigh the rest and hide the order.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "cpu/level.h"
#include "numerics/round.h"
#include "ops/dot.h"
#include "tensor/dequantize.h"

namespace lockstep {
namespace {

/// A small generator of its own: the test's data must not move when the engine's does.
struct Random {
  std::uint64_t state;
  std::uint32_t next() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state >> 33);
  }
  int below(int n) { return static_cast<int>(next() % static_cast<std::uint32_t>(n)); }
  float unit() { return static_cast<float>(next()) * 0x1p-30f - 1.0f; }
};

void put_f16(std::vector<std::byte>& row, std::size_t at, bool extreme, Random& random) {
  // Subnormal, small, ordinary and large scales, of both signs.
  const std::uint16_t ordinary = static_cast<std::uint16_t>(0x2000 + random.below(0x1c00));
  const std::uint16_t choices[] = {ordinary, ordinary, ordinary, 0x0001, 0x03ff, 0x7bff, 0};
  std::uint16_t half = choices[random.below(7)];
  if (!extreme) half = static_cast<std::uint16_t>(0x2c00 + random.below(0x400));
  if (random.below(3) == 0) half = static_cast<std::uint16_t>(half | 0x8000);
  store_as(row.data() + at, half);
}
void put_byte(std::vector<std::byte>& row, std::size_t at, int most, bool extreme, Random& random) {
  const int choices[] = {random.below(most + 1), random.below(most + 1), 0, 1, most};
  row[at] = static_cast<std::byte>(extreme ? choices[random.below(5)] : most / 2 + random.below(4));
}

/// Makes the scale bytes of the block that begins at `at` sound.
void make_valid(DType dtype, std::vector<std::byte>& row, std::size_t at, bool extreme, Random& random) {
  const auto f16 = [&](std::size_t offset) { put_f16(row, at + offset, extreme, random); };
  const auto ue4m3 = [&](std::size_t offset) { put_byte(row, at + offset, 0x7e, extreme, random); };
  switch (dtype) {
    case DType::q8_0:
    case DType::q4_0:
    case DType::q5_0:
    case DType::iq4_nl:
    case DType::iq1_s:
    case DType::iq2_xxs:
    case DType::iq2_xs:
    case DType::iq2_s:
    case DType::iq3_xxs:
    case DType::iq3_s:
    case DType::iq4_xs:
      f16(0);
      if (dtype == DType::q8_0 && random.below(2) == 0) row[at + 2] = std::byte{0x80};
      break;
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k:
      f16(0);
      f16(2);
      break;
    case DType::q2_k:
      f16(80);
      f16(82);
      break;
    case DType::q3_k:
      f16(108);
      break;
    case DType::q6_k:
      f16(208);
      if (random.below(2) == 0) row[at + 192] = std::byte{0x80};
      break;
    case DType::iq1_m: {
      std::vector<std::byte> half(2);
      put_f16(half, 0, extreme, random);
      const unsigned bits = load_as<std::uint16_t>(half.data());
      for (unsigned i = 0; i < 4; ++i) {
        const std::size_t byte = at + 49 + 2 * i;
        row[byte] = (row[byte] & std::byte{0x0f}) | static_cast<std::byte>((bits >> (4 * i) & 15u) << 4);
      }
      break;
    }
    case DType::mxfp4:
    case DType::f8_e4m3_b128:
      put_byte(row, at, 200, extreme, random);
      if (dtype == DType::f8_e4m3_b128)
        for (std::size_t i = 1; i < 129; ++i)
          if ((row[at + i] & std::byte{0x7f}) == std::byte{0x7f}) row[at + i] = std::byte{0x80};
      break;
    case DType::nvfp4:
      for (std::size_t i = 0; i < 4; ++i) put_byte(row, at + i, extreme ? 0xfe : 0x7e, extreme, random);
      break;
    case DType::rocmfp4:
      ue4m3(16);
      ue4m3(17);
      break;
    case DType::rocmfp4_fast:
    case DType::rocmi4:
      ue4m3(16);
      break;
    case DType::rocmfp6:
      ue4m3(24);
      ue4m3(25);
      break;
    case DType::rocmfp8:
      ue4m3(32);
      break;
    case DType::rocmfp3:
      ue4m3(12);
      ue4m3(13);
      break;
    case DType::rocmfp2:
    case DType::rocmfp2_affine:
    case DType::rocmfp2_s40:
      ue4m3(8);
      ue4m3(9);
      break;
    case DType::f16:
      f16(0);
      break;
    case DType::bf16:
      store_as(row.data() + at, f32_to_bf16(random.unit()));
      break;
    case DType::f32:
      store_as(row.data() + at, random.below(9) == 0 ? -0.0f : random.unit());
      break;
    default:
      FAIL();
  }
}

/// Bytes that end where a page without access begins, as the last tensor of a mapped file may: reading past them is a
/// segmentation fault.
class GuardedBytes {
 public:
  explicit GuardedBytes(const std::vector<std::byte>& bytes) {
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t size = (bytes.size() + page - 1) / page * page;
    mapped_ = size + page;
    base_ = static_cast<std::byte*>(mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    data_ = base_ + size - bytes.size();
    std::memcpy(data_, bytes.data(), bytes.size());
    mprotect(base_ + size, page, PROT_NONE);
  }
  ~GuardedBytes() { munmap(base_, mapped_); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  const std::byte* data() const { return data_; }

 private:
  std::byte* base_;
  std::byte* data_;
  std::size_t mapped_;
};

std::vector<std::byte> random_rows(DType dtype, int rows, int width, bool extreme, std::uint64_t seed) {
  Random random{seed};
  std::vector<std::byte> bytes(row_bytes(dtype, width) * static_cast<std::size_t>(rows));
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.below(256));
  const std::size_t block = static_cast<std::size_t>(info_of(dtype).block_bytes);
  for (std::size_t at = 0; at < bytes.size(); at += block) make_valid(dtype, bytes, at, extreme, random);
  return bytes;
}

struct Inputs {
  std::vector<float> values;
  std::vector<std::int8_t> codes;
  std::vector<float> scales;
  std::vector<std::int16_t> half_sums;
  int rows, width, padded;

  Inputs(int rows_, int width_, bool extreme, std::uint64_t seed)
      : rows(rows_), width(width_), padded((width_ + 31) / 32 * 32) {
    Random random{seed};
    values.resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(padded));
    codes.resize(values.size());
    scales.resize(values.size() / 32);
    half_sums.resize(values.size() / 16);
    for (std::size_t b = 0; b < scales.size(); ++b) {
      const int kind = extreme ? random.below(8) : 7;
      const float size = kind == 0 ? 0.0f : kind == 1 ? 0x1p-117f : kind == 2 ? 0x1p20f : 1.0f;
      for (std::size_t i = 0; i < 32; ++i) {
        float& x = values[32 * b + i];
        x = kind == 3 ? (i % 2 == 0 ? -3.0f : 3.0f) : kind == 4 ? -3.0f : size * random.unit();
        if (random.below(50) == 0) x = -0.0f;
      }
      scales[b] = round_block_int8(values.data() + 32 * b, codes.data() + 32 * b);
      for (std::size_t half = 0; half < 2; ++half) {
        const std::int8_t* code = codes.data() + 32 * b + 16 * half;
        half_sums[2 * b + half] = static_cast<std::int16_t>(std::accumulate(code, code + 16, 0));
      }
    }
  }
  Input input() {
    return {ConstRows(values.data(), rows, width, padded),
            {codes.data(), scales.data(), half_sums.data(), rows, width, padded}};
  }
};

class FormatProduct : public testing::TestWithParam<DTypeInfo> {
 protected:
  /// Products of `rows` rows of `width` values with as many tokens, at every level, against the literal loops.
  void check(int rows, int width, int tokens, int begin, int end) {
    for (const bool extreme : {false, true}) check(rows, width, tokens, begin, end, extreme);
  }
  void check(int rows, int width, int tokens, int begin, int end, bool extreme) {
    const DType dtype = GetParam().dtype;
    const bool quantised = info_of(dtype).quantised;
    SCOPED_TRACE("width " + std::to_string(width) + ", " + std::to_string(tokens) + " tokens, " +
                 (extreme ? "extreme" : "ordinary") + " data, rows " + std::to_string(begin) + " to " +
                 std::to_string(end));
    const int planes = 2;
    const GuardedBytes bytes(random_rows(dtype, planes * rows, width, extreme, 7u * static_cast<unsigned>(width)));
    Inputs inputs(tokens + 2, width, extreme, 11u * static_cast<unsigned>(width) + static_cast<unsigned>(tokens));
    Weight weight{dtype, width, rows, planes, bytes.data(), row_bytes(dtype, width)};

    std::vector<int> in_rows(static_cast<std::size_t>(tokens)), out_rows(in_rows.size());
    for (int t = 0; t < tokens; ++t) {
      in_rows[static_cast<std::size_t>(t)] = (t * 5 + 1) % (tokens + 2);
      out_rows[static_cast<std::size_t>(t)] = tokens - 1 - t;
    }
    const std::size_t size = static_cast<std::size_t>(tokens) * static_cast<std::size_t>(rows);
    const float untouched = -77.0f;
    std::vector<float> expected(size, untouched), widened(static_cast<std::size_t>(width));
    for (int r = begin; r < end; ++r) {
      const std::byte* row = weight.row(1, r);
      if (!quantised) dequantize_row(dtype, row, width, widened.data());
      for (std::size_t t = 0; t < in_rows.size(); ++t) {
        const Input x = inputs.input();
        expected[static_cast<std::size_t>(out_rows[t] * rows + r)] =
            quantised
                ? quantised_dot(dtype, row, x.rounded.row_codes(in_rows[t]), x.rounded.row_scales(in_rows[t]), width)
                : float_dot(x.values.row(in_rows[t]), widened.data(), width);
      }
    }
    const std::size_t scratch_bytes = cpu::matmul_scratch_bytes(width);
    std::byte* scratch = static_cast<std::byte*>(std::aligned_alloc(64, scratch_bytes));
    for (const cpu::Level* level : cpu::available_levels()) {
      std::vector<float> actual(size, untouched);
      level->matmul(weight, 1, begin, end, inputs.input(), in_rows, {actual.data(), tokens, rows, rows}, out_rows,
                    {scratch, scratch_bytes});
      for (std::size_t i = 0; i < size; ++i)
        ASSERT_EQ(bits_of(expected[i]), bits_of(actual[i]))
            << level->name << ": token row " << i / static_cast<std::size_t>(rows) << ", row "
            << i % static_cast<std::size_t>(rows) << ": " << expected[i] << " is " << actual[i];
    }
    std::free(scratch);
  }
  bool allows(int width) const { return width % GetParam().block_values == 0; }
};

TEST_P(FormatProduct, every_width_has_the_bits_of_the_literal_loop) {
  for (const int width : {32, 64, 96, 128, 256, 512, 544, 1024, 1056, 2048, 2080, 2304, 4096, 4352, 4128, 8192 + 256})
    if (allows(width)) {
      check(5, width, 1, 0, 5);
      check(5, width, 9, 0, 5);
    }
}

TEST_P(FormatProduct, every_number_of_tokens_has_the_bits_of_the_literal_loop) {
  for (const int tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 17, 33}) check(7, 512, tokens, 0, 7);
}

TEST_P(FormatProduct, more_tokens_than_a_strip_are_all_multiplied) { check(2, 256, 400, 0, 2); }

TEST_P(FormatProduct, a_range_of_rows_touches_no_other_row) {
  for (const int tokens : {1, 12}) {
    check(40, 512, tokens, 0, 40);
    check(40, 512, tokens, 3, 36);
    check(40, 512, tokens, 17, 18);
    check(40, 512, tokens, 39, 40);
  }
}

std::vector<DTypeInfo> formats() {
  std::vector<DTypeInfo> all;
  for (const DTypeInfo& info : all_dtypes())
    if (info.dtype != DType::i32 && info.dtype != DType::rocmfp3_mix && info.dtype != DType::rocmfp2_mix)
      all.push_back(info);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Every, FormatProduct, testing::ValuesIn(formats()),
                         [](const auto& format) { return std::string(format.param.name); });

TEST(Product, float_rows_may_have_any_width) {
  Random random{3};
  for (const int width :
       {1, 2, 7, 8, 9, 15, 17, 63, 65, 127, 129, 255, 257, 1000, 2047, 2049, 4095, 4097, 8191, 12289}) {
    std::vector<float> x(static_cast<std::size_t>(width)), y(x.size());
    for (float& v : x) v = random.unit();
    for (float& v : y) v = random.unit();
    const float expected = float_dot(x.data(), y.data(), width);
    for (const cpu::Level* level : cpu::available_levels())
      EXPECT_EQ(bits_of(expected), bits_of(level->dot(x.data(), y.data(), width))) << level->name << ", " << width;
  }
}

TEST(Rounding, every_level_has_the_bits_of_round_block_int8) {
  constexpr int kBlocks = 4000;
  Random random{5};
  std::vector<float> x(32 * kBlocks);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t kind = i / 32 % 16;
    const std::uint32_t any = random.next() << 1 ^ random.next();
    x[i] = random.unit();
    if (kind == 1) x[i] *= 0x1p-118f;
    if (kind == 2) x[i] *= 0x1p-140f;
    if (kind == 3) x[i] *= 0x1p120f;
    if (kind == 4) x[i] = static_cast<float>(random.below(255) - 127) * 0.5f;  // ties
    if (kind == 5) x[i] = f32_of(any);                                         // infinities and NaNs among them
    if (kind == 6) x[i] = 0.0f;
    if (kind == 7) x[i] = -0.0f;
    if (kind == 8 && i % 32 == 5) x[i] = f32_of(kInfinity);
    if (kind == 9 && i % 32 == 31) x[i] = f32_of(kQuietNaN);
  }
  std::vector<std::int8_t> expected_codes(x.size());
  std::vector<float> expected_scales(kBlocks);
  std::vector<std::int16_t> expected_sums(2 * kBlocks);
  for (std::size_t b = 0; b < kBlocks; ++b) {
    std::int8_t* code = expected_codes.data() + 32 * b;
    expected_scales[b] = round_block_int8(x.data() + 32 * b, code);
    for (std::size_t half = 0; half < 2; ++half)
      expected_sums[2 * b + half] =
          static_cast<std::int16_t>(std::accumulate(code + 16 * half, code + 16 * half + 16, 0));
  }
  for (const cpu::Level* level : cpu::available_levels()) {
    std::vector<std::int8_t> codes(x.size());
    std::vector<float> scales(kBlocks);
    std::vector<std::int16_t> sums(2 * kBlocks);
    level->round_row(x.data(), static_cast<int>(x.size()), codes.data(), scales.data(), sums.data());
    EXPECT_EQ(expected_codes, codes) << level->name;
    EXPECT_EQ(expected_sums, sums) << level->name;
    EXPECT_EQ(0, std::memcmp(expected_scales.data(), scales.data(), sizeof(float) * kBlocks)) << level->name;
  }
}

}  // namespace
}  // namespace lockstep
