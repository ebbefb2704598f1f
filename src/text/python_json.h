// JSON as Python's json module reads and writes it, because the model was trained on prompts that Python wrote.
//
// nlohmann's own parser is not enough: it loses integers past 64 bits, refuses lone surrogates (some clients send
// them), and its ordered objects look every key up in turn, which is quadratic in a body that an attacker may choose.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lockstep {

using Json = nlohmann::ordered_json;

inline constexpr int kMaxJsonDepth = 512;  // nested arrays and objects: the writer recurses
// An empty array takes two bytes of text and forty times as much memory; a megabyte of them is in no honest text.
inline constexpr std::size_t kMostJsonNests = std::size_t{1} << 20;   // arrays and objects together
inline constexpr std::size_t kMostJsonValues = std::size_t{1} << 23;  // with what is in them

/// Reads one JSON text. Key order is kept; of duplicate keys the last value wins, in the first one's place. A lone
/// surrogate escape becomes U+FFFD. An integer past 64 bits becomes a binary value that holds its digits, which is not
/// a number to nlohmann (`is_number()` is false) and which dump_python writes back as it was. Throws
/// Error::bad_argument: `what` + ": not JSON: ..." for malformed text and invalid UTF-8, `what` + ": " and what is too
/// large for a float past the range of a double, or more levels, arrays and objects, or values than the limits above;
/// nothing is built beyond them.
Json parse_json(std::string_view text, std::string_view what);

/// Writes as json.dumps(value, ensure_ascii=False): ", " and ": " as separators, non-ASCII literal, integers as they
/// were, floats as repr() does. Strings must be valid UTF-8, which parse_json guarantees.
std::string dump_python(const Json& value);

/// A string with quotes, as json.dumps(text, ensure_ascii=False).
std::string quote_python(std::string_view text);

/// The shortest digits that read back as the same double, in repr()'s form: 1.0, 1e-07, 1e+16, nan, inf.
std::string repr_python(double value);

}  // namespace lockstep
