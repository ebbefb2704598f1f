// Importances: for every matrix, how large the inputs of its columns are, so that a quantiser knows which errors count.
//
// An entry holds, for each of its planes, the sum of the squares of every input column and how many inputs were added.
// A stack of experts has a plane an expert; a matrix whose groups of rows see different inputs (the grouped output of
// attention) has a plane a group; other matrices have one. Plane p belongs to the p-th equal part of the matrix's rows.
//
// The file is a GGUF file as llama.cpp's current tool writes it: general.type "imatrix", and for a matrix NAME the f32
// tensors NAME.in_sum2 [width, planes] and NAME.counts [1, planes].
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct ImportanceEntry {
  std::int64_t width = 0;
  std::vector<double> sums;    // [planes][width]
  std::vector<double> counts;  // [planes]

  ImportanceEntry() = default;
  ImportanceEntry(std::int64_t of_width, std::int64_t planes)
      : width(of_width), sums(static_cast<std::size_t>(of_width * planes)), counts(static_cast<std::size_t>(planes)) {}

  std::int64_t planes() const { return static_cast<std::int64_t>(counts.size()); }
  std::int64_t unused_planes() const;  // without any input

  /// Adds one input of plane `plane`: x [width].
  void add(std::int64_t plane, const float* x);

  /// Mean squares, [planes][width]; a plane without input has the mean over all inputs of the others. Empty if there
  /// was no input at all.
  std::vector<float> mean_squares() const;
};

struct Importance {
  std::map<std::string, ImportanceEntry, std::less<>> entries;  // by the tensor's name
  std::string source;                                           // what the inputs came from: a file's name
  std::int64_t chunks = 0;                                      // runs from an empty sequence
  std::int64_t chunk_tokens = 0;                                // the longest of them

  const ImportanceEntry* find(std::string_view tensor) const;
};

/// Throws Error::io, and Error::bad_file naming file and tensor: not a GGUF file of importances, a sum without counts
/// or the other way round, shapes that do not belong together, numbers that are negative or not finite.
Importance read_importance(const std::filesystem::path& path);

/// Under a temporary name, then renamed. Throws Error::io.
void write_importance(const Importance& importance, const std::filesystem::path& path);

}  // namespace lockstep
