// The file of sampled turns beside the states on disk: it comes back, it is shared, and damage to it is told once.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/replay_file.h"

namespace lockstep {
namespace {

class ServerReplay : public testing::Test {
 protected:
  ServerReplay()
      : folder_(std::filesystem::path(testing::TempDir()) / ("lockstep_replay_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~ServerReplay() override { std::filesystem::remove_all(folder_); }

  std::shared_ptr<ReplayMap> map(std::size_t bytes = 1 << 20) const { return std::make_shared<ReplayMap>(bytes); }
  std::unique_ptr<ReplayFile> open(const std::shared_ptr<ReplayMap>& map, double seconds = 1000) {
    return std::make_unique<ReplayFile>(
        map, ReplayFile::Options{folder_, seconds, [this](const std::string& text) { notes_.push_back(text); }});
  }
  static void remember(ReplayMap& map, const std::string& key, const std::string& text = "Yes.") {
    ParsedOutput output;
    output.content = text;
    SampledTurn turn;
    turn.opening = Phase::content;
    turn.whole.append(text, Trust::untrusted);
    map.remember(output, turn, {}, std::vector<std::string>{key});
  }
  static bool has(ReplayMap& map, const std::string& key, const std::string& text = "Yes.") {
    Message message;
    message.role = Role::assistant;
    message.content = text;
    return map.restore(message, key);
  }
  std::filesystem::path path() const { return folder_ / ReplayFile::kName; }
  std::string bytes() const {
    std::ifstream in(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& bytes) const { std::ofstream(path(), std::ios::binary) << bytes; }

  std::filesystem::path folder_;
  std::vector<std::string> notes_;
};

TEST_F(ServerReplay, WhatWasSampledIsThereAfterARestart) {
  {
    const auto first = map();
    const auto file = open(first);
    remember(*first, "a", "caf\u00e9 \"quoted\"\n");
    remember(*first, "b");
  }
  struct stat status {};
  ASSERT_EQ(::stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u) << "it tells what was talked about";
  const std::string before = bytes();
  {
    const auto second = map();
    const auto file = open(second);
    EXPECT_EQ(second->size(), 2u);
    EXPECT_TRUE(has(*second, "a", "caf\u00e9 \"quoted\"\n"));
    EXPECT_TRUE(has(*second, "b"));
  }
  EXPECT_EQ(bytes(), before) << "nothing new, nothing written";
  EXPECT_TRUE(notes_.empty()) << notes_.front();
}

TEST_F(ServerReplay, ItIsSavedWhileTheServerRuns) {
  const auto first = map();
  const auto file = open(first, 0.01);
  remember(*first, "a");
  const auto second = map();
  for (int i = 0; i < 1000 && !std::filesystem::exists(path()); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const auto other = open(second);
  EXPECT_TRUE(has(*second, "a"));
}

TEST_F(ServerReplay, ServersThatShareAFolderKeepEachOthersTurns) {
  const auto first = map(), second = map(), third = map();
  auto one = open(first), two = open(second);
  remember(*first, "a");
  remember(*second, "b");
  one.reset();
  two.reset();
  const auto file = open(third);
  EXPECT_TRUE(has(*third, "a"));
  EXPECT_TRUE(has(*third, "b"));
}

TEST_F(ServerReplay, TheFileIsBoundedByTheMap) {
  {
    const auto large = map(100'000);
    const auto file = open(large);
    for (int i = 0; i < 1000; ++i) remember(*large, "key" + std::to_string(i), std::string(1000, 'x'));
  }
  EXPECT_LT(std::filesystem::file_size(path()), 200'000u);
  const auto small = map(10'000);
  const auto file = open(small);
  EXPECT_LE(small->bytes(), 10'000u);
  EXPECT_TRUE(has(*small, "key999", std::string(1000, 'x'))) << "the latest are kept";
}

TEST_F(ServerReplay, ADamagedFileIsToldOnceAndRemoved) {
  {
    const auto first = map();
    const auto file = open(first);
    remember(*first, "a");
  }
  const std::string whole = bytes();
  std::vector<std::string> damaged = {"", "\n", "{}\n", whole + whole, std::string(20'000'000, 'x')};
  for (std::size_t size = 0; size < whole.size(); size += 7) damaged.push_back(whole.substr(0, size));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    damaged.push_back(whole);
    damaged.back()[at] = static_cast<char>(damaged.back()[at] ^ 1);
  }
  for (const std::string& file_bytes : damaged) {
    write(file_bytes);
    notes_.clear();
    const auto second = map();
    {
      const auto file = open(second);
      EXPECT_EQ(second->size(), 0u) << file_bytes.substr(0, 200);
      EXPECT_FALSE(std::filesystem::exists(path()));
      EXPECT_FALSE(has(*second, "a"));
    }
    ASSERT_EQ(notes_.size(), 1u);
    EXPECT_NE(notes_.front().find(path().string()), std::string::npos) << notes_.front();
  }
  notes_.clear();
  const auto third = map();
  const auto file = open(third);
  EXPECT_TRUE(notes_.empty()) << "told once";
}

TEST_F(ServerReplay, AFileOfTheFirstVersionIsReadAndReplaced) {
  const std::filesystem::path old_path = folder_ / ReplayFile::kOldName;
  const std::string old =
      "{\"lockstep\": \"replay\", \"version\": 1, \"bytes\": 142, \"xxh3\": \"5cb70deb71d59db3\"}\n"
      "{\"version\": 1, \"calls\": [], \"keys\": [\"a\"], \"reasoning\": \"\", \"content\": \"Yes.\", "
      "\"thinking\": false, \"thought\": [], \"answer\": [[false, \"Yes.\"]]}\n";
  for (const bool is_damaged : {true, false}) {
    std::ofstream(old_path, std::ios::binary) << old << (is_damaged ? "x" : "");
    notes_.clear();
    const auto first = map();
    const auto file = open(first);
    EXPECT_EQ(has(*first, "a"), !is_damaged);
    EXPECT_EQ(notes_.size(), is_damaged ? 1u : 0u);
    EXPECT_EQ(std::filesystem::exists(old_path), !is_damaged);
    EXPECT_FALSE(std::filesystem::exists(path())) << "nothing new, nothing written";
  }
  {
    const auto second = map();
    const auto file = open(second);
    remember(*second, "b");
  }
  EXPECT_FALSE(std::filesystem::exists(old_path));
  std::ofstream(old_path, std::ios::binary) << "from a server of the first version, which shares the folder";
  const auto third = map();
  const auto file = open(third);
  EXPECT_TRUE(has(*third, "a"));
  EXPECT_TRUE(has(*third, "b"));
  EXPECT_TRUE(std::filesystem::exists(old_path));
  EXPECT_TRUE(notes_.empty());
}

TEST_F(ServerReplay, WhatIsNoFileUnderItsNameIsToldAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  {
    const auto first = map();
    const auto file = open(first);
    ASSERT_EQ(notes_.size(), 1u);
    EXPECT_NE(notes_.front().find("replay-2: not a regular file"), std::string::npos) << notes_.front();
    remember(*first, "a");
  }
  const auto second = map();
  const auto file = open(second);
  EXPECT_TRUE(has(*second, "a")) << "a file is there now";
}

TEST_F(ServerReplay, AFolderThatCannotBeWrittenIsToldOnce) {
  const auto first = map();
  {
    const auto file = open(first, 0.01);
    std::filesystem::remove_all(folder_);
    remember(*first, "a");
  }
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_NE(notes_.front().find("not saved"), std::string::npos) << notes_.front();
  EXPECT_TRUE(has(*first, "a"));
}

}  // namespace
}  // namespace lockstep
