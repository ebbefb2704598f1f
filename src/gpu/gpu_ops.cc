// The ops as launches: which kernel by shape, what room it needs, and the weights' way into device memory.
//
// Nothing is added here. All work goes on one stream; an op returns when it is queued. Room that a kernel needs for
// itself is one buffer that all ops share, one after the other; it grows outside of recordings only.
#include "gpu/gpu_ops.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "gpu/down_experts.h"
#include "gpu/expert_tile.h"
#include "gpu/float_few.h"
#include "gpu/float_tile.h"
#include "gpu/index_tile.h"
#include "gpu/kernels.h"
#include "gpu/matmul.h"
#include "gpu/memory_pool.h"
#include "gpu/planes.h"
#include "gpu/recorder.h"
#include "gpu/ring_matvec.h"
#include "gpu/router.h"
#include "gpu/telemetry.h"
#include "gpu/thin_experts.h"
#include "gpu/thin_matmul.h"
#include "gpu/tile.h"

namespace lockstep::gpu {
namespace {

constexpr std::size_t kRoomBytes = std::size_t{512} << 20;  // what an op's own room is cut to, where it can be cut
constexpr std::size_t kStageBytes = std::size_t{64} << 20;  // of a weight on its way in
constexpr int kMostRecorded = 128;                          // tokens of a step that is worth a recording
constexpr int kFewTokens = 8;         // up to so many, matrix-vector kernels, and mixes in hyper_begin's
constexpr int kFewExpertTokens = 95;  // up to so many, experts slot by slot: tokens hardly share them
constexpr int kFewestThinTokens = 96, kMostThinTokens = 400;  // what thin_experts.h is the fastest for

class GpuOps final : public Ops {
 public:
  explicit GpuOps(const GpuOptions& options) : runtime_(options.device), pool_(runtime_), recorder_(runtime_) {
    tables_ = static_cast<Tables*>(pool_.allocate(sizeof(Tables)));
    for (ZeroList*& zeros : zeros_) zeros = static_cast<ZeroList*>(pool_.allocate(sizeof(ZeroList)));
    routed_ = static_cast<int*>(pool_.allocate(sizeof(int)));
    runtime_.clear(routed_, sizeof(int));
    const Tables tables = make_tables();
    runtime_.upload(tables_, &tables, sizeof tables);
    arrivals_ = static_cast<int*>(pool_.allocate(sizeof(int) * kMostArrivals));
    runtime_.clear(arrivals_, sizeof(int) * kMostArrivals);
    prepare_attend(runtime_);
    prepare_matvecs(runtime_);
    prepare_gated(runtime_);
    prepare_rings(runtime_);
    prepare_down(runtime_);
    prepare_thin(runtime_);
    prepare_thin_experts(runtime_);
    prepare_tiles(runtime_);
    prepare_expert_tiles(runtime_);
    prepare_index_tiles(runtime_);
    prepare_score_tiles(runtime_);
    prepare_float_tiles(runtime_);
    prepare_thin_floats(runtime_);
    runtime_.synchronize();
  }
  ~GpuOps() override {
    for (void* weight : weights_) pool_.release(weight);
    for (const Room& room : rooms_) pool_.release(room.memory);
    for (ZeroList* zeros : zeros_) pool_.release(zeros);
    pool_.release(arrivals_);
    pool_.release(routed_);
    pool_.release(tables_);
  }

  std::string description() const override { return std::string(back_end_name()) + " " + runtime_.device_name(); }

  // ---- Memory ----

  void* allocate(std::size_t bytes) override { return pool_.allocate(bytes); }
  void release(void* memory) override {
    recorder_.forget(memory);
    pool_.release(memory);
  }
  void upload(void* to, const void* from, std::size_t bytes) override { runtime_.upload(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { runtime_.download(to, from, bytes); }

  Weight prepare(const Weight& weight) override {
    const FormatKernels* kernels = kernels_of(weight.dtype);
    const std::int64_t rows = static_cast<std::int64_t>(weight.rows) * weight.planes;
    const bool is_relaid = kernels != nullptr && kernels->relay != nullptr;
    Weight out = weight;
    if (is_relaid) out.row_bytes = plane_row_bytes(weight.dtype, weight.width);
    auto* memory = static_cast<std::uint8_t*>(own(out.row_bytes * static_cast<std::size_t>(rows)));
    out.data = reinterpret_cast<const std::byte*>(memory);
    if (is_relaid) {
      const auto at_once = std::clamp<std::int64_t>(static_cast<std::int64_t>(kStageBytes / weight.row_bytes), 1, rows);
      std::byte* stage = room(weight.row_bytes * static_cast<std::size_t>(at_once));
      for (std::int64_t first = 0; first < rows; first += at_once) {
        const std::int64_t n = std::min(at_once, rows - first);
        runtime_.upload(stage, weight.data + static_cast<std::size_t>(first) * weight.row_bytes,
                        static_cast<std::size_t>(n) * weight.row_bytes);
        kernels->relay(runtime_, memory + static_cast<std::size_t>(first) * out.row_bytes,
                       static_cast<std::int64_t>(out.row_bytes), reinterpret_cast<const std::uint8_t*>(stage),
                       static_cast<std::int64_t>(weight.row_bytes), weight.width, n);
      }
    } else {
      runtime_.upload(memory, weight.data, weight.row_bytes * static_cast<std::size_t>(rows));
    }
    if (weight.books != nullptr) {
      const std::size_t bytes = sizeof(MixBooks) * static_cast<std::size_t>(weight.planes);
      void* books = own(bytes);
      runtime_.upload(books, weight.books, bytes);
      out.books = static_cast<const MixBooks*>(books);
    }
    runtime_.synchronize();  // kernels read weights before they wait for the launch before them
    return out;
  }

  // ---- Matrices ----

  void embed(Rows out, const Weight& embedding, const Token* tokens) override {
    if (out.rows > kMostRecorded) recorder_.refuse();
    if (const FormatKernels* kernels = kernels_of(embedding.dtype); kernels != nullptr)
      kernels->widen(runtime_, out, matrix_of(embedding), tokens);
    else
      widen_floats(runtime_, embedding.dtype, out, matrix_of(embedding), tokens);
  }

  void round(Rounded out, ConstRows x) override {
    if (x.rows <= kFewTokens || !round_many(runtime_, out, x)) gpu::round(runtime_, out, x);
  }

  void matmul(Rows out, const Weight& w, const Input& x) override { multiply(out, w, x, 0); }

  void matmul_many(std::span<const Part> parts, const Input& x) override {
    std::vector<Product> products;
    for (const Part& part : parts) products.push_back(product_of(part.out, *part.weight, x));
    multiply_many(parts, products, parts.front().out.rows > kFewTokens);
  }
  void matmul_experts_many(std::span<const Part> parts, const Input& x, const Route& route, bool x_per_slot) override {
    const Weight& first = *parts.front().weight;
    const bool is_alike = std::all_of(parts.begin(), parts.end(), [&](const Part& part) {
      return part.weight->dtype == first.dtype && part.weight->planes == first.planes;
    });
    std::vector<Product> products;
    for (const Part& part : parts) {
      products.push_back(product_of(part.out, *part.weight, x));
      products.back().expert = route.expert;
      products.back().x_share = x_per_slot ? 1 : route.used;
    }
    if (is_alike && takes_thin(first, products, route)) return multiply_thin_of(first, products, route);
    if (route.rows <= kFewExpertTokens) return multiply_many(parts, products, false);
    if (!is_alike || !can_tile_experts(runtime_, first.dtype, first.width))
      return Ops::matmul_experts_many(parts, x, route, x_per_slot);
    multiply_by_experts(parts, x, route, x_per_slot);
  }

  void matmul_experts_gated(Rows gate, Rows up, Rounded rounded, const Weight& gate_weight, const Weight& up_weight,
                            const Input& x, const Route& route, float limit) override {
    if (route.rows <= kFewExpertTokens && gate_weight.dtype == up_weight.dtype) {
      Product gates = product_of(gate, gate_weight, x), ups = product_of(up, up_weight, x);
      gates.expert = ups.expert = route.expert;
      gates.x_share = ups.x_share = route.used;
      if (!takes_thin(gate_weight, std::array{gates, ups}, route) &&
          multiply_gated(runtime_, gate_weight.dtype, gates, ups, rounded, route.weight, limit)) {
        gated_by_ = route.expert;
        return;
      }
    }
    Ops::matmul_experts_gated(gate, up, rounded, gate_weight, up_weight, x, route, limit);
  }

  void matmul_expand(Rows streams, Rows y, const Weight& w, const Input& x, ConstRows coefficients) override {
    const FormatKernels* kernels = kernels_of(w.dtype);
    Product p = product_of(y, w, x);
    p.streams = streams;
    p.coefficients = coefficients;
    const bool is_thin = can_thin(runtime_, w.dtype, &p, 1);
    if ((y.rows > kFewTokens && !is_thin) || kernels == nullptr || streams.width != 4 * y.width)
      return Ops::matmul_expand(streams, y, w, x, coefficients);
    do_postponed();
    const RingCall ring(p);
    if (can_ring(runtime_, w.dtype, ring))
      multiply_ring(runtime_, w.dtype, ring);
    else if (is_thin)
      multiply_thin(runtime_, &p, 1);
    else
      kernels->multiply(runtime_, &p, 1);
  }

  void matmul_experts_expand(Rows streams, Rows y, Rows parts, Rows shared, const Weight& w, const Input& mid,
                             const Route& route, const Weight& shared_weight, const Input& shared_mid,
                             ConstRows coefficients) override {
    Product down = product_of(parts, w, mid);
    down.expert = route.expert;
    down.is_expert_known = route.expert == gated_by_;
    if (route.rows == 1) do_postponed();
    if (streams.width != 4 * y.width ||
        !multiply_down(runtime_, w.dtype, down, route.used, shared_weight.dtype,
                       product_of(shared, shared_weight, shared_mid), streams, coefficients))
      Ops::matmul_experts_expand(streams, y, parts, shared, w, mid, route, shared_weight, shared_mid, coefficients);
  }

  void matmul_grouped(Rows out, const Weight& w, const Input& x, int groups) override {
    multiply(out, w, x, w.rows / groups);
  }
  void matmul_grouped_round(Rows out, Rounded rounded, const Weight& w, const Input& x, int groups) override {
    RingCall ring(product_of(out, w, x));
    ring.p.rows_a_group = w.rows / groups;
    ring.rounded = rounded;
    if (!can_ring(runtime_, w.dtype, ring)) return Ops::matmul_grouped_round(out, rounded, w, x, groups);
    multiply_ring(runtime_, w.dtype, ring);
  }
  void matmul_normed(Rows out, const Weight& w, NormedInput& x) override {
    RingCall ring(product_of(out, w, {x.values, x.rounded}));
    ring.raw = x.raw;
    ring.norm = x.weight;
    ring.epsilon = x.epsilon;
    if (x.is_made || !can_ring(runtime_, w.dtype, ring)) return Ops::matmul_normed(out, w, x);
    multiply_ring(runtime_, w.dtype, ring);
  }

  void matmul_experts(Rows out, const Weight& w, const Input& x, const Route& route, bool x_per_slot) override {
    Product p = product_of(out, w, x);
    p.expert = route.expert;
    p.x_share = x_per_slot ? 1 : route.used;
    p.is_expert_known = route.expert == gated_by_;
    const FormatKernels* kernels = kernels_of(w.dtype);
    if (kernels == nullptr) return multiply_floats(runtime_, w.dtype, &p, 1);
    if (takes_thin(w, std::span(&p, 1), route)) return multiply_thin_of(w, std::span(&p, 1), route);
    if (route.rows > kFewExpertTokens && can_tile_experts(runtime_, w.dtype, w.width)) {
      const Part part = {out, &w};
      return multiply_by_experts({&part, 1}, x, route, x_per_slot);
    }
    if (route.rows <= kFewExpertTokens || !can_tile(runtime_, kernels->kind, kernels->has_min, w.width, 0))
      return kernels->multiply(runtime_, &p, 1);
    multiply_sorted(p, *kernels, w.planes);
  }

  // ---- Rows ----

  void rms_norm(Rows out, ConstRows x, const float* weight, float epsilon) override {
    gpu::rms_norm(runtime_, out, nullptr, x, weight, epsilon);
  }
  void rms_norm_round(Rows out, Rounded rounded, ConstRows x, const float* weight, float epsilon) override {
    gpu::rms_norm(runtime_, out, &rounded, x, weight, epsilon);
  }
  void rotation_table(Rows out, const Position* positions, const float* frequencies) override {
    gpu::rotation_table(runtime_, out, positions, frequencies);
  }
  void rotate(Rows x, int head_width, ConstRows table, bool inverse) override {
    gpu::rotate(runtime_, x, head_width, table, inverse);
  }
  void rotate_round(Rows x, Rounded rounded, int head_width, ConstRows table, bool inverse) override {
    if (x.rows <= kFewTokens || !rotate_round_many(runtime_, x, rounded, head_width, table, inverse))
      gpu::rotate_round(runtime_, x, rounded, head_width, table, inverse);
  }
  void norm_rotate(Rows x, int head_width, const float* weight, float epsilon, ConstRows table,
                   int fp8_channels) override {
    if (head_width > 1024) return Ops::norm_rotate(x, head_width, weight, epsilon, table, fp8_channels);
    if (x.rows <= kFewTokens || !norm_rotate_many(runtime_, x, head_width, weight, epsilon, table, fp8_channels))
      gpu::norm_rotate(runtime_, x, head_width, weight, epsilon, table, fp8_channels);
  }
  void rotate_hadamard_fp4(Rows x, int head_width, ConstRows table) override {
    LOCKSTEP_CHECK(head_width % kFp4Block == 0 && head_width <= 1024);
    if (!rotate_hadamard_fp4_many(runtime_, x, head_width, table))
      gpu::rotate_hadamard_fp4(runtime_, x, head_width, table);
  }
  void add_by_position(Rows x, ConstRows table, const Position* positions) override {
    gpu::add_by_position(runtime_, x, table, positions);
  }
  void round_fp8(Rows x, int channels) override { gpu::round_fp8(runtime_, x, channels); }
  void hadamard_fp4(Rows x, int head_width) override {
    LOCKSTEP_CHECK(head_width % kFp4Block == 0 && head_width <= 1024);
    gpu::hadamard_fp4(runtime_, x, head_width);
  }
  void scale(Rows x, float factor) override { gpu::scale(runtime_, x, factor); }

  // ---- Hyper-connections ----

  void hyper_coefficients(Rows out, ConstRows mixes, ConstRows streams, const float* scale_by, const float* base,
                          const HyperSpec& spec) override {
    LOCKSTEP_CHECK(spec.streams == 4);
    gpu::hyper_coefficients(runtime_, out, mixes, streams, scale_by, base, spec);
  }
  void hyper_head_coefficients(Rows out, ConstRows mixes, ConstRows streams, const float* scale_by, const float* base,
                               const HyperSpec& spec) override {
    gpu::hyper_head_coefficients(runtime_, out, mixes, streams, scale_by, base, spec);
  }
  void hyper_collapse(Rows out, ConstRows streams, ConstRows coefficients) override {
    do_postponed();
    gpu::hyper_collapse(runtime_, out, streams, coefficients);
  }
  void hyper_begin(Rows coefficients, Rows out, const Rounded* rounded, Rows mixes, const Weight& fn, const Input& x,
                   const float* scale_by, const float* base, const HyperSpec& spec, const float* weight,
                   float epsilon) override {
    const ConstRows streams = x.values;
    LOCKSTEP_CHECK(spec.streams == 4 && streams.width == 4 * out.width && out.width <= 10240);
    const bool is_one = out.rows <= kFewTokens && can_mix_begin(runtime_, fn.dtype, matrix_of(fn), out.width);
    if (!is_one) multiply(mixes, fn, x, 0);
    if (out.rows > kFewTokens &&
        hyper_begin_many(runtime_, coefficients, out, rounded, mixes, streams, scale_by, base, spec, weight, epsilon))
      return;
    bool has_mean = is_one;
    if (is_one)
      hyper_mix_begin(runtime_, out, rounded, coefficients, mixes, matrix_of(fn), streams, scale_by, base, spec, weight,
                      epsilon);
    else
      has_mean =
          gpu::hyper_begin(runtime_, out, rounded, coefficients, mixes, streams, scale_by, base, spec, weight, epsilon);
    // What follows takes `out`; the coefficients can go beside it.
    is_postponed_split_ = has_mean;
    postponed_ = [=, this] {
      if (has_mean)
        gpu::hyper_split(runtime_, coefficients, mixes, scale_by, base, spec, is_input_known_);
      else
        gpu::hyper_coefficients(runtime_, coefficients, mixes, streams, scale_by, base, spec);
    };
    if (!recorder_.is_recording() || is_beside_) do_postponed();
  }
  void hyper_expand(Rows streams, ConstRows y, ConstRows coefficients) override {
    LOCKSTEP_CHECK(streams.width == 4 * y.width);
    do_postponed();
    gpu::hyper_expand(runtime_, streams, y, coefficients);
  }
  void hyper_spread(Rows streams, ConstRows x) override { gpu::hyper_spread(runtime_, streams, x); }

  // ---- Attention ----

  void compress(const Slices& slices, ConstRows values, ConstRows gates, const CompressorSpec& spec,
                const RowLayout& layout) override {
    gpu::compress(runtime_, slices, values, gates, spec, PackedRows(layout));
  }

  void select_rows(Selection out, const Slices& slices, ConstRows queries, ConstRows head_weights, int ratio, int top_k,
                   const RowLayout& layout) override {
    const SelectCall call = {out, queries, head_weights, ratio, top_k, most_visible(slices, ratio), arrivals_};
    const PackedRows packed(layout);
    const bool has_scores = call.bound > top_k;
    const std::size_t score_bytes = has_scores ? sizeof(float) * few_score_floats(call.bound) : 0,
                      index_bytes = has_scores && can_tile_index(runtime_, call, packed) ? index_row_bytes() : 0,
                      row_bytes = std::max<std::size_t>(1, score_bytes + index_bytes);
    const int wave = wave_rows(row_bytes, queries.rows);
    std::byte* const index = has_scores ? room(row_bytes * static_cast<std::size_t>(wave)) : nullptr;
    auto* const scores =
        reinterpret_cast<float*>(has_scores ? index + index_bytes * static_cast<std::size_t>(wave) : nullptr);
    for (int first = 0; first < queries.rows; first += wave)
      gpu::select_rows(runtime_, call, slices, first, std::min(wave, queries.rows - first), scores, index, packed);
  }

  void attend(Rows out, ConstRows queries, ConstRows window_rows, const Slices& slices, int window, int ratio,
              const Selection* selection, const float* sinks, float scale_by, const RowLayout& layout) override {
    attend_all(attend_call(out, queries, window_rows, slices, window, ratio, selection, sinks, scale_by), slices,
               PackedRows(layout));
  }
  void attend_heads(Rows queries, const Rounded* rounded, ConstRows window_rows, const Slices& slices, int window,
                    int ratio, const Selection* selection, const float* sinks, float scale_by, ConstRows turns,
                    float epsilon, const RowLayout& layout) override {
    AttendCall call = attend_call(queries, queries, window_rows, slices, window, ratio, selection, sinks, scale_by);
    call.turns = turns;
    call.epsilon = epsilon;
    call.rounded = rounded;
    if (!can_attend_few(runtime_, call, queries.rows, PackedRows(layout)))
      return Ops::attend_heads(queries, rounded, window_rows, slices, window, ratio, selection, sinks, scale_by, turns,
                               epsilon, layout);
    attend_all(call, slices, PackedRows(layout));
  }

  static AttendCall attend_call(Rows out, ConstRows queries, ConstRows window_rows, const Slices& slices, int window,
                                int ratio, const Selection* selection, const float* sinks, float scale_by) {
    AttendCall call = {out,       queries, window_rows, window, ratio, most_visible(slices, ratio),
                       selection, sinks,   scale_by};
    call.sequences = slices.size();
    call.visible = call.bound;
    if (selection != nullptr) call.bound = std::min(call.bound, selection->capacity);
    return call;
  }
  void attend_all(const AttendCall& call, const Slices& slices, const PackedRows& packed) {
    const ConstRows queries = call.queries;
    const auto bytes = [&](int rows) { return sizeof(float) * attend_scratch_floats(call, rows, packed); };
    const int wave = wave_rows(bytes(queries.rows) / static_cast<std::size_t>(queries.rows), queries.rows);
    auto* scratch = reinterpret_cast<float*>(room(std::max(bytes(wave), bytes(queries.rows % wave))));
    for (int first = 0; first < queries.rows; first += wave)
      gpu::attend(runtime_, call, slices, first, std::min(wave, queries.rows - first), scratch, packed);
  }

  void pack_window(std::byte* stage, const Slices& slices, ConstRows rows, const RowLayout& layout) override {
    gpu::pack_window(runtime_, stage, slices, rows, PackedRows(layout));
  }
  void keep_pending(float* stage, const Slices& slices, ConstRows values, ConstRows gates) override {
    gpu::keep_pending(runtime_, stage, slices, values, gates);
  }

  void keep_rows(const KeptRows& rows, const Slices& slices, const RowLayout& layout) override {
    if (rows.window_rows.rows > kFewTokens || !keep_rows_few(runtime_, rows, slices, PackedRows(layout)))
      Ops::keep_rows(rows, slices, layout);
  }

  void copy(const Copies& copies) override {
    if (copies.memory != nullptr) return gpu::copy(runtime_, copies.memory, static_cast<int>(copies.host.size()));
    for (const Copy& c : copies.host) runtime_.copy(c.to, c.from, c.bytes);
  }

  // ---- Experts ----

  void route_experts(Route route, ConstRows logits, const float* bias, const std::int32_t* table, const Token* tokens,
                     float route_scale) override {
    LOCKSTEP_CHECK(logits.width <= 1024 && route.used <= 64);
    gated_by_ = nullptr;
    gpu::route_experts(runtime_, route, logits, bias, table, tokens, route_scale);
  }
  /// Of one token in one line of launches, without branches: the router with the choice lets the next ones begin when
  /// the activations are known, so that the coefficients and the shared expert's products go beside it.
  void begin_experts(const ExpertsBegin& e, const Input& x) override {
    const bool is_split = postponed_ && is_postponed_split_, is_fused = !postponed_ || is_split;
    const Matrix router = matrix_of(*e.router);
    const DType shared = e.shared.gate_weight->dtype;
    if (!runtime_.can_overlap() || !is_fused || is_beside_ || shared != DType::q8_0 ||
        e.shared.up_weight->dtype != shared || !can_route(e.router->dtype, router, x.values))
      return Ops::begin_experts(e, x);
    gated_by_ = nullptr;
    route_by_product(runtime_, {router, x.values.data, e.logits.data, e.route, e.bias, e.table, e.tokens, e.route_scale,
                                routed_, 0});
    is_input_known_ = true;
    do_postponed();
    is_input_known_ = false;
    Product parts[] = {product_of(e.shared.gate, *e.shared.gate_weight, x),
                       product_of(e.shared.up, *e.shared.up_weight, x)};
    for (Product& part : parts) part.is_input_known = true;
    kernels_of(shared)->multiply(runtime_, parts, 2);
    const SwigluCall middle = {e.shared.gate, e.shared.up, e.shared.rounded, e.shared.limit};
    Product gates = product_of(e.chosen.gate, *e.chosen.gate_weight, x),
            ups = product_of(e.chosen.up, *e.chosen.up_weight, x);
    gates.expert = ups.expert = e.route.expert;
    gates.x_share = ups.x_share = e.route.used;
    if (e.chosen.gate_weight->dtype == e.chosen.up_weight->dtype &&
        multiply_gated(runtime_, e.chosen.gate_weight->dtype, gates, ups, e.chosen.rounded, e.route.weight,
                       e.chosen.limit, middle)) {
      gated_by_ = e.route.expert;
      return;
    }
    swiglu_round(middle.gate, middle.rounded, middle.gate, middle.up, nullptr, middle.limit);
    matmul_experts_gated(e.chosen.gate, e.chosen.up, e.chosen.rounded, *e.chosen.gate_weight, *e.chosen.up_weight, x,
                         e.route, e.chosen.limit);
  }
  void swiglu(Rows out, ConstRows gate, ConstRows up, const float* row_weights, float limit) override {
    gpu::swiglu(runtime_, out, nullptr, gate, up, row_weights, limit);
  }
  void swiglu_round(Rows out, Rounded rounded, ConstRows gate, ConstRows up, const float* row_weights,
                    float limit) override {
    if (out.rows <= kFewTokens || !swiglu_round_many(runtime_, out, rounded, gate, up, row_weights, limit))
      gpu::swiglu(runtime_, out, &rounded, gate, up, row_weights, limit);
  }
  void combine_experts(Rows out, ConstRows parts, const Route& route, ConstRows shared) override {
    LOCKSTEP_CHECK(route.used <= 64);
    gpu::combine_experts(runtime_, out, parts, route, shared);
  }
  void combine_expand(Rows streams, Rows y, ConstRows parts, const Route& route, ConstRows shared,
                      ConstRows coefficients) override {
    LOCKSTEP_CHECK(route.used <= 64 && streams.width == 4 * y.width);
    do_postponed();
    gpu::combine_expand(runtime_, streams, parts, route, shared, coefficients);
  }
  void gather(Rows out, ConstRows x, const std::int32_t* rows) override { gpu::gather(runtime_, out, x, rows); }

  void run_both(const std::function<void()>& first, const std::function<void()>& second) override {
    if (is_beside_) return Ops::run_both(first, second);
    const bool is_forked = recorder_.is_recording();  // without a recording one order is as good as another
    if (is_forked && postponed_) {                    // a branch of its own: either part would wait for it
      runtime_.fork(1);
      do_postponed();
      runtime_.switch_back();
    }
    if (is_forked) runtime_.fork(0);
    is_beside_ = true;
    try {
      second();
      do_postponed();
    } catch (...) {
      is_beside_ = false;
      throw;
    }
    is_beside_ = false;
    if (is_forked) runtime_.switch_back();
    first();
    if (is_forked) runtime_.join();
  }
  void run(std::span<const std::uint64_t> key, const std::function<void()>& body) override {
    recorder_.run(key, [&] {
      postponed_ = nullptr;
      body();
      do_postponed();
    });
  }
  void synchronize() override { runtime_.synchronize(); }

  // ---- Choice of a token, and telemetry ----

  void draw(Token* out, ConstRows x, const DrawChoice* choices, int count) override {
    gpu::draw(runtime_, out, x, choices, count);
  }

  std::unique_ptr<Stamps> make_stamps() override { return std::make_unique<EventStamps>(runtime_); }
  DeviceState device_state() override {
    // Two rooms, each cut to kRoomBytes but for what sorting experts adds, and the slab that pages come from.
    return {runtime_.total_bytes(), runtime_.free_bytes(), 2 * kRoomBytes + (std::size_t{128} << 20),
            measure_clock(runtime_), runtime_.most_clock_hz()};
  }
  double read_rate() override { return measure_read_rate(runtime_); }

 private:
  /// hyper_begin leaves its coefficients to be made by the next run_both, beside its first part, or by the first op
  /// that takes them.
  void do_postponed() {
    if (const auto body = std::exchange(postponed_, nullptr)) body();
  }

  void* own(std::size_t bytes) {
    weights_.reserve(weights_.size() + 1);
    void* memory = pool_.allocate(bytes);
    weights_.push_back(memory);
    return memory;
  }

  /// Room for one op, until the next one asks. What runs beside other work has one of its own.
  std::byte* room(std::size_t bytes) {
    Room& room = rooms_[is_beside_ ? 1 : 0];
    if (bytes > room.bytes) {
      LOCKSTEP_CHECK(!recorder_.is_recording());
      recorder_.forget();
      pool_.release(room.memory);
      room = {};
      room.memory = pool_.allocate(bytes);
      room.bytes = bytes;
    }
    return static_cast<std::byte*>(room.memory);
  }

  /// What is left of an op's room beside something that is always there.
  static std::size_t room_beside(std::size_t bytes) { return kRoomBytes > bytes ? kRoomBytes - bytes : 0; }

  static int wave_rows(std::size_t row_bytes, int rows) {
    return static_cast<int>(std::clamp<std::size_t>(kRoomBytes / row_bytes, 1, static_cast<std::size_t>(rows)));
  }

  /// Compressed rows that no query of the step sees more than; the same for a whole power of two of positions, which is
  /// what a recording's key tells apart.
  static int most_visible(const Slices& slices, int ratio) {
    if (ratio == 0) return 0;
    Position longest = 0;
    for (const SequenceSlice& slice : slices) longest = std::max(longest, slice.begin + slice.rows);
    const Position bound = Position{1} << std::bit_width(static_cast<std::uint64_t>(longest));
    return static_cast<int>(bound / ratio);
  }

  Matrix matrix_of(const Weight& w) const {
    return {reinterpret_cast<const std::uint8_t*>(w.data),
            static_cast<std::int64_t>(w.row_bytes),
            w.width,
            w.rows,
            tables_,
            w.books};
  }
  Product product_of(Rows out, const Weight& w, const Input& x) const {
    Product p;
    p.w = matrix_of(w);
    p.values = x.values;
    p.rounded = x.rounded;
    p.out = out;
    return p;
  }

  /// Products of one input: those of one format in one launch, but for the ones that go to the tile kernel.
  void multiply_many(std::span<const Part> parts, const std::vector<Product>& products, bool is_many) {
    std::vector<bool> is_done(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (is_done[i]) continue;
      const DType dtype = parts[i].weight->dtype;
      const FormatKernels* kernels = kernels_of(dtype);
      Product same[kMostParts];
      std::size_t place[kMostParts] = {};
      int count = 0;
      for (std::size_t j = i; j < parts.size() && count < kMostParts; ++j) {
        if (is_done[j] || parts[j].weight->dtype != dtype) continue;
        place[count] = j;
        same[count++] = products[j];
        is_done[j] = true;
      }
      if (kernels == nullptr)
        multiply_floats_by_shape(dtype, same, count);
      else if (can_thin(runtime_, dtype, same, count))
        multiply_thin(runtime_, same, count);
      else if (!is_many)
        kernels->multiply(runtime_, same, count);
      else
        for (int k = 0; k < count; ++k)
          multiply(parts[place[k]].out, *parts[place[k]].weight, {same[k].values, same[k].rounded}, 0);
    }
  }

  void multiply_floats_by_shape(DType dtype, const Product* products, int count) {
    if (count == 1 && can_thin_floats(runtime_, dtype, *products))
      multiply_thin_floats(runtime_, *products, room(thin_float_bytes(*products)));
    else if (can_tile_floats(runtime_, dtype, products, count))
      multiply_float_tiles(runtime_, products, count, room(float_tile_bytes(runtime_, products, count)));
    else if (can_multiply_few(dtype, products, count))
      multiply_few_floats(runtime_, dtype, products, count);
    else
      multiply_floats(runtime_, dtype, products, count);
  }

  void multiply(Rows out, const Weight& w, const Input& x, int rows_a_group) {
    Product p = product_of(out, w, x);
    p.rows_a_group = rows_a_group;
    const FormatKernels* kernels = kernels_of(w.dtype);
    if (kernels == nullptr) return multiply_floats_by_shape(w.dtype, &p, 1);
    if (const RingCall ring(p); can_ring(runtime_, w.dtype, ring)) return multiply_ring(runtime_, w.dtype, ring);
    if (can_thin(runtime_, w.dtype, &p, 1)) return multiply_thin(runtime_, &p, 1);
    if (out.rows <= kFewTokens || !can_tile(runtime_, kernels->kind, kernels->has_min, w.width, rows_a_group))
      return kernels->multiply(runtime_, &p, 1);
    // A piece of the rows at a time, so that the room stays small; each is a matrix of its own.
    TileCall call = tile_call(p, *kernels);
    const std::size_t row_bytes = unpacked_row_bytes(w.width, *kernels),
                      x_bytes = walked_bytes(p.rounded.rows, p.rounded.width);
    int at_once = static_cast<int>(
        std::clamp<std::size_t>(room_beside(x_bytes) / row_bytes, 1, static_cast<std::size_t>(w.rows)));
    if (at_once < w.rows)
      at_once = std::max(1, at_once / (rows_a_group > 0 ? rows_a_group : kTileRows)) *
                (rows_a_group > 0 ? rows_a_group : kTileRows);
    std::byte* memory = room(x_bytes + row_bytes * static_cast<std::size_t>(std::min(at_once, w.rows)));
    const WalkedRows x_rows = walk_rows(runtime_, memory, p.rounded, w.width);
    call.zeros = cleared_zeros();
    for (int first = 0; first < w.rows; first += at_once) {
      Matrix part = p.w;
      part.data += static_cast<std::int64_t>(first) * part.row_bytes;
      part.rows = call.rows = std::min(at_once, w.rows - first);
      call.first_row = first;
      call.w = unpacked(memory + x_bytes, part.rows, w.width);
      call.out = out.columns(first, part.rows);
      call.x = x_rows;
      if (rows_a_group > 0) {
        const std::int64_t values = static_cast<std::int64_t>(first / rows_a_group) * x_rows.rows * w.width;
        call.x.codes += values;
        call.x.scales += values / kBlock;
        call.x.half_sums += values / kBlock;
      }
      kernels->unpack(runtime_, part, 0, 1, nullptr, call.w);
      multiply_tiles(runtime_, call);
    }
    kernels->mend(runtime_, p, call.zeros);
  }

  /// Whether experts have enough tokens each, and no more, for the kernel that decodes a weight once for eight of them.
  bool takes_thin(const Weight& w, std::span<const Product> products, const Route& route) const {
    return route.rows >= kFewestThinTokens && route.rows <= kMostThinTokens &&
           can_thin_experts(runtime_, w.dtype, products.data(), static_cast<int>(products.size()), w.planes);
  }
  void multiply_thin_of(const Weight& w, std::span<const Product> products, const Route& route) {
    multiply_thin_experts(runtime_, w.dtype, products.data(), static_cast<int>(products.size()), w.planes,
                          room(thin_expert_bytes(route.rows * route.used, w.planes)));
  }

  ExpertSort sorted(std::byte* memory, const std::int32_t* expert, int slots, int experts) {
    const ExpertSort sort = expert_sort_in(memory, slots, experts);
    sort_by_expert(runtime_, sort, expert, slots, experts);
    return sort;
  }

  /// Products of the experts' weights by one input, in formats that are decoded where they are multiplied.
  void multiply_by_experts(std::span<const Part> parts, const Input& x, const Route& route, bool x_per_slot) {
    const Weight& first = *parts.front().weight;
    const int slots = route.rows * route.used;
    const std::size_t x_bytes = expert_rows_bytes(first.dtype, x.rounded.rows, x.rounded.width);
    std::byte* memory = room(x_bytes + expert_sort_bytes(slots, first.planes));
    ExpertCall call;
    call.x = walk_expert_rows(runtime_, memory, first.dtype, x.rounded);
    call.x_share = x_per_slot ? 1 : route.used;
    call.experts = first.planes;
    call.sort = sorted(memory + x_bytes, route.expert, slots, first.planes);
    for (const Part& part : parts) {
      Product p = product_of(part.out, *part.weight, x);
      p.expert = route.expert;
      p.x_share = call.x_share;
      call.w = p.w;
      call.out = part.out;
      call.zeros = cleared_zeros();
      multiply_expert_tiles(runtime_, first.dtype, call);
      kernels_of(first.dtype)->mend(runtime_, p, call.zeros);
    }
  }

  /// Slots sorted by expert; some experts at a time are unpacked and multiplied.
  void multiply_sorted(const Product& p, const FormatKernels& kernels, int experts) {
    const int slots = p.out.rows;
    const std::size_t row_bytes = unpacked_row_bytes(p.w.width, kernels);
    const std::size_t plane_bytes = row_bytes * static_cast<std::size_t>(p.w.rows),
                      x_bytes = walked_bytes(p.rounded.rows, p.rounded.width);
    const int at_once = static_cast<int>(
        std::clamp<std::size_t>(room_beside(x_bytes) / plane_bytes, 1, static_cast<std::size_t>(experts)));
    std::byte* memory =
        room(x_bytes + expert_sort_bytes(slots, experts) + plane_bytes * static_cast<std::size_t>(at_once));
    const WalkedRows x_rows = walk_rows(runtime_, memory, p.rounded, p.w.width);
    memory += x_bytes;
    const ExpertSort sort = sorted(memory, p.expert, slots, experts);
    memory += expert_sort_bytes(slots, experts);
    TileCall call = tile_call(p, kernels);
    call.sort = &sort;
    call.x = x_rows;
    call.zeros = cleared_zeros();
    for (int first = 0; first < experts; first += at_once) {
      call.first_plane = first;
      call.planes = std::min(at_once, experts - first);
      call.w = unpacked(memory, static_cast<std::int64_t>(call.planes) * p.w.rows, p.w.width);
      kernels.unpack(runtime_, p.w, first, call.planes, sort.used, call.w);
      multiply_tiles(runtime_, call);
    }
    kernels.mend(runtime_, p, call.zeros);
  }

  ZeroList* cleared_zeros() {
    ZeroList* const zeros = zeros_[is_beside_ ? 1 : 0];
    runtime_.clear(zeros, offsetof(ZeroList, place));
    return zeros;
  }

  static TileCall tile_call(const Product& p, const FormatKernels& kernels) {
    TileCall call;
    call.kind = kernels.kind;
    call.has_min = kernels.has_min;
    call.rows = p.w.rows;
    call.width = p.w.width;
    call.out = p.out;
    call.x_share = p.x_share;
    call.rows_a_group = p.rows_a_group;
    return call;
  }
  static std::size_t unpacked_row_bytes(int width, const FormatKernels& kernels) {
    const std::size_t blocks = static_cast<std::size_t>(width / 32);
    return blocks * (32 + sizeof(std::uint32_t) * static_cast<std::size_t>(scale_words(kernels.kind, kernels.has_min)));
  }
  static Unpacked unpacked(std::byte* memory, std::int64_t rows, int width) {
    return {reinterpret_cast<std::int8_t*>(memory), reinterpret_cast<std::uint32_t*>(memory + rows * width), rows,
            walk_of(width)};
  }

  Runtime runtime_;
  MemoryPool pool_;
  Recorder recorder_;
  Tables* tables_ = nullptr;
  int* arrivals_ = nullptr;  // SelectCall
  ZeroList* zeros_[2] = {};  // of the main work and of what runs beside it
  struct Room {
    void* memory = nullptr;
    std::size_t bytes = 0;
  };
  Room rooms_[2];
  // The experts that the last gated product was by, until others are chosen: when a later kernel begins, they have been
  // known for a while (gated_experts.cu waits before it lets the next one begin).
  const std::int32_t* gated_by_ = nullptr;
  std::function<void()> postponed_;  // hyper_begin's coefficients, if they are still to be made
  bool is_postponed_split_ = false;  // by gpu::hyper_split
  bool is_input_known_ = false;      // by what do_postponed launches, before the launch before it began
  int* routed_ = nullptr;            // RouterCall::done
  bool is_beside_ = false;           // the ops of the second part of run_both are being issued
  std::vector<void*> weights_;
};

}  // namespace

std::string_view back_end_name() {
#if defined(LOCKSTEP_GPU_EMULATED)
  return "emulated";
#elif defined(LOCKSTEP_GPU_HIP)
  return "hip";
#else
  return "cuda";
#endif
}

std::unique_ptr<Ops> make_gpu_ops(const GpuOptions& options) { return std::make_unique<GpuOps>(options); }

}  // namespace lockstep::gpu
