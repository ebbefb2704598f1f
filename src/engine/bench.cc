#include "engine/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/thread_pool.h"
#include "numerics/random.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kMostReadBytes = std::uint64_t{4} << 30;  // enough to pass any cache by
constexpr std::size_t kReadPiece = 4 << 20;
constexpr std::size_t kPageBytes = 4096;
constexpr int kReadPasses = 3;  // before the first measurement
constexpr int kMostTokens = 1 << 20;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Adds up the 64-bit words, so that every byte has to arrive. Eight sums, for the loads not to wait for each other;
/// asked for a page ahead, because the hardware's own prefetching stops at the end of a page.
std::uint64_t read_all(std::span<const std::byte> bytes) {
  std::uint64_t sum[8] = {};
  const std::byte* at = bytes.data();
  for (std::size_t left = bytes.size(); left >= sizeof sum; left -= sizeof sum, at += sizeof sum) {
    if (left > kPageBytes) __builtin_prefetch(at + kPageBytes);
    std::uint64_t words[8];
    std::memcpy(words, at, sizeof words);
    for (int i = 0; i < 8; ++i) sum[i] += words[i];
  }
  return std::accumulate(sum, sum + 8, std::uint64_t{0});
}

/// Plain reads of the file's tensors, in order, by all threads; the best pass counts. Some passes come before the
/// measurements and one after every repetition, so that a slow spell does not fall on this yardstick alone.
class ReadMeter {
 public:
  ReadMeter(const Gguf& file, int threads, BenchReport& report) : file_(file), pool_(threads), report_(report) {
    for (const GgufTensor& tensor : file.tensors())
      for (std::size_t at = 0; at < tensor.bytes.size() && report.read_bytes < kMostReadBytes; at += kReadPiece) {
        pieces_.push_back(tensor.bytes.subspan(at, std::min(kReadPiece, tensor.bytes.size() - at)));
        report.read_bytes += pieces_.back().size();
      }
    sums_.resize(pieces_.size());
  }

  void pass() {
    const auto start = std::chrono::steady_clock::now();
    pool_.parallel_for(static_cast<int>(pieces_.size()), [&](int i, int) {
      sums_[static_cast<std::size_t>(i)] = read_all(pieces_[static_cast<std::size_t>(i)]);
    });
    const double rate = static_cast<double>(report_.read_bytes) / seconds_since(start);
    report_.read_bytes_per_second = std::max(report_.read_bytes_per_second, rate);
    if (first_.empty()) first_ = sums_;
    if (sums_ != first_)
      throw Error(Error::Kind::io, file_.name() + ": changed while it was read");  // so the sums are used
  }

 private:
  const Gguf& file_;
  ThreadPool pool_;
  BenchReport& report_;
  std::vector<std::span<const std::byte>> pieces_;
  std::vector<std::uint64_t> first_, sums_;
};

class Bench {
 public:
  Bench(Engine& engine, const BenchOptions& options, const std::function<void(const std::string&)>& note)
      : engine_(engine),
        options_(options),
        note_(note),
        logits_(engine.ops(), sizeof(float) * static_cast<std::size_t>(engine.config().vocabulary)) {
    const int longest = *std::max_element(options.depths.begin(), options.depths.end()) + options.decode;
    const int most = options.prefill.empty()
                         ? longest
                         : std::max(longest, *std::max_element(options.prefill.begin(), options.prefill.end()));
    for (int i = 0; i < most; ++i)
      tokens_.push_back(static_cast<Token>(random_u64(options.seed, static_cast<std::uint64_t>(i)) %
                                           static_cast<std::uint64_t>(engine.config().vocabulary)));
  }

  void run(BenchReport& report, ReadMeter& meter) {
    make_rows(report);
    make_depths();
    for (int repetition = -1; repetition < options_.repetitions; ++repetition) {
      say(repetition < 0 ? "warming up" : fmt::format("repetition {} of {}", repetition + 1, options_.repetitions));
      for (BenchRow& row : report.rows) {
        SequenceCache cache = row.is_prefill ? engine_.new_sequence() : caches_[index_of(row.depth)].fork();
        const auto start = std::chrono::steady_clock::now();
        if (row.is_prefill) {
          feed(cache, row.tokens, engine_.forward().max_rows(), true);
        } else {
          feed(cache, row.tokens, 1, true);
        }
        engine_.ops().synchronize();
        if (repetition >= 0) row.seconds.push_back(seconds_since(start));
      }
      meter.pass();
    }
  }

 private:
  void say(const std::string& what) const {
    if (note_) note_(what);
  }

  void make_rows(BenchReport& report) const {
    for (const int tokens : options_.prefill) {
      BenchRow& row = report.rows.emplace_back();
      row.is_prefill = true;
      row.tokens = tokens;
    }
    for (const int depth : options_.depths) {
      if (options_.decode == 0) break;
      BenchRow& row = report.rows.emplace_back();
      row.tokens = options_.decode;
      row.depth = depth;
      row.bytes = token_bytes(engine_.config(), engine_.weights(), engine_.mode(), depth + options_.decode / 2);
    }
  }

  /// One prefill as deep as the deepest, with a copy left behind at each depth.
  void make_depths() {
    depths_ = options_.depths;
    std::sort(depths_.begin(), depths_.end());
    depths_.erase(std::unique(depths_.begin(), depths_.end()), depths_.end());
    if (options_.decode == 0) return;
    SequenceCache cache = engine_.new_sequence();
    for (const int depth : depths_) {
      if (depth > cache.length()) say(fmt::format("prefill to depth {}", depth));
      feed(cache, depth - static_cast<int>(cache.length()), engine_.forward().max_rows(), false);
      caches_.push_back(cache.fork());
    }
  }
  std::size_t index_of(std::int64_t depth) const {
    return static_cast<std::size_t>(std::lower_bound(depths_.begin(), depths_.end(), static_cast<int>(depth)) -
                                    depths_.begin());
  }

  /// Continues a sequence by `count` tokens in steps of at most `chunk`; with logits after the last token of every step
  /// that a generation would take them from.
  void feed(SequenceCache& cache, int count, int chunk, bool with_logits) {
    while (count > 0) {
      const int n = std::min(count, chunk);
      count -= n;
      BatchItem item;
      item.cache = &cache;
      item.tokens = std::span(tokens_).subspan(static_cast<std::size_t>(cache.length()), static_cast<std::size_t>(n));
      item.wanted = with_logits && (chunk == 1 || count == 0) ? 1 : 0;
      engine_.forward().step({&item, 1});
      const int vocabulary = engine_.config().vocabulary;
      if (item.wanted > 0) engine_.forward().logits(0, {logits_.floats(), 1, vocabulary, vocabulary});
    }
  }

  Engine& engine_;
  const BenchOptions& options_;
  const std::function<void(const std::string&)>& note_;
  Buffer logits_;
  std::vector<Token> tokens_;
  std::vector<int> depths_;            // ascending, each once
  std::vector<SequenceCache> caches_;  // at those depths
};

void check(const BenchOptions& options) {
  const auto refuse = [](const std::string& what) { throw Error(Error::Kind::bad_argument, what); };
  for (const int n : options.prefill)
    if (n < 1 || n > kMostTokens) refuse(fmt::format("--prefill {}: expected 1 to {}", n, kMostTokens));
  for (const int n : options.depths)
    if (n < 0 || n > kMostTokens) refuse(fmt::format("--depth {}: expected 0 to {}", n, kMostTokens));
  if (options.decode < 0 || options.decode > kMostTokens)
    refuse(fmt::format("--decode {}: expected 0 to {}", options.decode, kMostTokens));
  if (options.repetitions < 1) refuse(fmt::format("--repetitions {}: expected at least 1", options.repetitions));
  if (options.depths.empty()) refuse("--depth: expected at least one");
}

}  // namespace

TokenBytes token_bytes(const Config& config, const Weights& weights, Mode mode, std::int64_t depth) {
  TokenBytes bytes;
  const auto matrix = [&](const Weight& w, int planes = 1) {
    if (w.present())
      bytes.weights += static_cast<std::uint64_t>(planes) * static_cast<std::uint64_t>(w.rows) * w.row_bytes;
  };
  bytes.weights += weights.embedding.row_bytes;
  matrix(weights.head);
  matrix(weights.head_hyper.fn);
  const RowLayout layout = row_layout(config, mode);
  const auto visible = static_cast<std::uint64_t>(depth + 1);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    const LayerWeights& l = weights.layers[i];
    for (const Weight* w :
         {&l.query_a, &l.query_b, &l.kv, &l.output_a, &l.output_b, &l.compressor.values, &l.compressor.gates,
          &l.key_compressor.values, &l.key_compressor.gates, &l.index_query, &l.index_heads, &l.attention_hyper.fn,
          &l.ffn_hyper.fn, &l.router, &l.shared.gate, &l.shared.up, &l.shared.down})
      matrix(*w);
    for (const Weight* w : {&l.experts.gate, &l.experts.up, &l.experts.down}) matrix(*w, config.experts_used);
    bytes.cache += std::min<std::uint64_t>(visible, static_cast<std::uint64_t>(config.window)) * layout.row_bytes();
    const int ratio = config.layers[i].ratio;
    if (ratio == 0) continue;
    std::uint64_t rows = visible / static_cast<std::uint64_t>(ratio);
    if (ratio == 4 && rows > static_cast<std::uint64_t>(config.index_top_k)) {
      bytes.cache += rows * layout.key_bytes();
      rows = static_cast<std::uint64_t>(config.index_top_k);
    }
    bytes.cache += rows * layout.row_bytes();
  }
  return bytes;
}

double BenchRow::mean_rate() const {
  return static_cast<double>(tokens) * static_cast<double>(seconds.size()) /
         std::accumulate(seconds.begin(), seconds.end(), 0.0);
}
double BenchRow::min_rate() const { return tokens / *std::max_element(seconds.begin(), seconds.end()); }
double BenchRow::max_rate() const { return tokens / *std::min_element(seconds.begin(), seconds.end()); }

BenchReport run_bench(Engine& engine, const BenchOptions& options,
                      const std::function<void(const std::string&)>& note) {
  check(options);
  BenchReport report;
  if (note) note("reading the file");  // which also brings it into memory
  ReadMeter meter(engine.file(), options.threads, report);
  for (int pass = 0; pass < kReadPasses; ++pass) meter.pass();
  Bench(engine, options, note).run(report, meter);
  return report;
}

}  // namespace lockstep
