#include "engine/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/clock.h"
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
constexpr int kApart = 61;  // tokens between those of one sequence of a batch and the next one's

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

/// Plain reads of the file's tensors, in order, by all threads, or of a device's memory; the best pass counts. Some
/// passes come before the measurements and one after every repetition, so that a slow spell does not fall on this
/// yardstick alone.
class ReadMeter {
 public:
  ReadMeter(Engine& engine, int threads, BenchReport& report)
      : ops_(engine.ops()), file_(engine.file()), pool_(threads), report_(report) {
    if (const double rate = ops_.read_rate(); rate > 0) {
      report_.is_device_read = true;
      report_.read_bytes_per_second = rate;
      return;
    }
    for (const GgufTensor& tensor : file_.tensors())
      for (std::size_t at = 0; at < tensor.bytes.size() && report.read_bytes < kMostReadBytes; at += kReadPiece) {
        pieces_.push_back(tensor.bytes.subspan(at, std::min(kReadPiece, tensor.bytes.size() - at)));
        report.read_bytes += pieces_.back().size();
      }
    sums_.resize(pieces_.size());
  }

  void pass() {
    if (report_.is_device_read) {
      report_.read_bytes_per_second = std::max(report_.read_bytes_per_second, ops_.read_rate());
      return;
    }
    const double start = steady_seconds();
    pool_.parallel_for(static_cast<int>(pieces_.size()), [&](int i, int) {
      sums_[static_cast<std::size_t>(i)] = read_all(pieces_[static_cast<std::size_t>(i)]);
    });
    const double rate = static_cast<double>(report_.read_bytes) / (steady_seconds() - start);
    report_.read_bytes_per_second = std::max(report_.read_bytes_per_second, rate);
    if (first_.empty()) first_ = sums_;
    if (sums_ != first_)
      throw Error(Error::Kind::io, file_.name() + ": changed while it was read");  // so the sums are used
  }

 private:
  Ops& ops_;
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
        batch_(*std::max_element(options.batches.begin(), options.batches.end())),
        logits_(engine.ops(), sizeof(float) * static_cast<std::size_t>(batch_) *
                                  static_cast<std::size_t>(engine.config().vocabulary)),
        choices_(engine.ops(), sizeof(DrawChoice) * static_cast<std::size_t>(batch_)),
        drawn_(engine.ops(), sizeof(Token) * static_cast<std::size_t>(batch_)),
        host_drawn_(static_cast<std::size_t>(batch_)) {
    std::vector<DrawChoice> choices(static_cast<std::size_t>(batch_));
    for (int i = 0; i < batch_; ++i) {
      choices[static_cast<std::size_t>(i)].row = i;
      choices[static_cast<std::size_t>(i)].temperature = 0;
    }
    engine.ops().upload(choices_.bytes(), choices.data(), choices_.size());
    engine.ops().synchronize();
    const int longest = *std::max_element(options.depths.begin(), options.depths.end()) + options.decode;
    const int most = options.prefill.empty()
                         ? longest
                         : std::max(longest, *std::max_element(options.prefill.begin(), options.prefill.end()));
    for (int i = 0; i < most + kApart * (batch_ - 1); ++i)
      tokens_.push_back(static_cast<Token>(random_u64(options.seed, static_cast<std::uint64_t>(i)) %
                                           static_cast<std::uint64_t>(engine.config().vocabulary)));
  }

  void run(BenchReport& report, ReadMeter& meter) {
    set_timing(Timing::off);
    make_rows(report);
    make_depths();
    for (int repetition = -1; repetition < options_.repetitions; ++repetition) {
      say(repetition < 0 ? "warming up" : fmt::format("repetition {} of {}", repetition + 1, options_.repetitions));
      for (BenchRow& row : report.rows) {
        const double seconds = measure(row, row.tokens);
        see_clock(report);
        if (repetition >= 0) row.seconds.push_back(seconds);
      }
      meter.pass();
    }
    if (!options_.has_timing) return;
    say("where the time goes");
    for (BenchRow& row : report.rows) {
      time(row, Timing::phases, row.by_phase, row.phase_seconds);
      time(row, Timing::ops, row.by_op, row.op_seconds);
    }
    set_timing(Timing::off);
  }

 private:
  void say(const std::string& what) const {
    if (note_) note_(what);
  }
  void set_timing(Timing timing) {
    if (engine_.timer() != nullptr) engine_.timer()->set_timing(timing);
  }

  void make_rows(BenchReport& report) const {
    for (const int tokens : options_.prefill) {
      if (tokens == 0) continue;
      BenchRow& row = report.rows.emplace_back();
      row.is_prefill = true;
      row.tokens = tokens;
    }
    for (const int depth : options_.depths) {
      if (options_.decode == 0) break;
      for (const int batch : options_.batches) {
        BenchRow& row = report.rows.emplace_back();
        row.tokens = options_.decode;
        row.depth = depth;
        row.batch = batch;
        row.bytes = token_bytes(engine_.config(), engine_.weights(), engine_.mode(), depth + options_.decode / 2);
      }
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
      feed({&cache, 1}, depth - static_cast<int>(cache.length()), engine_.forward().max_rows(), false);
      caches_.push_back(cache.fork());
    }
  }
  std::size_t index_of(std::int64_t depth) const {
    return static_cast<std::size_t>(std::lower_bound(depths_.begin(), depths_.end(), static_cast<int>(depth)) -
                                    depths_.begin());
  }

  /// Seconds of the first `tokens` tokens of a row.
  double measure(const BenchRow& row, int tokens) {
    std::vector<SequenceCache> caches;
    if (row.is_prefill) caches.push_back(engine_.new_sequence());
    while (static_cast<int>(caches.size()) < row.batch) caches.push_back(caches_[index_of(row.depth)].fork());
    engine_.ops().synchronize();
    const double start = steady_seconds();
    feed(caches, tokens, row.is_prefill ? engine_.forward().max_rows() : 1, true);
    engine_.ops().synchronize();
    return steady_seconds() - start;
  }

  /// The row once more. What a device records first, is run before.
  void time(const BenchRow& row, Timing timing, TimedOps::Times& times, double& seconds) {
    set_timing(timing);
    measure(row, row.is_prefill ? row.tokens : std::min(row.tokens, 2));
    engine_.timer()->reset();
    seconds = measure(row, row.tokens);
    times = engine_.timer()->times();
  }

  void see_clock(BenchReport& report) {
    const DeviceState state = engine_.ops().device_state();
    if (state.clock_hz == 0) return;
    report.most_clock_hz = state.most_clock_hz;
    report.greatest_clock_hz = std::max(report.greatest_clock_hz, state.clock_hz);
    report.least_clock_hz =
        report.least_clock_hz == 0 ? state.clock_hz : std::min(report.least_clock_hz, state.clock_hz);
  }

  /// Continues every sequence by `count` tokens in steps of at most `chunk` each; `with_tokens`, the likeliest token is
  /// chosen from the logits after every step that a generation would take one from, and comes to the host. (It is not
  /// what goes on: random tokens reach all experts alike.)
  void feed(std::span<SequenceCache> caches, int count, int chunk, bool with_tokens) {
    while (count > 0) {
      const int n = std::min(count, chunk);
      count -= n;
      std::vector<BatchItem> items;
      for (std::size_t i = 0; i < caches.size(); ++i)  // each its own tokens, so that they take different experts
        items.push_back({&caches[i],
                         std::span(tokens_).subspan(static_cast<std::size_t>(caches[i].length()) + i * kApart,
                                                    static_cast<std::size_t>(n)),
                         with_tokens && (chunk == 1 || count == 0) ? 1 : 0});
      engine_.forward().step(items, {}, [&] { choose(); });
    }
  }

  void choose() {
    Ops& ops = engine_.ops();
    const int wanted = engine_.forward().wanted_rows(), vocabulary = engine_.config().vocabulary;
    if (wanted == 0) return;
    const Rows logits{logits_.floats(), wanted, vocabulary, vocabulary};
    auto* drawn = reinterpret_cast<Token*>(drawn_.bytes());
    engine_.forward().logits(0, logits);
    ops.enter(StepPhase::sample);
    ops.draw(drawn, logits, reinterpret_cast<const DrawChoice*>(choices_.bytes()), wanted);
    ops.download(host_drawn_.data(), drawn, sizeof(Token) * static_cast<std::size_t>(wanted));
    ops.enter(StepPhase::none);
  }

  Engine& engine_;
  const BenchOptions& options_;
  const std::function<void(const std::string&)>& note_;
  int batch_;
  Buffer logits_, choices_, drawn_;  // a row, a DrawChoice and a token of every sequence
  std::vector<Token> host_drawn_;
  std::vector<Token> tokens_;
  std::vector<int> depths_;            // ascending, each once
  std::vector<SequenceCache> caches_;  // at those depths
};

void check(const BenchOptions& options, Engine& engine) {
  const auto refuse = [](const std::string& what) { throw Error(Error::Kind::bad_argument, what); };
  for (const int n : options.prefill)
    if (n < 0 || n > kMostTokens) refuse(fmt::format("--prefill {}: expected 0 to {}", n, kMostTokens));
  for (const int n : options.depths)
    if (n < 0 || n > kMostTokens) refuse(fmt::format("--depth {}: expected 0 to {}", n, kMostTokens));
  if (options.decode < 0 || options.decode > kMostTokens)
    refuse(fmt::format("--decode {}: expected 0 to {}", options.decode, kMostTokens));
  if (options.repetitions < 1) refuse(fmt::format("--repetitions {}: expected at least 1", options.repetitions));
  if (options.depths.empty()) refuse("--depth: expected at least one");
  if (options.batches.empty()) refuse("--batch: expected at least one");
  for (const int n : options.batches)
    if (n < 1 || n > engine.forward().max_rows())
      refuse(fmt::format("--batch {}: expected 1 to {}, what a step takes", n, engine.forward().max_rows()));
  LOCKSTEP_CHECK(!options.has_timing || engine.timer() != nullptr);
}

}  // namespace

TokenBytes token_bytes(const Config& config, const Weights& weights, Mode mode, std::int64_t depth) {
  TokenBytes bytes;
  const auto add = [&](StepPhase phase, std::uint64_t& total, std::uint64_t count) {
    total += count;
    bytes.phases[static_cast<std::size_t>(phase)] += count;
  };
  const auto matrices = [&](StepPhase phase, std::initializer_list<const Weight*> list, int planes = 1) {
    for (const Weight* w : list)
      if (w->present())
        add(phase, bytes.weights,
            static_cast<std::uint64_t>(planes) * static_cast<std::uint64_t>(w->rows) * w->row_bytes);
  };
  add(StepPhase::embed, bytes.weights, weights.embedding.row_bytes);
  matrices(StepPhase::head, {&weights.head, &weights.head_hyper.fn});
  const RowLayout layout = row_layout(config, mode);
  const auto visible = static_cast<std::uint64_t>(depth + 1);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    const LayerWeights& l = weights.layers[i];
    matrices(StepPhase::attention,
             {&l.query_a, &l.query_b, &l.kv, &l.output_a, &l.output_b, &l.compressor.values, &l.compressor.gates,
              &l.key_compressor.values, &l.key_compressor.gates, &l.index_heads});
    matrices(StepPhase::indexer, {&l.index_query});
    matrices(StepPhase::hyper, {&l.attention_hyper.fn, &l.ffn_hyper.fn});
    matrices(StepPhase::router, {&l.router});
    matrices(StepPhase::experts, {&l.shared.gate, &l.shared.up, &l.shared.down});
    matrices(StepPhase::experts, {&l.experts.gate, &l.experts.up, &l.experts.down}, config.experts_used);
    add(StepPhase::attention, bytes.cache,
        std::min<std::uint64_t>(visible, static_cast<std::uint64_t>(config.window)) * layout.row_bytes());
    const int ratio = config.layers[i].ratio;
    if (ratio == 0) continue;
    std::uint64_t rows = visible / static_cast<std::uint64_t>(ratio);
    if (ratio == 4 && rows > static_cast<std::uint64_t>(config.index_top_k)) {
      add(StepPhase::indexer, bytes.cache, rows * layout.key_bytes());
      rows = static_cast<std::uint64_t>(config.index_top_k);
    }
    add(StepPhase::attention, bytes.cache, rows * layout.row_bytes());
  }
  return bytes;
}

double BenchRow::mean_rate() const {
  return static_cast<double>(batch) * tokens * static_cast<double>(seconds.size()) /
         std::accumulate(seconds.begin(), seconds.end(), 0.0);
}
double BenchRow::min_rate() const { return batch * tokens / *std::max_element(seconds.begin(), seconds.end()); }
double BenchRow::max_rate() const { return batch * tokens / *std::min_element(seconds.begin(), seconds.end()); }

BenchReport run_bench(Engine& engine, const BenchOptions& options,
                      const std::function<void(const std::string&)>& note) {
  check(options, engine);
  BenchReport report;
  if (note) note("reading the weights");  // which also brings a file into memory
  ReadMeter meter(engine, options.threads, report);
  for (int pass = 0; pass < kReadPasses; ++pass) meter.pass();
  Bench(engine, options, note).run(report, meter);
  return report;
}

}  // namespace lockstep
