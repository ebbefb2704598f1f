// Generation on a small random model: the same answer by any chunk, thread count and history of the cache, and a stop
// for every reason. nano-a's vocabulary is a toy one: bytes, a few merges, and not all tokens of a chat.
#include "engine/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>

#include "base/error.h"
#include "cpu/cpu_ops.h"
#include "engine/schedule.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace lockstep {
namespace {

std::unique_ptr<Engine> nano(int threads = 1, const std::string& level = "auto") {
  EngineOptions options;
  options.model = LOCKSTEP_TEST_DATA "/golden/nano-a.gguf";
  return std::make_unique<Engine>(options, cpu::make_cpu_ops({threads, level}));
}

/// The longest of the golden sequences, or its beginning.
std::vector<Token> sample_tokens(std::size_t count) {
  std::ifstream in(LOCKSTEP_TEST_DATA "/golden/nano-a.tokens.txt");
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  std::vector<std::vector<Token>> lines = parse_token_lines(text, "nano-a.tokens.txt", 512);
  auto longest = std::max_element(lines.begin(), lines.end(), [](auto& a, auto& b) { return a.size() < b.size(); });
  EXPECT_GE(longest->size(), count);
  longest->resize(count);
  return *longest;
}

GenerateRequest request_for(std::vector<Token> prompt, std::int64_t limit = 24, std::uint64_t seed = 7) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.limit = limit;
  request.sampling.temperature = 0.8f;
  request.sampling.top_p = 0.95f;
  request.sampling.frequency_penalty = 0.1f;
  request.sampling.seed = seed;
  return request;
}

std::vector<Token> joined(std::vector<Token> a, const std::vector<Token>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Generate, SameSeedGivesTheSameTokensWhateverTheChunksThreadsAndLevel) {
  const GenerateRequest request = request_for(sample_tokens(150));
  const auto engine = nano();
  const Generated expected = Generator(*engine).generate(request);
  ASSERT_EQ(expected.tokens.size(), 24u);
  for (const int chunk : {1, 7, 64, 150}) {
    const Generated out = Generator(*engine, chunk).generate(request);
    EXPECT_EQ(out.tokens, expected.tokens) << "chunk " << chunk;
    EXPECT_EQ(out.text, expected.text) << "chunk " << chunk;
  }
  EXPECT_EQ(Generator(*nano(2)).generate(request).tokens, expected.tokens) << "two threads";
  EXPECT_EQ(Generator(*nano(1, "scalar")).generate(request).tokens, expected.tokens) << "scalar level";
  EXPECT_NE(Generator(*engine).generate(request_for(request.prompt, 24, 8)).tokens, expected.tokens) << "another seed";
}

TEST(Generate, GreedyIsTheArgMaxOfTheLogitsOfWhatCameBefore) {
  const auto engine = nano();
  GenerateRequest request = request_for(sample_tokens(50), 20);
  request.sampling = {};
  request.sampling.temperature = 0;
  const Generated out = Generator(*engine).generate(request);
  ASSERT_EQ(out.tokens.size(), 20u);
  const std::vector<std::vector<Token>> whole = {joined(request.prompt, out.tokens)};
  run_schedule(*engine, whole, {Schedule::Kind::tokenwise, 1, 0},
               [&](std::size_t, Position at, std::span<const float> logits) {
                 const std::size_t next = static_cast<std::size_t>(at) + 1;
                 if (next < 50 || next == whole[0].size()) return;
                 EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), whole[0][next])
                     << "position " << next;
               });
}

TEST(Generate, EverySettingIsTheSamplersChoiceOfTheLogitsOfWhatCameBefore) {
  const auto engine = nano();
  const auto set = [](void (*change)(SamplerParams&)) {
    SamplerParams params;
    params.seed = 3;
    change(params);
    return params;
  };
  const struct {
    const char* name;
    SamplerParams params;
  } cases[] = {
      {"nothing set", set([](SamplerParams&) {})},
      {"all that is drawn where the logits are",
       set([](SamplerParams& p) { p.temperature = 0.7f, p.top_k = 40, p.top_p = 0.9f, p.min_p = 0.01f; })},
      {"a penalty", set([](SamplerParams& p) { p.repetition_penalty = 1.2f; })},
      {"a bias", set([](SamplerParams& p) {
         p.logit_bias = {{7, 3}};
       })},
  };
  for (const auto& c : cases) {
    GenerateRequest request = request_for(sample_tokens(50), 20);
    request.sampling = c.params;
    const Generated out = Generator(*engine).generate(request);
    ASSERT_EQ(out.tokens.size(), 20u);
    const std::vector<std::vector<Token>> whole = {joined(request.prompt, out.tokens)};
    Sampler sampler(c.params, engine->config().vocabulary);
    run_schedule(*engine, whole, {Schedule::Kind::tokenwise, 1, 0},
                 [&](std::size_t, Position at, std::span<const float> logits) {
                   const std::size_t next = static_cast<std::size_t>(at) + 1;
                   if (next < 50 || next == whole[0].size()) return;
                   const std::span<const Token> history = std::span<const Token>(whole[0]).first(next);
                   EXPECT_EQ(sampler.sample(logits, history, at + 1), whole[0][next]) << c.name << ", " << next;
                 });
  }
}

struct ReuseCase {
  const char* name;
  std::vector<Token> second;
  std::int64_t reused;
};

TEST(Generate, ReusesWhatThePromptsShareAndAnswersAsAFreshSequence) {
  const auto engine = nano();
  const std::vector<Token> all = sample_tokens(260), first(all.begin(), all.begin() + 200);
  const std::vector<Token> answer = Generator(*engine).generate(request_for(first)).tokens;
  const std::vector<Token> more(all.begin() + 200, all.begin() + 230);
  std::vector<Token> other_end = joined(first, more);
  other_end[200] = (answer[0] + 1) % 512;
  std::vector<Token> other_last = other_end;
  other_last[199] = (first[199] + 1) % 512;
  std::vector<Token> other_early = first;
  other_early[100] = (first[100] + 1) % 512;
  std::vector<Token> changed_late = joined(first, answer);
  changed_late[213] = (changed_late[213] + 1) % 512;
  const ReuseCase cases[] = {
      {"the whole answer but its last token, which was never run", joined(joined(first, answer), more), 223},
      {"up to ten tokens before the end: within the slack", changed_late, 213},
      {"the same prompt: all but the last token", first, 199},
      {"the prompt with another answer: from where the prompt ended", other_end, 200},
      {"the prompt but its last token", other_last, 199},
      {"half the prompt: too far back", other_early, 0},
      {"nothing", std::vector<Token>(all.begin() + 1, all.begin() + 50), 0},
  };
  for (const ReuseCase& c : cases) {
    Generator generator(*engine, 64);
    ASSERT_EQ(generator.generate(request_for(first)).tokens, answer);
    const Generated out = generator.generate(request_for(c.second));
    EXPECT_EQ(out.stats.reused, c.reused) << c.name;
    EXPECT_EQ(out.stats.prompt, static_cast<std::int64_t>(c.second.size())) << c.name;
    EXPECT_EQ(out.tokens, Generator(*engine).generate(request_for(c.second)).tokens) << c.name;
    EXPECT_EQ(generator.generate(request_for(first)).tokens, answer) << c.name << ", and back";
  }
}

TEST(Generate, StopsForEveryReason) {
  const auto engine = nano();
  const Tokenizer& tokenizer = engine->tokenizer();
  Generator generator(*engine);
  const std::vector<Token> prompt = sample_tokens(40);
  const Generated whole = generator.generate(request_for(prompt));
  EXPECT_EQ(whole.finish, Finish::limit);
  EXPECT_EQ(whole.stats.generated, 24);

  // The first token that had not come up before it.
  std::size_t at = 1;
  while (std::count(whole.tokens.begin(), whole.tokens.begin() + static_cast<std::ptrdiff_t>(at), whole.tokens[at]) > 0)
    ++at;
  GenerateRequest request = request_for(prompt);
  request.stop_tokens = {511, whole.tokens[at]};
  Generated out = generator.generate(request);
  EXPECT_EQ(out.finish, Finish::stop_token);
  EXPECT_EQ(out.tokens,
            std::vector<Token>(whole.tokens.begin(), whole.tokens.begin() + static_cast<std::ptrdiff_t>(at)));
  EXPECT_EQ(out.stats.generated, static_cast<std::int64_t>(at) + 1);

  // A text in the middle of the answer, across the border of two tokens.
  request = request_for(prompt);
  const std::string text = whole.text;
  const std::size_t middle = text.size() / 2;
  std::size_t begin = middle;
  while ((static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
  std::size_t end = begin + 6;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) ++end;
  const std::string stop = text.substr(begin, end - begin);
  request.stop_strings = {"never in it at all", stop};
  out = generator.generate(request);
  EXPECT_EQ(out.finish, Finish::stop_string);
  EXPECT_EQ(out.stop_string, stop);
  EXPECT_EQ(out.text, text.substr(0, text.find(stop)));
  EXPECT_TRUE(std::equal(out.tokens.begin(), out.tokens.end(), whole.tokens.begin()));

  request = request_for(prompt, -1);
  request.context = 55;
  out = generator.generate(request);
  EXPECT_EQ(out.finish, Finish::context);
  EXPECT_EQ(out.tokens.size(), 15u);
  EXPECT_EQ(generator.generate(request_for(prompt)).text, whole.text);
  EXPECT_FALSE(tokenizer.decode(whole.tokens).empty());
}

TEST(Generate, PiecesAreTheTextInOrder) {
  const auto engine = nano();
  Generated streamed;
  GenerateHooks hooks;
  hooks.piece = [&](const Piece& piece) {
    streamed.text += piece.text;
    if (piece.token) streamed.tokens.push_back(*piece.token);
    EXPECT_FALSE(piece.is_thought);
  };
  const Generated out = Generator(*engine).generate(request_for(sample_tokens(40)), hooks);
  EXPECT_EQ(streamed.text, out.text);
  EXPECT_EQ(streamed.tokens, out.tokens);
}

TEST(Generate, AThoughtEndsAtItsTokenAndStopStringsDoNotSeeIt) {
  const auto engine = nano();
  const std::vector<Token> prompt = sample_tokens(40);
  const Generated whole = Generator(*engine).generate(request_for(prompt));
  std::size_t at = 10;
  while (std::count(whole.tokens.begin(), whole.tokens.begin() + static_cast<std::ptrdiff_t>(at), whole.tokens[at]) > 0)
    ++at;
  GenerateRequest request = request_for(prompt);
  request.thought_end = whole.tokens[at];
  Generated out = Generator(*engine).generate(request);
  EXPECT_EQ(out.tokens, whole.tokens);
  const auto text_of = [&](std::size_t begin, std::size_t end) {
    return to_valid_utf8(engine->tokenizer().decode(std::span(whole.tokens).subspan(begin, end - begin)));
  };
  EXPECT_EQ(out.thought, text_of(0, at));
  EXPECT_EQ(out.text, text_of(at + 1, whole.tokens.size()));
  request.stop_strings = {out.thought};
  EXPECT_EQ(Generator(*engine).generate(request).finish, Finish::limit);
  request.thought_end = 511;  // never comes
  EXPECT_EQ(Generator(*engine).generate(request).text, "");
}

TEST(Generate, ACancelledAnswerKeepsWhatThereIsAndTheNextOneIsWhole) {
  const auto engine = nano();
  const std::vector<Token> prompt = sample_tokens(200);
  const Generated whole = Generator(*engine).generate(request_for(prompt));
  Generator generator(*engine, 50);
  std::atomic<bool> cancelled = false;
  GenerateHooks hooks;
  hooks.cancelled = &cancelled;

  // In the middle of the second chunk: between two layers.
  hooks.progress = [&](const PrefillProgress& progress) {
    if (progress.done > 60) cancelled = true;
  };
  Generated out = generator.generate(request_for(prompt), hooks);
  EXPECT_EQ(out.finish, Finish::cancelled);
  EXPECT_TRUE(out.tokens.empty());
  EXPECT_EQ(generator.cached().size(), 50u) << "the chunk was not committed";

  cancelled = false;
  hooks.progress = {};
  int count = 0;
  hooks.piece = [&](const Piece& piece) {
    if (piece.token && ++count == 3) cancelled = true;
  };
  out = generator.generate(request_for(prompt), hooks);
  EXPECT_EQ(out.finish, Finish::cancelled);
  EXPECT_EQ(out.stats.reused, 50);
  EXPECT_EQ(out.tokens, std::vector<Token>(whole.tokens.begin(), whole.tokens.begin() + 3));

  EXPECT_EQ(generator.generate(request_for(prompt)).tokens, whole.tokens);
}

TEST(Generate, ProgressGrowsFromTheReusedTokensToThePrompt) {
  const auto engine = nano();
  Generator generator(*engine, 64);
  const std::vector<Token> all = sample_tokens(300);
  generator.generate(request_for({all.begin(), all.begin() + 100}, 1));
  std::vector<std::int64_t> done;
  GenerateHooks hooks;
  hooks.progress = [&](const PrefillProgress& progress) {
    EXPECT_EQ(progress.total, 300);
    done.push_back(progress.done);
  };
  generator.generate(request_for(all, 1), hooks);
  EXPECT_EQ(done.front(), 100);
  EXPECT_EQ(done.back(), 300);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_GT(done.size(), 4u * 6u - 4u) << "four chunks of six layers";
}

TEST(Generate, RefusesWhatDoesNotFitByName) {
  const auto engine = nano();
  Generator generator(*engine);
  const auto changed = [](auto change) {
    GenerateRequest request = request_for({1, 2, 3}, 5);
    change(request);
    return request;
  };
  const struct {
    const char* message;
    GenerateRequest request;
  } cases[] = {
      {"prompt: empty, expected at least one token", changed([](auto& r) { r.prompt.clear(); })},
      {"prompt: token 512, expected 0 to 511", changed([](auto& r) { r.prompt[1] = 512; })},
      {"prompt: token -1, expected 0 to 511", changed([](auto& r) { r.prompt[1] = -1; })},
      {"limit: 0 tokens, expected at least 1, or -1 until the context is full", changed([](auto& r) { r.limit = 0; })},
      {"limit: 16382 new tokens after a prompt of 3, expected at most 16381, what the context of 16384 leaves",
       changed([](auto& r) { r.limit = 16382; })},
      {"context: 16385 tokens, expected 1 to 16384, which the model was made for",
       changed([](auto& r) { r.context = 16385; })},
      {"prompt: 3 tokens, expected fewer than the context of 3", changed([](auto& r) { r.context = 3; })},
      {"stop strings: one is empty, expected text", changed([](auto& r) {
         r.stop_strings = {"a", ""};
       })},
      {"top_p: 2, expected 0 to 1", changed([](auto& r) { r.sampling.top_p = 2; })},
      {"logit_bias: token 600, expected 0 to 511", changed([](auto& r) {
         r.sampling.logit_bias = {{600, 1}};
       })},
  };
  for (const auto& c : cases) {
    try {
      generator.generate(c.request);
      ADD_FAILURE() << "accepted: " << c.message;
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), c.message);
      EXPECT_EQ(error.kind(), Error::Kind::bad_argument);
    }
  }
}

TEST(Generate, APlainPromptGetsOneBosAndStopsAreWhatTheVocabularyHas) {
  const auto engine = nano();
  const Tokenizer& tokenizer = engine->tokenizer();
  const std::vector<Token> plain = tokenizer.encode("the end");
  ASSERT_FALSE(plain.empty());
  EXPECT_EQ(completion_prompt(tokenizer, "the end"), joined({0}, plain));
  EXPECT_EQ(completion_prompt(tokenizer, std::string(kBosText) + "the end"), joined({0}, plain));
  EXPECT_EQ(stop_tokens_of(tokenizer),
            (std::vector<Token>{1, 0, tokenizer.require_added(kUserText), tokenizer.require_added(kAssistantText)}));
}

}  // namespace
}  // namespace lockstep
