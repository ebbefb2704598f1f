// The bytes of a file that keeps a part of a sequence's state: docs/cache.md is the description.
//
// A state is cut in two: segments, each the compressed rows of a fixed range of tokens, which all prompts that begin
// with the same tokens share; and a tail, what one state has besides. A file says what it belongs to (fingerprint),
// what comes before it (parent) and which tokens it is about, so that nothing is believed for its name alone, and
// everything in it is under a checksum. This knows no directory and no model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/types.h"

namespace lockstep {

inline constexpr std::uint32_t kStateVersion = 1;

enum class StateKind : std::uint32_t { segment = 1, tail = 2 };

/// What a file's name says: enough to know which files need which.
struct StateName {
  StateKind kind = StateKind::segment;
  std::uint64_t fingerprint = 0;
  std::uint64_t key = 0;     // of all tokens up to the end of it
  std::uint64_t parent = 0;  // the key of the segment before it; 0: it begins the sequence
  bool operator==(const StateName&) const = default;
};

/// "<fingerprint>-<key>-<parent>.segment" or ".tail", numbers as 16 hexadecimal digits.
std::string file_name(const StateName& name);
std::optional<StateName> parse_file_name(std::string_view name);

struct StateHeader {
  StateName name;
  Position first = 0;  // its tokens are [first, end)
  Position end = 0;
  Position floor = 0;                // tail: the least length that the state rewinds to
  std::uint32_t segment_tokens = 0;  // tokens of every segment
};

/// What follows the header, in this order.
struct StateParts {
  std::span<const Token> tokens;
  std::span<const std::byte> rows;    // compressed rows that the tokens complete
  std::span<const std::byte> rings;   // tail: rings and pending compressor inputs
  std::span<const std::byte> logits;  // tail: f32 after its last token, or empty
};

/// The key of what ends with `tokens` and follows `parent`. Never 0.
std::uint64_t state_key(StateKind kind, std::uint64_t parent, std::span<const Token> tokens);

inline constexpr std::size_t kStateHeaderBytes = 144;

/// The header of a file with these parts, which follow it as they are.
std::vector<std::byte> encode_header(const StateHeader& header, const StateParts& parts);

/// Sizes of the parts of a file, from its header.
struct StateLayout {
  StateHeader header;
  std::size_t tokens = 0, rows = 0, rings = 0, logits = 0;  // bytes
  std::uint64_t tokens_hash = 0, rows_hash = 0, rings_hash = 0, logits_hash = 0;
  std::uint64_t file_bytes() const { return kStateHeaderBytes + tokens + rows + rings + logits; }
};

/// Reads the header of the file called `name` and found under `path` with `file_bytes` bytes. Throws Error::bad_file,
/// naming `path`, if it is damaged, of another version, or not what its name says.
StateLayout decode_header(std::span<const std::byte> bytes, std::uint64_t file_bytes, const StateName& name,
                          const std::string& path);

/// The tokens, from the bytes that follow the header. Throws Error::bad_file if they are damaged or not those that the
/// key was made of.
std::vector<Token> decode_tokens(std::span<const std::byte> bytes, const StateLayout& layout, const std::string& path);

/// The other parts of a whole file; views into `file`. Throws Error::bad_file if one is damaged.
StateParts decode_parts(std::span<const std::byte> file, const StateLayout& layout, const std::string& path);

}  // namespace lockstep
