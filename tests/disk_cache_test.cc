// The disk cache: a state that was kept is the state that was, whoever finds it, after a restart too.
#include "engine/disk_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <sstream>
#include <thread>

#include "cli/cache.h"
#include "cli/command.h"
#include "cpu/cpu_ops.h"
#include "disk_cache_support.h"
#include "engine/generate.h"
#include "engine/scheduler.h"
#include "engine/state_fingerprint.h"
#include "waited_guide.h"

namespace lockstep {
namespace {

using test::disk_options;
using test::Notes;
using test::some_tokens;
using test::TempDirectory;
using test::TinyModel;

const std::filesystem::path kNano = LOCKSTEP_TEST_DATA "/golden/nano-a.gguf";

std::unique_ptr<Engine> nano(Mode mode = Mode::official, const std::filesystem::path& model = kNano) {
  EngineOptions options;
  options.model = model;
  options.mode = mode;
  options.max_rows = 64;
  return std::make_unique<Engine>(options, cpu::make_cpu_ops({1, "auto"}));
}

std::vector<Token> nano_tokens(unsigned seed, std::size_t count) {
  std::vector<Token> tokens = some_tokens(seed, count);
  for (Token& token : tokens) token %= 512;
  return tokens;
}

/// Runs tokens and returns the logits after the last one.
std::vector<float> run(Engine& engine, SequenceCache& cache, std::span<const Token> tokens) {
  const int vocabulary = engine.config().vocabulary;
  Buffer buffer(engine.ops(), static_cast<std::size_t>(vocabulary) * sizeof(float));
  for (std::size_t at = 0; at < tokens.size();) {
    const std::size_t count = std::min<std::size_t>(64, tokens.size() - at);
    const BatchItem item{&cache, tokens.subspan(at, count), 1};
    engine.forward().step({&item, 1});
    engine.forward().logits(0, {buffer.floats(), 1, vocabulary, vocabulary});
    at += count;
  }
  std::vector<float> logits(static_cast<std::size_t>(vocabulary));
  engine.ops().download(logits.data(), buffer.floats(), buffer.size());
  return logits;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class SavedState : public testing::TestWithParam<Mode> {};

TEST_P(SavedState, IsTheStateAndGoesOnAlikeFromEveryKindOfPlaceAfterRewindsToo) {
  const auto engine = nano(GetParam());
  const std::vector<Token> tokens = nano_tokens(1, 300);
  SequenceCache grown = engine->new_sequence();
  for (const Position length :
       {1, 3, 4, 5, 15, 16, 17, 127, 128, 129, 131, 132, 143, 144, 145, 159, 255, 256, 257, 290}) {
    const auto from = static_cast<std::size_t>(grown.length());
    run(*engine, grown, std::span<const Token>(tokens).subspan(from, static_cast<std::size_t>(length) - from));
    SequenceCache restored = engine->new_sequence();
    for (Position at = 0; at < length;) {
      const Position to = std::min<Position>(length, at + 128);
      restored.restore_rows(to, grown.save_rows(at, to));
      at = to;
    }
    restored.restore_rings(grown.rewind_floor(), grown.save_rings());
    ASSERT_EQ(restored.length(), length);
    ASSERT_EQ(restored.rewind_floor(), grown.rewind_floor());
    ASSERT_EQ(restored.contents(), grown.contents()) << length;
    ASSERT_EQ(restored.save_rings(), grown.save_rings()) << length;
    for (const Position back : {0, 1, kSlack}) {
      if (length - back < grown.rewind_floor()) continue;
      SequenceCache a = grown.fork(), b = restored.fork();
      a.rewind(length - back);
      b.rewind(length - back);
      const std::vector<Token> more = nano_tokens(static_cast<unsigned>(100 + length), 5);
      ASSERT_TRUE(same_bits(run(*engine, a, more), run(*engine, b, more))) << length << " - " << back;
      ASSERT_EQ(a.contents(), b.contents()) << length << " - " << back;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, SavedState, testing::Values(Mode::official, Mode::plain),
                         [](const auto& mode) { return mode.param == Mode::official ? "official" : "plain"; });

TEST(SavedState, RefusesBytesThatAreNotAsManyAsItsRows) {
  const TinyModel model;
  SequenceCache cache = model.empty();
  EXPECT_THROW(cache.restore_rows(4, {}), Error);
  cache.restore_rows(4, model.state(some_tokens(1, 4)).save_rows(0, 4));
  EXPECT_THROW(cache.restore_rings(0, std::vector<std::byte>(7)), Error);
}

TEST(DiskFormat, ANameSaysWhatBelongsToWhatAndThereIsOneForAState) {
  const StateName name{StateKind::tail, 0x12, 0xabcdef, 0};
  EXPECT_EQ(file_name(name), "0000000000000012-0000000000abcdef-0000000000000000.tail");
  EXPECT_EQ(parse_file_name(file_name(name)), name);
  for (const char* other : {"", "replay.jsonl", "lock", "0000000000000012-0000000000ABCDEF-0000000000000000.tail",
                            "0000000000000012-0000000000abcdef-0000000000000000.tai",
                            "0000000000000012-0000000000abcdef-000000000000000x.tail",
                            "0000000000000012-0000000000abcdef-0000000000000000.tail.part"})
    EXPECT_FALSE(parse_file_name(other)) << other;
}

struct FindCase {
  const char* name;
  std::size_t kept;    // tokens of the state
  std::size_t shared;  // tokens that the prompt shares with it
  std::size_t prompt;  // tokens of the prompt
  std::size_t reused;
};

class DiskCacheFind : public testing::TestWithParam<FindCase> {};

TEST_P(DiskCacheFind, GivesTheLongestBeginningThatTheStateRewindsTo) {
  const FindCase& param = GetParam();
  const TinyModel model;
  TempDirectory directory;
  Notes notes;
  const std::vector<Token> kept = some_tokens(1, param.kept);
  const std::vector<float> logits = {1, -0.0f, 3};
  {
    DiskCache cache(disk_options(directory.path(), notes));
    EXPECT_TRUE(cache.put(kept, model.state(kept), logits));
  }
  std::vector<Token> prompt(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(param.shared));
  while (prompt.size() < param.prompt) prompt.push_back(5000);
  DiskCache cache(disk_options(directory.path(), notes));
  EXPECT_EQ(cache.match(prompt).reused, param.reused);
  const std::size_t common = cache.match(prompt).common;
  EXPECT_EQ(cache.match(prompt).goes_on, common < param.kept) << common;
  const auto found = cache.restore(prompt, 0, [&] { return model.empty(); });
  ASSERT_EQ(found.has_value(), param.reused > 0) << notes.text();
  EXPECT_EQ(notes.text(), "");
  if (!found) return;
  EXPECT_EQ(found->reused, param.reused);
  SequenceCache expected = model.state(kept);
  expected.rewind(static_cast<Position>(param.reused));
  EXPECT_EQ(found->cache.contents(), expected.contents());
  EXPECT_EQ(found->cache.rewind_floor(), expected.rewind_floor());
  EXPECT_EQ(found->logits.empty(), param.reused != param.prompt);
  if (!found->logits.empty()) {
    EXPECT_TRUE(same_bits(found->logits, logits));
  }
  EXPECT_FALSE(cache.restore(prompt, param.reused, [&] { return model.empty(); })) << "no more than that";
}

INSTANTIATE_TEST_SUITE_P(
    All, DiskCacheFind,
    testing::Values(
        FindCase{"one_token_alone", 1, 1, 1, 1}, FindCase{"the_same_prompt_with_its_logits", 100, 100, 100, 100},
        FindCase{"a_grown_prompt", 100, 100, 120, 100}, FindCase{"a_prompt_within_the_slack", 100, 90, 130, 90},
        FindCase{"a_beginning_leaves_one_token_to_run", 100, 95, 95, 94},
        FindCase{"a_prompt_that_leaves_before_the_slack", 100, 83, 130, 0}, FindCase{"at_the_slack", 100, 84, 130, 84},
        FindCase{"nothing_alike", 100, 0, 130, 0}, FindCase{"just_before_a_segment", 127, 127, 200, 127},
        FindCase{"at_a_segment", 128, 128, 200, 128}, FindCase{"just_after_a_segment", 129, 129, 200, 129},
        FindCase{"back_over_the_end_of_a_segment", 130, 120, 200, 120},
        FindCase{"the_slack_begins_at_a_segment", 144, 128, 200, 128}, FindCase{"several_segments", 700, 700, 701, 700},
        FindCase{"several_segments_and_back", 700, 690, 900, 690}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(DiskCache, SegmentsAreSharedByAllThatBeginWithThem) {
  const TinyModel model;
  TempDirectory directory;
  Notes notes;
  DiskCache cache(disk_options(directory.path(), notes));
  const std::vector<Token> first = some_tokens(1, 500);
  std::vector<Token> second(first.begin(), first.begin() + 300);
  for (const Token token : some_tokens(2, 250)) second.push_back(token);
  EXPECT_TRUE(cache.put(first, model.state(first), {}));
  EXPECT_TRUE(cache.put(second, model.state(second), {}));
  cache.flush();
  // 3 whole segments each (a state rewinds to 484 and 534), the first two of them alike.
  EXPECT_EQ(cache.stats().segments, 3u + 4u - 2u);
  EXPECT_EQ(cache.stats().states, 2u);
  for (const std::vector<Token>& tokens : {first, second}) {
    std::vector<Token> prompt = tokens;
    prompt.push_back(7);
    const auto found = cache.restore(prompt, 0, [&] { return model.empty(); });
    ASSERT_TRUE(found);
    EXPECT_EQ(found->cache.contents(), model.state(tokens).contents());
  }
  EXPECT_EQ(notes.text(), "");
  const std::uint64_t written = cache.stats().bytes_written;
  EXPECT_TRUE(cache.put(first, model.state(first), {})) << "known already";
  cache.flush();
  EXPECT_EQ(cache.stats().bytes_written, written);
  EXPECT_TRUE(cache.put(first, model.state(first), std::vector<float>{1})) << "now with logits";
  cache.flush();
  EXPECT_GT(cache.stats().bytes_written, written);
  EXPECT_EQ(cache.match(first).reused, 500u);
}

TEST(DiskCache, AQueueThatIsFullSkipsAndWhatItSkippedIsKeptTheNextTime) {
  const TinyModel model;
  TempDirectory directory;
  Notes notes;
  DiskCacheOptions options = disk_options(directory.path(), notes);
  options.queue_bytes = 1500;  // a segment and a half
  DiskCache cache(options);
  const std::vector<Token> tokens = some_tokens(1, 1000);
  int puts = 1;
  for (; !cache.put(tokens, model.state(tokens), {}); ++puts) {
    ASSERT_LT(puts, 100);
    cache.flush();
  }
  cache.flush();
  EXPECT_GT(puts, 2);
  std::vector<Token> prompt = tokens;
  prompt.push_back(1);
  const auto found = cache.restore(prompt, 0, [&] { return model.empty(); });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->cache.contents(), model.state(tokens).contents());
  const std::vector<Token> other = some_tokens(2, 1000);
  EXPECT_TRUE(cache.put_whole(other, model.state(other), {})) << "at once, at the end of a process";
  cache.flush();
  EXPECT_EQ(cache.match(other).reused, 999u);
}

TEST(StateFingerprint, IsOfAllBytesOfTheFileAndOfTheMode) {
  TempDirectory directory;
  const std::filesystem::path copy = directory.path() / "copy.gguf";
  std::string bytes = test::read_bytes(kNano);
  test::write_bytes(copy, bytes);
  const std::filesystem::path states = directory.path() / "new" / "one";
  const std::uint64_t original = state_fingerprint(*nano(), states);
  EXPECT_EQ(state_fingerprint(*nano(), states), original) << "from the list of known files";
  EXPECT_NE(test::read_bytes(states / "known-weights").find(kNano.string()), std::string::npos);
  EXPECT_EQ(state_fingerprint(*nano(Mode::official, copy), states), original) << "the same bytes elsewhere";
  EXPECT_NE(state_fingerprint(*nano(Mode::plain), states), original);
  bytes[bytes.size() / 2 + 4321] ^= 1;
  test::write_bytes(copy, bytes);
  EXPECT_NE(state_fingerprint(*nano(Mode::official, copy), states), original) << "one bit in the middle";
}

TEST(StateFingerprint, ItsListIsPrivateAndWhatIsWrongWithItIsToldAndMended) {
  TempDirectory directory;
  const std::filesystem::path list = directory.path() / "known-weights";
  Notes notes;
  const auto fingerprint = [&] {
    return state_fingerprint(*nano(), directory.path(), [&](const std::string& note) { notes.add(note); });
  };
  const std::uint64_t original = fingerprint();
  const auto mode_of = [](const std::filesystem::path& path) {
    struct stat status {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
    return status.st_mode & 07777;
  };
  EXPECT_EQ(mode_of(list), 0600u);
  EXPECT_EQ(mode_of(directory.path() / "lock"), 0600u);
  const std::string whole = test::read_bytes(list);
  std::string damaged = whole;
  damaged[20] = static_cast<char>(damaged[20] ^ 1);
  EXPECT_EQ(notes.text(), "");
  for (const std::string& bytes :
       {damaged, std::string("garbage"), std::string(300, '\0'), std::string(2 << 20, 'x')}) {
    test::write_bytes(list, bytes);
    const std::size_t before = notes.all().size();
    EXPECT_EQ(fingerprint(), original);
    EXPECT_EQ(notes.all().size(), before + 1) << notes.text();
    EXPECT_EQ(test::read_bytes(list), whole);
  }
  std::filesystem::remove(list);
  ASSERT_EQ(::mkfifo(list.c_str(), 0600), 0);
  EXPECT_EQ(fingerprint(), original) << "and does not wait for somebody to write into it";
  EXPECT_EQ(notes.count_with("known-weights: not a regular file"), 1u) << notes.text();
  EXPECT_EQ(test::read_bytes(list), whole);
}

// ---- The scheduler with a directory ----

class Answer : public test::WaitedGuide {
 public:
  bool on_token(const Sampled& sampled) override {
    const std::lock_guard lock(mutex_);
    tokens_.push_back(sampled.token);
    return true;
  }
  std::vector<Token> tokens_;
};

struct Answered {
  JobStats stats;
  std::vector<Token> tokens;
};

Answered ask(Scheduler& scheduler, const std::vector<Token>& prompt, std::int64_t limit) {
  const auto answer = std::make_shared<Answer>();
  Job job;
  job.prompt = prompt;
  job.limit = limit;
  job.sampling.temperature = 0.8f;
  job.sampling.seed = 3;
  job.guide = answer;
  EXPECT_FALSE(scheduler.submit(std::move(job)).has_value());
  const JobResult result = answer->wait();
  EXPECT_NE(result.end, JobResult::End::failed) << result.error;
  return {result.stats, answer->tokens_};
}

std::vector<Token> alone(Engine& engine, const std::vector<Token>& prompt, std::int64_t limit) {
  GenerateRequest request;
  request.prompt = prompt;
  request.limit = limit;
  request.sampling.temperature = 0.8f;
  request.sampling.seed = 3;
  return Generator(engine).generate(request).tokens;
}

struct ChatCase {
  const char* name;
  std::size_t cache_bytes;
};

class SchedulerOnDisk : public testing::TestWithParam<ChatCase> {};

TEST_P(SchedulerOnDisk, AChatGoesOnAfterRestartsAsIfThereHadBeenNone) {
  TempDirectory directory;
  Notes notes;
  const auto engine = nano(), solo = nano();
  SchedulerOptions options;
  options.slots = 2;
  options.cache_bytes = GetParam().cache_bytes;
  options.snapshot_every = 96;
  options.cache_dir = directory.path();
  options.cache_disk_bytes = 1 << 30;
  options.note = [&](const std::string& note) { notes.add(note); };
  std::vector<Token> prompt = nano_tokens(4, 150);
  std::size_t before = 0;
  for (int turn = 0; turn < 4; ++turn) {
    Scheduler scheduler(*engine, options);
    const Answered answered = ask(scheduler, prompt, 20);
    EXPECT_EQ(answered.tokens, alone(*solo, prompt, 20));
    EXPECT_EQ(answered.stats.reused, static_cast<std::int64_t>(before)) << "its suffix only";
    EXPECT_EQ(answered.stats.restored, answered.stats.reused);
    EXPECT_EQ(answered.stats.miss, turn == 0 ? Miss::nothing_kept : Miss::none);
    prompt.insert(prompt.end(), answered.tokens.begin(), answered.tokens.end());
    before = prompt.size() - 1;  // the last token of an answer is never run
    for (const Token token : nano_tokens(static_cast<unsigned>(10 + turn), 25)) prompt.push_back(token);
  }
  {
    Scheduler scheduler(*engine, options);
    std::vector<Token> edited = prompt;
    edited[100] = (edited[100] + 1) % 512;
    const Answered answered = ask(scheduler, edited, 10);
    EXPECT_EQ(answered.tokens, alone(*solo, edited, 10));
    EXPECT_EQ(answered.stats.reused, 96) << "from the state kept on the way";
    EXPECT_EQ(answered.stats.miss, Miss::differs);
    EXPECT_EQ(answered.stats.shared, 100);
    edited[100] = prompt[100];
    std::vector<Token> again(prompt.begin(), prompt.begin() + 150);
    const Answered regenerated = ask(scheduler, again, 10);
    EXPECT_EQ(regenerated.tokens, alone(*solo, again, 10));
    EXPECT_EQ(regenerated.stats.reused, 150) << "with the logits of its end";
    EXPECT_EQ(regenerated.stats.miss, Miss::none);
  }
  EXPECT_EQ(notes.text(), "");
}

INSTANTIATE_TEST_SUITE_P(Memory, SchedulerOnDisk,
                         testing::Values(ChatCase{"beside_memory", 400'000'000}, ChatCase{"alone", 0}),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(SchedulerOnDiskOnly, OtherWeightsOfTheSameSizeFindNothing) {
  TempDirectory directory, states;
  Notes notes;
  SchedulerOptions options;
  options.cache_dir = states.path();
  options.cache_disk_bytes = 1 << 30;
  options.note = [&](const std::string& note) { notes.add(note); };
  const std::vector<Token> prompt = nano_tokens(5, 120);
  {
    const auto engine = nano();
    Scheduler scheduler(*engine, options);
    ask(scheduler, prompt, 5);
  }
  const std::filesystem::path copy = directory.path() / "other.gguf";
  std::string bytes = test::read_bytes(kNano);
  bytes[bytes.size() - 777] ^= 1;
  test::write_bytes(copy, bytes);
  const auto other = nano(Mode::official, copy);
  Scheduler scheduler(*other, options);
  const Answered answered = ask(scheduler, prompt, 5);
  EXPECT_EQ(answered.stats.reused, 0);
  EXPECT_EQ(answered.tokens, alone(*nano(Mode::official, copy), prompt, 5));
  EXPECT_EQ(notes.count_with("of another model, mode or version"), 1u) << notes.text();
}

TEST(SchedulerOnDiskOnly, WhatCouldNotBeWrittenIsTriedOnceMoreAtTheStopWhateverThePause) {
  TempDirectory directory;
  Notes notes;
  const auto engine = nano();
  SchedulerOptions options;
  options.cache_bytes = 400'000'000;
  options.cache_dir = directory.path();
  options.cache_disk_bytes = 1 << 30;
  options.note = [&](const std::string& note) { notes.add(note); };
  const std::vector<Token> first = nano_tokens(7, 120), second = nano_tokens(8, 120);
  const std::filesystem::path lock = directory.path() / "lock";
  {
    Scheduler scheduler(*engine, options);
    std::filesystem::remove(lock);
    std::filesystem::create_directory(lock);  // which cannot be locked
    ask(scheduler, first, 0);
    for (int i = 0; i < 500 && scheduler.status().disk.failed == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ask(scheduler, second, 0);
    EXPECT_EQ(scheduler.status().disk.states, 0u);
    std::filesystem::remove(lock);
  }
  EXPECT_EQ(notes.count_with("states are not kept until it can be written again"), 1u) << notes.text();
  EXPECT_EQ(notes.count_with("states are kept again"), 1u) << notes.text();
  Scheduler scheduler(*engine, options);
  EXPECT_EQ(ask(scheduler, first, 0).stats.restored, 120) << "which the disk had taken and lost";
  EXPECT_EQ(ask(scheduler, second, 0).stats.restored, 120) << "which came in the pause";
}

struct ReasonCase {
  const char* name;
  std::size_t shared;  // tokens with a state of 100 that goes on to 140, as the disk has it after a restart
  bool damages;        // every file of the disk
  std::int64_t reused;
  Miss miss;
};

class ReasonAfterARestart : public testing::TestWithParam<std::tuple<ReasonCase, ChatCase>> {};

TEST_P(ReasonAfterARestart, IsToldByWhatTheDiskHas) {
  const auto& [one, memory] = GetParam();
  TempDirectory directory;
  const auto engine = nano(), solo = nano();
  SchedulerOptions options;
  options.cache_bytes = memory.cache_bytes;
  options.cache_dir = directory.path();
  options.cache_disk_bytes = 1 << 30;
  const std::vector<Token> longer = nano_tokens(6, 140);
  for (const std::size_t length : {100u, 140u}) {
    Scheduler scheduler(*engine, options);
    ask(scheduler, std::vector<Token>(longer.begin(), longer.begin() + static_cast<std::ptrdiff_t>(length)), 0);
  }
  Scheduler scheduler(*engine, options);  // which knows the files by their heads
  for (const auto& file : test::files_in(directory.path(), ".tail")) {
    std::string bytes = test::read_bytes(file);
    if (one.damages) bytes.back() = static_cast<char>(bytes.back() ^ 1);
    test::write_bytes(file, bytes);
  }
  std::vector<Token> prompt(longer.begin(), longer.begin() + static_cast<std::ptrdiff_t>(one.shared));
  while (prompt.size() < 150) prompt.push_back((longer[std::min<std::size_t>(prompt.size(), 139)] + 1) % 512);
  const Answered answered = ask(scheduler, prompt, 3);
  EXPECT_EQ(answered.tokens, alone(*solo, prompt, 3));
  EXPECT_EQ(answered.stats.reused, one.reused);
  EXPECT_EQ(answered.stats.restored, one.reused);
  EXPECT_EQ(answered.stats.miss, one.miss) << name_of(answered.stats.miss);
  EXPECT_EQ(answered.stats.shared, static_cast<std::int64_t>(one.shared));
  // What is as short as the shortest is not kept where prompts part, nor read.
  const std::uint64_t hits = scheduler.status().disk.hits;
  EXPECT_EQ(hits, one.reused > 0 ? 1u : 0u);
}

INSTANTIATE_TEST_SUITE_P(
    All, ReasonAfterARestart,
    testing::Combine(testing::Values(ReasonCase{"nothing_alike", 0, false, 0, Miss::nothing_kept},
                                     ReasonCase{"a_token_alike", 1, false, 0, Miss::differs},
                                     ReasonCase{"a_few_tokens_alike", 16, false, 0, Miss::differs},
                                     ReasonCase{"no_state_there", 60, false, 0, Miss::no_snapshot},
                                     ReasonCase{"another_end", 100, false, 100, Miss::differs},
                                     ReasonCase{"another_end_a_little_behind", 110, false, 100, Miss::differs},
                                     ReasonCase{"nothing_differs", 140, false, 140, Miss::none},
                                     ReasonCase{"damaged", 100, true, 0, Miss::evicted}),
                     testing::Values(ChatCase{"beside_memory", 400'000'000}, ChatCase{"alone", 0})),
    [](const auto& one) { return std::string(std::get<0>(one.param).name) + "_" + std::get<1>(one.param).name; });

TEST(SchedulerOnDiskOnly, RefusesADirectoryThatCannotBeAndABudgetOfNothing) {
  TempDirectory directory;
  const auto engine = nano();
  SchedulerOptions options;
  options.cache_dir = directory.path();
  EXPECT_THROW(Scheduler(*engine, options), Error);
  options.cache_disk_bytes = 1;
  options.cache_dir = directory.path() / "file";
  test::write_bytes(options.cache_dir, "not a directory");
  EXPECT_THROW(Scheduler(*engine, options), Error);
}

// ---- The command ----

TEST(CacheCommand, ListsVerifiesAndPrunes) {
  const TinyModel model;
  TempDirectory directory;
  Notes notes;
  const std::vector<Token> a = some_tokens(1, 500), b = some_tokens(2, 60);
  {
    DiskCache cache(disk_options(directory.path(), notes));
    cache.put(a, model.state(a), std::vector<float>{1});
    cache.put(b, model.state(b), {});
  }
  test::write_bytes(directory.path() / "replay.jsonl", "{}\n");
  std::ostringstream out;
  EXPECT_EQ(run_cache_list(directory.path(), out), 0);
  EXPECT_NE(out.str().find("with logits"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("2 states, 3 segments"), std::string::npos) << out.str();
  out.str("");
  EXPECT_EQ(run_cache_verify(directory.path(), out), 0);
  EXPECT_NE(out.str().find("5 files"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("0 damaged, 0 of no use"), std::string::npos) << out.str();
  out.str("");

  const std::filesystem::path segment = test::files_in(directory.path(), ".segment").front();
  std::string bytes = test::read_bytes(segment);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  test::write_bytes(segment, bytes);
  EXPECT_EQ(run_cache_verify(directory.path(), out), 1);
  EXPECT_NE(out.str().find(segment.string() + ": damaged: the checksum of its rows"), std::string::npos) << out.str();
  std::filesystem::remove(segment);
  out.str("");
  EXPECT_EQ(run_cache_verify(directory.path(), out), 0);
  EXPECT_NE(out.str().find("0 damaged, 1 of no use"), std::string::npos) << out.str();
  out.str("");
  const std::uint64_t of_b =
      std::filesystem::file_size(test::files_in(directory.path(), "-0000000000000000.tail").at(0));
  EXPECT_EQ(run_cache_prune(directory.path(), of_b, out), 0);
  EXPECT_EQ(test::files_in(directory.path(), ".tail").size(), 1u) << out.str();
  EXPECT_EQ(test::files_in(directory.path(), ".segment").size(), 0u) << out.str();
  EXPECT_EQ(run_cache_prune(directory.path(), 0, out), 0);
  EXPECT_EQ(test::files_in(directory.path(), ".tail").size(), 0u);
  EXPECT_TRUE(std::filesystem::exists(directory.path() / "replay.jsonl"));
  EXPECT_THROW(run_cache_prune(directory.path() / "none", 0, out), Error);
}

TEST(CacheCommand, ReadsSizesAsServeDoes) {
  TempDirectory directory;
  const std::string path = directory.path().string();
  for (const char* size : {"0", "20GB", "512MiB", "1.5g"}) {
    CLI::App app;
    std::function<int()> command;
    add_cache(app, command);
    app.parse({size, "--bytes", path, "prune", "cache"});  // CLI11 takes them from the back
    EXPECT_EQ(command(), 0) << size;
  }
  for (const char* size : {"-5", "10XB", "auto", "", "GB"}) {
    CLI::App app;
    std::function<int()> command;
    add_cache(app, command);
    app.parse({size, "--bytes", path, "prune", "cache"});
    try {
      command();
      ADD_FAILURE() << size << ": not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::bad_argument);
      EXPECT_NE(std::string(error.what()).find("expected a size as in"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace lockstep
