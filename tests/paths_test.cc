// Synthetic models made in memory, time taken by phase, paths compared op by op, and the look at a back end before it
// is used.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "engine/bench.h"
#include "engine/compare_paths.h"
#include "engine/law_check.h"
#include "engine/self_test.h"
#include "engine/synth_model.h"
#include "engine_runs.h"
#include "poison_ops.h"
#include "replaying_ops.h"
#include "tensor/dequantize.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<Ops> cpu_ops() { return cpu::make_cpu_ops({1, "auto"}); }

std::unique_ptr<Engine> nano_in_memory(const std::string& types, std::unique_ptr<Ops> ops,
                                       Timing timing = Timing::off) {
  EngineOptions options;
  options.synth = law_model_plan("nano-" + types);
  options.max_rows = 64;
  options.timing = timing;
  return std::make_unique<Engine>(options, std::move(ops));
}

std::uint64_t hash_of(Engine& engine, const char* schedule = "chunk:64") {
  return model_hash(engine, law_tokens(engine.config().vocabulary), parse_schedule(schedule));
}

// ---- A model in memory ----

TEST(SynthModel, holds_the_bytes_of_the_file_that_synth_writes) {
  const fs::path path = fs::temp_directory_path() / ("lockstep-paths-" + std::to_string(::getpid()) + ".gguf");
  for (const char* types : {"q2", "mxfp4"}) {
    const auto plan = law_model_plan(std::string("nano-") + types);
    write_synth(*plan, path);
    const std::string file = testing::read_text(path);
    fs::remove(path);
    SynthModel model(*plan, 2);
    const Gguf gguf(model.bytes(), model.name());
    for (const GgufTensor& tensor : gguf.tensors()) model.need(tensor);
    ASSERT_EQ(model.bytes().size(), file.size()) << types;
    EXPECT_EQ(std::memcmp(model.bytes().data(), file.data(), file.size()), 0) << types;
  }
}

TEST(SynthModel, gives_back_the_memory_of_a_tensor_that_was_copied) {
  SynthModel model(*law_model_plan("nano-q2"), 1);
  const Gguf gguf(model.bytes(), model.name());
  const GgufTensor& tensor = gguf.tensor("output.weight");
  const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
  const std::span<const std::byte> middle = tensor.bytes.subspan(8192, 8192);
  model.need(tensor);
  EXPECT_FALSE(std::all_of(middle.begin(), middle.end(), is_zero));
  model.taken(tensor, true);
  EXPECT_FALSE(std::all_of(middle.begin(), middle.end(), is_zero));
  model.taken(tensor, false);
  EXPECT_TRUE(std::all_of(middle.begin(), middle.end(), is_zero));
}

TEST(SynthModel, an_engine_made_of_it_meets_the_golden_hash_of_the_file) {
  for (const char* types : {"q2", "rocmfp2"})
    EXPECT_EQ(hash_of(*nano_in_memory(types, cpu_ops())),
              find_line(golden_lines(), std::string("model nano-") + types + " official"));
}

TEST(MemoryPlan, flash_in_q2_with_a_million_tokens_fits_an_h200) {
  SynthOptions flash;
  flash.preset = "flash";
  flash.types = "q2";
  const MemoryPlan plan = plan_memory(plan_synth(flash), Mode::official, 1048576, 2048);
  EXPECT_GT(plan.weights, 86'000'000'000u);
  EXPECT_GT(plan.sequence, 4'000'000'000u);
  EXPECT_LT(plan.total(), 139ull << 30);  // what the card has free
}

TEST(Memory, no_op_reads_what_nobody_wrote) {
  for (const char* types : {"q2", "mxfp4"})
    for (const char* schedule : {"tokenwise", "mixed:1"})
      EXPECT_EQ(hash_of(*nano_in_memory(types, std::make_unique<testing::PoisonOps>(cpu_ops())), schedule),
                find_line(golden_lines(), std::string("model nano-") + types + " official"))
          << types << ", " << schedule;
}

// mixed:1 in steps of 64 plays a step of one row after one of seven, and one of two after one of nine.
TEST(Played, steps_that_are_played_again_between_others_give_the_same_bytes) {
  for (const char* types : {"q2", "f16"})
    for (const char* schedule : {"tokenwise", "mixed:1", "mixed:5"}) {
      auto ops = std::make_unique<testing::ReplayingOps>(cpu_ops());
      const testing::ReplayingOps& seen = *ops;
      const auto engine = nano_in_memory(types, std::move(ops));
      EXPECT_EQ(hash_of(*engine, schedule), find_line(golden_lines(), std::string("model nano-") + types + " official"))
          << types << ", " << schedule;
      EXPECT_GT(seen.played(), 0) << schedule;
    }
}

TEST(TimedOps, know_what_a_played_step_consists_of) {
  const auto engine = nano_in_memory("q2", std::make_unique<testing::ReplayingOps>(cpu_ops()), Timing::ops);
  EXPECT_EQ(hash_of(*engine, "tokenwise"), find_line(golden_lines(), "model nano-q2 official"));
  EXPECT_EQ(engine->timer()->times().steps, 138u);
  EXPECT_EQ(engine->timer()->times().untimed_steps, 0u);
  EXPECT_EQ(engine->timer()->times().kernels.at("attend_heads").calls, 138u * 6);
}

// ---- Time by phase ----

TEST(TimedOps, change_no_byte_and_tell_every_phase) {
  for (const Timing timing : {Timing::phases, Timing::ops}) {
    const auto engine = nano_in_memory("q2", cpu_ops(), timing);
    EXPECT_EQ(hash_of(*engine), find_line(golden_lines(), "model nano-q2 official"));
    const TimedOps::Times& times = engine->timer()->times();
    EXPECT_EQ(times.steps, 4u);  // 133 tokens by 64, and 5
    EXPECT_EQ(times.untimed_steps, 0u);
    for (int p = 0; p < kPhases; ++p)
      if (static_cast<StepPhase>(p) != StepPhase::sample) {
        EXPECT_GT(times.phases[static_cast<std::size_t>(p)].seconds, 0) << name_of(static_cast<StepPhase>(p));
      }
    EXPECT_EQ(times.of(StepPhase::sample).calls, 0u);
    EXPECT_EQ(times.of(StepPhase::router).calls, 4u * 6);  // a layer each
    EXPECT_EQ(times.kernels.empty(), timing == Timing::phases);
    if (timing != Timing::ops) continue;
    EXPECT_EQ(times.kernels.at("attend_heads").calls, 4u * 6);
    EXPECT_EQ(times.kernels.at("matmul_experts q2_K").calls, 4u * 6);
    EXPECT_EQ(times.kernels.at("matmul_experts q2_K").weight_bytes, 4u * 6 * 16 * 256 * 84);  // all 16 experts
  }
}

TEST(TimedOps, sampling_is_timed_by_the_host_and_nothing_counts_while_they_are_off) {
  const auto engine = nano_in_memory("q2", cpu_ops(), Timing::phases);
  const TimedOps::Times& times = engine->timer()->times();
  const std::vector<Token> tokens = {1, 2, 3};
  SequenceCache cache = engine->new_sequence();
  const BatchItem item{&cache, tokens, 1};
  engine->forward().step({&item, 1});
  engine->ops().enter(StepPhase::sample);
  usleep(2000);
  engine->ops().enter(StepPhase::none);
  EXPECT_GE(times.of(StepPhase::sample).seconds, 0.002);
  EXPECT_EQ(times.of(StepPhase::sample).calls, 1u);
  engine->timer()->set_timing(Timing::off);
  engine->timer()->reset();
  engine->forward().step({&item, 1});
  EXPECT_EQ(times.steps, 0u);
  EXPECT_EQ(times.seconds(), 0);
}

TEST(Bench, tells_where_the_time_goes_and_what_the_phases_of_a_token_read) {
  const auto engine = nano_in_memory("q4", cpu_ops(), Timing::ops);
  BenchOptions options;
  options.prefill = {40};
  options.decode = 3;
  options.depths = {10};
  options.batches = {1, 3};
  options.repetitions = 1;
  options.has_timing = true;
  const BenchReport report = run_bench(*engine, options);
  ASSERT_EQ(report.rows.size(), 3u);
  for (const BenchRow& row : report.rows) {
    EXPECT_EQ(row.by_phase.steps, row.is_prefill ? 1u : 3u);
    EXPECT_LE(row.by_phase.seconds(), row.phase_seconds);
    EXPECT_FALSE(row.by_op.kernels.empty());
    EXPECT_EQ(std::accumulate(row.bytes.phases.begin(), row.bytes.phases.end(), std::uint64_t{0}), row.bytes.total());
  }
  EXPECT_EQ(report.rows[2].batch, 3);
}

// ---- Paths ----

/// Adds up one router logit of one token in one layer from the other end.
class SwappedAddition final : public ForwardingOps {
 public:
  static constexpr int kLayer = 3;
  static constexpr Position kPosition = 17;
  explicit SwappedAddition(std::unique_ptr<Ops> ops) : ForwardingOps(*ops), owned_(std::move(ops)) {}

  void enter(StepPhase phase, int layer) override {
    is_there_ = phase == StepPhase::router && layer == kLayer;
    ForwardingOps::enter(phase, layer);
  }
  void rotation_table(Rows out, const Position* positions, const float* frequencies) override {
    first_ = positions[0];
    ForwardingOps::rotation_table(out, positions, frequencies);
  }
  void matmul(Rows out, const Weight& w, const Input& x) override {
    ForwardingOps::matmul(out, w, x);
    const Position row = kPosition - first_;
    if (!is_there_ || row < 0 || row >= out.rows) return;
    std::vector<float> weights(static_cast<std::size_t>(w.width));
    for (int element = 5; element < w.rows; ++element) {
      dequantize_row(w.dtype, w.row(0, element), w.width, weights.data());
      float sum = 0;
      for (int i = w.width - 1; i >= 0; --i)
        sum += weights[static_cast<std::size_t>(i)] * x.values.row(static_cast<int>(row))[i];
      float& value = out.row(static_cast<int>(row))[element];
      if (sum == value) continue;  // this one does not show it
      value = sum;
      changed_element = element;
      return;
    }
  }
  static inline int changed_element = -1;

 private:
  std::unique_ptr<Ops> owned_;
  bool is_there_ = false;
  Position first_ = 0;
};

std::vector<Token> some_tokens(std::size_t count) {
  std::vector<Token> tokens = law_tokens(512).front();
  tokens.resize(count);
  return tokens;
}

EngineOptions nano_options(const char* name = "nano-q2", Mode mode = Mode::official) {
  EngineOptions options;
  options.synth = law_model_plan(name);
  options.mode = mode;
  return options;
}

TEST(ComparePaths, chunks_single_tokens_and_the_literal_loops_are_the_same_at_every_op) {
  const TracedPath tokenwise{"cpu:tokenwise", cpu_ops, 1}, chunks{"cpu:chunk:37", cpu_ops, 37},
      loops{"reference:chunk:64", make_reference_ops, 64};
  for (const Mode mode : {Mode::official, Mode::plain}) {
    const PathComparison schedules = compare_paths(nano_options("nano-q2", mode), tokenwise, chunks, some_tokens(40));
    EXPECT_FALSE(schedules.first.has_value());
    EXPECT_GT(schedules.rows, 40u * 6 * 20);
  }
  EXPECT_FALSE(compare_paths(nano_options(), chunks, loops, some_tokens(12)).first.has_value());
}

TEST(ComparePaths, one_swapped_addition_is_found_where_it_is) {
  const auto broken = [] { return std::make_unique<SwappedAddition>(cpu_ops()); };
  for (const int chunk : {1, 16}) {
    SwappedAddition::changed_element = -1;
    const PathComparison comparison =
        compare_paths(nano_options(), {"cpu:tokenwise", cpu_ops, 1}, {"broken", broken, chunk}, some_tokens(40));
    ASSERT_TRUE(comparison.first.has_value()) << chunk;
    const PathDifference& d = *comparison.first;
    EXPECT_EQ(d.place.op, "matmul");
    EXPECT_EQ(d.place.phase, StepPhase::router);
    EXPECT_EQ(d.place.layer, SwappedAddition::kLayer);
    EXPECT_EQ(d.position, SwappedAddition::kPosition);
    EXPECT_EQ(static_cast<int>(d.element), SwappedAddition::changed_element);
    EXPECT_EQ(d.elements, 16u);
    EXPECT_EQ(d.differing, 1u);
    EXPECT_EQ(d.tokens, 1u);
    EXPECT_NE(d.a, d.b);
  }
}

/// Flips the last bit of one compressed row when it is made.
class WrongRow final : public ForwardingOps {
 public:
  explicit WrongRow(std::unique_ptr<Ops> ops) : ForwardingOps(*ops), owned_(std::move(ops)) {}
  void compress(const Slices& slices, ConstRows values, ConstRows gates, const CompressorSpec& spec,
                const RowLayout& layout) override {
    ForwardingOps::compress(slices, values, gates, spec, layout);
    if (spec.is_key || spec.ratio != 4) return;
    for (const SequenceSlice& slice : slices)
      if (slice.begin / 4 <= 5 && 5 < (slice.begin + slice.rows) / 4)
        slice.pages[0][6 * layout.row_bytes() - 1] ^= std::byte{1};
  }
  void keep_rows(const KeptRows& rows, const Slices& slices, const RowLayout& layout) override {
    Ops::keep_rows(rows, slices, layout);  // of plain ops, so that it takes the one above
  }

 private:
  std::unique_ptr<Ops> owned_;
};

TEST(ComparePaths, a_wrong_compressed_row_is_found_at_the_token_that_completes_it) {
  const auto broken = [] { return std::make_unique<WrongRow>(cpu_ops()); };
  const PathComparison comparison =
      compare_paths(nano_options(), {"cpu", cpu_ops, 1}, {"broken", broken, 16}, some_tokens(24));
  ASSERT_TRUE(comparison.first.has_value());
  EXPECT_EQ(comparison.first->place.op, "compress");
  EXPECT_EQ(comparison.first->place.part, "row");
  EXPECT_EQ(comparison.first->place.layer, 2);  // the first with ratio 4
  EXPECT_EQ(comparison.first->position, 23);
}

// ---- Before a back end is used ----

TEST(SelfTest, the_cpu_passes_and_a_back_end_with_one_wrong_sum_is_refused_by_name) {
  const auto ops = cpu_ops();
  EXPECT_GT(self_test(*ops).hashes, 20);

  class WrongSum final : public ForwardingOps {
   public:
    using ForwardingOps::ForwardingOps;
    void matmul(Rows out, const Weight& w, const Input& x) override {
      ForwardingOps::matmul(out, w, x);
      if (w.dtype == DType::q4_k && out.rows == 9) out.row(8)[36] = std::nextafter(out.row(8)[36], 1e9f);
    }
  } wrong(*ops);
  try {
    self_test(wrong);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::device);
    EXPECT_NE(std::string(error.what()).find("dot q4_K"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep
