// What the GPU back end has beside the ops of the model: large uploads, times of recorded steps, and what it says about
// itself.
#include <gtest/gtest.h>

#include <cstring>

#include "engine/compare_paths.h"
#include "engine/law_check.h"
#include "engine/self_test.h"
#include "engine_runs.h"
#include "gpu/gpu_ops.h"
#include "numerics/random.h"
#include "poison_ops.h"

namespace lockstep {
namespace {

TEST(GpuUpload, large_pieces_arrive_whole_and_may_be_overwritten_at_once) {
  const auto device = gpu::make_gpu_ops({});
  for (const std::size_t bytes : {std::size_t{8} << 20, (std::size_t{8} << 20) + 1, std::size_t{100'000'003}}) {
    std::vector<std::byte> sent(bytes), seen(bytes);
    for (std::size_t i = 0; i < bytes; ++i) sent[i] = static_cast<std::byte>(i * 2654435761u >> 13);
    const std::vector<std::byte> kept = sent;
    const Buffer memory(*device, bytes);
    device->upload(memory.bytes(), sent.data(), bytes);
    std::memset(sent.data(), 0, bytes);
    device->download(seen.data(), memory.bytes(), bytes);
    EXPECT_TRUE(seen == kept) << bytes;
  }
}

TEST(GpuTiming, changes_no_byte_and_tells_every_phase_of_recorded_steps_too) {
  for (const Timing timing : {Timing::phases, Timing::ops}) {
    EngineOptions options;
    options.synth = law_model_plan("nano-q2");
    options.max_rows = 256;
    options.timing = timing;
    Engine engine(options, gpu::make_gpu_ops({}));
    for (const char* schedule : {"tokenwise", "chunk:64"})
      EXPECT_EQ(model_hash(engine, law_tokens(engine.config().vocabulary), parse_schedule(schedule)),
                find_line(golden_lines(), "model nano-q2 official"))
          << schedule;
    const TimedOps::Times& times = engine.timer()->times();
    EXPECT_EQ(times.steps, 138u + 4u);
    EXPECT_EQ(times.untimed_steps, 0u);
    for (int p = 0; p < kPhases; ++p)
      if (static_cast<StepPhase>(p) != StepPhase::sample) {
        EXPECT_GT(times.phases[static_cast<std::size_t>(p)].seconds, 0) << name_of(static_cast<StepPhase>(p));
      }
    EXPECT_EQ(times.of(StepPhase::router).calls, 142u * 6);
    if (timing == Timing::ops) {
      EXPECT_EQ(times.kernels.at("attend_heads").calls, 142u * 6);
    }
  }
}

TEST(GpuDevice, passes_its_self_test_in_about_a_second_and_says_what_it_has) {
  const auto device = gpu::make_gpu_ops({});
  const SelfTestResult result = self_test(*device);
  EXPECT_GT(result.hashes, 20);
  EXPECT_LT(result.seconds, 3);
  RecordProperty("self_test_seconds", std::to_string(result.seconds));
  const DeviceState state = device->device_state();
  EXPECT_GT(state.total_bytes, state.free_bytes);
  EXPECT_GT(state.free_bytes, 0u);
  EXPECT_GT(state.clock_hz, 0.2e9);
  EXPECT_LT(state.clock_hz, 1.1 * state.most_clock_hz);
  EXPECT_GT(device->read_rate(), 50e9);
}

TEST(GpuMemory, no_op_reads_what_nobody_wrote) {
  for (const std::string& name : law_models())
    for (const Mode mode : {Mode::official, Mode::plain}) {
      // One back end for all schedules, so that memory is used again and recordings outlive their model.
      const auto shared = std::make_unique<testing::PoisonOps>(gpu::make_gpu_ops({}));
      for (const char* schedule : {"mixed:1", "chunk:64", "tokenwise", "chunk:9", "mixed:5"}) {
        EngineOptions options;
        options.synth = law_model_plan(name);
        options.mode = mode;
        options.max_rows = 64;
        Engine engine(options, std::make_unique<ForwardingOps>(*shared));
        EXPECT_EQ(model_hash(engine, law_tokens(engine.config().vocabulary), parse_schedule(schedule)),
                  find_line(golden_lines(), "model " + name + (mode == Mode::official ? " official" : " plain")))
            << name << ", " << schedule << (mode == Mode::official ? ", official" : ", plain");
      }
    }
}

TEST(GpuComparePaths, no_op_differs_from_the_cpu) {
  const auto gpu_ops = [] { return gpu::make_gpu_ops({}); };
  const auto cpu_ops = [] { return cpu::make_cpu_ops({0, "auto"}); };
  EngineOptions model;
  model.synth = law_model_plan("nano-q2");
  std::vector<Token> tokens = law_tokens(512).front();
  tokens.resize(60);
  EXPECT_FALSE(compare_paths(model, {"cpu", cpu_ops, 16}, {"gpu", gpu_ops, 60}, tokens).first.has_value());
  EXPECT_FALSE(compare_paths(model, {"gpu", gpu_ops, 1}, {"gpu", gpu_ops, 33}, tokens).first.has_value());
}

}  // namespace
}  // namespace lockstep
