// Products of quantised and float weights, as the host starts them: which kernel by shape, never which sum.
#pragma once

#include "gpu/formats.h"
#include "gpu/runtime.h"
#include "numerics/order.h"
#include "ops/types.h"
#include "tensor/dequantize.h"

namespace lockstep::gpu {

/// A weight in device memory, in the layout that its format is kept in.
struct Matrix {
  const std::uint8_t* data = nullptr;
  std::int64_t row_bytes = 0;
  int width = 0, rows = 0;  // rows of a plane
  const Tables* tables = nullptr;
  const MixBooks* books = nullptr;
};

/// out[y] = w . x[y / x_share], where y counts output rows; with `expert`, of the plane expert[y]. With groups, row r
/// of w reads columns from r / rows_a_group * w.width on.
struct Product {
  Matrix w;
  ConstRows values;
  Rounded rounded;
  Rows out;
  const std::int32_t* expert = nullptr;
  int x_share = 1;
  int rows_a_group = 0;
  bool is_expert_known = false;  // before the launch before is done
  bool is_input_known = false;   // likewise; the launch is over no sooner than the one before it
  // Ops::hyper_expand by what comes out, which then goes nowhere else, if `streams` has data.
  Rows streams;
  ConstRows coefficients;
};

/// Products of one width and one number of output rows that go into one launch: each has its share of the blocks.
inline constexpr int kMostParts = 8;
struct ProductList {
  int count = 0;
  int first_block[kMostParts + 1] = {};
  Product part[kMostParts];
};

/// The order in which the tile kernel goes through the blocks of a row: chunk by chunk, column by column, lane by lane
/// (numerics/order.h). What it reads is laid out in this order, a stage of kStageBlocks places at a time.
inline constexpr int kStageBlocks = 4;
struct Walk {
  int lanes = 0, lane_blocks = 0, column_lanes = 0, chunk_blocks = 0;
  /// Index in the row of the block at place w.
  LOCKSTEP_HOST_DEVICE int block_at(int w) const {
    const int chunk = w / chunk_blocks, lane_walk = w % chunk_blocks / lane_blocks, i = w % lane_blocks;
    const int lane = lane_walk / column_lanes + kColumns * (lane_walk % column_lanes);
    return chunk * chunk_blocks + lane + lanes * i;
  }
};

/// Weights as the tile kernel reads them: int8 codes [rows, width in the order of the walk], and words that scale the
/// blocks [stages, n, rows, kStageBlocks]:
///   single, no minimum  1: scale          single, minimum  2: scale, minimum (each with its factor)
///   halves, no minimum  2: scale, factors halves, minimum  4: scale, factors, minimum, levels (pairs of int16)
///   dual                2: scales         folded, minimum  3: scale, minimum, levels
struct Unpacked {
  std::int8_t* codes = nullptr;
  std::uint32_t* scales = nullptr;
  std::int64_t rows = 0;  // of all planes
  Walk walk;
};
LOCKSTEP_HOST_DEVICE constexpr int scale_words(Kind kind, bool has_min) {
  return kind == Kind::folded ? 3 : kind == Kind::dual ? 2 : (kind == Kind::halves ? 2 : 1) * (has_min ? 2 : 1);
}

/// Outputs of the tile kernel that came out as zero. It gives a block's zero product a sign of its own, which an output
/// can show only if it is a zero itself, so these few are made again (FormatKernels::mend).
struct ZeroList {
  static constexpr int kMost = 1 << 16;
  int count;  // of all; only kMost are named
  int unused;
  struct Place {
    std::int32_t out, row;
  } place[kMost];
};

/// The kernels of one quantised format.
struct FormatKernels {
  Kind kind;  // for the tile kernel
  bool has_min;
  void (*multiply)(Runtime& runtime, const Product* products, int count);  // at most kMostParts
  /// Planes [first_plane, first_plane + planes) of w; those whose `used` is 0 may be left out, if it is given.
  void (*unpack)(Runtime& runtime, const Matrix& w, int first_plane, int planes, const int* used, const Unpacked& out);
  /// Makes the outputs of `product` again that `zeros` names, or, if they are too many, all that are zero.
  void (*mend)(Runtime& runtime, const Product& product, const ZeroList* zeros);
  void (*widen)(Runtime& runtime, Rows out, const Matrix& w, const Token* rows);
  /// From the file's bytes to planes; null for a format that stays as it is.
  void (*relay)(Runtime& runtime, std::uint8_t* out, std::int64_t out_row_bytes, const std::uint8_t* file,
                std::int64_t file_row_bytes, int width, std::int64_t rows);
};
/// A list in which every product has a block for each `a_block` rows.
ProductList list_of(const Product* products, int count, int a_block);

/// Once, before the first product.
void prepare_matvecs(Runtime& runtime);

/// Ops::swiglu_round of gate and up into gate.
struct SwigluCall {
  Rows gate, up;
  Rounded rounded;
  float limit = 0;
};

// Gate and up, times the expert's weight, rounded, and `beside`, if it has rows (gated_experts.cu); false, with nothing
// done, for other formats and shapes than it has kernels for.
bool multiply_gated(Runtime& runtime, DType dtype, const Product& gate, const Product& up, const Rounded& rounded,
                    const float* row_weights, float limit, const SwigluCall& beside = {});
void prepare_gated(Runtime& runtime);

/// Null if the format is not quantised.
const FormatKernels* kernels_of(DType dtype);

/// Grids and levels of all formats, as kernels read them.
Tables make_tables();

/// The float formats and the MIX ones.
void multiply_floats(Runtime& runtime, DType dtype, const Product* products, int count);
void widen_floats(Runtime& runtime, DType dtype, Rows out, const Matrix& w, const Token* rows);

}  // namespace lockstep::gpu
