// Divides the ops over threads by output element and hands ranges to the level's kernels. Nothing is added here.
#include "cpu/cpu_ops.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "cpu/level.h"
#include "cpu/row_kernels.h"
#include "ops/reference.h"
#include "ops/row_codec.h"
#include "ops/row_draw.h"
#include "ops/rows.h"
#include "ops/weight_rows.h"

namespace lockstep::cpu {
namespace {

struct RowLevel {
  const RowKernels* rows;
  const AttentionKernels* attention;  // null: the reference loops
};

RowLevel row_level(std::string_view name) {
#if defined(__x86_64__)
  if (name == "avx512") return {&avx512::kRowKernels, &avx512::kAttentionKernels};
  if (name == "avx2") return {&avx2::kRowKernels, &avx2::kAttentionKernels};
#endif
  LOCKSTEP_CHECK(name == "scalar");
  return {&scalar::kRowKernels, nullptr};
}

const Level& level_named(const std::string& name) {
  const std::span<const Level* const> levels = available_levels();
  if (name == "auto") return *levels.back();
  std::string names;
  for (const Level* level : levels) {
    if (level->name == name) return *level;
    names += (names.empty() ? "" : ", ") + std::string(level->name);
  }
  throw Error(Error::Kind::bad_argument, "--level " + name + ": this machine runs " + names + " (and auto)");
}

int ceil_div(int a, int b) { return (a + b - 1) / b; }

/// Memory of one thread that grows to what was asked for.
class ThreadScratch {
 public:
  std::byte* bytes(std::size_t size) {
    if (size > size_) {
      memory_.reset(static_cast<std::byte*>(std::aligned_alloc(64, (size + 63) / 64 * 64)));
      LOCKSTEP_CHECK(memory_ != nullptr);
      size_ = size;
    }
    return memory_.get();
  }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_ = 0;
};

class CpuOps final : public ReferenceOps {
 public:
  explicit CpuOps(const CpuOptions& options)
      : level_(level_named(options.level)),
        kernels_(row_level(level_.name)),
        pool_(options.threads),
        scratch_(pool_.threads()),
        draws_(pool_.threads()) {}

  std::string description() const override {
    return "cpu " + std::string(level_.name) + ", " + std::to_string(pool_.threads()) +
           (pool_.threads() == 1 ? " thread" : " threads");
  }

  // ---- Matrices ----

  void embed(Rows out, const Weight& embedding, const Token* tokens) override {
    pool_.parallel_for(out.rows, [&](int i, int) {
      const Token token = tokens[i];
      ReferenceOps::embed(out.from(i, 1), embedding, &token);
    });
  }

  void round(Rounded out, ConstRows x) override {
    for_rows(x.rows, [&](int i) { round_row(out, x, i); });
  }

  void matmul(Rows out, const Weight& w, const Input& x) override {
    const std::span<const int> rows = identity(out.rows);
    matmul_part({&w, 0, x, rows, out, rows});
  }

  void matmul_grouped(Rows out, const Weight& w, const Input& x, int groups) override {
    const int rows = w.rows / groups;
    const std::span<const int> all = identity(out.rows);
    products_.clear();
    grouped_.assign(static_cast<std::size_t>(groups), w);
    for (int g = 0; g < groups; ++g) {
      Weight& block = grouped_[g];
      block.rows = rows;
      block.data = w.row(0, static_cast<std::int64_t>(g) * rows);
      Input part;
      if (x.values.data != nullptr) part.values = x.values.columns(g * w.width, w.width);
      if (x.rounded.codes != nullptr) part.rounded = x.rounded.columns(g * w.width, w.width);
      products_.push_back({&block, 0, part, all, out.columns(g * rows, rows), all});
    }
    run_products();
  }

  void matmul_experts(Rows out, const Weight& w, const Input& x, const Route& route, bool x_per_slot) override {
    // Slots in order of expert: a counting sort.
    const int slots = route.rows * route.used;
    first_slot_.assign(static_cast<std::size_t>(w.planes) + 1, 0);
    for (int s = 0; s < slots; ++s) ++first_slot_[route.expert[s] + 1];
    std::partial_sum(first_slot_.begin(), first_slot_.end(), first_slot_.begin());
    out_rows_.resize(static_cast<std::size_t>(slots));
    in_rows_.resize(static_cast<std::size_t>(slots));
    next_slot_.assign(first_slot_.begin(), first_slot_.end() - 1);
    for (int s = 0; s < slots; ++s) {
      const int at = next_slot_[route.expert[s]]++;
      out_rows_[at] = s;
      in_rows_[at] = x_per_slot ? s : s / route.used;
    }
    products_.clear();
    for (int e = 0; e < w.planes; ++e) {
      const std::size_t begin = static_cast<std::size_t>(first_slot_[e]),
                        count = static_cast<std::size_t>(first_slot_[e + 1]) - begin;
      if (count > 0)
        products_.push_back(
            {&w, e, x, std::span(in_rows_).subspan(begin, count), out, std::span(out_rows_).subspan(begin, count)});
    }
    run_products();
  }

  // ---- Rows ----

  void rms_norm(Rows out, ConstRows x, const float* weight, float epsilon) override {
    for_rows(x.rows, [&](int i) { norm_row(out.row(i), x.row(i), weight, x.width, epsilon); });
  }

  void rms_norm_round(Rows out, Rounded rounded, ConstRows x, const float* weight, float epsilon) override {
    for_rows(x.rows, [&](int i) {
      norm_row(out.row(i), x.row(i), weight, x.width, epsilon);
      round_row(rounded, out, i);
    });
  }

  void rotate(Rows x, int head_width, ConstRows table, bool inverse) override {
    for_rows(x.rows, [&](int i) {
      for (int head = 0; head < x.width; head += head_width)
        kernels_.rows->rotate(x.row(i) + head + head_width - table.width, table.row(i), table.width, inverse);
    });
  }

  void round_fp8(Rows x, int channels) override {
    for_rows(x.rows, [&](int i) { kernels_.rows->round_fp8(x.row(i), channels); });
  }

  void hadamard_fp4(Rows x, int head_width) override {
    for_rows(x.rows, [&](int i) {
      for (int head = 0; head < x.width; head += head_width) kernels_.rows->hadamard_fp4(x.row(i) + head, head_width);
    });
  }

  // ---- Hyper-connections ----

  void hyper_coefficients(Rows out, ConstRows mixes, ConstRows streams, const float* scale_by, const float* base,
                          const HyperSpec& spec) override {
    for_rows(out.rows, [&](int i) {
      const float r = inverse_rms(streams.row(i), streams.width, spec.norm_epsilon);
      hyper_coefficients_row(out.row(i), mixes.row(i), r, scale_by, base, spec);
    });
  }

  void hyper_collapse(Rows out, ConstRows streams, ConstRows coefficients) override {
    const int count = streams.width / out.width;
    for_rows(out.rows, [&](int i) {
      kernels_.rows->collapse(out.row(i), streams.row(i), coefficients.row(i), count, out.width, 0, out.width);
    });
  }

  void hyper_expand(Rows streams, ConstRows y, ConstRows coefficients) override {
    const int count = streams.width / y.width;
    LOCKSTEP_CHECK(count == 4);
    for_rows(y.rows, [&](int i) {
      kernels_.rows->expand(streams.row(i), y.row(i), coefficients.row(i), count, y.width, 0, y.width);
    });
  }

  // ---- Attention ----

  void compress(const Slices& slices, ConstRows values, ConstRows gates, const CompressorSpec& spec,
                const RowLayout& layout) override {
    emitted_.clear();
    for (const SequenceSlice& slice : slices)
      for (std::int64_t c = slice.begin / spec.ratio; c < (slice.begin + slice.rows) / spec.ratio; ++c)
        emitted_.push_back({&slice, c});
    const std::size_t row_floats = static_cast<std::size_t>(spec.width);
    pool_.parallel_for(static_cast<int>(emitted_.size()), [&](int i, int thread) {
      float* row = reinterpret_cast<float*>(scratch_[thread].bytes(row_floats * sizeof(float)));
      emit_row(row, *emitted_[i].slice, emitted_[i].row, values, gates, spec, layout);
    });
  }

  void select_rows(Selection out, const Slices& slices, ConstRows queries, ConstRows head_weights, int ratio, int top_k,
                   const RowLayout& layout) override {
    if (kernels_.attention == nullptr) {
      for_queries(slices, [&](const SequenceSlice& slice, int i) {
        select_row(out, slice, i, queries, head_weights, ratio, top_k, layout);
      });
      return;
    }
    // Scores first, divided over rows and keys, so that a single query uses all threads; then the choice, a query each.
    // Some queries at a time: at a million tokens the scores of a whole step would not fit.
    constexpr std::size_t kScoresAtOnce = std::size_t{1} << 22;
    std::size_t scores = 0;
    const auto run = [&] {
      if (scores_.size() < scores) scores_.resize(scores);
      pool_.parallel_for(static_cast<int>(key_tasks_.size()),
                         [&](int t, int thread) { score_keys(key_tasks_[t], thread, queries, head_weights, layout); });
      pool_.parallel_for(static_cast<int>(choices_.size()),
                         [&](int c, int thread) { choose(choices_[c], top_k, thread); });
      key_tasks_.clear();
      choices_.clear();
      scores = 0;
    };
    for (const SequenceSlice& slice : slices)
      for (int i = slice.first_row; i < slice.first_row + slice.rows; ++i) {
        const auto visible = static_cast<std::int32_t>(visible_rows(slice.begin + i - slice.first_row, ratio));
        std::int32_t* ids = out.ids + static_cast<std::ptrdiff_t>(i) * out.capacity;
        out.count[i] = std::min(visible, top_k);
        if (visible <= top_k) {
          std::iota(ids, ids + visible, 0);
          continue;
        }
        constexpr std::int32_t kKeysATask = 256;
        for (std::int32_t c = 0; c < visible; c += kKeysATask)
          key_tasks_.push_back({&slice, i, c, std::min(visible, c + kKeysATask), scores + static_cast<std::size_t>(c)});
        choices_.push_back({ids, visible, scores});
        scores += static_cast<std::size_t>(ceil_div(visible, kIndexKeys) * kIndexKeys);
        if (scores >= kScoresAtOnce) run();
      }
    run();
  }

  void attend(Rows out, ConstRows queries, ConstRows window_rows, const Slices& slices, int window, int ratio,
              const Selection* selection, const float* sinks, float scale_by, const RowLayout& layout) override {
    if (kernels_.attention == nullptr || layout.width % 16 != 0) {
      for_queries(slices, [&](const SequenceSlice& slice, int i) {
        attend_row(out, queries, window_rows, slice, i, window, ratio, selection, sinks, scale_by, layout);
      });
      return;
    }
    const int heads = queries.width / layout.width, groups = ceil_div(heads, kGroupHeads);
    // A wave of queries: their rows are unpacked once and then shared by the groups of heads.
    const int wave = std::max(1, ceil_div(2 * pool_.threads(), groups));
    wave_.resize(static_cast<std::size_t>(wave));
    for (const SequenceSlice& slice : slices) {
      for (int first = 0; first < slice.rows; first += wave) {
        const int n = std::min(wave, slice.rows - first);
        std::size_t floats = 0;
        for (int q = 0; q < n; ++q) {
          Query& query = wave_[q];
          query.row = slice.first_row + first + q;
          query.position = slice.begin + first + q;
          query.window = static_cast<int>(std::min<Position>(window, query.position + 1));
          query.count = query.window + static_cast<int>(selection != nullptr ? selection->count[query.row]
                                                                             : visible_rows(query.position, ratio));
          query.rows_at = floats;
          floats += static_cast<std::size_t>(query.count) * layout.width;
        }
        float* gathered = reinterpret_cast<float*>(gathered_.bytes(floats * sizeof(float)));
        constexpr int kRowsATask = 64;
        int most = 0;
        for (int q = 0; q < n; ++q) most = std::max(most, ceil_div(wave_[q].count, kRowsATask));
        pool_.parallel_for(n * most, [&](int task, int) {
          const Query& query = wave_[task / most];
          const int begin = task % most * kRowsATask;
          for (int r = begin; r < std::min(query.count, begin + kRowsATask); ++r)
            fetch_row(gathered + query.rows_at + static_cast<std::size_t>(r) * layout.width, query, r, slice,
                      window_rows, selection, layout);
        });
        pool_.parallel_for(n * groups, [&](int task, int thread) {
          const Query& query = wave_[task / groups];
          const int head = task % groups * kGroupHeads;
          AttentionCall call;
          call.rows = gathered + query.rows_at;
          call.window = query.window;
          call.count = query.count;
          call.width = layout.width;
          call.queries = queries.row(query.row) + static_cast<std::ptrdiff_t>(head) * layout.width;
          call.heads = std::min(kGroupHeads, heads - head);
          call.sinks = sinks + head;
          call.scale = scale_by;
          call.out = out.row(query.row) + static_cast<std::ptrdiff_t>(head) * layout.width;
          call.scratch = reinterpret_cast<float*>(
              scratch_[thread].bytes(attention_scratch_floats(call.count, call.width) * sizeof(float)));
          kernels_.attention->attend(call);
        });
      }
    }
  }

  // ---- Experts ----

  void route_experts(Route route, ConstRows logits, const float* bias, const std::int32_t* table, const Token* tokens,
                     float route_scale) override {
    pool_.parallel_for(route.rows, [&](int i, int thread) {
      auto* keys = reinterpret_cast<std::uint64_t*>(
          scratch_[thread].bytes(sizeof(std::uint64_t) * static_cast<std::size_t>(logits.width)));
      route_row(route.expert + i * route.used, route.weight + i * route.used, route.used, logits.row(i), logits.width,
                bias, table == nullptr ? nullptr : table + static_cast<std::ptrdiff_t>(tokens[i]) * route.used,
                route_scale, {keys, static_cast<std::size_t>(logits.width)});
    });
  }

  void swiglu(Rows out, ConstRows gate, ConstRows up, const float* row_weights, float limit) override {
    for_rows(out.rows, [&](int i) { swiglu_row(out, gate, up, row_weights, limit, i); });
  }

  void swiglu_round(Rows out, Rounded rounded, ConstRows gate, ConstRows up, const float* row_weights,
                    float limit) override {
    for_rows(out.rows, [&](int i) {
      swiglu_row(out, gate, up, row_weights, limit, i);
      round_row(rounded, out, i);
    });
  }

  void combine_experts(Rows out, ConstRows parts, const Route& route, ConstRows shared) override {
    for_rows(out.rows, [&](int i) {
      const std::int32_t* expert = route.expert + i * route.used;
      int slots[64];
      std::iota(slots, slots + route.used, 0);
      std::stable_sort(slots, slots + route.used, [&](int a, int b) { return expert[a] < expert[b]; });
      float* sum = out.row(i);
      std::copy_n(parts.row(i * route.used + slots[0]), out.width, sum);
      for (int s = 1; s < route.used; ++s) kernels_.rows->add(sum, parts.row(i * route.used + slots[s]), out.width);
      kernels_.rows->add(sum, shared.row(i), out.width);
    });
  }

  void draw(Token* out, ConstRows x, const DrawChoice* choices, int count) override {
    pool_.parallel_for(count, [&](int i, int thread) {
      out[i] = draws_[thread].draw({x.row(choices[i].row), static_cast<std::size_t>(x.width)}, choices[i]);
    });
  }

  void copy(const Copies& copies) override {
    // A decode step has a hundred small ones; threads are not worth it.
    ReferenceOps::copy(copies);
  }

 private:
  /// One product of a plane of a weight with chosen rows.
  struct Product {
    const Weight* weight;
    int plane;
    Input x;
    std::span<const int> in_rows;
    Rows out;
    std::span<const int> out_rows;
  };
  struct Part {
    int product, begin, end, first_token, tokens;
  };
  struct Emitted {
    const SequenceSlice* slice;
    std::int64_t row;
  };
  struct Query {
    int row, window, count;
    Position position;
    std::size_t rows_at;
  };
  struct KeyTask {
    const SequenceSlice* slice;
    int row;
    std::int32_t begin, end;
    std::size_t scores_at;
  };
  struct Choice {
    std::int32_t* ids;
    std::int32_t visible;
    std::size_t scores_at;
  };

  template <class Body>
  void for_rows(int rows, const Body& body) {
    // A few rows a task: most of these ops are short.
    const int batch = std::max(1, rows / (8 * pool_.threads()));
    pool_.parallel_for(ceil_div(rows, batch), [&](int task, int) {
      for (int i = task * batch; i < std::min(rows, (task + 1) * batch); ++i) body(i);
    });
  }

  template <class Body>
  void for_queries(const Slices& slices, const Body& body) {
    for (const SequenceSlice& slice : slices)
      pool_.parallel_for(slice.rows, [&](int i, int) { body(slice, slice.first_row + i); });
  }

  std::span<const int> identity(int n) {
    while (static_cast<int>(identity_.size()) < n) identity_.push_back(static_cast<int>(identity_.size()));
    return std::span(identity_).first(static_cast<std::size_t>(n));
  }

  void matmul_part(const Product& product) {
    products_.assign(1, product);
    run_products();
  }

  /// Cuts the products into parts of rows (and, where a matrix has few rows, of tokens) and runs them.
  void run_products() {
    parts_.clear();
    int width = 0;
    const int wanted = 6 * pool_.threads();
    for (int p = 0; p < static_cast<int>(products_.size()); ++p) {
      const Product& product = products_[p];
      const int rows = product.weight->rows, tokens = static_cast<int>(product.in_rows.size());
      width = std::max(width, product.weight->width);
      // 32 rows are a panel of the widest level; a smaller part would unpack for nothing.
      const int share = std::max(1, ceil_div(wanted, static_cast<int>(products_.size())));
      const int rows_a_part = std::max(32, ceil_div(ceil_div(rows, share), 32) * 32);
      const int row_parts = ceil_div(rows, rows_a_part);
      const int token_parts = row_parts >= pool_.threads() ? 1 : std::clamp(tokens / 32, 1, ceil_div(share, row_parts));
      const int tokens_a_part = ceil_div(tokens, token_parts);
      for (int begin = 0; begin < rows; begin += rows_a_part)
        for (int first = 0; first < tokens; first += tokens_a_part)
          parts_.push_back(
              {p, begin, std::min(rows, begin + rows_a_part), first, std::min(tokens_a_part, tokens - first)});
    }
    const std::size_t bytes = std::max(matmul_scratch_bytes(width), sizeof(float) * static_cast<std::size_t>(width));
    pool_.parallel_for(static_cast<int>(parts_.size()), [&](int i, int thread) {
      const Part& part = parts_[i];
      const Product& product = products_[part.product];
      std::byte* scratch = scratch_[thread].bytes(bytes);
      if (product.weight->books != nullptr) {
        multiply_by_books(product, part, reinterpret_cast<float*>(scratch));
        return;
      }
      level_.matmul(*product.weight, product.plane, part.begin, part.end, product.x,
                    product.in_rows.subspan(part.first_token, part.tokens), product.out,
                    product.out_rows.subspan(part.first_token, part.tokens), {scratch, scratch_[thread].size()});
    });
  }

  /// The MIX formats have float codebooks, so their rows are widened one at a time and multiplied as floats.
  void multiply_by_books(const Product& product, const Part& part, float* row) const {
    for (int r = part.begin; r < part.end; ++r) {
      widen_row(*product.weight, product.plane, r, row);
      for (int t = part.first_token; t < part.first_token + part.tokens; ++t)
        product.out.row(product.out_rows[t])[r] =
            level_.dot(product.x.values.row(product.in_rows[t]), row, product.weight->width);
    }
  }

  float inverse_rms(const float* x, int width, float epsilon) const {
    return 1.0f / sqrt_f32(level_.dot(x, x, width) / static_cast<float>(width) + epsilon);
  }

  void norm_row(float* out, const float* x, const float* weight, int width, float epsilon) const {
    kernels_.rows->scale_row(out, x, weight, width, inverse_rms(x, width, epsilon));
  }

  void round_row(const Rounded& out, ConstRows x, int i) const {
    level_.round_row(x.row(i), x.width, out.codes + i * out.stride, out.scales + i * (out.stride / 32),
                     out.half_sums + i * (out.stride / 16));
  }

  void swiglu_row(Rows out, ConstRows gate, ConstRows up, const float* row_weights, float limit, int i) const {
    kernels_.rows->swiglu(out.row(i), gate.row(i), up.row(i), out.width, limit, row_weights != nullptr,
                          row_weights != nullptr ? row_weights[i] : 0.0f);
  }

  void emit_row(float* row, const SequenceSlice& slice, std::int64_t c, ConstRows values, ConstRows gates,
                const CompressorSpec& spec, const RowLayout& layout) const {
    const float *value_rows[128], *gate_rows[128];
    const int count = pool_candidates(slice, c, values, gates, spec, value_rows, gate_rows);
    kernels_.rows->pool(row, value_rows, gate_rows, count, spec.width);
    norm_row(row, row, spec.norm, spec.width, spec.epsilon);
    turn_pooled(row, c, spec, layout.rotary);
    if (spec.is_key) {
      if (layout.mode == Mode::official) kernels_.rows->hadamard_fp4(row, spec.width);
      pack_key(slice.key_pages[c / kPageRows] + c % kPageRows * layout.key_bytes(), row, layout);
    } else {
      if (layout.mode == Mode::official) kernels_.rows->round_fp8(row, layout.fp8_channels());
      pack_row(slice.pages[c / kPageRows] + c % kPageRows * layout.row_bytes(), row, layout);
    }
  }

  void fetch_row(float* to, const Query& query, int r, const SequenceSlice& slice, ConstRows window_rows,
                 const Selection* selection, const RowLayout& layout) const {
    if (r < query.window) {
      const Position p = query.position - query.window + 1 + r;
      if (p >= slice.begin)
        std::copy_n(window_rows.row(slice.first_row + static_cast<int>(p - slice.begin)), layout.width, to);
      else
        unpack(to, slice.window + static_cast<std::size_t>(p % slice.window_slots) * layout.row_bytes(), layout);
      return;
    }
    const std::int64_t index = r - query.window;
    const std::int64_t c = selection != nullptr
                               ? selection->ids[static_cast<std::ptrdiff_t>(query.row) * selection->capacity + index]
                               : index;
    unpack(to, slice.pages[c / kPageRows] + static_cast<std::size_t>(c % kPageRows) * layout.row_bytes(), layout);
  }

  void unpack(float* to, const std::byte* from, const RowLayout& layout) const {
    if (layout.mode == Mode::plain) {
      std::memcpy(to, from, layout.row_bytes());
      return;
    }
    const int channels = layout.fp8_channels();
    const auto* codes = reinterpret_cast<const std::uint8_t*>(from);
    kernels_.rows->unpack_fp8(to, codes, codes + channels, channels);
    std::memcpy(to + channels, codes + channels + layout.fp8_blocks(),
                sizeof(float) * static_cast<std::size_t>(layout.rotary));
  }

  void score_keys(const KeyTask& task, int thread, ConstRows queries, ConstRows head_weights, const RowLayout& layout) {
    const int width = layout.key_width;
    float* keys =
        reinterpret_cast<float*>(scratch_[thread].bytes(sizeof(float) * static_cast<std::size_t>(width) * kIndexKeys));
    for (std::int32_t c = task.begin; c < task.end; c += kIndexKeys) {
      const int n = std::min(kIndexKeys, task.end - c);
      for (int k = 0; k < n; ++k) {
        const std::int64_t id = c + k;
        const std::byte* key =
            task.slice->key_pages[id / kPageRows] + id % kPageRows * static_cast<std::int64_t>(layout.key_bytes());
        if (layout.mode == Mode::plain) {
          for (int d = 0; d < width; ++d) keys[d * kIndexKeys + k] = load_as<float>(key + 4 * d);
        } else {
          const auto* codes = reinterpret_cast<const std::uint8_t*>(key);
          kernels_.rows->unpack_fp4_column(keys + k, kIndexKeys, codes, codes + width / 2, width);
        }
      }
      for (int k = n; k < kIndexKeys; ++k)
        for (int d = 0; d < width; ++d) keys[d * kIndexKeys + k] = 0;
      kernels_.attention->index_scores({queries.row(task.row), head_weights.row(task.row), head_weights.width, width,
                                        keys, scores_.data() + task.scores_at + (c - task.begin)});
    }
  }

  void choose(const Choice& choice, int top_k, int thread) {
    auto* keys = reinterpret_cast<std::uint64_t*>(
        scratch_[thread].bytes(sizeof(std::uint64_t) * static_cast<std::size_t>(choice.visible)));
    for (std::int32_t c = 0; c < choice.visible; ++c)
      keys[c] = ranking_key(scores_[choice.scores_at + static_cast<std::size_t>(c)], c);
    std::nth_element(keys, keys + top_k, keys + choice.visible, std::greater<>());
    for (int s = 0; s < top_k; ++s) choice.ids[s] = ranked_id(keys[s]);
    std::sort(choice.ids, choice.ids + top_k);
  }

  const Level& level_;
  RowLevel kernels_;
  ThreadPool pool_;
  std::vector<ThreadScratch> scratch_;  // by thread
  std::vector<RowDraw> draws_;          // likewise

  // Lists of the op that is running, kept for their memory.
  std::vector<int> identity_, in_rows_, out_rows_, first_slot_, next_slot_;
  std::vector<Weight> grouped_;
  std::vector<Product> products_;
  std::vector<Part> parts_;
  std::vector<Emitted> emitted_;
  std::vector<Query> wave_;
  ThreadScratch gathered_;
  std::vector<KeyTask> key_tasks_;
  std::vector<Choice> choices_;
  std::vector<float> scores_;
};

}  // namespace

std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options) { return std::make_unique<CpuOps>(options); }

}  // namespace lockstep::cpu
