// The sampler: which tokens are kept, which one is drawn, and what is refused. Expected values are worked out by hand;
// the uniform numbers that the draw uses are those of numerics/random.h, whose own test checks them against the paper.
#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <string>

#include "base/error.h"
#include "cpu/cpu_ops.h"
#include "numerics/functions.h"
#include "numerics/random.h"
#include "ops/ops.h"
#include "ops/rows.h"

namespace lockstep {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// Tokens that come up at positions 0 to 1999: with so many draws every token of a percent or more does.
std::set<Token> reachable(const SamplerParams& params, const std::vector<float>& logits,
                          const std::vector<Token>& history = {}) {
  Sampler sampler(params, static_cast<int>(logits.size()));
  std::set<Token> tokens;
  for (Position position = 0; position < 2000; ++position) tokens.insert(sampler.sample(logits, history, position));
  return tokens;
}

SamplerParams with(void (*change)(SamplerParams&)) {
  SamplerParams params;
  change(params);
  return params;
}

// exp of these is 8, 4, 2, 1, 1 parts of 16: token 4 is the likeliest, 0 and 3 are equal.
const std::vector<float> kHalves = {0.0f, 0.6931472f, 1.3862944f, 0.0f, 2.0794415f};

struct KeptCase {
  const char* name;
  SamplerParams params;
  std::set<Token> expected;
};

TEST(Sampler, KeepsTheTokensThatTheFiltersLeave) {
  const KeptCase cases[] = {
      {"no filter keeps all", with([](SamplerParams&) {}), {0, 1, 2, 3, 4}},
      {"top-k 1 is greedy", with([](SamplerParams& p) { p.top_k = 1; }), {4}},
      {"top-k 4 takes the lower of two equal ids", with([](SamplerParams& p) { p.top_k = 4; }), {0, 1, 2, 4}},
      {"top-k past the vocabulary keeps all", with([](SamplerParams& p) { p.top_k = 99; }), {0, 1, 2, 3, 4}},
      {"top-p 0 keeps the first", with([](SamplerParams& p) { p.top_p = 0; }), {4}},
      {"top-p 0.4 is reached by 8/16", with([](SamplerParams& p) { p.top_p = 0.4f; }), {4}},
      {"top-p 0.6 needs 12/16", with([](SamplerParams& p) { p.top_p = 0.6f; }), {2, 4}},
      {"top-p 0.9 needs 15/16, the lower of two equal ids",
       with([](SamplerParams& p) { p.top_p = 0.9f; }),
       {0, 1, 2, 4}},
      {"top-p 0.99 needs all", with([](SamplerParams& p) { p.top_p = 0.99f; }), {0, 1, 2, 3, 4}},
      {"top-p counts what top-k left: 8 of 12", with([](SamplerParams& p) { p.top_k = 2, p.top_p = 0.65f; }), {4}},
      {"min-p 0.2 drops 1/8", with([](SamplerParams& p) { p.min_p = 0.2f; }), {1, 2, 4}},
      {"min-p 1 keeps the first", with([](SamplerParams& p) { p.min_p = 1; }), {4}},
      {"temperature 2 makes 0.2 of 1/8 enough",
       with([](SamplerParams& p) { p.temperature = 2, p.min_p = 0.2f; }),
       {0, 1, 2, 3, 4}},
      {"temperature 0 is greedy", with([](SamplerParams& p) { p.temperature = 0; }), {4}},
      {"a bias bans",
       with([](SamplerParams& p) {
         p.logit_bias = {{4, -100}, {0, -100}};
       }),
       {1, 2, 3}},
      {"a bias forces",
       with([](SamplerParams& p) {
         p.logit_bias = {{3, 100}};
       }),
       {3}},
  };
  for (const KeptCase& c : cases) EXPECT_EQ(reachable(c.params, kHalves), c.expected) << c.name;
}

TEST(Sampler, GreedyTakesTheLowerOfEqualTokens) {
  Sampler sampler(with([](SamplerParams& p) { p.temperature = 0; }), 4);
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 3, 2}, {}, 0), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{-0.0f, 0.0f, -1, -kInf}, {}, 0), 0);
  EXPECT_EQ(sampler.sample(std::vector<float>{-kInf, -kInf, -5, -kInf}, {}, 0), 2);
}

struct PenaltyCase {
  const char* name;
  SamplerParams params;
  std::vector<float> logits;
  std::vector<Token> history;
  Token expected;
};

// Greedy, so that the expected token is the greatest of what the comment works out.
TEST(Sampler, PenaltiesCountTheWholeHistory) {
  const PenaltyCase cases[] = {
      {"repetition halves a positive logit: 2, 3",
       with([](SamplerParams& p) { p.repetition_penalty = 2; }),
       {4, 3},
       {0},
       1},
      {"repetition doubles a negative one: -2, -1.5",
       with([](SamplerParams& p) { p.repetition_penalty = 2; }),
       {-1, -1.5f},
       {0},
       1},
      {"repetition does not count: 2, 1.5",
       with([](SamplerParams& p) { p.repetition_penalty = 2; }),
       {4, 1.5f},
       {0, 0, 0},
       0},
      {"frequency counts: 4 - 3 * 0.5, 3",
       with([](SamplerParams& p) { p.frequency_penalty = 0.5f; }),
       {4, 3},
       {0, 0, 0},
       1},
      {"frequency once: 4 - 0.5, 3", with([](SamplerParams& p) { p.frequency_penalty = 0.5f; }), {4, 3}, {0}, 0},
      {"presence does not count: 4 - 0.5, 3",
       with([](SamplerParams& p) { p.presence_penalty = 0.5f; }),
       {4, 3},
       {0, 0, 0},
       0},
      {"presence: 4 - 1.5, 3", with([](SamplerParams& p) { p.presence_penalty = 1.5f; }), {4, 3}, {0}, 1},
      {"a negative one favours: 3, 2.75 + 0.5",
       with([](SamplerParams& p) { p.presence_penalty = -0.5f; }),
       {3, 2.75f},
       {1},
       1},
      {"repetition comes before the others: 4/2 - 1, 1.5; after them (4 - 1)/2, 1.5 would tie and give 0",
       with([](SamplerParams& p) { p.repetition_penalty = 2, p.presence_penalty = 1; }),
       {4, 1.5f},
       {0},
       1},
      {"penalties come before the bias: 4/2 + 2, 3.5; after it (4 + 2)/2 = 3",
       with([](SamplerParams& p) {
         p.repetition_penalty = 2, p.logit_bias = {{0, 2}};
       }),
       {4, 3.5f},
       {0},
       0},
  };
  for (PenaltyCase c : cases) {
    c.params.temperature = 0;
    Sampler sampler(c.params, 2);
    EXPECT_EQ(sampler.sample(c.logits, c.history, 7), c.expected) << c.name;
    EXPECT_EQ(sampler.sample(c.logits, c.history, 7), c.expected) << c.name << ", again";
  }
}

TEST(Sampler, DrawsTheFirstTokenWhoseRunningSumPassesTheUniformNumber) {
  // Weights by id, in parts of the greatest: 1/8, 1/4, 1/2, 1/8, 1; running sums in 16ths: 1, 3, 7, 8, 16.
  constexpr float kEnds[] = {1 / 16.0f, 3 / 16.0f, 7 / 16.0f, 8 / 16.0f, 1};
  SamplerParams params;
  params.seed = 12345678901234567890u;
  Sampler sampler(params, 5);
  for (Position position = 0; position < 3000; ++position) {
    const float uniform = random_uniform(params.seed, static_cast<std::uint64_t>(position));
    const auto expected = std::upper_bound(std::begin(kEnds), std::end(kEnds), uniform) - std::begin(kEnds);
    const auto near = [&](float end) { return std::abs(uniform - end) < 1e-6f; };  // the weights are rounded
    if (std::any_of(std::begin(kEnds), std::end(kEnds), near)) continue;
    ASSERT_EQ(sampler.sample(kHalves, {}, position), expected) << "position " << position;
  }
}

TEST(Sampler, IsAFunctionOfItsArgumentsAlone) {
  SamplerParams params =
      with([](SamplerParams& p) { p.top_k = 50, p.top_p = 0.9f, p.min_p = 0.01f, p.repetition_penalty = 1.1f; });
  params.seed = 99;
  std::vector<float> logits(1000);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = random_normal(1, i) * 3;
  const std::vector<Token> history = {1, 5, 5, 999};
  Sampler forwards(params, 1000), backwards(params, 1000);
  std::vector<Token> first(100), second(100);
  for (int i = 0; i < 100; ++i) first[static_cast<std::size_t>(i)] = forwards.sample(logits, history, i);
  for (int i = 99; i >= 0; --i) second[static_cast<std::size_t>(i)] = backwards.sample(logits, history, i);
  EXPECT_EQ(first, second);
  EXPECT_GT(std::set<Token>(first.begin(), first.end()).size(), 5u);
  params.seed = 100;
  Sampler other(params, 1000);
  std::vector<Token> third;
  for (int i = 0; i < 100; ++i) third.push_back(other.sample(logits, history, i));
  EXPECT_NE(first, third);
}

/// The definition in ops/draw.h, word for word: everything sorted, nothing selected.
Token literal_sample(const SamplerParams& p, const std::vector<float>& l, Position position) {
  std::vector<std::int32_t> ranked(l.size());
  std::iota(ranked.begin(), ranked.end(), 0);
  std::stable_sort(ranked.begin(), ranked.end(), [&](auto a, auto b) { return l[a] > l[b]; });
  const float greatest = l[static_cast<std::size_t>(ranked[0])];
  std::vector<std::uint64_t> weight(l.size());
  for (std::size_t i = 0; i < l.size(); ++i)
    weight[i] = static_cast<std::uint64_t>(std::ldexp(exp_f32((l[i] - greatest) / p.temperature), 40));
  const auto drop_from = [&](std::size_t first) {
    for (std::size_t r = first; r < ranked.size(); ++r) weight[static_cast<std::size_t>(ranked[r])] = 0;
  };
  const auto total = [&] { return std::accumulate(weight.begin(), weight.end(), std::uint64_t{0}); };
  if (p.top_k > 0) drop_from(static_cast<std::size_t>(p.top_k));
  if (p.top_p < 1) {
    // sum / total >= P / 2^32, without a rounding: total < 2^57, so both sides are split at 2^32 by hand.
    const auto part = static_cast<std::uint64_t>(std::ldexp(static_cast<double>(p.top_p), 32));
    const std::uint64_t all = total(), low = part * (all & 0xffffffff), high = part * (all >> 32) + (low >> 32);
    std::uint64_t sum = 0;
    std::size_t r = 0;
    do sum += weight[static_cast<std::size_t>(ranked[r++])];
    while ((sum < high || (sum == high && (low & 0xffffffff) != 0)) && r < ranked.size());
    drop_from(r);
  }
  for (std::size_t i = 0; i < weight.size(); ++i)
    if (exp_f32((l[i] - greatest) / p.temperature) < p.min_p) weight[i] = 0;
  const std::uint64_t all = total();
  const auto parts =
      static_cast<std::uint64_t>(std::ldexp(random_uniform(p.seed, static_cast<std::uint64_t>(position)), 24));
  const std::uint64_t target = parts * (all >> 24) + (parts * (all & 0xffffff) >> 24);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < weight.size(); ++i)
    if ((sum += weight[i]) > target) return static_cast<Token>(i);
  return -1;
}

TEST(Sampler, AgreesWithItsDefinitionAtTheRealVocabulary) {
  constexpr int kVocabulary = 129280;
  std::vector<float> logits(kVocabulary);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = std::round(random_normal(2, i) * 40) / 16;  // many ties
  for (const float temperature : {0.05f, 0.7f, 30.0f}) {
    for (const int top_k : {0, 40, 5000}) {
      for (const float top_p : {1.0f, 0.95f}) {
        for (const float min_p : {0.0f, 0.05f}) {
          SamplerParams params;
          params.temperature = temperature, params.top_k = top_k, params.top_p = top_p, params.min_p = min_p;
          params.seed = 5;
          Sampler sampler(params, kVocabulary);
          ASSERT_EQ(sampler.sample(logits, {}, 1000000), literal_sample(params, logits, 1000000))
              << temperature << " " << top_k << " " << top_p << " " << min_p;
        }
      }
    }
  }
}

// ---- Ops::draw in host memory ----

/// The default body and the CPU's, which deals rows over threads.
std::vector<std::unique_ptr<Ops>> host_ops() {
  std::vector<std::unique_ptr<Ops>> all;
  all.push_back(make_reference_ops());
  all.push_back(cpu::make_cpu_ops({1, "auto"}));
  all.push_back(cpu::make_cpu_ops({3, "auto"}));
  return all;
}

TEST(Draw, TakesTheGreatestAndRefusesWhatTheSamplerRefuses) {
  const struct {
    const char* name;
    std::vector<float> row;
    Token expected;  // of temperature 0 and of top-k 1; -1: the sampler throws
  } cases[] = {
      {"the greatest", {1, 3, 2}, 1},
      {"the lowest of equals", {1, 3, 3}, 1},
      {"zeros of both signs are equal", {-0.0f, 0.0f, -1}, 0},
      {"all negative", {-3, -2, -2.5f}, 1},
      {"one token", {-7}, 0},
      {"excluded ones", {-kInf, -5, -kInf}, 1},
      {"all excluded", {-kInf, -kInf}, -1},
      {"an infinite one", {1, kInf, 2}, -1},
      {"not a number", {1, NAN, 2}, -1},
      {"not a number first", {NAN, 2}, -1},
  };
  for (const auto& ops : host_ops())
    for (const auto& c : cases) {
      const int width = static_cast<int>(c.row.size());
      SamplerParams params[2];
      params[0].temperature = 0;
      params[1].top_k = 1;
      const DrawChoice choices[] = {draw_choice(params[0], 5), draw_choice(params[1], 5)};
      Token drawn[] = {-2, -2};
      ops->draw(drawn, {c.row.data(), 1, width, width}, choices, 2);
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(drawn[i], c.expected) << c.name << ", " << ops->description();
        Sampler sampler(params[i], width);
        if (c.expected >= 0)
          EXPECT_EQ(sampler.sample(c.row, {}, 5), c.expected) << c.name;
        else
          EXPECT_THROW(sampler.sample(c.row, {}, 5), Error) << c.name;
      }
    }
}

TEST(Draw, AgreesWithItsDefinitionWhateverElseIsDrawnBesideIt) {
  constexpr int kWidth = 700, kRows = 5, kStride = kWidth + 3;
  std::vector<float> logits(kRows * kStride);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = std::round(random_normal(6, i) * 40) / 16;
  std::vector<SamplerParams> params;
  std::vector<DrawChoice> choices;
  for (const float temperature : {0.3f, 1.0f, 50.0f})
    for (const int top_k : {0, 7})
      for (const float top_p : {0.0f, 0.9f, 1.0f})
        for (const float min_p : {0.0f, 0.1f}) {
          SamplerParams& p = params.emplace_back();
          p.temperature = temperature, p.top_k = top_k, p.top_p = top_p, p.min_p = min_p, p.seed = params.size();
          choices.push_back(draw_choice(p, static_cast<Position>(3 * params.size())));
          choices.back().row = static_cast<std::int32_t>(params.size() * 2 % kRows);  // out of order, some twice
        }
  for (const auto& ops : host_ops()) {
    std::vector<Token> drawn(choices.size(), -2);
    ops->draw(drawn.data(), {logits.data(), kRows, kWidth, kStride}, choices.data(), static_cast<int>(choices.size()));
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const auto begin = logits.begin() + choices[i].row * kStride;
      EXPECT_EQ(drawn[i], literal_sample(params[i], std::vector<float>(begin, begin + kWidth), choices[i].position))
          << "choice " << i << ", " << ops->description();
    }
  }
}

/// What penalties and bias need is not in a row of logits.
TEST(Draw, IsAllThereIsWithoutPenaltiesAndBias) {
  EXPECT_TRUE(is_plain_draw(with([](SamplerParams&) {})));
  EXPECT_TRUE(
      is_plain_draw(with([](SamplerParams& p) { p.temperature = 0, p.top_k = 3, p.top_p = 0.5f, p.min_p = 1; })));
  EXPECT_FALSE(is_plain_draw(with([](SamplerParams& p) { p.repetition_penalty = 1.1f; })));
  EXPECT_FALSE(is_plain_draw(with([](SamplerParams& p) { p.frequency_penalty = 0.1f; })));
  EXPECT_FALSE(is_plain_draw(with([](SamplerParams& p) { p.presence_penalty = -0.1f; })));
  EXPECT_FALSE(is_plain_draw(with([](SamplerParams& p) { p.logit_bias = {{1, 0}}; })));
}

struct RefusedCase {
  const char* message;
  SamplerParams params;
};

TEST(Sampler, RefusesParametersOutOfRangeByName) {
  const RefusedCase cases[] = {
      {"temperature: -1, expected 0 to 100", with([](SamplerParams& p) { p.temperature = -1; })},
      {"temperature: nan, expected 0 to 100", with([](SamplerParams& p) { p.temperature = NAN; })},
      {"temperature: inf, expected 0 to 100", with([](SamplerParams& p) { p.temperature = kInf; })},
      {"top_k: -1, expected 0 (all tokens) or more", with([](SamplerParams& p) { p.top_k = -1; })},
      {"top_p: 1.5, expected 0 to 1", with([](SamplerParams& p) { p.top_p = 1.5f; })},
      {"min_p: -0.25, expected 0 to 1", with([](SamplerParams& p) { p.min_p = -0.25f; })},
      {"repetition_penalty: 0, expected more than 0 to 100", with([](SamplerParams& p) { p.repetition_penalty = 0; })},
      {"frequency_penalty: 3, expected -2 to 2", with([](SamplerParams& p) { p.frequency_penalty = 3; })},
      {"presence_penalty: -3, expected -2 to 2", with([](SamplerParams& p) { p.presence_penalty = -3; })},
      {"logit_bias: token 5, expected 0 to 4", with([](SamplerParams& p) {
         p.logit_bias = {{5, 1}};
       })},
      {"logit_bias: token -1, expected 0 to 4", with([](SamplerParams& p) {
         p.logit_bias = {{-1, 1}};
       })},
      {"logit_bias: 101, expected -100 to 100", with([](SamplerParams& p) {
         p.logit_bias = {{0, 101}};
       })},
  };
  for (const RefusedCase& c : cases) {
    try {
      Sampler sampler(c.params, 5);
      ADD_FAILURE() << "accepted: " << c.message;
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), c.message);
      EXPECT_EQ(error.kind(), Error::Kind::bad_argument);
    }
  }
}

TEST(Sampler, RefusesLogitsThatAreNotFiniteByTokenAndPosition) {
  for (const float temperature : {0.0f, 1.0f}) {
    SamplerParams params;
    params.temperature = temperature;
    Sampler sampler(params, 3);
    const auto message = [&](const std::vector<float>& logits) -> std::string {
      try {
        sampler.sample(logits, {}, 12);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), Error::Kind::bad_file);
        return error.what();
      }
      return "";
    };
    EXPECT_EQ(message({0, NAN, 0}),
              "logits: token 1 is NaN at position 12, expected finite numbers; the model's weights may be damaged");
    EXPECT_EQ(
        message({0, 0, kInf}),
        "logits: token 2 is infinite at position 12, expected finite numbers; the model's weights may be damaged");
    EXPECT_EQ(message({-kInf, -kInf, -kInf}),
              "logits: every token is excluded at position 12, expected at least one finite number");
  }
}

}  // namespace
}  // namespace lockstep
