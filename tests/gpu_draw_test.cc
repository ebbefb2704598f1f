// Tokens drawn on the GPU are those that the sampler draws on the host, whatever the row, the settings and what else is
// drawn in the same launch. Needs a GPU that the build has code for.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>

#include "base/error.h"
#include "cpu/cpu_ops.h"
#include "engine/generate.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "gpu/gpu_ops.h"
#include "numerics/random.h"
#include "ops/ops.h"
#include "waited_guide.h"

namespace lockstep {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

/// -1 where the sampler throws.
Token on_host(std::span<const float> row, const SamplerParams& params, Position position) {
  Sampler sampler(params, static_cast<int>(row.size()));
  try {
    return sampler.sample(row, {}, position);
  } catch (const Error&) {
    return -1;
  }
}

struct Wanted {
  SamplerParams params;
  Position position = 0;
  int row = 0;
};

class GpuDraw : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { device_ = gpu::make_gpu_ops({}).release(); }
  static void TearDownTestSuite() {
    delete device_;
    device_ = nullptr;
  }

  /// All of them in one launch, against the sampler one by one. The rows lie `gap` floats apart.
  static void check(const std::vector<std::vector<float>>& rows, const std::vector<Wanted>& wanted, int gap = 0) {
    const int width = static_cast<int>(rows.front().size()), stride = width + gap;
    const Buffer logits(*device_, rows.size() * static_cast<std::size_t>(stride) * sizeof(float));
    const Buffer choices(*device_, wanted.size() * sizeof(DrawChoice)), out(*device_, wanted.size() * sizeof(Token));
    for (std::size_t r = 0; r < rows.size(); ++r)
      device_->upload(logits.floats() + r * static_cast<std::size_t>(stride), rows[r].data(),
                      rows[r].size() * sizeof(float));
    std::vector<DrawChoice> list;
    for (const Wanted& w : wanted) {
      list.push_back(draw_choice(w.params, w.position));
      list.back().row = w.row;
    }
    device_->upload(choices.bytes(), list.data(), choices.size());
    device_->draw(reinterpret_cast<Token*>(out.bytes()),
                  {logits.floats(), static_cast<int>(rows.size()), width, stride},
                  reinterpret_cast<const DrawChoice*>(choices.bytes()), static_cast<int>(wanted.size()));
    std::vector<Token> drawn(wanted.size());
    device_->download(drawn.data(), out.bytes(), out.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const Wanted& w = wanted[i];
      const SamplerParams& p = w.params;
      ASSERT_EQ(drawn[i], on_host(rows[static_cast<std::size_t>(w.row)], p, w.position))
          << "width " << width << ", row " << w.row << ", temperature " << p.temperature << ", top_k " << p.top_k
          << ", top_p " << p.top_p << ", min_p " << p.min_p << ", seed " << p.seed << ", position " << w.position;
    }
  }

  static Ops* device_;
};
Ops* GpuDraw::device_ = nullptr;

SamplerParams settings(float temperature, int top_k, float top_p, float min_p, std::uint64_t seed) {
  SamplerParams params;
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  params.min_p = min_p;
  params.seed = seed;
  return params;
}

/// A row of each kind, by name of the kind.
std::vector<std::vector<float>> rows_of_every_kind(int width) {
  const std::size_t n = static_cast<std::size_t>(width);
  std::vector<std::vector<float>> rows;
  const auto make = [&](const std::function<float(std::size_t)>& value) {
    std::vector<float>& row = rows.emplace_back(n);
    for (std::size_t i = 0; i < n; ++i) row[i] = value(i);
  };
  const auto normal = [](std::uint64_t seed, std::size_t i) { return random_normal(seed, i); };
  make([&](std::size_t i) { return 3 * normal(1, i); });                                    // as a model's
  make([&](std::size_t i) { return std::round(normal(2, i) * 40) / 16; });                  // many ties
  make([&](std::size_t) { return 1.5f; });                                                  // all equal
  make([&](std::size_t i) { return i % 2 == 0 ? 0.0f : -0.0f; });                           // zeros of both signs
  make([&](std::size_t i) { return i % 3 == 0 ? normal(3, i) : -kInfinite; });              // most excluded
  make([&](std::size_t i) { return i == n / 2 ? -3e38f : -kInfinite; });                    // one finite
  make([&](std::size_t) { return -kInfinite; });                                            // none
  make([&](std::size_t i) { return i == n - 1 ? kNaN : normal(4, i); });                    // not a number
  make([&](std::size_t i) { return i == 0 ? -kNaN : -1.0f; });                              // likewise
  make([&](std::size_t i) { return i == n / 3 ? kInfinite : normal(5, i); });               // an infinite one
  make([&](std::size_t i) { return std::ldexp(normal(6, i), -140); });                      // subnormal
  make([&](std::size_t i) { return i == n / 2 ? 3e38f : i % 2 == 0 ? -3e38f : 2.9e38f; });  // differences overflow
  make([&](std::size_t i) { return 20 - static_cast<float>(i % 64) * 0.7f; });              // down to below the 2^-40
  make([&](std::size_t i) { return 5 + static_cast<float>(i) * 0x1p-20f; });                // nearly equal
  return rows;
}

TEST_F(GpuDraw, draws_what_the_sampler_draws_from_every_kind_of_row_by_every_setting) {
  for (const int width : {1, 2, 31, 33, 300, 1000, 2500}) {
    const std::vector<std::vector<float>> rows = rows_of_every_kind(width);
    std::vector<Wanted> wanted;
    for (const float temperature : {0.0f, 1e-3f, 0.7f, 1.0f, 2.0f, 100.0f})
      for (const int top_k : {0, 1, 2, 40, 256, 257, width})
        for (const float top_p : {0.0f, 1e-6f, 0.5f, 0.95f, 1.0f})
          for (const float min_p : {0.0f, 0.05f, 1.0f}) {
            // A setting meets one kind of row a width, and settings that are near each other different ones.
            const Random4 random = random_words(static_cast<std::uint64_t>(width), wanted.size());
            wanted.push_back({settings(temperature, top_k, top_p, min_p, random.word[0]), random.word[1],
                              static_cast<int>(random.word[2] % rows.size())});
          }
    check(rows, wanted, width % 3);
    if (HasFatalFailure()) return;
  }
}

TEST_F(GpuDraw, draws_what_the_sampler_draws_at_the_model_s_vocabulary) {
  const std::vector<std::vector<float>> rows = rows_of_every_kind(129280);
  const SamplerParams kinds[] = {
      settings(0, 0, 1, 0, 1),          settings(0.7f, 0, 1, 0, 2),       settings(1, 0, 0.95f, 0, 3),
      settings(1, 40, 0.95f, 0.05f, 4), settings(2, 5000, 0.9f, 0, 5),    settings(100, 0, 0.5f, 0, 6),
      settings(1e-3f, 0, 0.95f, 0, 7),  settings(0.6f, 256, 1, 0.01f, 8), settings(1, 129279, 0, 0, 9),
      settings(1, 0, 1, 0.05f, 10),
  };
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::vector<Wanted> wanted;
    for (const SamplerParams& params : kinds) wanted.push_back({params, 4096 + static_cast<Position>(r), 0});
    check({rows[r]}, wanted);
    if (HasFatalFailure()) return;
  }
}

TEST_F(GpuDraw, every_position_and_seed_has_its_own_number) {
  std::vector<float> row(5000);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = 2 * random_normal(8, i);
  std::vector<Wanted> wanted;
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}})
    for (const Position position :
         {Position{0}, Position{1}, Position{0xffffffff}, Position{1} << 32, Position{1} << 40})
      for (Position after = 0; after < 10; ++after)
        wanted.push_back({settings(1.5f, 0, after % 2 == 0 ? 1 : 0.97f, 0, seed), position + after, 0});
  check({row}, wanted);
}

/// Positions at which the number drawn is as low, and as high, as it gets among the first few hundred thousand.
TEST_F(GpuDraw, the_first_and_the_last_token_are_reached) {
  constexpr std::uint64_t kSeed = 11;
  Position least = 0, most = 0;
  const auto uniform = [](Position p) { return random_uniform(kSeed, static_cast<std::uint64_t>(p)); };
  for (Position p = 0; p < 300'000; ++p) {
    if (uniform(p) < uniform(least)) least = p;
    if (uniform(p) > uniform(most)) most = p;
  }
  for (const int width : {2, 33, 1000, 4097}) {
    const std::vector<float> flat(static_cast<std::size_t>(width), 0.25f);
    EXPECT_EQ(on_host(flat, settings(1, 0, 1, 0, kSeed), least), 0);
    EXPECT_EQ(on_host(flat, settings(1, 0, 1, 0, kSeed), most), width - 1);
    check({flat}, {{settings(1, 0, 1, 0, kSeed), least, 0}, {settings(1, 0, 1, 0, kSeed), most, 0}});
  }
}

TEST_F(GpuDraw, more_rows_than_the_device_has_places_for_and_the_same_row_twice) {
  std::vector<std::vector<float>> rows(70, std::vector<float>(700));
  std::vector<Wanted> wanted;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t i = 0; i < rows[r].size(); ++i) rows[r][i] = random_normal(r, i);
    for (int k = 0; k < 2; ++k)
      wanted.push_back(
          {settings(k == 0 ? 0 : 0.9f, static_cast<int>(r % 5) * 20, 0.9f, 0, r), 17, 69 - static_cast<int>(r)});
  }
  check(rows, wanted, 4);
}

/// Streams of all settings together on the device, each as it is alone on the CPU. Penalties, log probabilities and
/// masks need the row itself.
class Stream : public test::WaitedGuide {
 public:
  explicit Stream(bool masks) : masks_(masks) {}
  bool masks() const override { return masks_; }
  void mask(std::span<float> logits) override {
    if (masks_) logits[kMasked] = -kInfinite;
  }
  bool on_token(const Sampled& sampled) override {
    tokens.push_back(sampled.token);
    return true;
  }
  static constexpr std::size_t kMasked = 5;
  std::vector<Token> tokens;

 private:
  bool masks_;
};

TEST_F(GpuDraw, streams_of_mixed_settings_are_what_they_are_alone_on_the_cpu) {
  EngineOptions options;
  options.model = LOCKSTEP_TEST_DATA "/golden/nano-a.gguf";
  options.max_rows = 64;
  Engine on_cpu(options, cpu::make_cpu_ops({1, "auto"})), on_device(options, gpu::make_gpu_ops({}));
  std::vector<SamplerParams> kinds = {
      settings(0, 0, 1, 0, 1),    settings(0.8f, 0, 0.95f, 0, 2), settings(1, 20, 1, 0, 3),
      settings(1, 0, 1, 0.1f, 4), settings(0.7f, 0, 1, 0, 5),     settings(1, 0, 0.9f, 0, 6),
  };
  kinds[4].frequency_penalty = 0.5f;
  const auto prompt_of = [](std::size_t kind) {
    std::vector<Token> prompt;
    for (std::size_t i = 0; i < 2 + kind % 3; ++i) prompt.push_back(static_cast<Token>(random_u64(kind, i) % 512));
    return prompt;
  };
  constexpr int kTokens = 4;
  std::vector<std::shared_ptr<Stream>> streams;
  {
    SchedulerOptions scheduling;
    scheduling.slots = static_cast<int>(kinds.size());
    Scheduler scheduler(on_device, scheduling);
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
      streams.push_back(std::make_shared<Stream>(kind == 5));
      Job job;
      job.prompt = prompt_of(kind);
      job.sampling = kinds[kind];
      job.limit = kTokens;
      job.logprobs = kind == 3 ? 2 : -1;
      job.guide = streams.back();
      ASSERT_FALSE(scheduler.submit(std::move(job)).has_value());
    }
    for (const auto& stream : streams) {
      const JobResult result = stream->wait();
      ASSERT_EQ(result.end, JobResult::End::limit) << result.error;
    }
  }
  kinds[5].logit_bias = {{Stream::kMasked, -100}};  // what the mask comes to
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    GenerateRequest request;
    request.prompt = prompt_of(kind);
    request.sampling = kinds[kind];
    request.limit = kTokens;
    EXPECT_EQ(streams[kind]->tokens, Generator(on_cpu).generate(request).tokens) << "stream " << kind;
    if (kind == 1) {
      EXPECT_EQ(streams[kind]->tokens, Generator(on_device).generate(request).tokens) << "alone, stream " << kind;
    }
  }
}

TEST_F(GpuDraw, nothing_to_draw_is_no_launch) {
  device_->draw(nullptr, {nullptr, 0, 5, 5}, nullptr, 0);
  EXPECT_NO_THROW(device_->synchronize());
}

}  // namespace
}  // namespace lockstep
