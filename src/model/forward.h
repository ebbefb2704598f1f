// The model, spelled once: any mix of prefill chunks and single tokens of several sequences goes through the same code.
//
// It knows ops, weights and caches, and no back end. There is no path for one row and none for many: a back end picks
// kernels by shape, and every kernel gives the same bits.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/error.h"
#include "model/cache.h"
#include "model/config.h"
#include "model/weights.h"
#include "ops/ops.h"

namespace lockstep {

/// One sequence's part of a step: `tokens` continue `cache`; logits are wanted for the last `wanted` of them.
struct BatchItem {
  SequenceCache* cache = nullptr;
  std::span<const Token> tokens;
  int wanted = 0;
};

/// Memory that is handed out from the front and given back as a whole. Without a buffer it only counts.
class Arena {
 public:
  Arena() = default;
  explicit Arena(const Buffer& buffer) : base_(buffer.bytes()), size_(buffer.size()) {}
  template <class T>
  T* take(std::size_t count) {
    const std::size_t at = used_;
    used_ += (count * sizeof(T) + 63) / 64 * 64;
    peak_ = peak_ > used_ ? peak_ : used_;
    LOCKSTEP_CHECK(base_ == nullptr || used_ <= size_);
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }
  Rows rows(int n, int width) { return {take<float>(static_cast<std::size_t>(n) * width), n, width, width}; }
  Rounded rounded(int n, int width) {
    const std::size_t count = static_cast<std::size_t>(n) * width;
    Rounded r;
    r.codes = take<std::int8_t>(count);
    r.scales = take<float>(count / 32);
    r.half_sums = take<std::int16_t>(count / 16);
    r.rows = n;
    r.width = width;
    r.stride = width;
    return r;
  }
  std::size_t used() const { return used_; }
  void reset(std::size_t used) { used_ = used; }
  std::size_t peak() const { return peak_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
};

class Forward {
 public:
  /// Steps of at most `max_rows` rows. The arguments must outlive it. Throws Error::no_memory.
  Forward(const Config& config, const Weights& weights, Mode mode, Ops& ops, int max_rows);

  /// Runs one step and commits it. `items` hold at most max_rows tokens in all, at least one each, every sequence at
  /// most once; token ids are below the vocabulary. `cancelled` (may be empty) is asked between layers. `then`
  /// (may be empty) issues what follows at once, such as logits(), before anybody waits for the back end. Throws
  /// Error::cancelled, or what the back end or `then` throws; then no sequence has changed.
  void step(std::span<const BatchItem> items, const std::function<bool()>& cancelled = {},
            const std::function<void()>& then = {});

  /// Rows with logits of the last step: the wanted rows of the items, in order.
  int wanted_rows() const { return wanted_; }
  /// Logits of wanted rows [first, first + out.rows) of the last step; out [*, vocabulary] in the back end's memory.
  void logits(int first, Rows out);

  int max_rows() const { return max_rows_; }
  std::size_t workspace_bytes() const { return workspace_.size(); }
  /// What a Forward for so many rows would take.
  static std::size_t workspace_bytes(const Config& config, int max_rows);

 private:
  struct Step;
  struct Stage {  // ring entries of one layer, waiting for the commit
    std::byte* window = nullptr;
    float* pending = nullptr;
    float* key_pending = nullptr;
  };

  void prepare_step(Step& step);
  void lay_out_parameters(Step& step);
  void run_layer(Step& step, int layer);
  void attention(Step& step, int layer, Rows y, const Input& x, ConstRows coefficients);
  void experts(Step& step, int layer, Rows y, const Input& x, ConstRows coefficients);
  void begin_sublayer(Step& step, const HyperWeights& hyper, const float* norm, bool needs_rounded, Rows coefficients,
                      Input& x);
  void head(Step& step);
  Slices slices(const Step& step, int layer) const;
  std::vector<std::uint64_t> recording_key(const Step& step) const;

  const Config& config_;
  const Weights& weights_;
  Ops& ops_;
  RowLayout layout_;
  HyperSpec hyper_;
  int max_rows_;
  Buffer workspace_;
  Buffer stage_;
  Buffer hidden_;  // normed final rows of the wanted rows, and the same rounded
  Rows hidden_rows_;
  Rounded hidden_rounded_;
  int wanted_ = 0;
};

}  // namespace lockstep
