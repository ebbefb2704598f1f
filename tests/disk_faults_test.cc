// The disk cache when things go wrong: damaged, foreign and missing files, no room, no permission, several processes,
// and being killed. Never a wrong state, never a crash, and a message that says what happened.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "disk_cache_support.h"
#include "disk_kill.h"
#include "engine/disk_cache.h"
#include "ops/forwarding_ops.h"

namespace lockstep {
namespace {

using test::disk_options;
using test::files_in;
using test::Notes;
using test::read_bytes;
using test::some_tokens;
using test::TempDirectory;
using test::TinyModel;
using test::write_bytes;

/// Writes the state of `tokens` and says how much it takes.
std::uint64_t bytes_of_one(const TinyModel& model, const DiskCacheOptions& options, const std::vector<Token>& tokens) {
  DiskCache cache(options);
  cache.put(tokens, model.state(tokens), {});
  cache.flush();
  return cache.stats().bytes_written;
}

std::vector<Token> with_more(std::vector<Token> tokens) {
  tokens.push_back(7);
  return tokens;
}

/// A state of one segment and a tail, small enough to damage every byte of it.
class Damage : public testing::TestWithParam<const char*> {
 protected:
  Damage() : tokens_(some_tokens(1, 145)) {
    Notes notes;
    DiskCache(disk_options(directory_.path(), notes)).put(tokens_, model_.state(tokens_), std::vector<float>{1, 2});
    file_ = files_in(directory_.path(), GetParam()).at(0);
    whole_ = read_bytes(file_);
  }

  /// Damages the file, looks for the state, and expects none, one message that names the file, and the file gone.
  void expect_detected(std::string_view bytes, const std::string& what) {
    write_bytes(file_, bytes);
    Notes notes;
    {
      DiskCache cache(disk_options(directory_.path(), notes));
      const auto found = cache.restore(with_more(tokens_), 0, [&] { return model_.empty(); });
      ASSERT_FALSE(found) << what;
      ASSERT_FALSE(cache.restore(with_more(tokens_), 0, [&] { return model_.empty(); })) << what;
    }
    ASSERT_EQ(notes.all().size(), 1u) << what << "\n" << notes.text();
    ASSERT_NE(notes.text().find(file_.string()), std::string::npos) << notes.text();
    ASSERT_FALSE(std::filesystem::exists(file_)) << what;
  }

  const TinyModel model_;
  TempDirectory directory_;
  std::vector<Token> tokens_;
  std::filesystem::path file_;
  std::string whole_;
};

TEST_P(Damage, OfAnyByteIsDetectedToldOnceAndTheFileDropped) {
  for (std::size_t at = 0; at < whole_.size(); ++at) {
    std::string bytes = whole_;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
    expect_detected(bytes, "byte " + std::to_string(at));
    if (HasFatalFailure()) return;
  }
  write_bytes(file_, whole_);
  Notes notes;
  DiskCache cache(disk_options(directory_.path(), notes));
  const auto found = cache.restore(with_more(tokens_), 0, [&] { return model_.empty(); });
  ASSERT_TRUE(found) << notes.text();
  EXPECT_EQ(found->cache.contents(), model_.state(tokens_).contents());
}

TEST_P(Damage, OfItsLengthIsDetectedAtEveryLength) {
  for (std::size_t length = 0; length < whole_.size(); ++length) {
    expect_detected(std::string_view(whole_).substr(0, length), std::to_string(length) + " bytes");
    if (HasFatalFailure()) return;
  }
  expect_detected(whole_ + '\0', "a byte too many");
}

TEST_P(Damage, AFileDroppedIsWrittenAnewWhenTheStateComesAgain) {
  whole_[200] = static_cast<char>(whole_[200] ^ 1);
  write_bytes(file_, whole_);
  Notes notes;
  DiskCache cache(disk_options(directory_.path(), notes));
  ASSERT_FALSE(cache.restore(with_more(tokens_), 0, [&] { return model_.empty(); }));
  EXPECT_TRUE(cache.put(tokens_, model_.state(tokens_), std::vector<float>{1, 2}));
  cache.flush();
  const auto found = cache.restore(with_more(tokens_), 0, [&] { return model_.empty(); });
  ASSERT_TRUE(found) << notes.text();
  EXPECT_EQ(found->cache.contents(), model_.state(tokens_).contents());
}

INSTANTIATE_TEST_SUITE_P(Files, Damage, testing::Values(".segment", ".tail"),
                         [](const auto& end) { return std::string(end.param).substr(1); });

TEST(DiskFaults, AnotherFileUnderARightNameIsDetected) {
  const TinyModel model;
  TempDirectory ours, theirs;
  Notes notes;
  const std::vector<Token> tokens = some_tokens(1, 145);
  DiskCache(disk_options(ours.path(), notes, 1)).put(tokens, model.state(tokens), {});
  DiskCache(disk_options(theirs.path(), notes, 2)).put(tokens, model.state(tokens), {});
  // The same sizes, the same tokens, another model.
  const auto our_tail = files_in(ours.path(), ".tail").at(0), their_tail = files_in(theirs.path(), ".tail").at(0);
  ASSERT_EQ(std::filesystem::file_size(our_tail), std::filesystem::file_size(their_tail));
  std::filesystem::copy_file(their_tail, our_tail, std::filesystem::copy_options::overwrite_existing);
  DiskCache cache(disk_options(ours.path(), notes, 1));
  EXPECT_FALSE(cache.restore(with_more(tokens), 0, [&] { return model.empty(); }));
  EXPECT_EQ(notes.count_with("another file under this name"), 1u) << notes.text();
}

TEST(DiskFaults, FilesOfAnotherModelInTheDirectoryAreLeftAloneAndToldOnce) {
  const TinyModel model;
  TempDirectory directory;
  Notes notes;
  const std::vector<Token> tokens = some_tokens(1, 145);
  DiskCache(disk_options(directory.path(), notes, 2)).put(tokens, model.state(tokens), {});
  DiskCache cache(disk_options(directory.path(), notes, 1));
  EXPECT_EQ(cache.match(with_more(tokens)).common, 0u);
  EXPECT_FALSE(cache.restore(with_more(tokens), 0, [&] { return model.empty(); }));
  ASSERT_EQ(notes.all().size(), 1u);
  EXPECT_NE(notes.text().find("2 files"), std::string::npos) << notes.text();
  EXPECT_EQ(files_in(directory.path(), ".tail").size(), 1u);
}

TEST(DiskFaults, AFileThatSomebodyElseRemovedIsAMissWithoutAMessage) {
  const TinyModel model;
  TempDirectory directory;
  Notes notes;
  const std::vector<Token> tokens = some_tokens(1, 600), shorter(tokens.begin(), tokens.begin() + 200);
  DiskCache cache(disk_options(directory.path(), notes));
  cache.put(shorter, model.state(shorter), {});
  cache.flush();
  const std::filesystem::path of_shorter = files_in(directory.path(), ".tail").at(0);
  cache.put(tokens, model.state(tokens), {});
  cache.flush();
  ASSERT_EQ(cache.match(with_more(tokens)).reused, 600u);
  for (const auto& tail : files_in(directory.path(), ".tail"))
    if (tail != of_shorter) std::filesystem::remove(tail);
  const auto found = cache.restore(with_more(tokens), 0, [&] { return model.empty(); });
  ASSERT_TRUE(found) << "the next longest";
  EXPECT_EQ(found->reused, 200u);
  EXPECT_EQ(found->cache.contents(), model.state(shorter).contents());
  EXPECT_EQ(notes.text(), "");
}

TEST(DiskFaults, AStateThatAnotherProcessReplacedByOneThatRewindsLessIsAMiss) {
  const TinyModel model;
  TempDirectory directory;
  Notes notes;
  const std::vector<Token> longer = some_tokens(1, 160), tokens(longer.begin(), longer.begin() + 150);
  std::vector<Token> prompt(tokens.begin(), tokens.begin() + 138);
  prompt.push_back(5000);
  DiskCache cache(disk_options(directory.path(), notes)), other(disk_options(directory.path(), notes));
  cache.put(tokens, model.state(tokens), {});
  cache.flush();
  ASSERT_EQ(cache.match(prompt).reused, 138u);
  SequenceCache rewound = model.state(longer);
  rewound.rewind(150);
  other.put(tokens, rewound, std::vector<float>{1});
  other.flush();
  EXPECT_FALSE(cache.restore(prompt, 0, [&] { return model.empty(); }));
  EXPECT_EQ(other.match(prompt).reused, 0u) << "144 is as far as it rewinds";
  EXPECT_EQ(notes.text(), "");
}

TEST(DiskFaults, AStateThatAnotherProcessReplacedByOneWithoutLogitsServesAllButTheLastToken) {
  const TinyModel model;
  TempDirectory directory;
  Notes notes;
  const std::vector<Token> tokens = some_tokens(1, 150);
  const auto make_empty = [&] { return model.empty(); };
  DiskCache cache(disk_options(directory.path(), notes));
  cache.put(tokens, model.state(tokens), std::vector<float>{1, 2});
  cache.flush();
  ASSERT_EQ(cache.match(tokens).reused, 150u);
  std::filesystem::remove(files_in(directory.path(), ".tail").at(0));
  DiskCache other(disk_options(directory.path(), notes));
  other.put(tokens, model.state(tokens), {});
  other.flush();
  const auto found = cache.restore(tokens, 0, make_empty);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->reused, 149u);
  EXPECT_TRUE(found->logits.empty());
  EXPECT_EQ(cache.match(tokens).reused, 149u) << "it is listed as what it is";
  EXPECT_EQ(cache.restore(with_more(tokens), 0, make_empty).value().cache.contents(), model.state(tokens).contents());
  // And the other way round.
  other.put(tokens, model.state(tokens), std::vector<float>{1, 2});
  other.flush();
  EXPECT_TRUE(cache.restore(tokens, 0, make_empty));
  const auto whole = cache.restore(tokens, 0, make_empty);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->reused, 150u);
  EXPECT_EQ(whole->logits, (std::vector<float>{1, 2}));
  EXPECT_EQ(notes.text(), "");
}

/// Files cannot grow beyond `bytes` while it lives: the same error path as a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST(DiskFaults, NoRoomIsToldOnceLeavesNothingHalfAndLosesOnlyWhatCouldNotBeKept) {
  const TinyModel model;
  TempDirectory directory;
  Notes notes;
  const std::vector<Token> a = some_tokens(1, 145), b = some_tokens(2, 145);
  {
    DiskCache cache(disk_options(directory.path(), notes));
    cache.put(a, model.state(a), {});
    cache.flush();
    const FileSizeLimit limit(1000);
    for (int i = 0; i < 3; ++i) {
      cache.put(b, model.state(b), {});
      cache.flush();
    }
    EXPECT_EQ(cache.stats().failed, 1u) << "then it waits a while";
    EXPECT_EQ(cache.stats().skipped, 2u);
    const auto found = cache.restore(with_more(a), 0, [&] { return model.empty(); });
    ASSERT_TRUE(found);
    EXPECT_EQ(found->cache.contents(), model.state(a).contents());
    EXPECT_FALSE(cache.restore(with_more(b), 0, [&] { return model.empty(); }));
  }
  ASSERT_EQ(notes.all().size(), 1u) << notes.text();
  EXPECT_NE(notes.text().find("cannot write: File too large; states are not kept until"), std::string::npos)
      << notes.text();
  EXPECT_EQ(notes.text().find("segment"), std::string::npos);
  for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
    EXPECT_EQ(entry.path().string().find("unfinished"), std::string::npos) << entry.path();
}

TEST(DiskFaults, AFailureIsNotWaitedOutWhenItIsSaidSo) {
  const TinyModel model;
  TempDirectory directory;
  Notes notes;
  const std::vector<Token> a = some_tokens(1, 145);
  DiskCache cache(disk_options(directory.path(), notes));
  {
    const FileSizeLimit limit(1000);
    cache.put(a, model.state(a), {});
    cache.flush();
  }
  EXPECT_FALSE(cache.put_whole(a, model.state(a), {}));
  cache.end_pause();
  EXPECT_TRUE(cache.put_whole(a, model.state(a), {}));
  cache.flush();
  EXPECT_EQ(cache.match(with_more(a)).reused, 145u);
  EXPECT_EQ(notes.count_with("states are kept again"), 1u) << notes.text();
}

// Asked all the time, and told how long the entry before has been there: whoever comes later waits for what is left.
TEST(DiskFaults, AStateWaitsForOneThatIsStuckAsLongAsItIsAllowedAndTheNextOneNoMore) {
  const TinyModel model;
  TempDirectory directory;
  Notes notes;
  const std::vector<Token> a = some_tokens(1, 145), b = some_tokens(2, 145);
  DiskCache cache(disk_options(directory.path(), notes));
  cache.put(a, model.state(a), {});
  cache.flush();
  auto lock = DirectoryLock::take(directory.path(), DirectoryLock::How::alone, 10);
  ASSERT_TRUE(lock);
  EXPECT_TRUE(cache.put(b, model.state(b), {}));
  int asked = 0;
  const auto goes_on = [&](double seconds) { return ++asked, seconds < 0.05; };
  const std::vector<Token> c = some_tokens(3, 145);
  EXPECT_FALSE(cache.put(c, model.state(c), {}, {}, goes_on));
  EXPECT_GE(asked, 2);
  for (int i = 0; i < 5; ++i) {
    asked = 0;
    EXPECT_FALSE(cache.put(c, model.state(c), {}, {}, goes_on));
    EXPECT_EQ(asked, 1) << "no wait any more";
  }
  EXPECT_TRUE(cache.put(a, model.state(a), {}, {}, goes_on)) << "it is there already";
  EXPECT_TRUE(cache.is_writing());
  lock.reset();
  cache.flush();
  EXPECT_FALSE(cache.is_writing());
  EXPECT_EQ(cache.match(with_more(b)).reused, 145u);
}

TEST(DiskFaults, ADirectoryThatCannotBeWrittenIsRead) {
  const TinyModel model;
  TempDirectory directory;
  Notes notes;
  const std::vector<Token> a = some_tokens(1, 145), b = some_tokens(2, 145);
  DiskCache(disk_options(directory.path(), notes)).put(a, model.state(a), {});
  // Files are private to their owner; here the other user may read them.
  for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
    std::filesystem::permissions(entry.path(), std::filesystem::perms(0444));
  std::filesystem::permissions(directory.path(), std::filesystem::perms(0555));
  const bool is_root = ::geteuid() == 0;  // whom no permission stops
  if (is_root) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  {
    DiskCache cache(disk_options(directory.path(), notes));
    EXPECT_TRUE(cache.stats().is_read_only);
    EXPECT_FALSE(cache.put(b, model.state(b), {}));
    cache.flush();
    const auto found = cache.restore(with_more(a), 0, [&] { return model.empty(); });
    EXPECT_TRUE(found.has_value());
    if (found) {
      EXPECT_EQ(found->cache.contents(), model.state(a).contents());
    }
  }
  if (is_root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  std::filesystem::permissions(directory.path(), std::filesystem::perms(0755));
  ASSERT_EQ(notes.all().size(), 1u) << notes.text();
  EXPECT_NE(notes.text().find("lock: cannot open: Permission denied; the cache is read, and nothing is added to it"),
            std::string::npos)
      << notes.text();
}

TEST(DiskFaults, TwoCachesOnOneDirectoryFindWhatTheOtherKeptAndNeitherIsEverWrong) {
  const TinyModel model;
  TempDirectory directory;
  Notes notes;
  DiskCacheOptions options = disk_options(directory.path(), notes);
  options.budget_bytes = 20'000;  // a few states: both make room all the time
  const auto work = [&](unsigned seed) {
    DiskCache cache(options);
    std::mt19937 random(seed);
    for (int i = 0; i < 60; ++i) {
      const auto kind = static_cast<unsigned>(random() % 12);
      const std::vector<Token> tokens = some_tokens(kind, 100 + random() % 300);
      cache.put(tokens, model.state(tokens), {});
      if (i % 3 == 0) cache.flush();
      const auto found = cache.restore(with_more(tokens), 0, [&] { return model.empty(); });
      if (!found) continue;
      SequenceCache expected = model.state(std::span<const Token>(tokens).first(found->reused));
      // Of a longer state only what decides is the same as of one that was never longer.
      ASSERT_EQ(found->cache.save_rows(0, found->cache.length()), expected.save_rows(0, expected.length()));
    }
  };
  std::thread other([&] { work(1); });
  work(2);
  other.join();
  EXPECT_EQ(notes.text(), "");
  Notes later;
  DiskCache cache(disk_options(directory.path(), later));
  EXPECT_GT(cache.stats().states, 0u);
  EXPECT_LE(cache.stats().bytes, 30'000u) << "the budget, and what was written while the other one held the lock";
  EXPECT_EQ(later.text(), "");
}

TEST(DiskFaults, RoomIsMadeByTheLeastRecentlyUsedAndNotByWhatAWaitingPromptNeeds) {
  const TinyModel model;
  TempDirectory directory;
  Notes notes;
  std::vector<std::vector<Token>> prompts;
  for (unsigned i = 0; i < 5; ++i) prompts.push_back(some_tokens(10 + i, 145));
  std::uint64_t one = 0;
  {
    DiskCache cache(disk_options(directory.path(), notes));
    cache.put(prompts[0], model.state(prompts[0]), {});
    cache.flush();
    one = cache.stats().bytes_written;
  }
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(15)); };  // file times tick
  DiskCacheOptions options = disk_options(directory.path(), notes);
  options.budget_bytes = 3 * one;
  DiskCache cache(options);
  for (unsigned i = 1; i < 3; ++i) {
    pause();
    cache.put(prompts[i], model.state(prompts[i]), {});
    cache.flush();
  }
  pause();
  ASSERT_TRUE(cache.restore(with_more(prompts[0]), 0, [&] { return model.empty(); })) << "now the latest";
  pause();
  const std::vector<Token> second = with_more(prompts[1]);
  const std::span<const Token> waiting[] = {second};
  cache.put(prompts[3], model.state(prompts[3]), {}, waiting);
  cache.flush();
  EXPECT_EQ(cache.match(with_more(prompts[0])).reused, 145u);
  EXPECT_EQ(cache.match(with_more(prompts[1])).reused, 145u) << "a prompt waits for it";
  EXPECT_EQ(cache.match(with_more(prompts[2])).reused, 0u) << "the oldest of the others";
  EXPECT_EQ(cache.match(with_more(prompts[3])).reused, 145u);
  EXPECT_EQ(cache.stats().evicted, 2u) << "a tail and its segment";
  pause();
  cache.put(prompts[4], model.state(prompts[4]), {});
  cache.flush();
  EXPECT_EQ(cache.match(with_more(prompts[1])).reused, 0u);
  EXPECT_EQ(notes.text(), "");
}

TEST(DiskFaults, AStateThatTheBudgetHasNoRoomForIsToldOnceAndNeverWritten) {
  const TinyModel model;
  TempDirectory directory;
  Notes notes;
  const std::vector<Token> a = some_tokens(1, 145), larger = some_tokens(2, 600);
  const std::uint64_t bytes = bytes_of_one(model, disk_options(directory.path(), notes), a);
  DiskCacheOptions options = disk_options(directory.path(), notes);
  options.budget_bytes = bytes;
  options.before_write = [](std::uint64_t) { ADD_FAILURE() << "written"; };
  DiskCache cache(options);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(cache.put(larger, model.state(larger), {}));
  EXPECT_FALSE(cache.put_whole(larger, model.state(larger), {}));
  cache.flush();
  EXPECT_TRUE(cache.fits(model.state(a), 0)) << "what just fits";
  EXPECT_FALSE(cache.fits(model.state(a), 1));
  EXPECT_EQ(cache.match(with_more(a)).reused, 145u) << "and stays";
  EXPECT_EQ(cache.stats().evicted, 0u);
  ASSERT_EQ(notes.all().size(), 1u) << notes.text();
  EXPECT_EQ(notes.count_with("a state of 600 tokens takes"), 1u) << notes.text();
}

// A directory that hangs then delays no answer for the sake of the order in which files go.
TEST(DiskFaults, TheTimesOfFilesThatWereUsedAreSetByTheThreadThatWrites) {
  const TinyModel model;
  TempDirectory directory;
  Notes notes;
  const std::vector<Token> a = some_tokens(1, 145), b = some_tokens(2, 145);
  std::atomic<bool> is_stuck = false;
  DiskCacheOptions options = disk_options(directory.path(), notes);
  options.before_write = [&](std::uint64_t) {
    while (is_stuck) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  DiskCache cache(options);
  cache.put(a, model.state(a), {});
  cache.flush();
  const std::filesystem::path file = files_in(directory.path(), ".tail").at(0);
  const auto long_ago = std::filesystem::last_write_time(file) - std::chrono::hours(1);
  for (const bool reads : {true, false}) {
    std::filesystem::last_write_time(file, long_ago);
    is_stuck = true;
    const std::vector<Token> other = some_tokens(reads ? 3 : 4, 145);
    ASSERT_TRUE(cache.put(other, model.state(other), {}));
    while (!cache.is_writing()) std::this_thread::yield();
    if (reads) {
      EXPECT_TRUE(cache.restore(with_more(a), 0, [&] { return model.empty(); }));
    } else {
      EXPECT_TRUE(cache.put(a, model.state(a), {})) << "it is there already";
    }
    EXPECT_EQ(std::filesystem::last_write_time(file), long_ago);
    is_stuck = false;
    cache.flush();
    EXPECT_GT(std::filesystem::last_write_time(file), long_ago);
  }
}

TEST(DiskFaults, WhenTheEndHasComeOnlyTheFileThatIsBeingWrittenIsWaitedFor) {
  const TinyModel model;
  TempDirectory directory;
  Notes notes;
  const std::vector<Token> tokens = some_tokens(1, 20 * 128), other = some_tokens(2, 145);
  DiskCache* told = nullptr;
  std::atomic<int> files = 0;
  DiskCacheOptions options = disk_options(directory.path(), notes);
  options.before_write = [&](std::uint64_t) {
    if (++files == 3) told->end_by(0);
  };
  {
    DiskCache cache(options);
    told = &cache;
    cache.put(tokens, model.state(tokens), {});
    cache.flush();
    EXPECT_TRUE(cache.is_over());
    EXPECT_FALSE(cache.put_whole(other, model.state(other), {}));
    EXPECT_FALSE(cache.put(other, model.state(other), {}));
  }
  EXPECT_EQ(files, 3);
  EXPECT_EQ(files_in(directory.path(), ".segment").size(), 3u) << "of use to whoever writes the rest";
  EXPECT_EQ(files_in(directory.path(), ".tail").size(), 0u);
  EXPECT_EQ(notes.count_with("a state is lost, there was no time to write it"), 1u) << notes.text();
  {
    auto lock = DirectoryLock::take(directory.path(), DirectoryLock::How::alone, 10);
    ASSERT_TRUE(lock);
    const double began = steady_seconds();
    DiskCache cache(disk_options(directory.path(), notes));
    cache.put(other, model.state(other), {});
    cache.end_by(steady_seconds() + 0.1);
    cache.flush();
    EXPECT_LT(steady_seconds() - began, 8) << "the lock is not waited for";
  }
  EXPECT_EQ(notes.count_with("a state is lost, there was no time to write it"), 2u) << notes.text();
  EXPECT_EQ(notes.all().size(), 2u) << notes.text();
}

TEST(DiskFaults, WhatIsNoFileUnderTheNameOfOneIsNotWaitedFor) {
  const TinyModel model;
  TempDirectory directory;
  Notes notes;
  const std::vector<Token> a = some_tokens(1, 145);
  DiskCache cache(disk_options(directory.path(), notes));
  cache.put(a, model.state(a), {});
  cache.flush();
  const std::filesystem::path tail = files_in(directory.path(), ".tail").at(0);
  std::filesystem::remove(tail);
  ASSERT_EQ(::mkfifo(tail.c_str(), 0600), 0);
  EXPECT_FALSE(cache.restore(with_more(a), 0, [&] { return model.empty(); }));
  EXPECT_EQ(notes.count_with("not a regular file; the state is not used"), 1u) << notes.text();
}

/// A disk of `room` bytes that holds one cache's directory and `others` bytes of somebody else's.
class SmallDisk : public testing::Test {
 protected:
  DiskCacheOptions options() {
    DiskCacheOptions options = disk_options(directory_.path(), notes_);
    options.pause_seconds = 0;
    options.before_write = [this](std::uint64_t bytes) {
      std::uint64_t used = others_;
      for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) used += entry.file_size();
      if (used + bytes > room_) throw NoRoom((directory_.path() / "x").string() + ": cannot write: No space left");
    };
    return options;
  }
  void put(DiskCache& cache, const std::vector<Token>& tokens, std::span<const std::span<const Token>> waiting = {}) {
    std::this_thread::sleep_for(std::chrono::milliseconds(15));  // file times tick
    EXPECT_TRUE(cache.put(tokens, model_.state(tokens), {}, waiting));
    cache.flush();
  }
  /// That the whole state comes back as it was.
  void expect_kept(DiskCache& cache, const std::vector<Token>& tokens) {
    const auto found = cache.restore(with_more(tokens), tokens.size() - 1, [&] { return model_.empty(); });
    ASSERT_TRUE(found) << notes_.text();
    EXPECT_EQ(found->cache.contents(), model_.state(tokens).contents());
  }
  std::uint64_t bytes_of_files() const {
    std::uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) bytes += entry.file_size();
    return bytes;
  }

  const TinyModel model_;
  TempDirectory directory_;
  Notes notes_;
  std::atomic<std::uint64_t> room_ = UINT64_MAX, others_ = 0;
};

TEST_F(SmallDisk, ThatIsFullTakesEveryNewStateInPlaceOfThoseUsedLeastButNotOfWhatAPromptWaitsFor) {
  DiskCache cache(options());
  std::vector<std::vector<Token>> prompts;
  for (unsigned i = 0; i < 40; ++i) prompts.push_back(some_tokens(10 + i, 145));
  const std::vector<Token> first = with_more(prompts[0]);
  const std::span<const Token> waiting[] = {first};
  for (unsigned i = 0; i < 10; ++i) put(cache, prompts[i]);
  room_ = bytes_of_files();
  for (unsigned i = 10; i < prompts.size(); ++i) {
    put(cache, prompts[i], waiting);
    expect_kept(cache, prompts[i]);
  }
  EXPECT_EQ(cache.stats().failed, 0u);
  EXPECT_EQ(cache.match(with_more(prompts[1])).reused, 0u);
  expect_kept(cache, prompts[0]);
  EXPECT_LE(bytes_of_files(), room_);
  ASSERT_EQ(notes_.all().size(), 1u) << notes_.text();
  EXPECT_EQ(notes_.count_with("the disk is full at"), 1u) << notes_.text();
}

TEST_F(SmallDisk, ThatIsFullInTheMiddleOfAStateKeepsItsSegmentsOldAndNew) {
  DiskCache cache(options());
  for (unsigned i = 0; i < 20; ++i) put(cache, some_tokens(10 + i, 145));
  std::vector<Token> chat = some_tokens(1, 300);  // two segments and a tail, which is the only one that needs them
  put(cache, chat);
  for (unsigned i = 20; i < 40; ++i) put(cache, some_tokens(10 + i, 145));
  const std::uint64_t segment = std::filesystem::file_size(test::files_in(directory_.path(), ".segment").at(0));
  for (const std::size_t segments : {0u, 1u, 2u, 3u}) {
    for (const Token token : some_tokens(static_cast<unsigned>(100 + segments), 4 * 128)) chat.push_back(token);
    room_ = bytes_of_files() + segments * segment + segment / 2;  // so many go in, and no more
    put(cache, chat);
    expect_kept(cache, chat);
  }
  EXPECT_EQ(cache.stats().failed, 0u) << notes_.text();
}

TEST_F(SmallDisk, ThatOthersFillKeepsTheOldStatesSaysSoOnceAndTakesNewOnesWhenThereIsRoom) {
  DiskCache cache(options());
  const std::vector<Token> a = some_tokens(1, 145), b = some_tokens(2, 4000), c = some_tokens(3, 145);
  put(cache, a);
  room_ = bytes_of_files();
  for (int i = 0; i < 3; ++i) put(cache, b);  // more than all there is would make room for
  EXPECT_EQ(cache.stats().failed, 3u);
  EXPECT_EQ(cache.stats().evicted, 0u) << "that would not help";
  expect_kept(cache, a);
  ASSERT_EQ(notes_.all().size(), 1u) << notes_.text();
  EXPECT_EQ(notes_.count_with("No space left; states are not kept until it can be written again"), 1u);
  // However much goes there is no room: then it is a part of the states that is lost, not all.
  room_ = UINT64_MAX;
  for (unsigned i = 0; i < 60; ++i) put(cache, some_tokens(10 + i, 145));
  EXPECT_EQ(notes_.count_with("states are kept again"), 1u) << notes_.text();
  others_ = room_.load() / 2, room_ = others_.load();
  put(cache, c);
  EXPECT_EQ(cache.stats().failed, 4u);
  EXPECT_GT(cache.stats().states, 40u);
  room_ = UINT64_MAX;
  put(cache, c);
  expect_kept(cache, c);
  EXPECT_EQ(notes_.count_with("states are kept again"), 2u) << notes_.text();
}

TEST(DiskFaults, VictimsAreWhatIsOfNoUseThenTailsByAgeWithTheSegmentsOnlyTheyNeed) {
  const auto segment = [](std::uint64_t key, std::uint64_t parent, std::int64_t used) {
    return StateFile{{StateKind::segment, 1, key, parent}, 10, used};
  };
  const auto tail = [](std::uint64_t key, std::uint64_t parent, std::int64_t used) {
    return StateFile{{StateKind::tail, 1, key, parent}, 10, used};
  };
  // 11 - 12 - 13 hold tails 21 (at 12) and 22 (at 13); 14 follows 12 and serves nobody; 23 lacks its segment.
  const std::vector<StateFile> files = {segment(11, 0, 1), segment(12, 11, 2), segment(13, 12, 3), segment(14, 12, 4),
                                        tail(21, 12, 50),  tail(22, 13, 40),   tail(23, 99, 60),   tail(24, 0, 30)};
  const auto keys = [&](std::uint64_t budget, std::uint64_t kept) {
    std::vector<std::uint64_t> out;
    for (const StateFile& file : choose_victims(files, budget, [&](const StateName& name) { return name.key == kept; }))
      out.push_back(file.name.key);
    return out;
  };
  using Keys = std::vector<std::uint64_t>;
  EXPECT_EQ(keys(80, 0), Keys({}));
  EXPECT_EQ(keys(79, 0), Keys({23}));
  EXPECT_EQ(keys(60, 0), Keys({23, 14}));
  EXPECT_EQ(keys(50, 0), Keys({23, 14, 24}));
  EXPECT_EQ(keys(30, 0), Keys({23, 14, 24, 22, 13})) << "12 is needed by 21";
  EXPECT_EQ(keys(0, 0), Keys({23, 14, 24, 22, 13, 21, 12, 11}));
  EXPECT_EQ(keys(0, 22), Keys({23, 14, 24, 21})) << "22 is kept, and with it its segments";
}

/// Takes nothing after its first `good` uploads, as a device that fails.
class FailingUpload final : public ForwardingOps {
 public:
  explicit FailingUpload(int good) : FailingUpload(make_reference_ops(), good) {}
  void upload(void* to, const void* from, std::size_t bytes) override {
    if (good_-- <= 0) throw Error(Error::Kind::device, "device 0: lost");
    ForwardingOps::upload(to, from, bytes);
  }

 private:
  FailingUpload(std::unique_ptr<Ops> ops, int good) : ForwardingOps(*ops), owned_(std::move(ops)), good_(good) {}
  std::unique_ptr<Ops> owned_;
  int good_;
};

TEST(DiskFaults, WhatFailsWhileAStateIsReadIsThrownAndTheStateStaysAndMayMakeRoomLater) {
  const TinyModel model;
  const Config config = test::tiny_config();
  FailingUpload failing(0);
  struct Case {
    const char* name;
    Error::Kind kind;
    std::function<SequenceCache()> make_empty;
  };
  const std::vector<Case> cases = {
      {"no memory for a sequence", Error::Kind::no_memory,
       []() -> SequenceCache { throw Error(Error::Kind::no_memory, "none"); }},
      {"the device fails", Error::Kind::device, [&] { return SequenceCache(config, Mode::official, failing); }},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    TempDirectory directory;
    Notes notes;
    const std::vector<Token> a = some_tokens(1, 145), b = some_tokens(2, 145);
    const std::uint64_t bytes = bytes_of_one(model, disk_options(directory.path(), notes), a);
    DiskCacheOptions options = disk_options(directory.path(), notes);
    options.budget_bytes = bytes + bytes / 2;
    DiskCache cache(options);
    try {
      cache.restore(with_more(a), 0, one.make_empty);
      ADD_FAILURE() << "not thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), one.kind) << error.what();
    }
    EXPECT_EQ(cache.match(with_more(a)).reused, 145u);
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
    cache.put(b, model.state(b), {});
    cache.flush();
    EXPECT_EQ(cache.match(with_more(a)).reused, 0u) << "nobody reads it any more";
    EXPECT_EQ(cache.match(with_more(b)).reused, 145u);
    EXPECT_EQ(notes.text(), "");
  }
}

TEST_P(Damage, NoMemoryIsAskedForByASizeThatTheHeaderDoesNotSay) {
  std::filesystem::resize_file(file_, std::uintmax_t{1} << 40);  // which takes no room on the disk
  Notes notes;
  {
    DiskCache cache(disk_options(directory_.path(), notes));
    EXPECT_FALSE(cache.restore(with_more(tokens_), 0, [&] { return model_.empty(); }));
  }
  EXPECT_EQ(notes.count_with("1099511627776 bytes, expected"), 1u) << notes.text();
  EXPECT_FALSE(std::filesystem::exists(file_));
}

// The long form is `session_runs kill`.
TEST(DiskFaults, BeingKilledAtAnyMomentLosesTheNewestStateAtMostAndLeavesWholeOnes) {
  TempDirectory directory;
  test::KillCounts counts;
  EXPECT_EQ(test::kill_while_writing(directory.path(), 30, 1, counts), "");
  EXPECT_EQ(counts.rounds, 30);
  EXPECT_GT(counts.restored, 20u);
}

}  // namespace
}  // namespace lockstep
