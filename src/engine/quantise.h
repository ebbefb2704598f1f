// From one GGUF file to another with the matrices in other formats.
//
// A plan says for every tensor what it becomes, after everything was checked; then the data goes by once, some rows at
// a time, on all threads. The file does not depend on how many there are. Vectors and tables of ids stay as they are,
// and so does the metadata but for the keys that say how a file was quantised.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/importance.h"
#include "engine/quantise_rules.h"
#include "tensor/gguf.h"

namespace lockstep {

struct QuantiseOptions {
  std::filesystem::path in;
  std::string recipe;                // empty: none; what no rule names stays as it is
  std::vector<TypeRule> rules;       // after those of the recipe
  std::filesystem::path importance;  // empty: none
  std::optional<DType> rocmfp2;      // meaning of type 107 in the input
  std::optional<DType> meaning_of_108;
};

struct QuantiseTensor {
  const GgufTensor* source = nullptr;
  DType from = DType::f32;  // with type 107 resolved
  DType to = DType::f32;
  const ImportanceEntry* importance = nullptr;  // null: all columns alike

  bool is_copied() const { return from == to; }
  std::uint64_t bytes() const;  // of the result
};

struct QuantisePlan {
  QuantiseOptions options;
  std::unique_ptr<const Gguf> file;  // `tensors` point into it
  Importance importance;
  std::uint32_t file_type = 0;
  std::vector<QuantiseTensor> tensors;  // in file order
  std::vector<std::string> notes;       // what a reader should know: fallbacks, what was rounded before

  std::uint64_t bytes() const;  // of tensor data
};

/// Reads headers and the importances. Throws what Gguf and read_importance throw; Error::bad_argument for a rule that
/// matches no matrix and for nothing to do; Error::bad_file for importances of another model; Error::unsupported for
/// tensors of the MIX formats that would have to be decoded.
QuantisePlan plan_quantisation(const QuantiseOptions& options);

/// What was made, by format, in the order of DType.
struct QuantisedFormat {
  DType dtype;
  std::int64_t tensors = 0;
  std::uint64_t bytes = 0;
  double error = 0;  // relative root mean square, on every eighth row, of those that were not copied; weighted as made
  bool is_measured = false;
};

struct QuantiseRun {
  int threads = 0;               // 0: one for each CPU
  std::uint64_t part_bytes = 0;  // greatest size of one file; 0: one file
  std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)> progress;  // may be empty
  std::function<bool()> cancelled;                                                    // asked every second or so
};

struct QuantiseResult {
  std::vector<std::filesystem::path> files;
  std::vector<QuantisedFormat> formats;
};

/// Writes the file, or its parts, under temporary names that are renamed when all is whole.
/// Throws Error::io, at once when the disk has too little room; Error::bad_argument if `out` is the input;
/// Error::bad_file naming tensor, row and column of a value that is not a number or too large for the format; and
/// Error::cancelled. Then nothing is left of it.
QuantiseResult write_quantised(const QuantisePlan& plan, const std::filesystem::path& out, const QuantiseRun& run = {});

}  // namespace lockstep
