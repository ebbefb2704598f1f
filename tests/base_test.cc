#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/thread_pool.h"

namespace lockstep {
namespace {

TEST(ThreadPool, runs_every_item_once_with_any_number_of_threads) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int count : {0, 1, 2, 3, 7, 64, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
      std::atomic<bool> bad_thread = false;
      pool.parallel_for(count, [&](int i, int thread) {
        ++seen[static_cast<std::size_t>(i)];
        if (thread < 0 || thread >= threads) bad_thread = true;
      });
      for (int i = 0; i < count; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)].load(), 1) << i << " of " << count;
      EXPECT_FALSE(bad_thread);
    }
  }
}

TEST(ThreadPool, survives_many_short_loops) {
  ThreadPool pool(3);
  std::vector<int> sums(16, 0);
  for (int round = 0; round < 20000; ++round)
    pool.parallel_for(16, [&](int i, int) { sums[static_cast<std::size_t>(i)] += i; });
  for (int i = 0; i < 16; ++i) EXPECT_EQ(sums[static_cast<std::size_t>(i)], 20000 * i);
}

TEST(ThreadPool, refuses_a_negative_number_of_threads) { EXPECT_THROW(ThreadPool(-1), Error); }

TEST(ThreadPool, an_idle_pool_uses_no_cpu) {
  ThreadPool pool(4);
  pool.parallel_for(8, [](int, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // past the spinning
  const auto used_us = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000L + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
  };
  const long before = used_us();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(used_us() - before, 10000) << "microseconds of CPU in 300 ms of doing nothing";
}

TEST(MappedFile, gives_the_bytes_and_refuses_what_is_no_file) {
  const auto path = std::filesystem::path(::testing::TempDir()) / ("lockstep-map-" + std::to_string(getpid()));
  std::FILE* file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  std::fputs("seven b", file);
  std::fclose(file);
  MappedFile mapped(path);
  ASSERT_EQ(mapped.bytes().size(), 7u);
  EXPECT_EQ(static_cast<char>(mapped.bytes()[6]), 'b');
  MappedFile moved(std::move(mapped));
  EXPECT_EQ(moved.bytes().size(), 7u);
  std::filesystem::resize_file(path, 0);
  EXPECT_TRUE(MappedFile(path).bytes().empty());
  std::filesystem::remove(path);

  for (const auto& wrong : {path, std::filesystem::path("/"), std::filesystem::path("/dev/null")}) {
    try {
      MappedFile file_that_is_none(wrong);
      FAIL() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::io);
      EXPECT_NE(std::string(error.what()).find(wrong.string()), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace lockstep
