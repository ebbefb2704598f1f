// Speed of the CPU levels' matrix products, for each format.
//
//   bench_cpu_matmul [--level NAME] [--threads N] [--tokens N] [--repeat N] [FORMAT ...]
//
// Decode: one token times a matrix of 4096-wide rows that is larger than any cache (1.25 GiB), in bytes of weights a
// second and as a share of a plain read of the same memory by the same threads, taken before and after. Prefill: 512
// tokens times 4096 x 4096, in 10^9 multiplications and additions a second. Every figure is the best of a few runs:
// other work on the machine only ever makes them worse. With one thread, time is that thread's own CPU time, which
// other processes' turns do not count against.
#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "cpu/level.h"

namespace lockstep {
namespace {

constexpr int kWidth = 4096;
constexpr int kRowsAnItem = 64;

double seconds_of(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

template <class Body>
double best_seconds(int repeat, int threads, Body&& body) {
  const clockid_t clock = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  double best = 1e30;
  for (int i = 0; i < repeat; ++i) {
    const double start = seconds_of(clock);
    body();
    best = std::min(best, seconds_of(clock) - start);
  }
  return best;
}

std::uint32_t next_random(std::uint64_t& state) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<std::uint32_t>(state >> 33);
}

/// Random rows whose scales are ordinary numbers: infinities and subnormals would measure something else.
std::vector<std::byte> random_rows(DType dtype, int rows) {
  std::uint64_t state = 1;
  std::vector<std::byte> bytes(row_bytes(dtype, kWidth) * static_cast<std::size_t>(rows));
  for (std::byte& b : bytes) b = static_cast<std::byte>(next_random(state));
  const std::size_t block = static_cast<std::size_t>(info_of(dtype).block_bytes);
  for (std::size_t at = 0; at < bytes.size(); at += block) {
    std::byte* b = bytes.data() + at;
    const auto f16 = [&](std::size_t i) {
      store_as(b + i, static_cast<std::uint16_t>(0x2c00 + next_random(state) % 1024));
    };
    const auto code = [&](std::size_t i, unsigned base) {
      b[i] = static_cast<std::byte>(base + next_random(state) % 8);
    };
    switch (dtype) {
      case DType::f32:
        store_as(b, static_cast<float>(next_random(state)) * 0x1p-31f);
        break;
      case DType::f16:
        f16(0);
        break;
      case DType::bf16:
        store_as(b, static_cast<std::uint16_t>(0x3f00 + next_random(state) % 128));
        break;
      case DType::f8_e4m3_b128:
        for (std::size_t i = 1; i < 129; ++i) code(i, 0x30);
        code(0, 120);
        break;
      case DType::mxfp4:
        code(0, 120);
        break;
      case DType::nvfp4:
        for (std::size_t i = 0; i < 4; ++i) code(i, 0x30);
        break;
      case DType::q2_k:
        f16(80);
        f16(82);
        break;
      case DType::q3_k:
        f16(108);
        break;
      case DType::q6_k:
        f16(208);
        break;
      case DType::iq1_m:
        for (std::size_t i = 49; i < 56; i += 2) b[i] = static_cast<std::byte>(0x2c);
        break;
      case DType::rocmfp4:
        code(16, 0x30);
        code(17, 0x30);
        break;
      case DType::rocmfp4_fast:
      case DType::rocmi4:
        code(16, 0x30);
        break;
      case DType::rocmfp6:
        code(24, 0x30);
        code(25, 0x30);
        break;
      case DType::rocmfp8:
        code(32, 0x30);
        break;
      case DType::rocmfp3:
        code(12, 0x30);
        code(13, 0x30);
        break;
      case DType::rocmfp2:
      case DType::rocmfp2_affine:
      case DType::rocmfp2_s40:
        code(8, 0x30);
        code(9, 0x30);
        break;
      case DType::q4_1:
      case DType::q5_1:
      case DType::q4_k:
      case DType::q5_k:
        f16(0);
        f16(2);
        break;
      default:
        f16(0);
        break;
    }
  }
  return bytes;
}

std::uint64_t read_all(ThreadPool& pool, const std::byte* data, std::size_t bytes) {
  constexpr std::size_t kItem = std::size_t{1} << 20;
  std::vector<std::uint64_t> sums(64 * static_cast<std::size_t>(pool.threads()));
  pool.parallel_for(static_cast<int>(bytes / kItem), [&](int i, int thread) {
    const std::byte* p = data + static_cast<std::size_t>(i) * kItem;
    __m128i sum[4] = {};
    for (std::size_t at = 0; at < kItem; at += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(p + at + 4096), _MM_HINT_T1);
      for (std::size_t j = 0; j < 4; ++j)
        sum[j] = _mm_add_epi64(sum[j], _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + at + 16 * j)));
    }
    const __m128i all = _mm_add_epi64(_mm_add_epi64(sum[0], sum[1]), _mm_add_epi64(sum[2], sum[3]));
    sums[64 * static_cast<std::size_t>(thread)] += static_cast<std::uint64_t>(_mm_cvtsi128_si64(all));
  });
  return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
}

struct Options {
  std::string level;
  int threads = 2;
  int tokens = 512;
  int repeat = 3;
  std::vector<std::string> formats;
};

class Bench {
 public:
  Bench(const Options& options, const cpu::Level& level)
      : options_(options), level_(level), pool_(options.threads), bytes_(std::size_t{5} << 28) {
    memory_ = static_cast<std::byte*>(std::aligned_alloc(4096, bytes_));
    scratch_bytes_ = cpu::matmul_scratch_bytes(kWidth);
    for (int i = 0; i < pool_.threads(); ++i)
      scratch_.push_back(static_cast<std::byte*>(std::aligned_alloc(64, scratch_bytes_)));
    const std::size_t rows = static_cast<std::size_t>(options.tokens);
    values_.resize(rows * kWidth);
    codes_.resize(rows * kWidth);
    scales_.resize(rows * kWidth / 32);
    sums_.resize(rows * kWidth / 16);
    std::uint64_t state = 2;
    for (float& x : values_) x = static_cast<float>(next_random(state)) * 0x1p-30f - 1.0f;
    for (std::size_t i = 0; i < rows; ++i)
      level_.round_row(values_.data() + i * kWidth, kWidth, codes_.data() + i * kWidth,
                       scales_.data() + i * kWidth / 32, sums_.data() + i * kWidth / 16);
  }

  void measure(DType dtype) {
    const std::size_t row = row_bytes(dtype, kWidth);
    const std::vector<std::byte> pattern = random_rows(dtype, 64);
    for (std::size_t at = 0; at < bytes_; at += pattern.size())
      std::memcpy(memory_ + at, pattern.data(), std::min(pattern.size(), bytes_ - at));
    const int rows = static_cast<int>(bytes_ / row / kRowsAnItem) * kRowsAnItem;
    const double weight_bytes = static_cast<double>(rows) * static_cast<double>(row);
    const double read_before = read_rate();
    const double decode =
        weight_bytes / best_seconds(options_.repeat, options_.threads, [&] { multiply(dtype, rows, 1); });
    const double read = std::max(read_before, read_rate());
    const int few_rows = 4096;
    const double prefill =
        2.0 * few_rows * kWidth * options_.tokens /
        best_seconds(options_.repeat, options_.threads, [&] { multiply(dtype, few_rows, options_.tokens); });
    std::printf("%-18s %8.2f %8.2f %7.1f%% %9.1f\n", std::string(info_of(dtype).name).c_str(), read * 1e-9,
                decode * 1e-9, 100 * decode / read, prefill * 1e-9);
    std::fflush(stdout);
  }

 private:
  double read_rate() {
    return static_cast<double>(bytes_) /
           best_seconds(options_.repeat, options_.threads, [&] { sink_ += read_all(pool_, memory_, bytes_); });
  }

  void multiply(DType dtype, int rows, int tokens) {
    const Weight weight{dtype, kWidth, rows, 1, memory_, row_bytes(dtype, kWidth)};
    const Input input{ConstRows(values_.data(), tokens, kWidth, kWidth),
                      {codes_.data(), scales_.data(), sums_.data(), tokens, kWidth, kWidth}};
    out_.resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(tokens));
    std::vector<int> all(static_cast<std::size_t>(tokens));
    std::iota(all.begin(), all.end(), 0);
    // Few large items for many tokens: inputs are prepared once an item.
    const int item = tokens == 1 ? kRowsAnItem : 512;
    pool_.parallel_for((rows + item - 1) / item, [&](int i, int thread) {
      level_.matmul(weight, 0, i * item, std::min(rows, (i + 1) * item), input, all, {out_.data(), tokens, rows, rows},
                    all, {scratch_[static_cast<std::size_t>(thread)], scratch_bytes_});
    });
  }

  const Options& options_;
  const cpu::Level& level_;
  ThreadPool pool_;
  std::size_t bytes_;
  std::byte* memory_;
  std::size_t scratch_bytes_;
  std::vector<std::byte*> scratch_;
  std::vector<float> values_, scales_, out_;
  std::vector<std::int8_t> codes_;
  std::vector<std::int16_t> sums_;
  std::uint64_t sink_ = 0;
};

__attribute__((target("avx512f"))) double fma_rate() {
  __m512 sum[12];
  const __m512 x = _mm512_set1_ps(1.0001f), y = _mm512_set1_ps(0.5f);
  constexpr int kSteps = 5'000'000;
  for (__m512& s : sum) s = x;
  const double seconds = best_seconds(
      3, 1, [&]() __attribute__((target("avx512f"))) {
        __m512 s[12];
#pragma GCC unroll 12
        for (int j = 0; j < 12; ++j) s[j] = sum[j];
        for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
          for (int j = 0; j < 12; ++j) s[j] = _mm512_fmadd_ps(s[j], y, x);
        }
#pragma GCC unroll 12
        for (int j = 0; j < 12; ++j) sum[j] = s[j];
      });
  volatile float sink = 0;
  for (const __m512& s : sum) sink = sink + s[0];
  return 12.0 * 16 * 2 * kSteps / seconds;
}

int run(const Options& options) {
  for (const cpu::Level* level : cpu::available_levels()) {
    if (options.level.empty() ? level != cpu::available_levels().back() : level->name != options.level) continue;
    std::printf("level %s, %d threads, %d tokens, width %d\n", std::string(level->name).c_str(), options.threads,
                options.tokens, kWidth);
    if (level->name == "avx512") std::printf("fma of one thread: %.1f GFLOP/s\n", fma_rate() * 1e-9);
    std::printf("%-18s %8s %8s %8s %9s\n", "format", "read", "decode", "share", "prefill");
    std::printf("%-18s %8s %8s %8s %9s\n", "", "GB/s", "GB/s", "", "GOP/s");
    Bench bench(options, *level);
    for (const DTypeInfo& info : all_dtypes()) {
      const bool wanted = options.formats.empty() ||
                          std::find(options.formats.begin(), options.formats.end(), info.name) != options.formats.end();
      const bool multiplies =
          info.dtype != DType::i32 && info.dtype != DType::rocmfp2_mix && info.dtype != DType::rocmfp3_mix;
      if (wanted && multiplies) bench.measure(info.dtype);
    }
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const auto number = [&] { return std::atoi(argv[++i]); };
    if (name == "--level" && i + 1 < argc) {
      options.level = argv[++i];
    } else if (name == "--threads" && i + 1 < argc) {
      options.threads = number();
    } else if (name == "--tokens" && i + 1 < argc) {
      options.tokens = number();
    } else if (name == "--repeat" && i + 1 < argc) {
      options.repeat = number();
    } else {
      options.formats.emplace_back(name);
    }
  }
  return lockstep::run(options);
}
