// What the back end launches: one function an op, each of which puts kernels on the runtime's stream and returns.
//
// Host code. All pointers lie in device memory but for what a comment calls the host's. Nothing here allocates: where a
// kernel needs room of its own, the caller hands it over (`Scratch`). The meaning of every op is in ops/ops.h.
#pragma once

#include "gpu/runtime.h"
#include "ops/ops.h"

namespace lockstep::gpu {

struct Matrix;  // matmul.h

// ---- Rows (row_kernels.cu) ----

void round(Runtime& runtime, Rounded out, ConstRows x);
/// `rounded` may be null.
void rms_norm(Runtime& runtime, Rows out, const Rounded* rounded, ConstRows x, const float* weight, float epsilon);
void rotation_table(Runtime& runtime, Rows out, const Position* positions, const float* frequencies);
void rotate(Runtime& runtime, Rows x, int head_width, ConstRows table, bool inverse);
void rotate_round(Runtime& runtime, Rows x, Rounded rounded, int head_width, ConstRows table, bool inverse);
/// head_width is at most 1024 here and in the next one.
void norm_rotate(Runtime& runtime, Rows x, int head_width, const float* weight, float epsilon, ConstRows table,
                 int fp8_channels);
void rotate_hadamard_fp4(Runtime& runtime, Rows x, int head_width, ConstRows table);
void add_by_position(Runtime& runtime, Rows x, ConstRows table, const Position* positions);
void round_fp8(Runtime& runtime, Rows x, int channels);
void hadamard_fp4(Runtime& runtime, Rows x, int head_width);
void scale(Runtime& runtime, Rows x, float factor);
void swiglu(Runtime& runtime, Rows out, const Rounded* rounded, ConstRows gate, ConstRows up, const float* row_weights,
            float limit);
void combine_experts(Runtime& runtime, Rows out, ConstRows parts, const Route& route, ConstRows shared);
void combine_expand(Runtime& runtime, Rows streams, ConstRows parts, const Route& route, ConstRows shared,
                    ConstRows coefficients);
void route_experts(Runtime& runtime, Route route, ConstRows logits, const float* bias, const std::int32_t* table,
                   const Token* tokens, float route_scale);
void gather(Runtime& runtime, Rows out, ConstRows x, const std::int32_t* rows);
/// `memory` is the list in device memory.
void copy(Runtime& runtime, const Ops::Copy* memory, int count);

// ---- The same for many rows (many_row_kernels.cu): false, and nothing done, if it does not take the operands ----

bool round_many(Runtime& runtime, Rounded out, ConstRows x);
bool rotate_round_many(Runtime& runtime, Rows x, Rounded rounded, int head_width, ConstRows table, bool inverse);
bool swiglu_round_many(Runtime& runtime, Rows out, Rounded rounded, ConstRows gate, ConstRows up,
                       const float* row_weights, float limit);
bool norm_rotate_many(Runtime& runtime, Rows x, int head_width, const float* weight, float epsilon, ConstRows table,
                      int fp8_channels);
bool rotate_hadamard_fp4_many(Runtime& runtime, Rows x, int head_width, ConstRows table);
/// With the coefficients.
bool hyper_begin_many(Runtime& runtime, Rows coefficients, Rows out, const Rounded* rounded, ConstRows mixes,
                      ConstRows streams, const float* scale, const float* base, const HyperSpec& spec,
                      const float* weight, float epsilon);

// ---- Hyper-connections (hyper_kernels.cu) ----

void hyper_coefficients(Runtime& runtime, Rows out, ConstRows mixes, ConstRows streams, const float* scale,
                        const float* base, const HyperSpec& spec);
void hyper_head_coefficients(Runtime& runtime, Rows out, ConstRows mixes, ConstRows streams, const float* scale,
                             const float* base, const HyperSpec& spec);
void hyper_collapse(Runtime& runtime, Rows out, ConstRows streams, ConstRows coefficients);
/// Without the coefficients. The width of `out` is at most 10240: a row of it lies in shared memory. True: the
/// streams' inverse root mean square is left in the last of the coefficients, for hyper_split to make them;
/// else hyper_coefficients does.
bool hyper_begin(Runtime& runtime, Rows out, const Rounded* rounded, Rows coefficients, ConstRows mixes,
                 ConstRows streams, const float* scale, const float* base, const HyperSpec& spec, const float* weight,
                 float epsilon);
/// The same after the product of the mixes, fn . streams, in one launch; leaves the inverse root mean square as well.
bool can_mix_begin(const Runtime& runtime, DType dtype, const Matrix& fn, int width);
void hyper_mix_begin(Runtime& runtime, Rows out, const Rounded* rounded, Rows coefficients, Rows mixes,
                     const Matrix& fn, ConstRows streams, const float* scale, const float* base, const HyperSpec& spec,
                     const float* weight, float epsilon);
/// is_known: what it reads was there before the launch before began; then it is over no sooner than that one.
void hyper_split(Runtime& runtime, Rows out, ConstRows mixes, const float* scale, const float* base,
                 const HyperSpec& spec, bool is_known);
void hyper_expand(Runtime& runtime, Rows streams, ConstRows y, ConstRows coefficients);
void hyper_spread(Runtime& runtime, Rows streams, ConstRows x);

// ---- Attention (cache_kernels.cu, select_kernels.cu, attend_few.cu, attend_many.cu) ----

/// A layout as kernels read it.
struct PackedRows {
  bool is_plain = false;
  int width = 0, rotary = 0, row_bytes = 0, key_width = 0, key_bytes = 0;
  explicit PackedRows(const RowLayout& layout)
      : is_plain(layout.mode == Mode::plain),
        width(layout.width),
        rotary(layout.rotary),
        row_bytes(static_cast<int>(layout.row_bytes())),
        key_width(layout.key_width),
        key_bytes(static_cast<int>(layout.key_bytes())) {}
};

void compress(Runtime& runtime, const Slices& slices, ConstRows values, ConstRows gates, const CompressorSpec& spec,
              const PackedRows& layout);
void pack_window(Runtime& runtime, std::byte* stage, const Slices& slices, ConstRows rows, const PackedRows& layout);
/// False, with nothing done, for rows that are too wide.
bool keep_rows_few(Runtime& runtime, const Ops::KeptRows& rows, const Slices& slices, const PackedRows& layout);
void keep_pending(Runtime& runtime, float* stage, const Slices& slices, ConstRows values, ConstRows gates);

/// Scores of one wave of rows. `bound` is a number of compressed rows that no query sees more than, the same for a
/// whole power of two of positions.
struct SelectCall {
  Selection out;
  ConstRows queries, head_weights;
  int ratio = 0, top_k = 0, bound = 0;
  int* arrivals = nullptr;  // of kMostArrivals rows: blocks that have made their scores; zeros between launches
};
inline constexpr int kMostArrivals = 64;
/// scores [rows, few_score_floats(bound)]; `index` is the room of index_tile.h.
void select_rows(Runtime& runtime, const SelectCall& call, const Slices& slices, int first_row, int rows, float* scores,
                 std::byte* index, const PackedRows& layout);

// Of few queries (select_few.cu).
bool can_score_fp4(const SelectCall& call, const PackedRows& layout);
void choose_fp4(Runtime& runtime, const SelectCall& call, const Slices& slices, int first_row, int rows, float* scores,
                const PackedRows& layout);
void choose_few(Runtime& runtime, const SelectCall& call, const Slices& slices, int first_row, int rows,
                const float* scores, bool has_groups);
/// Floats of a row of scores, with the largest ones of its groups, which choose_fp4 makes.
std::size_t few_score_floats(int bound);
void prepare_score_tiles(Runtime& runtime);

struct AttendCall {
  Rows out;
  ConstRows queries, window_rows;
  int window = 0, ratio = 0, bound = 0;  // bound: of the compressed rows that a query attends
  const Selection* selection = nullptr;  // the host's
  const float* sinks = nullptr;
  float scale = 0;
  // Ops::attend_heads, of few rows: norm and rotation before, rotation back and rounding after.
  ConstRows turns = {};
  float epsilon = 0;
  const Rounded* rounded = nullptr;  // the host's
  // Sequences of the step, and compressed rows that none of its queries sees more than.
  int sequences = 1, visible = 0;
};
/// Once, before the first attend.
void prepare_attend(Runtime& runtime);
/// Floats of scratch for a wave of so many rows.
std::size_t attend_scratch_floats(const AttendCall& call, int rows, const PackedRows& layout);
/// Whether attend takes the kernels for few queries, which alone know turns and what follows them.
bool can_attend_few(const Runtime& runtime, const AttendCall& call, int rows, const PackedRows& layout);
void attend(Runtime& runtime, const AttendCall& call, const Slices& slices, int first_row, int rows, float* scratch,
            const PackedRows& layout);

// ---- Choice of tokens (draw.cu) ----

void draw(Runtime& runtime, Token* out, ConstRows x, const DrawChoice* choices, int count);

// ---- Others (other_kernels.cu) ----

/// out[0] cycles of half a millisecond, out[1] its nanoseconds.
void watch_clock(Runtime& runtime, std::uint64_t* out);
/// Reads cleared memory; a multiple of 32 KiB.
void read_memory(Runtime& runtime, const void* from, std::size_t bytes, std::uint32_t* sum);

}  // namespace lockstep::gpu
