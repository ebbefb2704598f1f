#include "engine/likelihood.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "numerics/functions.h"

namespace lockstep {
namespace {

constexpr int kLogitRows = 32;           // rows of logits at a time: of the real vocabulary, 16 MB
constexpr double kLeastExponent = -700;  // what exp_f64 takes; e^-700 of the largest probability is nothing

double exp_below_one(double x) { return x < kLeastExponent ? 0 : exp_f64(x); }

[[noreturn]] void fail(const std::string& message) { throw Error(Error::Kind::bad_argument, message); }

/// Reads the logits of an engine's last step, some rows at a time.
class RowReader {
 public:
  explicit RowReader(Engine& engine)
      : engine_(engine),
        width_(engine.config().vocabulary),
        device_(engine.ops(), sizeof(float) * kLogitRows * static_cast<std::size_t>(width_)),
        host_(static_cast<std::size_t>(kLogitRows) * static_cast<std::size_t>(width_)) {}

  void read(int first, int rows) {
    engine_.forward().logits(first, {device_.floats(), rows, width_, width_});
    engine_.ops().download(host_.data(), device_.floats(),
                           sizeof(float) * static_cast<std::size_t>(rows) * static_cast<std::size_t>(width_));
  }
  std::span<const float> row(int i) const {
    const auto width = static_cast<std::size_t>(width_);
    return std::span(host_).subspan(static_cast<std::size_t>(i) * width, width);
  }

 private:
  Engine& engine_;
  int width_;
  Buffer device_;
  std::vector<float> host_;
};

/// One engine, running one passage.
struct Runner {
  explicit Runner(Engine& of) : engine(of), reader(of) {}

  void begin() {
    cache.reset();  // first, so that its memory can be used again
    cache.emplace(engine.new_sequence());
  }
  void step(std::span<const Token> tokens, int wanted) {
    const BatchItem item{&*cache, tokens, wanted};
    engine.forward().step({&item, 1});
  }

  Engine& engine;
  RowReader reader;
  std::optional<SequenceCache> cache;
};

void check_passages(std::span<const Passage> passages, const Engine& engine) {
  for (const Passage& passage : passages) {
    LOCKSTEP_CHECK(!passage.tokens.empty() && passage.first_compared >= 1 && passage.first_scored >= 1);
    if (static_cast<std::int64_t>(passage.tokens.size()) > engine.config().context_length)
      fail(engine.file().name() + ": " + std::to_string(passage.tokens.size()) + " tokens at once, expected at most " +
           std::to_string(engine.config().context_length) + ", which the model was made for");
  }
}

}  // namespace

LogitRow::LogitRow(std::span<const float> row) : logits(row) {
  for (const float logit : row)
    if (!std::isfinite(logit))
      throw Error(Error::Kind::bad_file, "logits: one is not finite, expected numbers; is the model file whole?");
  const auto best = std::max_element(row.begin(), row.end());
  likeliest = static_cast<Token>(best - row.begin());
  largest = static_cast<double>(*best);
  double sum = 0;
  for (const float logit : row) sum += exp_below_one(static_cast<double>(logit) - largest);
  log_sum = log_f64(sum);
}

double kl_divergence(const LogitRow& reference, const LogitRow& model) {
  LOCKSTEP_CHECK(reference.logits.size() == model.logits.size());
  double sum = 0;
  for (std::size_t i = 0; i < reference.logits.size(); ++i) {
    const double ln_p = reference.ln_probability(i);
    sum += exp_below_one(ln_p) * (ln_p - model.ln_probability(i));
  }
  return std::max(sum, 0.0);
}

double percentile(std::vector<double> values, double percent) {
  LOCKSTEP_CHECK(percent > 0 && percent <= 100);
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(percent * static_cast<double>(values.size()) / 100);
  return values[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

void Likelihood::add(const LogitRow& row, Token token) {
  ++tokens;
  surprise -= row.ln_probability(static_cast<std::size_t>(token));
  if (row.likeliest == token) ++likeliest;
}

double Likelihood::mean() const { return tokens == 0 ? 0 : surprise / static_cast<double>(tokens); }
double Likelihood::perplexity() const { return exp_f64(std::min(mean(), -kLeastExponent)); }

void Divergence::add(double divergence, bool is_same_best) {
  kl.push_back(divergence);
  if (is_same_best) ++same_best;
}

double Divergence::mean() const {
  double sum = 0;
  for (const double value : kl) sum += value;
  return kl.empty() ? 0 : sum / static_cast<double>(kl.size());
}

double Divergence::agreement() const {
  return kl.empty() ? 1 : static_cast<double>(same_best) / static_cast<double>(kl.size());
}

std::vector<Passage> cut_text(std::span<const Token> text, std::optional<Token> bos, std::int64_t context,
                              std::int64_t stride) {
  if (context < 2) fail("--context: " + std::to_string(context) + " tokens, expected at least 2");
  if (stride < 1 || stride > context - 1)
    fail("--stride: " + std::to_string(stride) + " tokens, expected 1 to " + std::to_string(context - 1) +
         ", what a window has room for");
  const std::size_t first = bos ? 0 : 1;  // the first token that something predicts
  if (text.size() <= first) fail("text: nothing to score in it, expected at least two tokens");
  const auto room = static_cast<std::size_t>(context - 1);
  std::vector<Passage> passages;
  std::size_t scored = first;  // up to here
  for (std::size_t begin = first; scored < text.size(); begin += static_cast<std::size_t>(stride)) {
    const std::size_t end = std::min(text.size(), begin + room);
    Passage passage;
    passage.tokens.push_back(bos ? *bos : text[begin - 1]);
    passage.tokens.insert(passage.tokens.end(), text.begin() + static_cast<std::ptrdiff_t>(begin),
                          text.begin() + static_cast<std::ptrdiff_t>(end));
    passage.first_scored = passage.first_compared = 1 + scored - begin;
    passages.push_back(std::move(passage));
    scored = end;
  }
  return passages;
}

Measurement measure(Engine& engine, Engine* reference, std::span<const Passage> passages,
                    const std::function<void(std::int64_t done, std::int64_t total)>& progress) {
  check_passages(passages, engine);
  if (reference != nullptr) check_passages(passages, *reference);
  std::int64_t total = 0, done = 0;
  for (const Passage& passage : passages) total += static_cast<std::int64_t>(passage.tokens.size());

  Measurement out;
  Runner model(engine);
  std::optional<Runner> other;
  if (reference != nullptr) other.emplace(*reference);
  auto chunk = static_cast<std::size_t>(engine.forward().max_rows());
  if (other) chunk = std::min(chunk, static_cast<std::size_t>(reference->forward().max_rows()));

  // Rows [at, at + n) of those that the last step was asked for; row `at` predicts tokens[next].
  const auto take = [&](const Passage& passage, int at, int n, std::size_t next) {
    model.reader.read(at, n);
    if (other) other->reader.read(at, n);
    for (int i = 0; i < n; ++i, ++next) {
      const LogitRow row(model.reader.row(i));
      const Token token = passage.tokens[next];
      const bool is_scored = next >= passage.first_scored;
      if (is_scored) out.model.add(row, token);
      if (!other) continue;
      const LogitRow reference_row(other->reader.row(i));
      if (is_scored) out.reference.add(reference_row, token);
      if (next < passage.first_compared) continue;
      const double divergence = kl_divergence(reference_row, row);
      const bool is_same_best = reference_row.likeliest == row.likeliest;
      out.compared.add(divergence, is_same_best);
      if (is_scored) out.scored.add(divergence, is_same_best);
    }
  };

  for (const Passage& passage : passages) {
    const std::size_t rows = passage.tokens.size() - 1;  // the last token predicts none
    const std::size_t first =
        (other ? std::min(passage.first_compared, passage.first_scored) : passage.first_scored) - 1;
    if (first < rows) {
      model.begin();
      if (other) other->begin();
    }
    for (std::size_t begin = 0; first < rows && begin < rows; begin += chunk) {
      const std::size_t end = std::min(rows, begin + chunk);
      const std::size_t from = std::clamp(first, begin, end);
      const std::span<const Token> tokens = std::span(passage.tokens).subspan(begin, end - begin);
      const int wanted = static_cast<int>(end - from);
      model.step(tokens, wanted);
      if (other) other->step(tokens, wanted);
      for (int at = 0; at < wanted; at += kLogitRows)
        take(passage, at, std::min(kLogitRows, wanted - at), from + static_cast<std::size_t>(at) + 1);
      if (progress) progress(done + static_cast<std::int64_t>(end), total);
    }
    done += static_cast<std::int64_t>(passage.tokens.size());
  }
  if (progress) progress(total, total);
  return out;
}

void check_same_vocabulary(const Gguf& file, const Gguf& reference) {
  const Vocabulary a = vocabulary_of(file), b = vocabulary_of(reference);
  if (a.tokens.size() != b.tokens.size())
    fail(reference.name() + ": a vocabulary of " + std::to_string(b.tokens.size()) + " tokens, expected the " +
         std::to_string(a.tokens.size()) + " of " + file.name());
  const auto [at, other] = std::mismatch(a.tokens.begin(), a.tokens.end(), b.tokens.begin());
  if (at != a.tokens.end())
    fail(reference.name() + ": token " + std::to_string(at - a.tokens.begin()) + " is \"" + *other + "\", expected \"" +
         *at + "\" as in " + file.name());
}

}  // namespace lockstep
