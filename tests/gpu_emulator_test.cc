// The device that the CPU plays: what a right kernel sees, and that wrong ones are told from right ones.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "gpu/emulator.h"

namespace lockstep::gpu {
namespace {

using emulator::place;

int* shared_ints() { return reinterpret_cast<int*>(emulator::shared_memory()); }

int shuffle(int value, int lane) {
  const std::byte* all = emulator::exchange("shuffle", &value, sizeof value);
  std::memcpy(&value, all + static_cast<std::size_t>(lane) * emulator::kHandInBytes, sizeof value);
  return value;
}

std::string run(Grid grid, unsigned threads, const std::function<void()>& body) {
  emulator::Blocks blocks(2);
  return blocks.run(grid, threads, 4096, [&] {
    emulator::wait_for_launch_before();
    body();
  });
}

TEST(Emulator, every_thread_of_every_block_runs_once_and_knows_its_place) {
  constexpr int kThreads = 70;
  std::vector<std::atomic<int>> seen(3 * 2 * 2 * kThreads);
  EXPECT_EQ(run({3, 2, 2}, kThreads,
                [&] {
                  const auto& [thread, block, threads] = place();
                  ++seen[static_cast<std::size_t>(((block[2] * 2 + block[1]) * 3 + block[0]) * threads + thread)];
                }),
            "");
  for (const std::atomic<int>& one : seen) EXPECT_EQ(one, 1);
}

TEST(Emulator, what_is_written_before_a_barrier_is_read_behind_it) {
  constexpr int kThreads = 96;
  std::vector<int> sums(2 * kThreads);
  EXPECT_EQ(run({2}, kThreads,
                [&] {
                  const int t = place().thread;
                  for (int round = 0; round < 3; ++round) {
                    shared_ints()[t] = t + round;
                    emulator::block_barrier();
                    sums[static_cast<std::size_t>(place().block[0] * kThreads + t)] += shared_ints()[kThreads - 1 - t];
                    emulator::block_barrier();
                  }
                }),
            "");
  for (int i = 0; i < 2 * kThreads; ++i)
    EXPECT_EQ(sums[static_cast<std::size_t>(i)], 3 * (kThreads - 1 - i % kThreads) + 3);
}

TEST(Emulator, a_thread_can_say_that_it_did_what_a_device_leaves_undefined) {
  const std::string wrong = run({2}, 32, [] {
    if (place().thread == 5 && place().block[0] == 1) emulator::refuse("did it");
  });
  EXPECT_EQ(wrong, "thread 5 of block 1, 0, 0 did it");
}

TEST(Emulator, a_missing_barrier_shows_in_one_block_of_two) {
  std::vector<int> next(2 * 64), before(2 * 64);
  EXPECT_EQ(run({2}, 64,
                [&] {
                  const int t = place().thread;
                  const auto at = static_cast<std::size_t>(place().block[0] * 64 + t);
                  shared_ints()[t] = t;
                  next[at] = shared_ints()[(t + 1) % 64];
                  before[at] = shared_ints()[(t + 63) % 64];
                }),
            "");
  int wrong[2] = {};
  for (int i = 0; i < 128; ++i) {
    wrong[0] += next[static_cast<std::size_t>(i)] != (i + 1) % 64;
    wrong[1] += before[static_cast<std::size_t>(i)] != (i + 63) % 64;
  }
  EXPECT_GT(wrong[0], 0);
  EXPECT_GT(wrong[1], 0);
}

TEST(Emulator, a_warp_exchanges_values_again_and_again) {
  std::vector<int> out(64);
  EXPECT_EQ(run({1}, 64,
                [&] {
                  const int t = place().thread, lane = t % 32;
                  int value = lane;
                  for (int mask = 1; mask < 32; mask *= 2) value += shuffle(value, lane ^ mask);
                  out[static_cast<std::size_t>(t)] = value;
                }),
            "");
  for (const int value : out) EXPECT_EQ(value, 31 * 32 / 2);
}

TEST(Emulator, threads_that_have_ended_are_not_waited_for_and_hand_in_nothing) {
  int there = 0, ended = 0;
  EXPECT_EQ(run({1}, 32,
                [&] {
                  const int t = place().thread;
                  if (t >= 8) return;
                  const int a = shuffle(t + 100, 3), b = shuffle(t + 100, 20);
                  if (t == 0) there = a, ended = b;
                  emulator::block_barrier();
                }),
            "");
  EXPECT_EQ(there, 103);
  EXPECT_EQ(ended, -1);
}

TEST(Emulator, what_is_undefined_on_a_device_ends_the_kernel_with_its_place) {
  const struct {
    const char* name;
    std::function<void()> body;
    const char* expected;
  } cases[] = {
      {"an operation that needs the whole warp, part of which has ended",
       [] {
         if (place().thread < 16) emulator::exchange("mma", nullptr, 0, true);
       },
       "thread 0 of block 0, 0, 0 waits in mma for threads that wait for something else or have ended"},
      {"two operations in one warp", [] { emulator::exchange(place().thread == 5 ? "shuffle" : "mma", nullptr, 0); },
       "thread 5 of block 0, 0, 0 is in shuffle, another one of its warp in mma"},
      {"part of a warp at the block's barrier",
       [] {
         if (place().thread % 2 == 0) emulator::block_barrier();
         emulator::exchange("shuffle", nullptr, 0);
       },
       "thread 1 of block 0, 0, 0 waits in shuffle for threads that wait for something else or have ended"},
  };
  for (const auto& [name, body, expected] : cases) EXPECT_EQ(run({1}, 64, body), expected) << name;
  emulator::Blocks blocks(1);
  EXPECT_EQ(blocks.run({2}, 32, 0, [] {}), "no thread of it has waited for the launch before");
  EXPECT_EQ(blocks.run({1}, 2048, 0, [] {}), "a block of 2048 threads");
}

TEST(Emulator, a_copy_is_there_when_its_group_was_waited_for_and_not_before) {
  const int source[3] = {1, 2, 3};
  int seen[4] = {};
  EXPECT_EQ(run({1}, 1,
                [&] {
                  int* to = shared_ints();
                  to[0] = to[1] = to[2] = 0;
                  emulator::begin_copy(to, source, 4);
                  emulator::wait_for_copies(0);
                  seen[0] = to[0];  // its group has not ended
                  emulator::end_copy_group();
                  emulator::begin_copy(to + 1, source + 1, 4);
                  emulator::end_copy_group();
                  emulator::wait_for_copies(1);
                  seen[1] = to[0];
                  seen[2] = to[1];
                  emulator::wait_for_copies(0);
                  seen[3] = to[1];
                }),
            "");
  EXPECT_EQ(seen[0], 0);
  EXPECT_EQ(seen[1], 1);
  EXPECT_EQ(seen[2], 0);
  EXPECT_EQ(seen[3], 2);
}

TEST(Emulator, shared_memory_that_nobody_wrote_is_full_of_ones) {
  int seen = 0;
  EXPECT_EQ(run({1}, 1, [&] { seen = shared_ints()[1023]; }), "");
  EXPECT_EQ(seen, -1);
}

}  // namespace
}  // namespace lockstep::gpu
