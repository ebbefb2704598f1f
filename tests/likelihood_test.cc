// Statistics over logits against values worked out by hand, and measuring a model: the same numbers however its steps
// were cut.
#include "engine/likelihood.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "engine_runs.h"

namespace lockstep {
namespace {

const float kInf = std::numeric_limits<float>::infinity();

// ln 2 and ln 3 as f32 are off by up to 3e-8, which is what the bounds allow for.
const float kLn2 = std::log(2.0f), kLn3 = std::log(3.0f);

TEST(Likelihood, ARowOfLogitsBecomesProbabilities) {
  const struct {
    const char* name;
    std::vector<float> logits;
    Token token;
    double surprise;  // by hand
    Token likeliest;
  } cases[] = {
      {"two alike: 1/2", {0, 0}, 1, std::log(2.0), 0},
      {"1/4 and 3/4, the rare one", {0, kLn3}, 0, std::log(4.0), 1},
      {"1/4 and 3/4, the other", {0, kLn3}, 1, std::log(4.0 / 3), 1},
      {"a constant changes nothing", {100, 100 + kLn3}, 0, std::log(4.0), 1},
      {"one token alone", {-5}, 0, 0, 0},
      {"far below the largest", {0, -900}, 1, 900, 0},
      {"large logits do not overflow", {1e30f, 1e30f}, 0, std::log(2.0), 0},
      {"of equal ones the lowest", {1, 2, 2}, 0, std::log(1 + 2 * std::exp(1.0)), 1},
  };
  for (const auto& c : cases) {
    const LogitRow row(c.logits);
    const double scale = std::abs(static_cast<double>(c.logits[0]));
    // Expected values are by hand, with the C library's logarithm; the logits themselves are rounded to f32.
    EXPECT_NEAR(-row.ln_probability(static_cast<std::size_t>(c.token)), c.surprise,
                1e-5 * (scale > 1e6 ? 1 : std::max(1.0, scale)))
        << c.name;
    EXPECT_EQ(row.likeliest, c.likeliest) << c.name;
  }
}

TEST(Likelihood, LogitsThatAreNoNumbersAreRefused) {
  for (const float bad : {kInf, -kInf, std::nanf("")}) {
    const std::vector<float> logits = {0, bad, 1};
    EXPECT_THROW(LogitRow{logits}, Error);
  }
}

TEST(Likelihood, DivergenceIsThatOfTheReference) {
  const std::vector<float> even = {0, 0}, odd = {0, kLn3}, third = {kLn2, 0, 0}, other = {0, 0, kLn2};
  const LogitRow p(even), q(odd), r(third), s(other);
  EXPECT_EQ(kl_divergence(p, p), 0);
  EXPECT_EQ(kl_divergence(q, q), 0);
  // 1/2 ln(1/2 / 1/4) + 1/2 ln(1/2 / 3/4), and the other way round: it is not symmetric. By hand: the tolerance is for
  // ln 2 and ln 3 as f32 logits.
  EXPECT_NEAR(kl_divergence(p, q), 0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3), 1e-7);
  EXPECT_NEAR(kl_divergence(q, p), 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-7);
  // 1/2, 1/4, 1/4 against 1/4, 1/4, 1/2.
  EXPECT_NEAR(kl_divergence(r, s), 0.5 * std::log(2.0) + 0.25 * std::log(0.5), 1e-7);
}

TEST(Likelihood, APercentileIsOneOfTheValues) {
  const struct {
    const char* name;
    std::vector<double> values;
    double percent, expected;
  } cases[] = {
      {"none", {}, 99, 0},
      {"one", {3}, 99, 3},
      {"the middle of three", {3, 1, 2}, 50, 2},
      {"99 of 4 is the largest", {4, 1, 3, 2}, 99, 4},
      {"all", {1, 2}, 100, 2},
      {"a quarter of four", {4, 3, 2, 1}, 25, 1},
      {"just over a quarter", {4, 3, 2, 1}, 25.1, 2},
  };
  for (const auto& c : cases) EXPECT_EQ(percentile(c.values, c.percent), c.expected) << c.name;
  std::vector<double> hundred;
  for (int i = 200; i > 0; --i) hundred.push_back(i);
  EXPECT_EQ(percentile(hundred, 99), 198);
}

TEST(Likelihood, MeansAndPerplexityFollowFromTheRows) {
  const std::vector<float> even = {0, 0, 0, 0}, sure = {0, 0, 0, 2 * kLn3};  // 1/4; 1/12 and 9/12
  Likelihood likelihood;
  EXPECT_EQ(likelihood.perplexity(), 1);
  likelihood.add(LogitRow(even), 0);
  EXPECT_NEAR(likelihood.perplexity(), 4, 1e-12);
  EXPECT_EQ(likelihood.likeliest, 1);
  likelihood.add(LogitRow(sure), 0);
  EXPECT_EQ(likelihood.tokens, 2);
  EXPECT_EQ(likelihood.likeliest, 1) << "token 3 was the likeliest";
  EXPECT_NEAR(likelihood.perplexity(), std::sqrt(4.0 * 12.0), 1e-6);
  Divergence divergence;
  EXPECT_EQ(divergence.agreement(), 1);
  divergence.add(0.25, true);
  divergence.add(0.75, false);
  EXPECT_EQ(divergence.mean(), 0.5);
  EXPECT_EQ(divergence.agreement(), 0.5);
}

struct Cut {
  std::size_t begin, end, first_scored;  // tokens of the text in the window; in the passage, the first that counts
};

TEST(Likelihood, WindowsScoreEveryTokenOnce) {
  const struct {
    const char* name;
    int tokens;
    bool has_bos;
    std::int64_t context, stride;
    std::vector<Cut> windows;
  } cases[] = {
      {"all in one window", 5, true, 8, 4, {{0, 5, 1}}},
      {"just fits", 7, true, 8, 4, {{0, 7, 1}}},
      {"one over", 8, true, 8, 4, {{0, 7, 1}, {4, 8, 4}}},
      {"side by side", 14, true, 8, 7, {{0, 7, 1}, {7, 14, 1}}},
      {"token by token", 4, true, 3, 1, {{0, 2, 1}, {1, 3, 2}, {2, 4, 2}}},
      {"no bos: the first is not scored", 5, false, 8, 4, {{0, 5, 1}}},
      {"no bos, one over", 9, false, 8, 7, {{0, 8, 1}, {7, 9, 1}}},
      {"no bos, overlapping", 9, false, 5, 2, {{0, 5, 1}, {2, 7, 3}, {4, 9, 3}}},
  };
  for (const auto& c : cases) {
    std::vector<Token> text;
    for (int i = 0; i < c.tokens; ++i) text.push_back(100 + i);
    const auto passages = cut_text(text, c.has_bos ? std::optional<Token>(7) : std::nullopt, c.context, c.stride);
    ASSERT_EQ(passages.size(), c.windows.size()) << c.name;
    std::size_t scored = 0;
    for (std::size_t i = 0; i < passages.size(); ++i) {
      std::vector<Token> expected;
      if (c.has_bos) expected.push_back(7);
      expected.insert(expected.end(), text.begin() + static_cast<std::ptrdiff_t>(c.windows[i].begin),
                      text.begin() + static_cast<std::ptrdiff_t>(c.windows[i].end));
      EXPECT_EQ(passages[i].tokens, expected) << c.name << ", window " << i;
      EXPECT_LE(passages[i].tokens.size(), static_cast<std::size_t>(c.context)) << c.name;
      EXPECT_EQ(passages[i].first_scored, c.windows[i].first_scored) << c.name << ", window " << i;
      EXPECT_EQ(passages[i].first_compared, passages[i].first_scored) << c.name;
      scored += passages[i].tokens.size() - passages[i].first_scored;
    }
    EXPECT_EQ(scored, static_cast<std::size_t>(c.has_bos ? c.tokens : c.tokens - 1)) << c.name;
  }
}

TEST(Likelihood, WindowsThatCannotBeAreRefused) {
  const std::vector<Token> text = {1, 2, 3};
  EXPECT_THROW(cut_text(text, 0, 1, 1), Error);
  EXPECT_THROW(cut_text(text, 0, 4, 0), Error);
  EXPECT_THROW(cut_text(text, 0, 4, 4), Error);
  EXPECT_THROW(cut_text({}, 0, 4, 2), Error);
  EXPECT_THROW(cut_text(std::span(text).first(1), std::nullopt, 4, 2), Error);
  EXPECT_EQ(cut_text(std::span(text).first(1), 0, 4, 2).size(), 1u);
}

std::vector<Passage> golden_passages() {
  const std::string text = testing::read_text(testing::data("golden/nano-a.tokens.txt"));
  std::vector<Passage> passages;
  for (std::vector<Token>& tokens : parse_token_lines(text, "nano-a.tokens.txt", 512)) {
    if (tokens.size() > 200) tokens.resize(200);
    const std::size_t size = tokens.size();
    passages.push_back({std::move(tokens), 1, size / 2 + 1});
  }
  return passages;
}

std::unique_ptr<Engine> nano(Mode mode = Mode::official, int max_rows = 512) {
  return testing::make_engine(testing::data("golden/nano-a.gguf"), mode, "auto", 1, max_rows);
}

TEST(Likelihood, MeasuringGivesTheSameNumbersHoweverStepsAreCut) {
  const std::vector<Passage> passages = golden_passages();
  const auto plain = nano(Mode::plain);
  const Measurement expected = measure(*nano(), plain.get(), passages);
  for (const int rows : {1, 33, 100}) {
    const Measurement other = measure(*nano(Mode::official, rows), plain.get(), passages);
    EXPECT_EQ(other.model.surprise, expected.model.surprise) << rows;
    EXPECT_EQ(other.model.likeliest, expected.model.likeliest) << rows;
    EXPECT_EQ(other.reference.surprise, expected.reference.surprise) << rows;
    EXPECT_EQ(other.compared.kl, expected.compared.kl) << rows;
    EXPECT_EQ(other.scored.kl, expected.scored.kl) << rows;
  }
  std::size_t compared = 0, scored = 0;
  for (const Passage& passage : passages) {
    compared += passage.tokens.size() - 1;
    scored += passage.tokens.size() - passage.first_scored;
  }
  EXPECT_EQ(expected.compared.kl.size(), compared);
  EXPECT_EQ(expected.scored.kl.size(), scored);
  EXPECT_EQ(expected.model.tokens, static_cast<std::int64_t>(scored));
  EXPECT_GT(expected.compared.mean(), 0) << "the modes differ";
}

TEST(Likelihood, MeasuringAgreesWithTheLogitsThemselves) {
  const std::vector<Passage> passages = golden_passages();
  const auto engine = nano();
  Likelihood expected;
  for (const Passage& passage : passages) {
    const std::vector<std::vector<Token>> one = {passage.tokens};
    run_schedule(*engine, one, parse_schedule("tokenwise"),
                 [&](std::size_t, Position at, std::span<const float> logits) {
                   const std::size_t next = static_cast<std::size_t>(at) + 1;
                   if (next < passage.tokens.size() && next >= passage.first_scored)
                     expected.add(LogitRow(logits), passage.tokens[next]);
                 });
  }
  const Measurement measured = measure(*engine, nullptr, passages);
  EXPECT_EQ(measured.model.surprise, expected.surprise);
  EXPECT_EQ(measured.model.tokens, expected.tokens);
  EXPECT_TRUE(measured.compared.kl.empty());
}

TEST(Likelihood, AFileDoesNotDivergeFromItself) {
  const auto a = nano(), b = nano(Mode::official, 64);
  const Measurement measured = measure(*a, b.get(), golden_passages());
  EXPECT_EQ(measured.compared.mean(), 0);
  EXPECT_EQ(percentile(measured.compared.kl, 100), 0);
  EXPECT_EQ(measured.compared.agreement(), 1);
  EXPECT_EQ(measured.model.surprise, measured.reference.surprise);
}

}  // namespace
}  // namespace lockstep
