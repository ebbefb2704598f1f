// Which tensor becomes which format: rules by name, in order, the last that matches wins. A recipe is a named list of
// rules.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace lockstep {

struct TypeRule {
  std::string pattern;         // of the tensor's whole name: * any text, ? any character, [ab] one of these
  std::optional<DType> dtype;  // nothing: as in the input ("source")
};

struct Recipe {
  std::string_view name;
  std::string_view summary;
  std::vector<TypeRule> rules;
  std::optional<std::uint32_t> file_type;  // of general.file_type; nothing: by the format that most bytes have
};

std::span<const std::string_view> recipe_names();
/// Throws Error::bad_argument, naming all recipes, for an unknown one.
Recipe recipe_named(std::string_view name);

/// PATTERN=TYPE. Throws Error::bad_argument naming what is wrong: no '=', no pattern, a type that is not one or cannot
/// be made (then the message lists those that can).
TypeRule parse_type_rule(std::string_view text);

bool matches(const TypeRule& rule, std::string_view tensor);

/// The format that holds rows of `width` values and comes closest to `wanted`: itself if the width is a multiple of its
/// block; else q4_0 for formats of up to 4.5 bits and q8_0 for larger ones, and f16 where not even blocks of 32 fit.
DType fitting(DType wanted, std::int64_t width);

}  // namespace lockstep
