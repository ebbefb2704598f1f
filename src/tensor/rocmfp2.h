// Which of three formats a tensor with type id 107 has. Nothing in a file's header says; the data do.
//
// The three have blocks of the same size and different levels, so the wrong one loads and makes a model that talks
// nonsense. They differ in two statistics that hardly depend on the weights: the ratio of the two scale bytes' sums,
// and how often the codes 3 and 0 occur. docs/formats.md has the measured ranges. Numbers between the ranges are
// refused: a guess would be a wrong answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace lockstep {

enum class Rocmfp2Variant : std::uint8_t { fixed, affine, s40 };

std::string_view name_of(Rocmfp2Variant variant);
std::optional<Rocmfp2Variant> rocmfp2_variant_named(std::string_view name);
DType dtype_of(Rocmfp2Variant variant);

struct Rocmfp2Decision {
  Rocmfp2Variant variant;
  std::string reason;  // a line for the log: the tensor, the numbers and what they led to
};

/// Decides from the blocks of a tensor, or takes `forced`.
///   blocks  the whole tensor, or a good part of it: whole blocks of 10 bytes. Up to 8192 of them are read, in 16 runs
///           spread evenly, so that a mapped file is touched in few places.
///   tensor  its name, for messages
/// Throws Error::unsupported, with the numbers, if they fit no variant, if there are fewer than 64 blocks, or if the
/// mean of the decoded values is a tenth of their standard deviation or more. With `forced` it never throws; the reason
/// says whether the data agree.
Rocmfp2Decision detect_rocmfp2(std::span<const std::byte> blocks, std::string_view tensor,
                               std::optional<Rocmfp2Variant> forced = std::nullopt);

}  // namespace lockstep
