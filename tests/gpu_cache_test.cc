// The caches on the GPU against the literal loops: compressed rows, the indexer's choice, attention; several sequences
// in a step, positions on every side of a window, a chain and a page.
#include <gtest/gtest.h>

#include <functional>

#include "gpu_support.h"

namespace lockstep {
namespace {

using testing::BackEnds;
using testing::random_floats;
using testing::Twin;

struct Shape {
  const char* name;
  Mode mode;
  int heads, width, rotary, index_heads, key_width, window, top_k;
};
constexpr Shape kShapes[] = {
    {"official, the model's", Mode::official, 64, 512, 64, 64, 128, 128, 512},
    {"plain, the model's", Mode::plain, 64, 512, 64, 64, 128, 128, 512},
    {"official, small and odd", Mode::official, 5, 96, 32, 3, 32, 40, 7},
    {"plain, small and odd", Mode::plain, 2, 112, 16, 70, 64, 24, 33},
};

/// One sequence's caches on both sides. A layer of each ratio sees the same memory.
struct Sequence {
  Sequence(BackEnds& ends, const Shape& shape, const RowLayout& layout, int slots, int pages, std::uint64_t seed)
      : window(ends, rows_like(layout.row_bytes(), slots, layout, seed, false)),
        pending(ends, random_floats(static_cast<std::size_t>(kPendingSlots) * 4 * static_cast<std::size_t>(shape.width),
                                    seed + 1)),
        key_pending(
            ends, random_floats(static_cast<std::size_t>(kPendingSlots) * 4 * static_cast<std::size_t>(shape.key_width),
                                seed + 2)),
        rows(ends, rows_like(layout.row_bytes(), pages * kPageRows, layout, seed + 3, false)),
        keys(ends, rows_like(layout.key_bytes(), pages * kPageRows, layout, seed + 4, true)),
        table_loops(pages_of(rows.at(*ends.loops), layout.row_bytes(), pages)),
        key_table_loops(pages_of(keys.at(*ends.loops), layout.key_bytes(), pages)) {
    const std::size_t bytes = static_cast<std::size_t>(pages) * sizeof(std::byte*);
    device = ends.device.get();
    const auto on_device = pages_of(rows.at(*ends.device), layout.row_bytes(), pages),
               keys_on_device = pages_of(keys.at(*ends.device), layout.key_bytes(), pages);
    table_device = static_cast<std::byte**>(device->allocate(bytes));
    key_table_device = static_cast<std::byte**>(device->allocate(bytes));
    device->upload(table_device, on_device.data(), bytes);
    device->upload(key_table_device, keys_on_device.data(), bytes);
  }
  ~Sequence() {
    device->release(table_device);
    device->release(key_table_device);
  }

  static constexpr int kPendingSlots = 144;

  /// Packed rows that could be there: random codes, exponents and floats of ordinary size.
  static std::vector<std::byte> rows_like(std::size_t row_bytes, int count, const RowLayout& layout, std::uint64_t seed,
                                          bool is_key) {
    std::vector<std::byte> bytes(row_bytes * static_cast<std::size_t>(count));
    for (int r = 0; r < count; ++r) {
      std::byte* row = &bytes[static_cast<std::size_t>(r) * row_bytes];
      const int floats_at = layout.mode == Mode::plain ? 0 : layout.fp8_channels() + layout.fp8_blocks();
      const std::uint64_t id = static_cast<std::uint64_t>(r) << 12;
      if (layout.mode == Mode::official) {
        const int codes = is_key ? layout.key_width / 2 : layout.fp8_channels(),
                  end = is_key ? static_cast<int>(row_bytes) : floats_at;
        for (int i = 0; i < end; ++i) {
          std::byte b = static_cast<std::byte>(random_u64(seed, id + static_cast<std::uint64_t>(i)));
          if (i >= codes) b = static_cast<std::byte>(118 + (std::to_integer<int>(b) & 7));
          if (i < codes && !is_key && (b & std::byte{0x7f}) == std::byte{0x7f}) b ^= std::byte{1};
          row[i] = b;
        }
        if (is_key) continue;
      }
      const int floats = is_key ? layout.key_width : layout.mode == Mode::plain ? layout.width : layout.rotary;
      for (int i = 0; i < floats; ++i) {
        const float value = random_normal(seed, id + static_cast<std::uint64_t>(i), 2);
        std::memcpy(row + floats_at + 4 * i, &value, 4);
      }
    }
    return bytes;
  }
  static std::vector<std::byte*> pages_of(std::byte* base, std::size_t row_bytes, int pages) {
    std::vector<std::byte*> table;
    for (int p = 0; p < pages; ++p) table.push_back(base + static_cast<std::size_t>(p) * kPageRows * row_bytes);
    return table;
  }

  Twin<std::byte> window;
  Twin<float> pending, key_pending;
  Twin<std::byte> rows, keys;
  std::vector<std::byte*> table_loops, key_table_loops;
  std::byte **table_device, **key_table_device;
  Ops* device;
};

class GpuCaches : public ::testing::TestWithParam<Shape> {
 protected:
  static constexpr int kSlack = 16;
  struct Part {
    Position begin;
    int rows;
  };

  void make(const std::vector<Part>& parts, int pages) {
    layout_ = {GetParam().mode, GetParam().width, GetParam().rotary, GetParam().key_width};
    sequences_.clear();
    parts_ = parts;
    n_ = 0;
    for (std::size_t s = 0; s < parts.size(); ++s) {
      sequences_.push_back(
          std::make_unique<Sequence>(ends_, GetParam(), layout_, GetParam().window + kSlack, pages, 100 * s));
      n_ += parts[s].rows;
    }
  }
  void on_both(const std::function<void(Ops&, const Slices&)>& body) {
    for (Ops* ops : {ends_.loops.get(), ends_.device.get()}) {
      const bool is_device = ops == ends_.device.get();
      std::vector<SequenceSlice> slices;
      int row = 0;
      for (std::size_t s = 0; s < parts_.size(); ++s) {
        const Sequence& sequence = *sequences_[s];
        SequenceSlice slice;
        slice.first_row = row;
        slice.rows = parts_[s].rows;
        slice.begin = parts_[s].begin;
        slice.window = sequence.window.at(*ops);
        slice.window_slots = GetParam().window + kSlack;
        slice.pending = sequence.pending.at(*ops);
        slice.key_pending = sequence.key_pending.at(*ops);
        slice.pending_slots = Sequence::kPendingSlots;
        slice.pages = is_device ? sequence.table_device : sequence.table_loops.data();
        slice.key_pages = is_device ? sequence.key_table_device : sequence.key_table_loops.data();
        slices.push_back(slice);
        row += slice.rows;
      }
      const std::size_t bytes = slices.size() * sizeof(SequenceSlice);
      auto* memory = static_cast<SequenceSlice*>(ops->allocate(bytes));
      ops->upload(memory, slices.data(), bytes);
      body(*ops, {slices, memory});
      ops->synchronize();
      ops->release(memory);
    }
  }
  Rows rows_of(const Twin<float>& twin, const Ops& ops, int width) const { return {twin.at(ops), n_, width, width}; }
  std::size_t n(int width) const { return static_cast<std::size_t>(n_) * static_cast<std::size_t>(width); }

  /// Both sides choose the same rows for these queries of the indexer, `is_rounded` being whether they are fp4 already.
  void expect_same_choice(const std::vector<float>& values, std::uint64_t seed, bool is_rounded = true) {
    const Shape& shape = GetParam();
    const int width = shape.index_heads * shape.key_width;
    const Twin<float> queries(ends_, values), weights(ends_, random_floats(n(shape.index_heads), seed));
    const Twin<std::int32_t> ids(ends_, n(shape.top_k)), count(ends_, n(1));
    on_both([&](Ops& ops, const Slices& slices) {
      if (!is_rounded && shape.mode == Mode::official) ops.hadamard_fp4(rows_of(queries, ops, width), shape.key_width);
      ops.select_rows({ids.at(ops), count.at(ops), shape.top_k}, slices, rows_of(queries, ops, width),
                      rows_of(weights, ops, shape.index_heads), 4, shape.top_k, layout_);
    });
    EXPECT_EQ(ids.difference() + count.difference(), "") << shape.name << ", " << n_ << " rows";
  }
  /// Makes a key of a sequence far larger than the others.
  void enlarge_key(std::size_t sequence, int key, std::byte exponent = std::byte{155}) {
    // The exponent of its first block, or its first value.
    const std::byte value[4] = {std::byte{0}, std::byte{0}, std::byte{0x80}, std::byte{0x53}};
    const bool is_plain = GetParam().mode == Mode::plain;
    const std::size_t at = static_cast<std::size_t>(key) * layout_.key_bytes() +
                           (is_plain ? 0 : static_cast<std::size_t>(GetParam().key_width) / 2);
    for (Ops* ops : {ends_.loops.get(), ends_.device.get()})
      ops->upload(sequences_[sequence]->keys.at(*ops) + at, is_plain ? value : &exponent, is_plain ? sizeof value : 1);
  }

  BackEnds ends_;
  RowLayout layout_;
  std::vector<Part> parts_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  int n_ = 0;
};

TEST_P(GpuCaches, completed_windows_become_the_same_rows_and_keys) {
  const Shape& shape = GetParam();
  for (const int ratio : {4, 128}) {
    for (const bool is_key : {false, true}) {
      if (is_key && ratio == 128) continue;
      make({{0, 5}, {130, 1}, {127, 1}, {3, 270}, {4, 3}, {251, 9}}, 5);
      const int width = is_key ? shape.key_width : shape.width;
      const Twin<float> norm(ends_, random_floats(static_cast<std::size_t>(width), 31)),
          frequencies(ends_, random_floats(static_cast<std::size_t>(shape.rotary) / 2, 32));
      const CompressorSpec like{ratio, width, is_key, nullptr, nullptr, 1e-6f};
      const Twin<float> values(ends_, random_floats(n(like.input_width()), 33)),
          gates(ends_, random_floats(n(like.input_width()), 34, 3.0f)),
          kept(ends_, std::size_t{2} * n(like.input_width()));
      on_both([&](Ops& ops, const Slices& slices) {
        const CompressorSpec spec{ratio, width, is_key, norm.at(ops), frequencies.at(ops), 1e-6f};
        ops.compress(slices, rows_of(values, ops, like.input_width()), rows_of(gates, ops, like.input_width()), spec,
                     layout_);
        ops.keep_pending(kept.at(ops), slices, rows_of(values, ops, like.input_width()),
                         rows_of(gates, ops, like.input_width()));
      });
      for (const auto& sequence : sequences_)
        EXPECT_EQ(sequence->rows.difference() + sequence->keys.difference(), "") << shape.name << ", ratio " << ratio;
      EXPECT_EQ(kept.difference(), "") << shape.name;
    }
  }
}

TEST_P(GpuCaches, what_a_step_of_few_or_many_rows_keeps_is_the_same) {
  const Shape& shape = GetParam();
  const std::vector<std::vector<Part>> steps = {{{127, 1}}, {{130, 1}, {3, 2}, {251, 5}}, {{126, 40}, {7, 1}}};
  for (const auto& parts : steps) {
    for (const int ratio : {0, 4, 128}) {
      make(parts, 5);
      std::vector<Position> places;
      for (const Part& part : parts)
        for (int r = 0; r < part.rows; ++r) places.push_back(part.begin + r);
      const Twin<Position> positions(ends_, places);
      const Twin<float> window_rows(ends_, random_floats(n(shape.width), 71)),
          norm(ends_, random_floats(static_cast<std::size_t>(shape.width), 72)),
          turns(ends_, random_floats(n(shape.rotary), 73)),
          frequencies(ends_, random_floats(static_cast<std::size_t>(shape.rotary) / 2, 74)),
          head_weights(ends_, random_floats(n(shape.index_heads), 75));
      const Twin<std::byte> stage(ends_, n(static_cast<int>(layout_.row_bytes())));
      const int part_count = ratio == 4 ? 2 : ratio == 0 ? 0 : 1;
      std::vector<std::unique_ptr<Twin<float>>> values, gates, biases, stages;
      for (int p = 0; p < part_count; ++p) {
        const int width = (ratio == 4 ? 2 : 1) * (p == 0 ? shape.width : shape.key_width);
        const auto seed = static_cast<std::uint64_t>(80 + 4 * p);
        values.push_back(std::make_unique<Twin<float>>(ends_, random_floats(n(width), seed)));
        gates.push_back(std::make_unique<Twin<float>>(ends_, random_floats(n(width), seed + 1, 3.0f)));
        biases.push_back(std::make_unique<Twin<float>>(
            ends_, random_floats(static_cast<std::size_t>(ratio) * static_cast<std::size_t>(width), seed + 2)));
        stages.push_back(std::make_unique<Twin<float>>(ends_, 2 * n(width)));
      }
      on_both([&](Ops& ops, const Slices& slices) {
        Ops::KeptRows kept;
        kept.window_rows = rows_of(window_rows, ops, shape.width);
        kept.norm = norm.at(ops);
        kept.epsilon = 1e-6f;
        kept.turns = rows_of(turns, ops, shape.rotary);
        kept.fp8_channels = shape.mode == Mode::official ? layout_.fp8_channels() : 0;
        kept.stage = stage.at(ops);
        kept.positions = positions.at(ops);
        for (int p = 0; p < part_count; ++p) {
          const auto i = static_cast<std::size_t>(p);
          const int row_width = p == 0 ? shape.width : shape.key_width, width = (ratio == 4 ? 2 : 1) * row_width;
          kept.parts[kept.part_count++] = {rows_of(*values[i], ops, width),
                                           rows_of(*gates[i], ops, width),
                                           ConstRows(biases[i]->at(ops), ratio, width, width),
                                           {ratio, row_width, p == 1, norm.at(ops), frequencies.at(ops), 1e-6f},
                                           stages[i]->at(ops)};
        }
        if (ratio == 4) {
          kept.head_weights = rows_of(head_weights, ops, shape.index_heads);
          kept.head_scale = 0.011f;
        }
        ops.keep_rows(kept, slices, layout_);
      });
      const std::string what = std::string(shape.name) + ", ratio " + std::to_string(ratio);
      EXPECT_EQ(window_rows.difference() + stage.difference() + head_weights.difference(), "") << what;
      for (const auto& one : stages) EXPECT_EQ(one->difference(), "") << what;
      for (const auto& sequence : sequences_)
        EXPECT_EQ(sequence->rows.difference() + sequence->keys.difference(), "") << what;
    }
  }
}

TEST_P(GpuCaches, the_same_rows_are_chosen_and_attended) {
  const Shape& shape = GetParam();
  const std::vector<std::vector<Part>> steps = {{{0, 1}},
                                                {{2500, 1}},
                                                {{0, 3}, {60, 2}, {2999, 1}},
                                                {{9001, 2}},
                                                {{shape.window - 2, 4}, {1030, 3}, {40, 5}, {4 * shape.top_k, 6}},
                                                {{3070, 12}, {2500, 5}},
                                                {{0, 13}, {100, 14}}};
  for (const auto& parts : steps) {
    for (const int ratio : {0, 4, 128}) {
      make(parts, 36);
      const int heads_width = shape.heads * shape.width;
      Twin<float> window_rows(ends_, random_floats(n(shape.width), 41));
      const Twin<float> queries(ends_, random_floats(n(heads_width), 42)), out(ends_, n(heads_width)),
          sinks(ends_, random_floats(static_cast<std::size_t>(shape.heads), 43)),
          index_queries(ends_, random_floats(n(shape.index_heads * shape.key_width), 44)),
          weights(ends_, random_floats(n(shape.index_heads), 45)), heads(ends_, random_floats(n(heads_width), 46)),
          turns(ends_, random_floats(n(shape.rotary), 47));
      const testing::TwinRounded rounded(ends_, n_, heads_width);
      const Twin<std::int32_t> ids(ends_, n(shape.top_k)), count(ends_, n(1));
      const Twin<std::byte> stage(ends_, n(static_cast<int>(layout_.row_bytes())));
      on_both([&](Ops& ops, const Slices& slices) {
        Selection selection{ids.at(ops), count.at(ops), shape.top_k};
        if (shape.mode == Mode::official) ops.round_fp8(rows_of(window_rows, ops, shape.width), layout_.fp8_channels());
        if (ratio == 4) {
          if (shape.mode == Mode::official)
            ops.hadamard_fp4(rows_of(index_queries, ops, shape.index_heads * shape.key_width), shape.key_width);
          ops.select_rows(selection, slices, rows_of(index_queries, ops, shape.index_heads * shape.key_width),
                          rows_of(weights, ops, shape.index_heads), ratio, shape.top_k, layout_);
        }
        ops.attend(rows_of(out, ops, heads_width), rows_of(queries, ops, heads_width),
                   rows_of(window_rows, ops, shape.width), slices, shape.window, ratio,
                   ratio == 4 ? &selection : nullptr, sinks.at(ops), 0.05f, layout_);
        const Rounded heads_rounded = rounded.at(ops);
        ops.attend_heads(rows_of(heads, ops, heads_width), &heads_rounded, rows_of(window_rows, ops, shape.width),
                         slices, shape.window, ratio, ratio == 4 ? &selection : nullptr, sinks.at(ops), 0.05f,
                         rows_of(turns, ops, shape.rotary), 1e-6f, layout_);
        ops.pack_window(stage.at(ops), slices, rows_of(window_rows, ops, shape.width), layout_);
      });
      EXPECT_EQ(ids.difference() + count.difference(), "")
          << shape.name << ", ratio " << ratio << ", " << n_ << " rows";
      EXPECT_EQ(out.difference(), "") << shape.name << ", ratio " << ratio << ", " << n_ << " rows";
      EXPECT_EQ(heads.difference() + rounded.difference(), "")
          << shape.name << ", ratio " << ratio << ", " << n_ << " rows";
      EXPECT_EQ(stage.difference(), "") << shape.name << ", ratio " << ratio << ", " << n_ << " rows";
    }
  }
}

TEST_P(GpuCaches, queries_and_keys_that_are_not_ordinary_fp4_are_scored_by_the_same_loop) {
  const Shape& shape = GetParam();
  for (const auto& parts : std::vector<std::vector<Part>>{{{2990, 9}, {2700, 2}}, {{2990, 4}, {2700, 2}}}) {
    make(parts, 13);
    std::vector<float> values = random_floats(n(shape.index_heads * shape.key_width), 52);
    const std::size_t row = values.size() / static_cast<std::size_t>(n_);
    for (std::size_t i = 0; i < 3 * row; ++i) {  // a row that is fp4, one nearly, one of zeros; the others are not
      values[i] = std::copysign(i % 32 == 0 ? 6.0f : 0.5f, values[i]);
      if (i == row + 77) values[i] = 5.0f;
      if (i >= 2 * row) values[i] = 0.0f;
    }
    if (shape.mode == Mode::official) {  // the exponents of some keys
      for (const auto& [key, byte] : {std::pair{3, 200}, {70, 1}, {150, 60}, {290, 190}, {291, 255}})
        enlarge_key(0, key, static_cast<std::byte>(byte));
    }
    expect_same_choice(values, 53);
  }
}

TEST_P(GpuCaches, equal_scores_go_to_the_lower_row) {
  for (const Part& part : {Part{3100, 2}, Part{20001, 1}, Part{60001, 1}}) {  // 775 scores, 5,000, 15,000
    make({part}, static_cast<int>(part.begin / 4 / kPageRows) + 2);
    expect_same_choice(std::vector<float>(n(GetParam().index_heads * GetParam().key_width), 0.0f), 51);
  }
}

TEST_P(GpuCaches, more_compressed_rows_than_a_block_takes_at_a_time_are_attended) {
  const Shape& shape = GetParam();
  for (const auto& parts : std::vector<std::vector<Part>>{{{70001, 1}}, {{140001, 1}}, {{131071, 1}, {66000, 2}}}) {
    make(parts, 20);
    const int heads_width = shape.heads * shape.width;
    const Twin<float> window_rows(ends_, random_floats(n(shape.width), 61)),
        heads(ends_, random_floats(n(heads_width), 62)), turns(ends_, random_floats(n(shape.rotary), 63)),
        sinks(ends_, random_floats(static_cast<std::size_t>(shape.heads), 64));
    const testing::TwinRounded rounded(ends_, n_, heads_width);
    on_both([&](Ops& ops, const Slices& slices) {
      if (shape.mode == Mode::official) ops.round_fp8(rows_of(window_rows, ops, shape.width), layout_.fp8_channels());
      const Rounded heads_rounded = rounded.at(ops);
      ops.attend_heads(rows_of(heads, ops, heads_width), &heads_rounded, rows_of(window_rows, ops, shape.width), slices,
                       shape.window, 128, nullptr, sinks.at(ops), 0.05f, rows_of(turns, ops, shape.rotary), 1e-6f,
                       layout_);
    });
    EXPECT_EQ(heads.difference() + rounded.difference(), "") << shape.name << ", " << n_ << " rows";
  }
}

TEST_P(GpuCaches, scores_far_above_the_others_leave_these_in_order) {
  for (const Part& part : {Part{3100, 2}, Part{60001, 2}}) {
    make({part}, static_cast<int>(part.begin / 4 / kPageRows) + 2);
    for (const int key : {5, 9, 77, 200, 201, 300, 301, 302, 500}) enlarge_key(0, key);
    expect_same_choice(random_floats(n(GetParam().index_heads * GetParam().key_width), 52), 53, false);
  }
}

TEST_P(GpuCaches, rows_are_chosen_from_many_scores) {
  const std::vector<std::vector<Part>> steps = {
      {{16387, 1}}, {{30001, 2}}, {{33001, 1}, {40, 1}, {2100, 1}, {70001, 1}}, {{140001, 1}}};
  for (const auto& parts : steps) {
    Position longest = 0;
    for (const Part& part : parts) longest = std::max(longest, part.begin);
    make(parts, static_cast<int>(longest / 4 / kPageRows) + 2);
    expect_same_choice(random_floats(n(GetParam().index_heads * GetParam().key_width), 54), 55, false);
  }
}

TEST_P(GpuCaches, rows_that_lie_together_are_chosen_from_many) {
  make({{70001, 1}}, 275);
  for (int key = 9000; key < 9900; ++key) enlarge_key(0, key, static_cast<std::byte>(128 + key % 7));
  expect_same_choice(random_floats(n(GetParam().index_heads * GetParam().key_width), 56), 57, false);
}

INSTANTIATE_TEST_SUITE_P(Every, GpuCaches, ::testing::ValuesIn(kShapes), [](const auto& shape) {
  std::string name = shape.param.name;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
});

}  // namespace
}  // namespace lockstep
