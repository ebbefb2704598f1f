// Every op on the GPU against the literal loops, bit for bit; products of quantised weights are in gpu_product_test.cc.
// Needs a GPU that the build has code for.
#include <array>
#include <functional>
#include <numeric>

#include "gpu_ops_support.h"
#include "tensor/tables.h"

namespace lockstep {
namespace {

TEST_F(GpuOps, an_output_that_is_zero_has_the_sign_that_the_literal_loop_gives_it) {
  // Rows of two superblocks, so that each of the eight lanes has a block of both. In the first one the integer dot is
  // 1, the weights' scale -2^-27 and the activations' below 2^-123: the product vanishes and leaves -0. In the second
  // the dot is 0, which times a negative scale is -0 again.
  constexpr int kWidth = 512, kRows = 5;
  std::size_t point = 0, eights[2] = {}, other = 0;  // places in a grid point of the levels 8 and 25
  for (;; ++point) {
    ASSERT_LT(point, std::size(kGridIq2Xxs));
    std::size_t n = 0;
    bool has_other = false;
    for (std::size_t i = 0; i < 8; ++i) {
      const int level = kLevelIq2[kGridIq2Xxs[point] >> (2 * i) & 3];
      if (level == 8 && n < 2) eights[n++] = i;
      if (level == 25) other = i, has_other = true;
    }
    if (n == 2 && has_other) break;
  }
  std::vector<std::byte> bytes(row_bytes(DType::iq2_xxs, kWidth) * kRows);
  for (std::size_t at = 0; at < bytes.size(); at += 66) {
    bytes[at] = std::byte{0x01}, bytes[at + 1] = std::byte{0x80};  // -2^-24
    for (std::size_t i = 0; i < 64; ++i) bytes[at + 2 + i] = i % 8 < 4 ? static_cast<std::byte>(point) : std::byte{0};
  }
  Weight host;
  host.dtype = DType::iq2_xxs;
  host.width = kWidth;
  host.rows = kRows;
  host.data = bytes.data();
  host.row_bytes = row_bytes(DType::iq2_xxs, kWidth);
  const Weight device = ends_->device->prepare(host);
  for (const int tokens : {1, 3, 12}) {
    std::vector<float> x(static_cast<std::size_t>(tokens) * kWidth);
    for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t)
      for (std::size_t block = 0; block < 8; ++block) {
        float* in_block = &x[t * kWidth + block * 32];
        constexpr float kStep = 0x1p-117f / 127;
        in_block[eights[0]] = 127 * kStep;  // 8 * 127 - 8 * 127 + 25 * 1 - 8 * 3 = 1
        in_block[8 + eights[0]] = -127 * kStep;
        in_block[other] = kStep;
        in_block[eights[1]] = -3 * kStep;
      }
    const Twin<float> values(*ends_, x), out(*ends_, static_cast<std::size_t>(tokens) * kRows);
    const TwinRounded rounded(*ends_, tokens, kWidth);
    on_both([&](Ops& ops) {
      const Input input = {rows_of(values, ops, tokens, kWidth), rounded.at(ops)};
      ops.round(input.rounded, input.values);
      ops.matmul(rows_of(out, ops, tokens, kRows), &ops == ends_->loops.get() ? host : device, input);
    });
    EXPECT_EQ(out.difference(), "") << tokens;
    EXPECT_EQ(bits_of(*out.at(*ends_->loops)), bits_of(-0.0f)) << "this case should make a negative zero";
  }
}

TEST_F(GpuOps, mix_formats_decode_by_the_books_of_their_plane) {
  for (const DType dtype : {DType::rocmfp3_mix, DType::rocmfp2_mix}) {
    constexpr int kWidth = 256, kRows = 7, kPlanes = 3;
    std::vector<MixBooks> books(kPlanes);
    for (int p = 0; p < kPlanes; ++p) {
      books[static_cast<std::size_t>(p)].books = p != 1;
      for (int b = 0; b < 16; ++b)
        books[static_cast<std::size_t>(p)].level[b / 8][b % 8] =
            random_normal(7, static_cast<std::uint64_t>(16 * p + b));
    }
    std::vector<std::byte> bytes(row_bytes(dtype, kWidth) * kRows * kPlanes);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random_u64(8, i) & 0x7fu);
    Weight host;
    host.dtype = dtype;
    host.width = kWidth;
    host.rows = kRows;
    host.planes = kPlanes;
    host.data = bytes.data();
    host.row_bytes = row_bytes(dtype, kWidth);
    host.books = books.data();
    const Weight device = ends_->device->prepare(host);
    const Twin<float> values(*ends_, random_floats(std::size_t{3} * kWidth, 9)), weights(*ends_, 3),
        out(*ends_, std::size_t{3} * kRows);
    const Twin<std::int32_t> experts(*ends_, std::vector<std::int32_t>{2, 1, 0});
    on_both([&](Ops& ops) {
      Input x;
      x.values = rows_of(values, ops, 3, kWidth);
      ops.matmul_experts(rows_of(out, ops, 3, kRows), &ops == ends_->loops.get() ? host : device, x,
                         {experts.at(ops), weights.at(ops), 3, 1}, false);
    });
    EXPECT_EQ(out.difference(), "") << info_of(dtype).name;
  }
}

TEST_F(GpuOps, float_rows_may_have_any_width) {
  for (const int width : {1, 7, 8, 9, 65, 255, 1000, 2047, 2049, 4097, 12289}) {
    for (const int tokens : {1, 9}) {
      constexpr int kRows = 5;
      const std::vector<std::byte> bytes = random_rows(DType::f16, width, kRows, 5);
      Weight host;
      host.dtype = DType::f16;
      host.width = width;
      host.rows = kRows;
      host.data = bytes.data();
      host.row_bytes = row_bytes(DType::f16, width);
      const Weight device = ends_->device->prepare(host);
      const Twin<float> values(*ends_, random_floats(static_cast<std::size_t>(tokens) * width, 6)),
          out(*ends_, static_cast<std::size_t>(tokens) * kRows);
      on_both([&](Ops& ops) {
        Input x;
        x.values = rows_of(values, ops, tokens, width);
        ops.matmul(rows_of(out, ops, tokens, kRows), &ops == ends_->loops.get() ? host : device, x);
      });
      EXPECT_EQ(out.difference(), "") << width << " wide, " << tokens << " tokens";
    }
  }
}

/// Two matrices by one input.
struct FloatCase {
  int width, tokens, rows[2];
};
class GpuFloats : public GpuOps {
 public:
  static void expect_same_bits(DType dtype, const FloatCase& c) {
    const Twin<float> values(*ends_, random_floats(static_cast<std::size_t>(c.tokens) * c.width, 31));
    std::vector<std::vector<std::byte>> bytes;
    Weight host[2], device[2];
    std::vector<std::unique_ptr<Twin<float>>> outs;
    for (std::size_t i = 0; i < 2; ++i) {
      bytes.push_back(random_rows(dtype, c.width, c.rows[i], 32 + i));
      host[i].dtype = dtype;
      host[i].width = c.width;
      host[i].rows = c.rows[i];
      host[i].data = bytes.back().data();
      host[i].row_bytes = row_bytes(dtype, c.width);
      device[i] = ends_->device->prepare(host[i]);
      outs.push_back(std::make_unique<Twin<float>>(*ends_, static_cast<std::size_t>(c.tokens) * c.rows[i]));
    }
    on_both([&](Ops& ops) {
      Input x;
      x.values = rows_of(values, ops, c.tokens, c.width);
      std::vector<Ops::Part> parts;
      for (std::size_t i = 0; i < 2; ++i)
        parts.push_back(
            {rows_of(*outs[i], ops, c.tokens, c.rows[i]), &ops == ends_->loops.get() ? &host[i] : &device[i]});
      ops.matmul_many(parts, x);
    });
    for (const auto& out : outs)
      EXPECT_EQ(out->difference(), "") << info_of(dtype).name << ", " << c.width << " wide, " << c.tokens << " tokens";
  }
};

TEST_F(GpuFloats, many_tokens_have_the_bits_of_the_literal_loop) {
  constexpr FloatCase kCases[] = {{1024, 130, {130, 64}},
                                  {2048, 49, {70, 129}},
                                  {4096, 128, {64, 65}},
                                  {4096, 131, {66, 190}},
                                  {8192, 50, {66, 64}}};
  for (const FloatCase& c : kCases) expect_same_bits(DType::f16, c);
}

TEST_F(GpuFloats, a_few_tokens_have_the_bits_of_the_literal_loop) {
  constexpr FloatCase kCases[] = {{1024, 2, {15, 33}},  {1024, 7, {17, 4}},  {2048, 3, {5, 9}},  {2048, 61, {3, 8}},
                                  {4096, 4, {1, 7}},    {4096, 8, {64, 3}},  {4096, 13, {5, 2}}, {4096, 3, {1021, 7}},
                                  {4096, 9, {1030, 2}}, {16384, 2, {24, 1}}, {16384, 5, {4, 3}}, {16384, 9, {24, 2}},
                                  {8192, 6, {3, 5}},    {12288, 2, {2, 3}}};
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32})
    for (const FloatCase& c : kCases) expect_same_bits(dtype, c);
}

// ---- Rows ----

TEST_F(GpuOps, many_tokens_by_few_long_float_rows_have_the_bits_of_the_literal_loop) {
  for (const auto& [width, rows, tokens] : {std::tuple{16384, 24, 69}, {4096, 4, 64}, {8192, 23, 300}}) {
    const Twin<float> values(*ends_, random_floats(static_cast<std::size_t>(tokens) * width, 34)),
        out(*ends_, static_cast<std::size_t>(tokens) * rows);
    const std::vector<std::byte> bytes = random_rows(DType::f16, width, rows, 35);
    Weight host;
    host.dtype = DType::f16;
    host.width = width;
    host.rows = rows;
    host.data = bytes.data();
    host.row_bytes = row_bytes(DType::f16, width);
    const Weight device = ends_->device->prepare(host);
    on_both([&](Ops& ops) {
      ops.matmul(rows_of(out, ops, tokens, rows), &ops == ends_->loops.get() ? host : device,
                 {rows_of(values, ops, tokens, width), {}});
    });
    EXPECT_EQ(out.difference(), "") << width << " wide, " << rows << " rows, " << tokens << " tokens";
  }
}

TEST_F(GpuOps, norms_have_the_order_of_a_float_dot_and_round_as_they_write) {
  for (const int width : {32, 64, 96, 512, 1024, 2048, 4096, 5024, 16384}) {
    constexpr int kRows = 3;
    const Twin<float> x(*ends_, random_floats(static_cast<std::size_t>(kRows) * width, 11)),
        weight(*ends_, random_floats(static_cast<std::size_t>(width), 12)),
        out(*ends_, static_cast<std::size_t>(kRows) * width);
    const TwinRounded rounded(*ends_, kRows, width);
    on_both([&](Ops& ops) {
      const Rows rows = rows_of(x, ops, kRows, width);
      ops.rms_norm_round(rows_of(out, ops, kRows, width), rounded.at(ops), rows, weight.at(ops), 1e-6f);
      ops.rms_norm(rows, rows, nullptr, 1e-6f);  // in place
    });
    EXPECT_EQ(out.difference() + rounded.difference() + x.difference(), "") << width;
  }
}

TEST_F(GpuOps, rounding_to_int8_is_the_same_for_values_of_every_kind) {
  constexpr int kWidth = 32 * 16, kRows = 40;
  std::vector<float> values = random_floats(std::size_t{kRows} * kWidth, 13);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t kind = i / 32 % 16;
    if (kind == 1) values[i] *= 0x1p-118f;
    if (kind == 2) values[i] *= 0x1p-140f;
    if (kind == 3) values[i] *= 0x1p120f;
    if (kind == 4) values[i] = static_cast<float>(static_cast<int>(i % 255) - 127) * 0.5f;
    if (kind == 6) values[i] = 0.0f;
    if (kind == 7) values[i] = -0.0f;
    if (kind == 8 && i % 32 == 5) values[i] = f32_of(kInfinity);
    if (kind == 9 && i % 32 == 31) values[i] = f32_of(kQuietNaN);
  }
  const Twin<float> x(*ends_, values);
  const TwinRounded rounded(*ends_, kRows, kWidth);
  on_both([&](Ops& ops) { ops.round(rounded.at(ops), rows_of(x, ops, kRows, kWidth)); });
  EXPECT_EQ(rounded.difference(), "");
}

TEST_F(GpuOps, rotations_roundings_and_sums_by_position_have_the_bits_of_the_loops) {
  constexpr int kRows = 5, kHeads = 3, kWidth = 128, kRotary = 64;
  const Twin<Position> positions(*ends_, std::vector<Position>{0, 1, 4095, 100000, 1048575});
  const Twin<float> frequencies(*ends_, std::vector<float>(kRotary / 2, 0.37f)),
      turns(*ends_, std::size_t{kRows} * kRotary), x(*ends_, random_floats(std::size_t{kRows} * kHeads * kWidth, 14)),
      table(*ends_, random_floats(std::size_t{4} * kHeads * kWidth, 15));
  on_both([&](Ops& ops) {
    const Rows rows = rows_of(x, ops, kRows, kHeads * kWidth);
    ops.rotation_table(rows_of(turns, ops, kRows, kRotary), positions.at(ops), frequencies.at(ops));
    ops.rotate(rows, kWidth, rows_of(turns, ops, kRows, kRotary), false);
    ops.add_by_position(rows, rows_of(table, ops, 4, kHeads * kWidth), positions.at(ops));
    ops.scale(rows, 0.37f);
    ops.rotate(rows, kWidth, rows_of(turns, ops, kRows, kRotary), true);
  });
  EXPECT_EQ(turns.difference() + x.difference(), "");
  for (const int channels : {384, 100, 64}) {
    on_both([&](Ops& ops) { ops.round_fp8(rows_of(x, ops, kRows, kHeads * kWidth), channels); });
    EXPECT_EQ(x.difference(), "") << channels;
  }
  for (const int width : {32, 64, 128}) {
    on_both([&](Ops& ops) { ops.hadamard_fp4(rows_of(x, ops, kRows, kHeads * kWidth), width); });
    EXPECT_EQ(x.difference(), "") << width;
  }
}

/// Every pair of a number of rows and a width.
std::vector<std::pair<int, int>> product_of(std::initializer_list<int> rows, std::initializer_list<int> widths) {
  std::vector<std::pair<int, int>> all;
  for (const int n : rows)
    for (const int width : widths) all.emplace_back(n, width);
  return all;
}

TEST_F(GpuOps, fused_ops_have_the_bits_of_the_ops_that_they_are_made_of) {
  constexpr int kHeads = 4, kRotary = 64, kExperts = 6;
  // Few rows and many have kernels of their own.
  for (const auto& [rows, width] : product_of({3, 11}, {96, 128, 512})) {
    const std::size_t floats = static_cast<std::size_t>(rows * kHeads) * static_cast<std::size_t>(width);
    const int all = kHeads * width;
    const Twin<float> x(*ends_, random_floats(floats, 61)), y(*ends_, random_floats(floats, 62)),
        z(*ends_, random_floats(floats, 63)),
        turns(*ends_, random_floats(static_cast<std::size_t>(rows) * kRotary, 64)),
        weight(*ends_, random_floats(static_cast<std::size_t>(width), 65));
    const TwinRounded rounded(*ends_, rows, all);
    on_both([&](Ops& ops) {
      const Rows table = rows_of(turns, ops, rows, kRotary);
      ops.rotate_round(rows_of(x, ops, rows, all), rounded.at(ops), width, table, true);
      ops.norm_rotate(rows_of(y, ops, rows, all), width, nullptr, 1e-6f, table, 0);
      ops.norm_rotate(rows_of(y, ops, rows, all), width, weight.at(ops), 1e-6f, table, width - kRotary);
      if (width == 128) ops.rotate_hadamard_fp4(rows_of(z, ops, rows, all), width, table);
    });
    EXPECT_EQ(x.difference() + rounded.difference() + y.difference() + z.difference(), "")
        << width << " wide, " << rows << " rows";
  }
  // One row has the mixes' product, collapse and norm in one kernel where the width is the model's.
  for (const auto& [rows, width] : product_of({1, 3, 8, 11}, {64, 1536, 4096})) {
    constexpr int kMixes = 24, kUsed = 2;
    std::vector<std::int32_t> chosen = {3, 1, 2, 2, 0, kExperts - 1};
    while (chosen.size() < static_cast<std::size_t>(rows * kUsed)) chosen.push_back(chosen[chosen.size() - 5]);
    const HyperSpec spec{4, 20, 1e-6f, 1e-6f};
    const std::size_t n = static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);
    const Twin<float> streams(*ends_, random_floats(4 * n, 66)), mixes(*ends_, static_cast<std::size_t>(rows) * kMixes),
        coefficients(*ends_, static_cast<std::size_t>(rows) * kMixes), out(*ends_, n),
        norm(*ends_, random_floats(static_cast<std::size_t>(width), 68)), parts(*ends_, random_floats(kUsed * n, 69)),
        shared(*ends_, random_floats(n, 70)), scale(*ends_, std::vector<float>{0.5f, 0.3f, 0.9f}),
        base(*ends_, random_floats(kMixes, 71)), weights(*ends_, static_cast<std::size_t>(rows) * kUsed),
        room(*ends_, n);
    const Twin<std::int32_t> experts(*ends_, chosen);
    const TwinRounded rounded(*ends_, rows, width);
    std::vector<std::uint16_t> halves;
    for (const float value : random_floats(std::size_t{kMixes} * 4 * static_cast<std::size_t>(width), 67, 0.3f))
      halves.push_back(f32_to_f16(value));
    Weight fn;
    fn.dtype = DType::f16;
    fn.width = 4 * width;
    fn.rows = kMixes;
    fn.row_bytes = row_bytes(DType::f16, 4 * width);
    fn.data = reinterpret_cast<const std::byte*>(halves.data());
    const Weight device_fn = ends_->device->prepare(fn);
    on_both([&](Ops& ops) {
      const Rows s = rows_of(streams, ops, rows, 4 * width), c = rows_of(coefficients, ops, rows, kMixes);
      const Rounded r = rounded.at(ops);
      Input input;
      input.values = s;
      ops.hyper_begin(c, rows_of(out, ops, rows, width), &r, rows_of(mixes, ops, rows, kMixes),
                      &ops == ends_->device.get() ? device_fn : fn, input, scale.at(ops), base.at(ops), spec,
                      norm.at(ops), 1e-6f);
      ops.combine_expand(s, rows_of(room, ops, rows, width), rows_of(parts, ops, rows * kUsed, width),
                         {experts.at(ops), weights.at(ops), rows, kUsed}, rows_of(shared, ops, rows, width), c);
    });
    EXPECT_EQ(
        mixes.difference() + coefficients.difference() + out.difference() + rounded.difference() + streams.difference(),
        "")
        << width << " wide, " << rows << " rows";
  }
}

TEST_F(GpuOps, several_products_of_one_input_are_each_what_it_is_alone) {
  constexpr int kWidth = 512;
  const DType dtypes[] = {DType::q8_0, DType::f16, DType::q8_0, DType::q2_k, DType::f16};
  for (const int tokens : {1, 3, 20}) {
    const Twin<float> values(*ends_, random_floats(static_cast<std::size_t>(tokens) * kWidth, 81));
    const TwinRounded rounded(*ends_, tokens, kWidth);
    std::vector<std::vector<std::byte>> bytes;
    std::vector<Weight> host, device;
    std::vector<std::unique_ptr<Twin<float>>> outs;
    for (const DType dtype : dtypes) {
      Weight w;
      w.dtype = dtype;
      w.width = kWidth;
      w.rows = 30 + static_cast<int>(host.size()) * 11;
      bytes.push_back(random_rows(dtype, kWidth, w.rows, host.size()));
      w.data = bytes.back().data();
      w.row_bytes = row_bytes(dtype, kWidth);
      host.push_back(w);
      device.push_back(ends_->device->prepare(w));
      outs.push_back(std::make_unique<Twin<float>>(*ends_, static_cast<std::size_t>(tokens) * w.rows));
    }
    on_both([&](Ops& ops) {
      const Input x = {rows_of(values, ops, tokens, kWidth), rounded.at(ops)};
      ops.round(x.rounded, x.values);
      std::vector<Ops::Part> parts;
      for (std::size_t i = 0; i < host.size(); ++i)
        parts.push_back(
            {rows_of(*outs[i], ops, tokens, host[i].rows), &ops == ends_->loops.get() ? &host[i] : &device[i]});
      ops.matmul_many(parts, x);
    });
    for (std::size_t i = 0; i < outs.size(); ++i)
      EXPECT_EQ(outs[i]->difference(), "") << i << ", " << tokens << " tokens";
  }
}

TEST_F(GpuOps, streams_are_mixed_by_the_same_coefficients) {
  for (const int width : {64, 4096}) {
    constexpr int kRows = 3, kStreams = 4, kMixes = 24;
    const HyperSpec spec{kStreams, 20, 1e-6f, 1e-6f};
    const Twin<float> x(*ends_, random_floats(std::size_t{kRows} * static_cast<std::size_t>(width), 16)),
        mixes(*ends_, random_floats(std::size_t{kRows} * kMixes, 17, 30.0f)),
        streams(*ends_, std::size_t{kRows * kStreams} * static_cast<std::size_t>(width)),
        coefficients(*ends_, std::size_t{kRows} * kMixes), head(*ends_, std::size_t{kRows} * kStreams),
        out(*ends_, std::size_t{kRows} * static_cast<std::size_t>(width)),
        scale(*ends_, std::vector<float>{0.5f, 0.3f, 0.9f}), base(*ends_, random_floats(kMixes, 18));
    on_both([&](Ops& ops) {
      const Rows s = rows_of(streams, ops, kRows, kStreams * width), c = rows_of(coefficients, ops, kRows, kMixes);
      ops.hyper_spread(s, rows_of(x, ops, kRows, width));
      for (int turn = 0; turn < 2; ++turn) {
        ops.hyper_coefficients(c, rows_of(mixes, ops, kRows, kMixes), s, scale.at(ops), base.at(ops), spec);
        ops.hyper_collapse(rows_of(out, ops, kRows, width), s, c);
        ops.hyper_expand(s, rows_of(out, ops, kRows, width), c);
      }
      ops.hyper_head_coefficients(rows_of(head, ops, kRows, kStreams), rows_of(mixes, ops, kRows, kStreams), s,
                                  scale.at(ops), base.at(ops), spec);
    });
    EXPECT_EQ(coefficients.difference() + streams.difference() + out.difference() + head.difference(), "") << width;
  }
}

TEST_F(GpuOps, experts_are_chosen_weighted_and_added_as_by_the_loops) {
  constexpr int kRows = 9, kExperts = 256, kUsed = 6, kWidth = 288;
  std::vector<float> logits = random_floats(std::size_t{kRows} * kExperts, 19, 2.0f);
  for (std::size_t i = 0; i < kExperts; ++i) logits[kExperts + i] = static_cast<float>(i % 3);  // ties
  for (std::size_t i = 0; i < kExperts; ++i) logits[2 * kExperts + i] = -90.0f;                 // scores that vanish
  std::vector<std::int32_t> named(std::size_t{4} * kUsed);
  std::iota(named.rbegin(), named.rend(), 3);
  const Twin<float> x(*ends_, logits), bias(*ends_, random_floats(kExperts, 20)),
      weights(*ends_, std::size_t{kRows} * kUsed),
      parts(*ends_, random_floats(std::size_t{kRows} * kUsed * kWidth, 21)),
      up(*ends_, random_floats(std::size_t{kRows} * kUsed * kWidth, 22, 8.0f)),
      shared(*ends_, random_floats(std::size_t{kRows} * kWidth, 23)), sum(*ends_, std::size_t{kRows} * kWidth),
      gated(*ends_, std::size_t{kRows} * kUsed * kWidth);
  const TwinRounded rounded(*ends_, kRows * kUsed, kWidth);
  const Twin<std::int32_t> experts(*ends_, std::size_t{kRows} * kUsed), table(*ends_, named),
      picked(*ends_, std::vector<std::int32_t>{2, 0});
  const Twin<Token> tokens(*ends_, std::vector<Token>{0, 1, 2, 3, 3, 2, 1, 0, 1});
  const Twin<float> gathered(*ends_, std::size_t{2} * kWidth);
  for (const int kind : {0, 1, 2}) {
    on_both([&](Ops& ops) {
      const Route route = {experts.at(ops), weights.at(ops), kRows, kUsed};
      ops.route_experts(route, rows_of(x, ops, kRows, kExperts), kind == 1 ? bias.at(ops) : nullptr,
                        kind == 2 ? table.at(ops) : nullptr, tokens.at(ops), 1.5f);
      const Rows slots = rows_of(parts, ops, kRows * kUsed, kWidth), out = rows_of(gated, ops, kRows * kUsed, kWidth);
      ops.swiglu_round(out, rounded.at(ops), slots, rows_of(up, ops, kRows * kUsed, kWidth), weights.at(ops), 10.0f);
      ops.combine_experts(rows_of(sum, ops, kRows, kWidth), out, route, rows_of(shared, ops, kRows, kWidth));
      ops.swiglu(out, slots, rows_of(up, ops, kRows * kUsed, kWidth), nullptr, 1.0f);
      ops.gather(rows_of(gathered, ops, 2, kWidth), rows_of(sum, ops, kRows, kWidth), picked.at(ops));
    });
    EXPECT_EQ(experts.difference() + weights.difference() + rounded.difference() + sum.difference() +
                  gated.difference() + gathered.difference(),
              "")
        << kind;
  }
}

}  // namespace
}  // namespace lockstep
