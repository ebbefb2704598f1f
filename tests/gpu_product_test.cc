// Products of every format on the GPU, and what is fused with them, against the literal loops, bit for bit. Needs a GPU
// that the build has code for.
#include <array>
#include <functional>
#include <numeric>

#include "gpu_ops_support.h"
#include "tensor/tables.h"

namespace lockstep {
namespace {

TEST_P(GpuProduct, every_width_has_the_bits_of_the_literal_loop) {
  for (const int width : {32, 64, 96, 256, 512, 544, 768, 1024, 2048, 2304, 4096, 4352, 8192, 8448}) {
    if (!allows(width)) continue;
    for (const int tokens : {1, 3, 9, 70}) {
      if (tokens == 70 && width > 4096) continue;
      const int rows = tokens == 70 ? 19 : 37;
      Operands o(GetParam().dtype, rows, width, 1, tokens, width);
      const Twin<float> out(*ends_, static_cast<std::size_t>(tokens) * rows);
      on_both([&](Ops& ops) { ops.matmul(rows_of(out, ops, tokens, rows), o.weight(ops), o.input(ops)); });
      EXPECT_EQ(out.difference(), "") << width << " wide, " << tokens << " tokens";
    }
  }
}

TEST_P(GpuProduct, experts_and_groups_have_the_bits_of_the_literal_loop) {
  constexpr int kExperts = 5, kUsed = 2, kRows = 33, kWidth = 512;
  for (const int tokens : {1, 4, 130}) {
    for (const bool per_slot : {false, true}) {
      const int slots = tokens * kUsed;
      Operands o(GetParam().dtype, kRows, kWidth, kExperts, per_slot ? slots : tokens, kWidth);
      std::vector<std::int32_t> experts(static_cast<std::size_t>(slots));
      for (int s = 0; s < slots; ++s) experts[static_cast<std::size_t>(s)] = (s * s + s / 3) % (kExperts - 1);
      const Twin<std::int32_t> chosen(*ends_, experts);
      const Twin<float> weights(*ends_, static_cast<std::size_t>(slots)),
          out(*ends_, static_cast<std::size_t>(slots) * kRows);
      on_both([&](Ops& ops) {
        ops.matmul_experts(rows_of(out, ops, slots, kRows), o.weight(ops), o.input(ops),
                           {chosen.at(ops), weights.at(ops), tokens, kUsed}, per_slot);
      });
      EXPECT_EQ(out.difference(), "") << tokens << " tokens, an input per slot: " << per_slot;
    }
    constexpr int kGroups = 2, kGroupRows = 128;
    Operands o(GetParam().dtype, kGroups * kGroupRows, kWidth, 1, tokens, kGroups * kWidth);
    const Twin<float> out(*ends_, static_cast<std::size_t>(tokens) * kGroups * kGroupRows);
    on_both([&](Ops& ops) {
      ops.matmul_grouped(rows_of(out, ops, tokens, kGroups * kGroupRows), o.weight(ops), o.input(ops), kGroups);
    });
    EXPECT_EQ(out.difference(), "") << tokens << " tokens in groups";
  }
}

TEST_P(GpuProduct, experts_as_wide_as_the_models_have_the_bits_of_the_literal_loop) {
  constexpr int kExperts = 4, kUsed = 3, kRows = 70;  // more rows than a thread block makes at a time
  for (const int width : {2048, 4096}) {
    for (const int tokens : {1, 2}) {
      for (const bool per_slot : {false, true}) {
        const int slots = tokens * kUsed;
        Operands o(GetParam().dtype, kRows, width, kExperts, per_slot ? slots : tokens, width);
        const Twin<std::int32_t> chosen(*ends_, std::vector<std::int32_t>{3, 0, 2, 1, 3, 0});
        const Twin<float> weights(*ends_, static_cast<std::size_t>(slots)),
            out(*ends_, static_cast<std::size_t>(slots) * kRows),
            second(*ends_, static_cast<std::size_t>(slots) * kRows);
        on_both([&](Ops& ops) {
          const Ops::Part parts[] = {{rows_of(out, ops, slots, kRows), &o.weight(ops)},
                                     {rows_of(second, ops, slots, kRows), &o.weight(ops)}};
          ops.matmul_experts_many(parts, o.input(ops), {chosen.at(ops), weights.at(ops), tokens, kUsed}, per_slot);
        });
        EXPECT_EQ(out.difference() + second.difference(), "")
            << width << " wide, " << tokens << " tokens, an input per slot: " << per_slot;
      }
    }
  }
}

/// The formats whose weights the tile kernel decodes where it multiplies them.
class GpuExperts : public GpuProduct {};

TEST_P(GpuExperts, many_tokens_by_experts_as_wide_as_the_models_have_the_bits_of_the_literal_loop) {
  // More rows than a thread block has, tiles of some slots to whole ones, experts with several tiles and one without
  // any.
  constexpr int kExperts = 6;
  for (const int width : {2048, 4096}) {
    for (const auto& [tokens, used, per_slot, rows] :
         {std::tuple{97, 1, true, 70}, {99, 2, false, 33}, {401, 1, true, 277}}) {
      const int slots = tokens * used;
      Operands o(GetParam().dtype, rows, width, kExperts, per_slot ? slots : tokens, width);
      std::vector<std::int32_t> experts(static_cast<std::size_t>(slots));
      for (int s = 0; s < slots; ++s)
        experts[static_cast<std::size_t>(s)] = s % 2 == 0 ? 4 : s % 7 == 0 ? 2 : s % 2 + s % 3 % 2;
      const Twin<std::int32_t> chosen(*ends_, experts);
      const Twin<float> weights(*ends_, static_cast<std::size_t>(slots)),
          out(*ends_, static_cast<std::size_t>(slots) * rows), second(*ends_, static_cast<std::size_t>(slots) * rows);
      on_both([&](Ops& ops) {
        const Route route = {chosen.at(ops), weights.at(ops), tokens, used};
        const Ops::Part parts[] = {{rows_of(out, ops, slots, rows), &o.weight(ops)},
                                   {rows_of(second, ops, slots, rows), &o.weight(ops)}};
        ops.matmul_experts_many(parts, o.input(ops), route, per_slot);
        ops.matmul_experts(rows_of(second, ops, slots, rows), o.weight(ops), o.input(ops), route, per_slot);
      });
      EXPECT_EQ(out.difference() + second.difference(), "") << width << " wide, " << tokens << " tokens";
    }
  }
}

TEST_P(GpuExperts, experts_of_any_number_of_tokens_have_the_bits_of_the_literal_loop) {
  // Every number of eights that a tile is cut to, at its ends and between them.
  constexpr int kCounts[] = {3, 20, 37, 40, 41, 52, 0, 60, 128, 33};
  constexpr int kExperts = sizeof kCounts / sizeof *kCounts, kRows = 33;
  std::vector<std::int32_t> experts;
  for (int left = 128; left > 0; --left)
    for (int e = 0; e < kExperts; ++e)
      if (kCounts[e] >= left) experts.push_back(e);
  const int slots = static_cast<int>(experts.size());
  for (const int width : {2048, 4096}) {
    Operands o(GetParam().dtype, kRows, width, kExperts, slots, width);
    const Twin<std::int32_t> chosen(*ends_, experts);
    const Twin<float> weights(*ends_, experts.size()), out(*ends_, experts.size() * kRows);
    on_both([&](Ops& ops) {
      ops.matmul_experts(rows_of(out, ops, slots, kRows), o.weight(ops), o.input(ops),
                         {chosen.at(ops), weights.at(ops), slots, 1}, true);
    });
    EXPECT_EQ(out.difference(), "") << width << " wide";
  }
}

/// The formats that have a kernel for a few tokens.
class GpuThinProduct : public GpuProduct {};

TEST_P(GpuThinProduct, a_few_tokens_have_the_bits_of_the_literal_loop) {
  // More rows than the thread blocks of the device make in a step, none, one and several chunks, parts that end within
  // a tile, tokens that fill tiles of eight, two of them or four, or nearly, or need a second launch.
  constexpr struct {
    int width, tokens, rows[2];
  } kCases[] = {{1024, 6, {517, 130}}, {1024, 33, {300, 7}}, {2048, 8, {413, 1}},  {2048, 17, {70, 64}},
                {4096, 5, {203, 33}},  {4096, 16, {65, 96}}, {4096, 31, {129, 1}}, {8192, 9, {66, 130}},
                {8192, 26, {35, 37}},  {12288, 5, {97, 5}}};
  for (const auto& c : kCases) {
    Operands first(GetParam().dtype, c.rows[0], c.width, 1, c.tokens, c.width),
        second(GetParam().dtype, c.rows[1], c.width, 1, 1, 32);
    const Twin<float> out(*ends_, static_cast<std::size_t>(c.tokens) * c.rows[0]),
        other(*ends_, static_cast<std::size_t>(c.tokens) * c.rows[1]);
    on_both([&](Ops& ops) {
      const Ops::Part parts[] = {{rows_of(out, ops, c.tokens, c.rows[0]), &first.weight(ops)},
                                 {rows_of(other, ops, c.tokens, c.rows[1]), &second.weight(ops)}};
      ops.matmul_many(parts, first.input(ops));
    });
    EXPECT_EQ(out.difference() + other.difference(), "") << c.width << " wide, " << c.tokens << " tokens";
  }
}

TEST_P(GpuThinProduct, a_few_tokens_in_groups_or_spread_over_the_streams_have_the_bits_of_the_literal_loop) {
  constexpr int kGroups = 3, kGroupRows = 128, kStreams = 4, kRows = 77;
  for (const auto& [width, tokens] : {std::pair{1024, 20}, {2048, 7}, {4096, 9}, {8192, 5}}) {
    Operands grouped(GetParam().dtype, kGroups * kGroupRows, width, 1, tokens, kGroups * width);
    const Twin<float> out(*ends_, static_cast<std::size_t>(tokens) * kGroups * kGroupRows);
    Operands spread(GetParam().dtype, kRows, width, 1, tokens, width);
    const std::size_t n = static_cast<std::size_t>(tokens);
    const Twin<float> y(*ends_, n * kRows), streams(*ends_, random_floats(n * kStreams * kRows, 64)),
        coefficients(*ends_, random_floats(n * 24, 65));
    on_both([&](Ops& ops) {
      ops.matmul_grouped(rows_of(out, ops, tokens, kGroups * kGroupRows), grouped.weight(ops), grouped.input(ops),
                         kGroups);
      ops.matmul_expand(rows_of(streams, ops, tokens, kStreams * kRows), rows_of(y, ops, tokens, kRows),
                        spread.weight(ops), spread.input(ops), rows_of(coefficients, ops, tokens, 24));
    });
    EXPECT_EQ(out.difference() + streams.difference(), "") << width << " wide, " << tokens << " tokens";
  }
}

/// The formats whose rows of the model's attention pass through shared memory, a token at a time.
class GpuRing : public GpuProduct {};

TEST_P(GpuRing, products_with_what_comes_before_and_after_have_the_bits_of_the_literal_loop) {
  // Thread blocks of several sizes, several times as many as the device has places for, tokens and rows that go another
  // way.
  constexpr int kStreams = 4;
  for (const auto& [width, rows, tokens] : {std::tuple{1024, 256, 1},
                                            {1024, 1280, 1},
                                            {1024, 256, 3},
                                            {1024, 96, 1},
                                            {2048, 256, 1},
                                            {4096, 512, 1},
                                            {4096, 256, 2},
                                            {8192, 256, 1},
                                            {8192, 512, 1},
                                            {8192, 96, 1}}) {
    Operands o(GetParam().dtype, rows, width, 1, tokens, width);
    const std::size_t n = static_cast<std::size_t>(tokens), all = n * static_cast<std::size_t>(rows);
    const Twin<float> norm(*ends_, random_floats(static_cast<std::size_t>(width), 71)), plain(*ends_, all),
        normed(*ends_, all), again(*ends_, all), y(*ends_, all), streams(*ends_, random_floats(all * kStreams, 72)),
        coefficients(*ends_, random_floats(n * 24, 73)), values(*ends_, n * static_cast<std::size_t>(width));
    const TwinRounded rounded(*ends_, tokens, width);
    on_both([&](Ops& ops) {
      ops.matmul(rows_of(plain, ops, tokens, rows), o.weight(ops), o.input(ops));
      ops.matmul_expand(rows_of(streams, ops, tokens, kStreams * rows), rows_of(y, ops, tokens, rows), o.weight(ops),
                        o.input(ops), rows_of(coefficients, ops, tokens, 24));
      Ops::NormedInput x = {o.input(ops).values, norm.at(ops), 1e-6f, rows_of(values, ops, tokens, width),
                            rounded.at(ops),     false};
      ops.matmul_normed(rows_of(normed, ops, tokens, rows), o.weight(ops), x);
      ops.matmul_normed(rows_of(again, ops, tokens, rows), o.weight(ops), x);
    });
    EXPECT_EQ(plain.difference() + streams.difference() + normed.difference() + again.difference(), "")
        << width << " wide, " << rows << " rows, " << tokens << " tokens";
  }
}

TEST_P(GpuRing, groups_that_are_rounded_have_the_bits_of_the_literal_loop) {
  for (const auto& [width, groups, group_rows, tokens] :
       {std::tuple{4096, 3, 256, 1}, {1024, 2, 512, 1}, {4096, 2, 32, 1}, {4096, 2, 256, 3}}) {
    const int rows = groups * group_rows;
    Operands o(GetParam().dtype, rows, width, 1, tokens, groups * width);
    const Twin<float> out(*ends_, static_cast<std::size_t>(tokens) * static_cast<std::size_t>(rows));
    const TwinRounded rounded(*ends_, tokens, rows);
    on_both([&, count = groups](Ops& ops) {
      ops.matmul_grouped_round(rows_of(out, ops, tokens, rows), rounded.at(ops), o.weight(ops), o.input(ops), count);
    });
    EXPECT_EQ(out.difference() + rounded.difference(), "") << width << " wide, " << tokens << " tokens";
  }
}

TEST_P(GpuRing, long_matrices_of_one_input_have_the_bits_of_the_literal_loop) {
  // Four rows a warp, two, and too few for it; parts that end within a thread block.
  constexpr int kWidth = 4096;
  for (const auto& [first_rows, second_rows] : {std::pair{2043, 64}, {1025, 7}, {600, 33}}) {
    Operands first(GetParam().dtype, first_rows, kWidth, 1, 1, kWidth),
        second(GetParam().dtype, second_rows, kWidth, 1, 1, 32);
    const Twin<float> out(*ends_, static_cast<std::size_t>(first_rows)),
        other(*ends_, static_cast<std::size_t>(second_rows));
    on_both([&, rows = std::array{first_rows, second_rows}](Ops& ops) {
      const Ops::Part parts[] = {{rows_of(out, ops, 1, rows[0]), &first.weight(ops)},
                                 {rows_of(other, ops, 1, rows[1]), &second.weight(ops)}};
      ops.matmul_many(parts, first.input(ops));
    });
    EXPECT_EQ(out.difference() + other.difference(), "") << first_rows << " and " << second_rows << " rows";
  }
}

/// A format of each kind that the tile kernels tell apart.
class GpuWideProduct : public GpuProduct {};

TEST_P(GpuWideProduct, has_the_bits_of_its_parts) {
  // Enough tiles for the kernels of the largest shapes, beside parts of a size that other tests compare with the loops.
  constexpr int kRows = 1421, kTokens = 1390, kPart = 70;
  constexpr std::size_t kFloats = std::size_t{kTokens} * kRows;
  Ops& ops = *ends_->device;
  for (const int width : {1024, 8192}) {
    Operands o(GetParam().dtype, kRows, width, 1, kTokens, width);
    const Twin<float> whole(*ends_, kFloats), parts(*ends_, kFloats);
    const Input x = o.input(ops);
    ops.matmul(rows_of(whole, ops, kTokens, kRows), o.weight(ops), x);
    for (int first = 0; first < kTokens; first += kPart) {
      const int n = std::min(kPart, kTokens - first);
      ops.matmul(rows_of(parts, ops, kTokens, kRows).from(first, n), o.weight(ops),
                 {x.values.from(first, n), x.rounded.from(first, n)});
    }
    std::vector<float> a(kFloats), b(kFloats);
    ops.download(a.data(), whole.at(ops), kFloats * sizeof(float));
    ops.download(b.data(), parts.at(ops), kFloats * sizeof(float));
    std::size_t different = 0;
    for (std::size_t i = 0; i < kFloats; ++i) different += std::memcmp(&a[i], &b[i], sizeof(float)) == 0 ? 0 : 1;
    EXPECT_EQ(different, 0u) << width << " wide";
  }
}

TEST_P(GpuProduct, gated_experts_have_the_bits_of_their_parts) {
  constexpr int kExperts = 4, kUsed = 3, kRows = 96;
  for (const int width : {512, 2048, 4096}) {
    for (const int tokens : {1, 2, 9}) {
      const int slots = tokens * kUsed;
      Operands gate(GetParam().dtype, kRows, width, kExperts, tokens, width),
          up(GetParam().dtype, kRows, width, kExperts, 1, 32);
      std::vector<std::int32_t> experts(static_cast<std::size_t>(slots));
      for (int s = 0; s < slots; ++s) experts[static_cast<std::size_t>(s)] = (5 * s + s / 4) % kExperts;
      const Twin<std::int32_t> chosen(*ends_, experts);
      const Twin<float> weights(*ends_, random_floats(static_cast<std::size_t>(slots), 61)),
          out(*ends_, static_cast<std::size_t>(slots) * kRows), other(*ends_, static_cast<std::size_t>(slots) * kRows);
      const TwinRounded rounded(*ends_, slots, kRows);
      on_both([&](Ops& ops) {
        ops.matmul_experts_gated(rows_of(out, ops, slots, kRows), rows_of(other, ops, slots, kRows), rounded.at(ops),
                                 gate.weight(ops), up.weight(ops), gate.input(ops),
                                 {chosen.at(ops), weights.at(ops), tokens, kUsed}, 2.5f);
      });
      EXPECT_EQ(out.difference() + rounded.difference(), "") << width << " wide, " << tokens << " tokens";
    }
  }
}

/// The experts' formats that have a kernel for the second half of a token's experts, and one that has none.
class GpuDownExperts : public GpuProduct {};

TEST_P(GpuDownExperts, added_up_and_spread_have_the_bits_of_the_literal_loop) {
  // Rows that large blocks take, that small ones do, that none does; experts twice in a token, and not in their order.
  constexpr int kExperts = 5, kStreams = 4, kMixes = 24;
  constexpr struct {
    DType shared;
    int width, rows, tokens, used;
  } kCases[] = {{DType::q8_0, 2048, 96, 1, 6}, {DType::q8_0, 2048, 72, 1, 6}, {DType::q8_0, 2048, 64, 1, 3},
                {DType::q8_0, 2048, 40, 3, 6}, {DType::q8_0, 2048, 24, 9, 1}, {DType::q8_0, 2048, 37, 2, 4},
                {DType::f16, 2048, 64, 1, 6},  {DType::q8_0, 1024, 64, 1, 6}, {DType::q8_0, 2048, 32, 1, 7},
                {DType::q8_0, 2048, 16, 97, 2}};
  for (const auto& c : kCases) {
    const int slots = c.tokens * c.used;
    Operands down(GetParam().dtype, c.rows, c.width, kExperts, slots, c.width),
        last(c.shared, c.rows, c.width, 1, c.tokens, c.width);
    std::vector<std::int32_t> experts(static_cast<std::size_t>(slots));
    for (int s = 0; s < slots; ++s) experts[static_cast<std::size_t>(s)] = (3 * s + s / 4 + 2) % kExperts;
    const Twin<std::int32_t> chosen(*ends_, experts);
    const std::size_t n = static_cast<std::size_t>(c.tokens), rows = static_cast<std::size_t>(c.rows);
    const Twin<float> weights(*ends_, static_cast<std::size_t>(slots)),
        parts(*ends_, static_cast<std::size_t>(slots) * rows), y(*ends_, n * rows), shared(*ends_, n * rows),
        streams(*ends_, random_floats(n * kStreams * rows, 72)), coefficients(*ends_, random_floats(n * kMixes, 73));
    on_both([&](Ops& ops) {
      ops.matmul_experts_expand(rows_of(streams, ops, c.tokens, kStreams * c.rows), rows_of(y, ops, c.tokens, c.rows),
                                rows_of(parts, ops, slots, c.rows), rows_of(shared, ops, c.tokens, c.rows),
                                down.weight(ops), down.input(ops), {chosen.at(ops), weights.at(ops), c.tokens, c.used},
                                last.weight(ops), last.input(ops), rows_of(coefficients, ops, c.tokens, kMixes));
    });
    EXPECT_EQ(streams.difference(), "") << c.width << " wide, " << c.rows << " rows, " << c.tokens << " tokens, "
                                        << c.used << " used";
  }
}

TEST_P(GpuProduct, products_that_are_spread_over_the_streams_have_the_bits_of_their_parts) {
  for (const int width : {512, 4096}) {
    for (const int tokens : {1, 3, 9}) {
      constexpr int kRows = 37, kStreams = 4;
      Operands o(GetParam().dtype, kRows, width, 1, tokens, width);
      const std::size_t n = static_cast<std::size_t>(tokens);
      const Twin<float> y(*ends_, n * kRows), streams(*ends_, random_floats(n * kStreams * kRows, 62)),
          coefficients(*ends_, random_floats(n * 24, 63));
      on_both([&](Ops& ops) {
        ops.matmul_expand(rows_of(streams, ops, tokens, kStreams * kRows), rows_of(y, ops, tokens, kRows),
                          o.weight(ops), o.input(ops), rows_of(coefficients, ops, tokens, 24));
      });
      EXPECT_EQ(streams.difference(), "") << width << " wide, " << tokens << " tokens";
    }
  }
}

TEST_P(GpuProduct, embedding_rows_are_widened_exactly) {
  constexpr int kWidth = 512, kRows = 11;
  Operands o(GetParam().dtype, kRows, kWidth, 1, 1, 32);
  const Twin<Token> tokens(*ends_, std::vector<Token>{3, 0, 10, 3});
  const Twin<float> out(*ends_, std::size_t{4} * kWidth);
  on_both([&](Ops& ops) { ops.embed(rows_of(out, ops, 4, kWidth), o.weight(ops), tokens.at(ops)); });
  EXPECT_EQ(out.difference(), "");
}

std::vector<DTypeInfo> formats() {
  std::vector<DTypeInfo> all;
  for (const DTypeInfo& info : all_dtypes())
    if (info.dtype != DType::i32 && info.dtype != DType::rocmfp3_mix && info.dtype != DType::rocmfp2_mix)
      all.push_back(info);
  return all;
}
TEST_P(GpuExperts, they_begin_with_the_bits_of_their_parts_behind_a_norm_and_in_a_recording) {
  constexpr int kUsed = 3, kRows = 64, kMixes = 24;
  const HyperSpec spec{4, 20, 1e-6f, 1e-6f};
  for (const int width : {4096, 2048}) {
    for (const int tokens : {1, 2}) {
      for (const int experts : {37, 256}) {
        const std::size_t n = static_cast<std::size_t>(tokens) * width;
        const int slots = tokens * kUsed;
        Operands gate(GetParam().dtype, kRows, width, experts, 1, 32),
            up(GetParam().dtype, kRows, width, experts, 1, 32), shared_gate(DType::q8_0, kRows, width, 1, 1, 32),
            shared_up(DType::q8_0, kRows, width, 1, 1, 32), router(DType::f16, experts, width, 1, 1, 32);
        std::vector<std::int32_t> named;
        for (int i = 0; i < 4 * kUsed; ++i) named.push_back((7 * i + 3) % experts);
        const Twin<std::int32_t> table(*ends_, named), chosen(*ends_, static_cast<std::size_t>(slots));
        const Twin<Token> ids(*ends_, std::vector<Token>{2, 1});
        const Twin<float> streams(*ends_, random_floats(4 * n, 66)),
            mixes(*ends_, static_cast<std::size_t>(tokens) * kMixes),
            coefficients(*ends_, static_cast<std::size_t>(tokens) * kMixes), out(*ends_, n),
            norm(*ends_, random_floats(static_cast<std::size_t>(width), 68)),
            scale(*ends_, std::vector<float>{0.5f, 0.3f, 0.9f}), base(*ends_, random_floats(kMixes, 71)),
            bias(*ends_, random_floats(static_cast<std::size_t>(experts), 72)),
            logits(*ends_, static_cast<std::size_t>(tokens) * experts),
            weights(*ends_, static_cast<std::size_t>(slots));
        const TwinRounded rounded(*ends_, tokens, width);
        const Operands mixing(DType::f16, kMixes, 4 * width, 1, 1, 32);
        struct Middle {
          Middle(int rows)
              : gate(*ends_, static_cast<std::size_t>(rows) * kRows),
                up(*ends_, gate.count()),
                rounded(*ends_, rows, kRows) {}
          Twin<float> gate, up;
          TwinRounded rounded;
        };
        for (const int kind : {0, 1, 2}) {
          const Middle one(tokens), many(slots);
          const auto body = [&](Ops& ops) {
            const Rounded r = rounded.at(ops);
            const Rows x = rows_of(out, ops, tokens, width);
            ops.hyper_begin(rows_of(coefficients, ops, tokens, kMixes), x, &r, rows_of(mixes, ops, tokens, kMixes),
                            mixing.weight(ops), {rows_of(streams, ops, tokens, 4 * width), {}}, scale.at(ops),
                            base.at(ops), spec, norm.at(ops), 1e-6f);
            const auto half = [&](const Operands& g, const Operands& u, const Middle& m, int rows, float limit) {
              return Ops::ExpertsBegin::Half{
                  &g.weight(ops),    &u.weight(ops), rows_of(m.gate, ops, rows, kRows), rows_of(m.up, ops, rows, kRows),
                  m.rounded.at(ops), limit};
            };
            ops.begin_experts({&router.weight(ops),
                               rows_of(logits, ops, tokens, experts),
                               {chosen.at(ops), weights.at(ops), tokens, kUsed},
                               kind == 1 ? bias.at(ops) : nullptr,
                               kind == 2 ? table.at(ops) : nullptr,
                               ids.at(ops),
                               1.5f,
                               half(shared_gate, shared_up, one, tokens, 10.0f),
                               half(gate, up, many, slots, 2.5f),
                               0},
                              {x, r});
          };
          body(*ends_->loops);
          const std::uint64_t key[] = {static_cast<std::uint64_t>(kind),
                                       reinterpret_cast<std::uintptr_t>(one.gate.at(*ends_->device))};
          for (int i = 0; i < 3; ++i) {
            ends_->device->run(key, [&] { body(*ends_->device); });
            ends_->device->synchronize();
          }
          EXPECT_EQ(coefficients.difference() + chosen.difference() + weights.difference() + one.gate.difference() +
                        one.rounded.difference() + many.gate.difference() + many.rounded.difference(),
                    "")
              << width << " wide, " << tokens << " tokens, " << experts << " experts, choice " << kind;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, GpuProduct, ::testing::ValuesIn(formats()),
                         [](const auto& format) { return std::string(format.param.name); });
INSTANTIATE_TEST_SUITE_P(Every, GpuThinProduct, ::testing::Values(info_of(DType::q8_0)),
                         [](const auto& format) { return std::string(format.param.name); });
INSTANTIATE_TEST_SUITE_P(Every, GpuRing,
                         ::testing::Values(info_of(DType::q8_0), info_of(DType::f16), info_of(DType::q4_k)),
                         [](const auto& format) { return std::string(format.param.name); });
INSTANTIATE_TEST_SUITE_P(Every, GpuWideProduct,
                         ::testing::Values(info_of(DType::q8_0), info_of(DType::q4_k), info_of(DType::q2_k),
                                           info_of(DType::q6_k), info_of(DType::iq2_s), info_of(DType::nvfp4),
                                           info_of(DType::f16)),
                         [](const auto& format) { return std::string(format.param.name); });
INSTANTIATE_TEST_SUITE_P(Every, GpuDownExperts, ::testing::Values(info_of(DType::q2_k), info_of(DType::q4_k)),
                         [](const auto& format) { return std::string(format.param.name); });
INSTANTIATE_TEST_SUITE_P(Every, GpuExperts, ::testing::Values(info_of(DType::iq2_xxs), info_of(DType::q2_k)),
                         [](const auto& format) { return std::string(format.param.name); });

}  // namespace
}  // namespace lockstep
