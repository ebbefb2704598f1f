// The operations of the model, as a back end sees them.
//
// Plain ops are pure virtual; ops/reference.cc spells each one as the literal loop that defines its bits. Fused ops
// have a default body made of plain ops: a back end overrides one to be faster, and the tests compare bits. A back end
// picks its kernel by shape, never its sum: every reduction follows numerics/order.h, so a row's result cannot depend
// on which other rows, threads or sequences share the step.
//
// All pointers lie in the back end's memory (allocate). No op allocates, throws or synchronises unless it says so; a
// step is planned before it starts. Matrices are rows of tokens: x [n, width]. In comments D is the model width, S the
// number of hyper-connection streams, P the width of a head, R its rotary channels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ops/cache_view.h"
#include "ops/phase.h"
#include "ops/types.h"

namespace lockstep {

/// Constants of a compressor (docs: architecture, "compressed rows").
struct CompressorSpec {
  int ratio = 0;                       // 4 (windows overlap) or 128
  int width = 0;                       // channels of the row it makes
  bool is_key = false;                 // an indexer key (Hadamard, fp4) rather than a row (fp8)
  const float* norm = nullptr;         // [width]
  const float* frequencies = nullptr;  // [rotary / 2]
  float epsilon = 0;
  /// Channels of `values` and `gates` a token: two halves where windows overlap.
  int input_width() const { return ratio == 4 ? 2 * width : width; }
};

/// Constants of a hyper-connection's split (Sinkhorn). Coefficients of a row: S pre, S post, S * S comb (source-major).
struct HyperSpec {
  int streams = 4;
  int iterations = 20;
  float epsilon = 0;       // added to pre and to the Sinkhorn sums
  float norm_epsilon = 0;  // of the root mean square of all streams together
  int coefficients() const { return 2 * streams + streams * streams; }
};

class Ops {
 public:
  virtual ~Ops() = default;

  /// "cpu avx512, 2 threads": said in logs and reports.
  virtual std::string description() const = 0;

  // Memory. Throws Error::no_memory.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) = 0;
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;

  /// Takes a tensor of the file into the back end. `weight.data` points into the mapped file, which outlives the
  /// result.
  virtual Weight prepare(const Weight& weight) = 0;

  // ---- Matrices ----

  /// out[i] = the row tokens[i] of the embedding, widened exactly.
  virtual void embed(Rows out, const Weight& embedding, const Token* tokens) = 0;

  /// Rounds every row to int8 in blocks of 32 (numerics/round.h). width is a multiple of 32.
  virtual void round(Rounded out, ConstRows x) = 0;

  /// out[i][r] = w[r] . x[i]. Quantised formats multiply x.rounded, the others x.values.
  virtual void matmul(Rows out, const Weight& w, const Input& x) = 0;

  /// out[i * used + s] = w[expert of (i, s)] . x[i], or . x[i * used + s] if `x_per_slot`.
  virtual void matmul_experts(Rows out, const Weight& w, const Input& x, const Route& route, bool x_per_slot) = 0;

  struct Part {
    Rows out;
    const Weight* weight;
  };
  /// Several products of one input: parts[i].out = parts[i].weight . x, as by matmul.
  virtual void matmul_many(std::span<const Part> parts, const Input& x);
  /// The same of matmul_experts.
  virtual void matmul_experts_many(std::span<const Part> parts, const Input& x, const Route& route, bool x_per_slot);

  /// The first half of a row's experts: gate and up by matmul_experts_many, then swiglu_round into gate and `rounded`,
  /// by the experts' weights. What `up` holds afterwards is not defined.
  virtual void matmul_experts_gated(Rows gate, Rows up, Rounded rounded, const Weight& gate_weight,
                                    const Weight& up_weight, const Input& x, const Route& route, float limit);

  /// The beginning of rows' experts: matmul by the router and route_experts; for the shared expert matmul_many and
  /// swiglu_round, for the chosen ones matmul_experts_gated.
  struct ExpertsBegin {
    struct Half {
      const Weight *gate_weight, *up_weight;
      Rows gate, up;
      Rounded rounded;
      float limit;
    };
    const Weight* router;
    Rows logits;  // room
    Route route;
    const float* bias;
    const std::int32_t* table;
    const Token* tokens;
    float route_scale;
    Half shared, chosen;
    int layer;
  };
  virtual void begin_experts(const ExpertsBegin& e, const Input& x);

  /// matmul, then hyper_expand by what it gave. y is room of the result's shape; what it holds afterwards is not
  /// defined.
  virtual void matmul_expand(Rows streams, Rows y, const Weight& w, const Input& x, ConstRows coefficients);

  /// w has rows in `groups` equal blocks; block g sees only columns [g * w.width, (g + 1) * w.width) of x.
  virtual void matmul_grouped(Rows out, const Weight& w, const Input& x, int groups);
  /// matmul_grouped, then round.
  virtual void matmul_grouped_round(Rows out, Rounded rounded, const Weight& w, const Input& x, int groups);

  /// The input of products that begin with a norm of `raw`, and room for what it gives: `values` may be `raw` itself;
  /// `rounded` has codes if a product needs them.
  struct NormedInput {
    ConstRows raw;
    const float* weight = nullptr;
    float epsilon = 0;
    Rows values;
    Rounded rounded;
    bool is_made = false;  // values and rounded hold the normed rows
  };
  /// rms_norm of x.raw, if that is not made, and matmul by what it gives. A back end that norms inside the product
  /// leaves `x` as it is.
  virtual void matmul_normed(Rows out, const Weight& w, NormedInput& x);

  /// The second half of a row's experts, and the end of its layer: matmul_experts of every slot's middle `mid` by w
  /// into `parts`, matmul of the shared expert's middle into `shared`, combine_expand. y, parts and shared are room;
  /// what they hold afterwards is not defined.
  virtual void matmul_experts_expand(Rows streams, Rows y, Rows parts, Rows shared, const Weight& w, const Input& mid,
                                     const Route& route, const Weight& shared_weight, const Input& shared_mid,
                                     ConstRows coefficients);

  // ---- Rows ----

  /// Scales every row to unit root-mean-square, then by weight [width] (or not, if null). x and out may be the same.
  /// Sums follow the order of a float dot. Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
  virtual void rms_norm(Rows out, ConstRows x, const float* weight, float epsilon) = 0;

  /// rms_norm, then round: `out` and `rounded` hold the same rows.
  virtual void rms_norm_round(Rows out, Rounded rounded, ConstRows x, const float* weight, float epsilon);

  /// out[i] = cos, sin pairs of float(positions[i]) * frequencies[pair], [rotary] floats a row.
  virtual void rotation_table(Rows out, const Position* positions, const float* frequencies) = 0;

  /// Rotates the last table.width channels of every head (head_width channels each) of row i by table row i,
  /// interleaved pairs; backwards if `inverse`. In place.
  virtual void rotate(Rows x, int head_width, ConstRows table, bool inverse) = 0;

  /// rotate, then round: `rounded` holds the same rows.
  virtual void rotate_round(Rows x, Rounded rounded, int head_width, ConstRows table, bool inverse);

  /// Every head of `head_width` channels: rms_norm by weight [head_width] or null, rotate, and round_fp8 of its first
  /// `fp8_channels` channels, if that is not 0. In place.
  virtual void norm_rotate(Rows x, int head_width, const float* weight, float epsilon, ConstRows table,
                           int fp8_channels);

  /// rotate, then hadamard_fp4, of every head.
  virtual void rotate_hadamard_fp4(Rows x, int head_width, ConstRows table);

  /// x[i] += table[positions[i] % table.rows].
  virtual void add_by_position(Rows x, ConstRows table, const Position* positions) = 0;

  /// The model's fp8 simulation of the first `channels` channels of every row, in place: blocks of 64, power-of-two
  /// scale.
  virtual void round_fp8(Rows x, int channels) = 0;

  /// Hadamard transform and fp4 simulation of every head of `head_width` channels, in place (architecture 8.2).
  virtual void hadamard_fp4(Rows x, int head_width) = 0;

  /// x *= factor.
  virtual void scale(Rows x, float factor) = 0;

  // ---- Hyper-connections ----

  /// From mixes [n, 2S + S*S] = fn . streams (unnormalised) to coefficients, by the row's own norm, scale [3], base.
  virtual void hyper_coefficients(Rows out, ConstRows mixes, ConstRows streams, const float* scale, const float* base,
                                  const HyperSpec& spec) = 0;

  /// The head's: pre only, out [n, S] = sigmoid(mix * scale[0] + base) + epsilon.
  virtual void hyper_head_coefficients(Rows out, ConstRows mixes, ConstRows streams, const float* scale,
                                       const float* base, const HyperSpec& spec) = 0;

  /// out[i][d] = sum over streams s of coefficients[i][s] * streams[i][s * D + d], ascending s.
  virtual void hyper_collapse(Rows out, ConstRows streams, ConstRows coefficients) = 0;

  /// matmul of fn by the streams into `mixes`, hyper_coefficients into `coefficients`, hyper_collapse by them into
  /// `out`, rms_norm of that in place by `weight` and `epsilon`, and, if `rounded` is given, round.
  virtual void hyper_begin(Rows coefficients, Rows out, const Rounded* rounded, Rows mixes, const Weight& fn,
                           const Input& streams, const float* scale, const float* base, const HyperSpec& spec,
                           const float* weight, float epsilon);

  /// streams[i][q][d] = post[q] * y[d] + sum over j of comb[j][q] * streams[i][j][d], ascending j. In place.
  virtual void hyper_expand(Rows streams, ConstRows y, ConstRows coefficients) = 0;

  /// streams[i][s] = x[i] for every stream s.
  virtual void hyper_spread(Rows streams, ConstRows x) = 0;

  // ---- Attention ----

  /// Pools the windows that the step completes into rows, norms, rotates, rounds and packs them into the pages. values
  /// and gates [n, spec.input_width()] are the step's, gates with their position bias added.
  virtual void compress(const Slices& slices, ConstRows values, ConstRows gates, const CompressorSpec& spec,
                        const RowLayout& layout) = 0;

  /// Chooses for every row the top_k visible compressed rows of its sequence by score (all, if there are no more),
  /// larger score first, then lower id. queries [n, heads * key_width], head_weights [n, heads].
  virtual void select_rows(Selection out, const Slices& slices, ConstRows queries, ConstRows head_weights, int ratio,
                           int top_k, const RowLayout& layout) = 0;

  /// Attention of every row over its window and its compressed rows (those of `selection`, or all visible ones if null;
  /// none if ratio is 0), one softmax with the head's sink. queries and out [n, heads * P], may be the same memory;
  /// window_rows [n, P] are the step's own rows, already rounded.
  virtual void attend(Rows out, ConstRows queries, ConstRows window_rows, const Slices& slices, int window, int ratio,
                      const Selection* selection, const float* sinks, float scale, const RowLayout& layout) = 0;

  /// norm_rotate of every head of the queries, without a weight; attend, in their place; rotate them back, and, if
  /// `rounded` is given, round.
  virtual void attend_heads(Rows queries, const Rounded* rounded, ConstRows window_rows, const Slices& slices,
                            int window, int ratio, const Selection* selection, const float* sinks, float scale,
                            ConstRows turns, float epsilon, const RowLayout& layout);

  /// Packs the last min(rows, window_slots) rows of every slice, one after the other, into `stage`.
  virtual void pack_window(std::byte* stage, const Slices& slices, ConstRows rows, const RowLayout& layout) = 0;

  /// Copies the last min(rows, pending_slots) rows of values and gates of every slice, likewise, as [values | gates].
  virtual void keep_pending(float* stage, const Slices& slices, ConstRows values, ConstRows gates) = 0;

  /// What a layer keeps of the step's rows.
  struct KeptRows {
    /// Inputs of a compressor: the gates still without their position bias, which keep_rows may or may not add in
    /// place.
    struct Part {
      Rows values, gates;
      ConstRows biases;  // by position
      CompressorSpec spec;
      float* stage = nullptr;
    };
    Rows window_rows;             // [n, P], as they come from their product
    const float* norm = nullptr;  // [P]
    float epsilon = 0;
    ConstRows turns;
    int fp8_channels = 0;        // as of norm_rotate
    std::byte* stage = nullptr;  // as of pack_window
    Part parts[2];               // the rows' and the keys', as far as they exist
    int part_count = 0;
    Rows head_weights;  // of the indexer; empty where there is none
    float head_scale = 0;
    const Position* positions = nullptr;
  };
  /// norm_rotate and pack_window of the window's rows; add_by_position, compress and keep_pending of every part; scale
  /// of the head weights.
  virtual void keep_rows(const KeptRows& rows, const Slices& slices, const RowLayout& layout);

  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
  };
  struct Copies {
    std::span<const Copy> host;
    const Copy* memory = nullptr;  // the same list in the back end's memory, or null: then it is read here, once
  };
  /// Copies inside the back end's memory. Ranges do not overlap.
  virtual void copy(const Copies& copies) = 0;

  // ---- Experts ----

  /// Scores = sqrt(softplus(logits)). Chooses route.used experts a row: by score + bias (ties: lower id), or, if
  /// `table` is given, table row tokens[i]. Weights are the unbiased scores over their sum (at least 2^-14), times
  /// route_scale.
  virtual void route_experts(Route route, ConstRows logits, const float* bias, const std::int32_t* table,
                             const Token* tokens, float route_scale) = 0;

  /// out = silu(min(gate, limit)) * clamp(up, -limit, limit), times row_weights[i] if given. out may be gate.
  virtual void swiglu(Rows out, ConstRows gate, ConstRows up, const float* row_weights, float limit) = 0;

  /// swiglu, then round.
  virtual void swiglu_round(Rows out, Rounded rounded, ConstRows gate, ConstRows up, const float* row_weights,
                            float limit);

  /// out[i] = sum of parts[i * used + s] in ascending expert id (ties: ascending slot), then + shared[i].
  virtual void combine_experts(Rows out, ConstRows parts, const Route& route, ConstRows shared) = 0;

  /// combine_experts, then hyper_expand by what it gave. y is room of the result's shape; what it holds afterwards is
  /// not defined.
  virtual void combine_expand(Rows streams, Rows y, ConstRows parts, const Route& route, ConstRows shared,
                              ConstRows coefficients);

  /// out[j] = x[rows[j]].
  virtual void gather(Rows out, ConstRows x, const std::int32_t* rows) = 0;

  /// out[i] = the token that choices[i] draws from its row of the logits x, by the rules of ops/draw.h; -1 if that row
  /// holds a NaN or +infinity, or nothing finite. The default body is for memory that the host can read, and allocates.
  virtual void draw(Token* out, ConstRows x, const DrawChoice* choices, int count);

  /// Runs two sequences of ops that neither read nor write what the other one writes. A back end may run them side by
  /// side; by default the first comes first.
  virtual void run_both(const std::function<void()>& first, const std::function<void()>& second);

  /// Runs `body`, a fixed sequence of ops. A back end may record what a body issued under `key` and play it again,
  /// without calling the body, when the key comes back. So the key must tell apart everything that the host decides by:
  /// shapes, addresses, and of positions only the power of two above the last one. What else varies from step to step
  /// lies in the back end's memory.
  virtual void run(std::span<const std::uint64_t> key, const std::function<void()>& body);

  /// Waits until everything issued has happened. Throws Error::device if the device failed.
  virtual void synchronize() {}

  // ---- Telemetry. Changes no result. ----

  /// Says what the ops that follow belong to; layer is -1 outside of layers.
  virtual void enter(StepPhase /*phase*/, int /*layer*/ = -1) {}
  /// By default the host's clock, which is right where ops are done when they return.
  virtual std::unique_ptr<Stamps> make_stamps() { return make_host_stamps(); }
  /// Measures the clock, so it takes about a millisecond. Zeros where the memory is the host's.
  virtual DeviceState device_state() { return {}; }
  /// Bytes a second of plain reads of the back end's own memory, measured; 0 where that is the host's.
  virtual double read_rate() { return 0; }
};

/// The literal loops that define every op's bits, on one thread, in host memory.
std::unique_ptr<Ops> make_reference_ops();

}  // namespace lockstep
