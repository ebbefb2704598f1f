// One answer: the same tokens give the same logits and the same cache bytes, whatever the level, the threads and the
// way they are cut into steps. memcmp, no tolerance.
#include <gtest/gtest.h>

#include <cstring>

#include "cpu/level.h"
#include "engine_runs.h"
#include "numerics/random.h"
#include "tensor/gguf_writer.h"

namespace lockstep {
namespace {

using testing::data;
using testing::make_engine;
using testing::RunResult;
using testing::same_bits;

const std::filesystem::path kNano = data("golden/nano-a.gguf");

std::vector<Token> random_tokens(std::uint64_t seed, int count, int vocabulary = 512) {
  std::vector<Token> tokens;
  for (int i = 0; i < count; ++i)
    tokens.push_back(static_cast<Token>(random_u64(seed, static_cast<std::uint64_t>(i)) % vocabulary));
  return tokens;
}

/// Lengths around every boundary: a window of 4 and of 128, the ring, the first selection (35 in nano-a).
std::vector<std::vector<Token>> mixed_lengths() {
  std::vector<std::vector<Token>> sequences;
  std::uint64_t seed = 7;
  for (const int length : {1, 4, 5, 36, 127, 128, 129, 261}) sequences.push_back(random_tokens(seed++, length));
  return sequences;
}

void expect_same(const RunResult& result, const RunResult& expected, const std::string& what) {
  for (std::size_t s = 0; s < expected.logits.size(); ++s) {
    EXPECT_TRUE(same_bits(result.logits[s], expected.logits[s])) << what << ": logits of sequence " << s;
    EXPECT_EQ(result.cache_bytes[s], expected.cache_bytes[s]) << what << ": cache of sequence " << s;
  }
}

class OneAnswer : public ::testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, OneAnswer, ::testing::Values(Mode::official, Mode::plain),
                         [](const auto& test) { return test.param == Mode::official ? "official" : "plain"; });

TEST_P(OneAnswer, on_every_level_with_every_number_of_threads_by_every_schedule) {
  const auto sequences = mixed_lengths();
  EngineOptions options;
  options.model = kNano;
  options.mode = GetParam();
  Engine reference(options, make_reference_ops());
  const RunResult expected = testing::run(reference, sequences, "tokenwise");

  // The scalar level takes 15 ms a token, so it gets the short sequences and a few schedules.
  const std::vector<std::vector<Token>> few(sequences.begin(), sequences.begin() + 5);
  for (const int threads : {1, 2, 3}) {
    const auto engine = make_engine(kNano, GetParam(), "scalar", threads);
    for (const char* schedule : {"chunk:64", "mixed:1"}) {
      const RunResult part = testing::run(*engine, few, schedule);
      for (std::size_t s = 0; s < few.size(); ++s) {
        EXPECT_TRUE(same_bits(part.logits[s], expected.logits[s])) << "scalar, " << threads << " threads, " << schedule;
        EXPECT_EQ(part.cache_bytes[s], expected.cache_bytes[s]) << "scalar, " << threads << " threads, " << schedule;
      }
    }
  }

  std::vector<std::string> schedules = {"tokenwise", "chunk:1000"};
  for (const int chunk : {1, 3, 5, 64, 127, 128, 129}) schedules.push_back("chunk:" + std::to_string(chunk));
  for (int seed = 1; seed <= 8; ++seed) schedules.push_back("mixed:" + std::to_string(seed));
  for (const cpu::Level* level : cpu::available_levels()) {
    if (level->name == "scalar") continue;
    for (const int threads : {1, 2, 3}) {
      const auto engine = make_engine(kNano, GetParam(), std::string(level->name), threads);
      for (const std::string& schedule : schedules)
        expect_same(testing::run(*engine, sequences, schedule), expected,
                    std::string(level->name) + ", " + std::to_string(threads) + " threads, " + schedule);
    }
  }
}

TEST_P(OneAnswer, at_every_length_and_for_every_split_of_a_prompt_of_300) {
  const std::vector<Token> tokens = random_tokens(99, 300);
  const auto engine = make_engine(kNano, GetParam(), "auto", 2);
  const RunResult expected = testing::run(*engine, {tokens}, "tokenwise");
  const int vocabulary = engine->config().vocabulary;
  Buffer logits(engine->ops(), sizeof(float) * 300 * static_cast<std::size_t>(vocabulary));
  std::vector<float> rows(static_cast<std::size_t>(300) * vocabulary);

  // Runs tokens [begin, end) in one step and compares every logit and, at the end, the cache.
  const auto extend = [&](SequenceCache& cache, int begin, int end) {
    const BatchItem item{&cache, std::span(tokens).subspan(begin, end - begin), end - begin};
    engine->forward().step({&item, 1});
    engine->forward().logits(0, {logits.floats(), end - begin, vocabulary, vocabulary});
    const std::size_t count = static_cast<std::size_t>(end - begin) * vocabulary;
    engine->ops().download(rows.data(), logits.floats(), count * sizeof(float));
    return std::memcmp(rows.data(), &expected.logits[0][static_cast<std::size_t>(begin) * vocabulary],
                       count * sizeof(float)) == 0;
  };
  for (int length = 1; length <= 300; ++length) {
    SequenceCache cache = engine->new_sequence();
    ASSERT_TRUE(extend(cache, 0, length)) << "prompt of " << length;
  }
  SequenceCache prefix = engine->new_sequence();
  for (int split = 1; split < 300; ++split) {
    ASSERT_TRUE(extend(prefix, split - 1, split)) << "token " << split - 1;
    SequenceCache cache = prefix.fork();
    ASSERT_TRUE(extend(cache, split, 300)) << "split at " << split;
    ASSERT_EQ(cache.contents(), expected.cache_bytes[0]) << "split at " << split;
  }
}

/// nano-a with the selection of the real model: 512 rows, so that the first choice falls at position 2051.
std::filesystem::path nano_with_top_512(Mode mode) {
  const auto path = std::filesystem::path(::testing::TempDir()) /
                    (mode == Mode::official ? "lockstep-top512-official.gguf" : "lockstep-top512-plain.gguf");
  const Gguf file(kNano);
  GgufWriter writer(path, {});
  writer.set_all(file);
  writer.set("deepseek4.attention.indexer.top_k", std::uint32_t{512});
  for (const GgufTensor& tensor : file.tensors())
    writer.add_tensor(tensor.name, tensor.dtype, std::span(tensor.ne).first(static_cast<std::size_t>(tensor.dims)));
  writer.begin();
  for (const GgufTensor& tensor : file.tensors()) writer.append(tensor.bytes);
  writer.finish();
  return path;
}

TEST_P(OneAnswer, at_every_length_from_2040_to_2060_where_the_indexer_begins_to_select) {
  const auto path = nano_with_top_512(GetParam());
  const auto engine = make_engine(path, GetParam(), "auto", 2);
  ASSERT_EQ(engine->config().index_top_k, 512);
  const std::vector<Token> tokens = random_tokens(5, 2060);
  const RunResult expected = testing::run(*engine, {tokens}, "chunk:509");
  for (int length = 2040; length <= 2060; ++length) {
    const std::vector<Token> prompt(tokens.begin(), tokens.begin() + length);
    const RunResult result = testing::run(*engine, {prompt}, length % 2 == 0 ? "chunk:512" : "chunk:500");
    ASSERT_EQ(0,
              std::memcmp(result.logits[0].data(), expected.logits[0].data(), result.logits[0].size() * sizeof(float)))
        << length;
  }
  std::filesystem::remove(path);
}

TEST_P(OneAnswer, after_rewinding_up_to_16_tokens_any_number_of_times) {
  const std::vector<Token> tokens = random_tokens(11, 280), noise = random_tokens(12, 280);
  const auto engine = make_engine(kNano, GetParam(), "auto", 2);
  const RunResult expected = testing::run(*engine, {tokens}, "chunk:512");
  SequenceCache cache = engine->new_sequence();
  std::uint64_t draws = 0;
  const auto draw = [&](int below) {
    return static_cast<int>(random_u64(3, draws++) % static_cast<std::uint64_t>(below));
  };
  const auto extend = [&](const std::vector<Token>& from, int count) {
    const BatchItem item{
        &cache, std::span(from).subspan(static_cast<std::size_t>(cache.length()), static_cast<std::size_t>(count)), 0};
    engine->forward().step({&item, 1});
  };
  // Wrong tokens are tried and taken back at every step, across windows of 4 and 128 and the ring's end.
  while (cache.length() < 280) {
    const Position length = cache.length();
    const int wrong = std::min<int>(1 + draw(kSlack), static_cast<int>(280 - length));
    extend(noise, wrong);
    ASSERT_LE(cache.rewind_floor(), length);
    cache.rewind(length);
    extend(tokens, std::min<int>(1 + draw(5), static_cast<int>(280 - length)));
    if (cache.length() > 40 && draw(4) == 0)
      cache.rewind(std::max(cache.rewind_floor(), cache.length() - draw(kSlack + 1)));
  }
  EXPECT_EQ(cache.contents(), expected.cache_bytes[0]);
}

TEST_P(OneAnswer, for_copies_that_share_pages_and_then_part) {
  const auto engine = make_engine(kNano, GetParam(), "auto", 2);
  const std::vector<Token> common = random_tokens(21, 150);
  std::vector<std::vector<Token>> branches;
  for (std::uint64_t b = 0; b < 3; ++b) {
    branches.push_back(common);
    const auto rest = random_tokens(30 + b, 140);
    branches.back().insert(branches.back().end(), rest.begin(), rest.end());
  }
  const RunResult expected = testing::run(*engine, branches, "chunk:512");
  SequenceCache root = engine->new_sequence();
  BatchItem item{&root, common, 0};
  engine->forward().step({&item, 1});
  const std::vector<std::byte> root_bytes = root.contents();
  for (std::size_t b = 0; b < 3; ++b) {
    SequenceCache copy = root.fork();
    item = {&copy, std::span(branches[b]).subspan(common.size()), 0};
    engine->forward().step({&item, 1});
    EXPECT_EQ(copy.contents(), expected.cache_bytes[b]) << "branch " << b;
    EXPECT_EQ(root.contents(), root_bytes) << "the original, after branch " << b;
  }
}

TEST_P(OneAnswer, after_a_step_that_was_cancelled_at_any_layer) {
  const auto engine = make_engine(kNano, GetParam(), "auto", 2);
  const std::vector<Token> tokens = random_tokens(41, 290);
  const RunResult expected = testing::run(*engine, {tokens}, "chunk:512");
  SequenceCache cache = engine->new_sequence();
  BatchItem item{&cache, std::span(tokens).first(133), 0};
  engine->forward().step({&item, 1});
  const std::vector<std::byte> before = cache.contents();
  for (int layer = 0; layer < static_cast<int>(engine->config().layers.size()); ++layer) {
    int asked = 0;
    item = {&cache, std::span(tokens).subspan(133), 0};
    EXPECT_THROW(engine->forward().step({&item, 1}, [&] { return asked++ == layer; }), Error);
    EXPECT_EQ(cache.length(), 133);
    EXPECT_EQ(cache.contents(), before) << "cancelled before layer " << layer;
  }
  engine->forward().step({&item, 1});
  EXPECT_EQ(cache.contents(), expected.cache_bytes[0]);
}

}  // namespace
}  // namespace lockstep
