#include "engine/disk_format.h"

#include <fmt/format.h>

#include <charconv>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"

namespace lockstep {
namespace {

constexpr char kMagic[8] = {'L', 'K', 'S', 'T', 'A', 'T', 'E', '\n'};
constexpr std::size_t kPartsAt = 72, kHashAt = 136;
constexpr std::string_view kSegmentEnd = ".segment", kTailEnd = ".tail";

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error(Error::Kind::bad_file, path + ": " + what);
}

std::span<const std::byte> checked(std::span<const std::byte> bytes, std::uint64_t hash, const char* what,
                                   const std::string& path) {
  if (hash_bytes(bytes) != hash)
    fail(path,
         fmt::format("damaged: the checksum of its {} is {:016x}, expected {:016x}", what, hash_bytes(bytes), hash));
  return bytes;
}

}  // namespace

std::string file_name(const StateName& name) {
  return fmt::format("{:016x}-{:016x}-{:016x}{}", name.fingerprint, name.key, name.parent,
                     name.kind == StateKind::segment ? kSegmentEnd : kTailEnd);
}

std::optional<StateName> parse_file_name(std::string_view name) {
  StateName out;
  if (name.size() < 50 || name[16] != '-' || name[33] != '-') return std::nullopt;
  const std::string_view end = name.substr(50);
  if (end != kSegmentEnd && end != kTailEnd) return std::nullopt;
  out.kind = end == kTailEnd ? StateKind::tail : StateKind::segment;
  std::size_t at = 0;
  for (std::uint64_t* number : {&out.fingerprint, &out.key, &out.parent}) {
    const char* const last = name.data() + at + 16;
    const auto [stop, error] = std::from_chars(name.data() + at, last, *number, 16);
    if (error != std::errc() || stop != last) return std::nullopt;
    at += 17;
  }
  // One name a state: capital digits would be a second one.
  return file_name(out) == name ? std::optional(out) : std::nullopt;
}

std::uint64_t state_key(StateKind kind, std::uint64_t parent, std::span<const Token> tokens) {
  Hasher hasher;
  const std::uint64_t before[] = {static_cast<std::uint64_t>(kind), parent};
  hasher.add_values(std::span<const std::uint64_t>(before));
  hasher.add_values(tokens);
  const std::uint64_t key = hasher.value();
  return key == 0 ? 1 : key;
}

std::vector<std::byte> encode_header(const StateHeader& header, const StateParts& parts) {
  std::vector<std::byte> out(kStateHeaderBytes);
  std::byte* const at = out.data();
  std::memcpy(at, kMagic, sizeof kMagic);
  store_as(at + 8, kStateVersion);
  store_as(at + 12, header.name.kind);
  store_as(at + 16, header.name.fingerprint);
  store_as(at + 24, header.name.key);
  store_as(at + 32, header.name.parent);
  store_as(at + 40, header.first);
  store_as(at + 48, header.end);
  store_as(at + 56, header.floor);
  store_as(at + 64, header.segment_tokens);
  std::size_t part = kPartsAt;
  for (const std::span<const std::byte> bytes : {std::as_bytes(parts.tokens), parts.rows, parts.rings, parts.logits}) {
    store_as(at + part, static_cast<std::uint64_t>(bytes.size()));
    store_as(at + part + 8, hash_bytes(bytes));
    part += 16;
  }
  store_as(at + kHashAt, hash_bytes({at, kHashAt}));
  return out;
}

StateLayout decode_header(std::span<const std::byte> bytes, std::uint64_t file_bytes, const StateName& name,
                          const std::string& path) {
  if (bytes.size() < kStateHeaderBytes)
    fail(path, fmt::format("{} bytes, expected a header of {}", file_bytes, kStateHeaderBytes));
  const std::byte* const at = bytes.data();
  if (std::memcmp(at, kMagic, sizeof kMagic) != 0) fail(path, "not a file of this cache: it begins otherwise");
  checked(bytes.first(kHashAt), load_as<std::uint64_t>(at + kHashAt), "header", path);
  if (const auto version = load_as<std::uint32_t>(at + 8); version != kStateVersion)
    fail(path, fmt::format("format version {}, expected {}", version, kStateVersion));
  StateLayout out;
  StateHeader& header = out.header;
  header.name.kind = load_as<StateKind>(at + 12);
  header.name.fingerprint = load_as<std::uint64_t>(at + 16);
  header.name.key = load_as<std::uint64_t>(at + 24);
  header.name.parent = load_as<std::uint64_t>(at + 32);
  header.first = load_as<Position>(at + 40);
  header.end = load_as<Position>(at + 48);
  header.floor = load_as<Position>(at + 56);
  header.segment_tokens = load_as<std::uint32_t>(at + 64);
  if (header.name != name) fail(path, "another file under this name: its header says " + file_name(header.name));
  std::size_t part = kPartsAt;
  for (const auto& [size, hash] : {std::pair{&out.tokens, &out.tokens_hash}, std::pair{&out.rows, &out.rows_hash},
                                   std::pair{&out.rings, &out.rings_hash}, std::pair{&out.logits, &out.logits_hash}}) {
    *size = load_as<std::uint64_t>(at + part);
    *hash = load_as<std::uint64_t>(at + part + 8);
    part += 16;
    if (*size > file_bytes) fail(path, fmt::format("a part of {} bytes in a file of {}", *size, file_bytes));
  }
  if (out.file_bytes() != file_bytes)
    fail(path, fmt::format("{} bytes, expected {} by its header", file_bytes, out.file_bytes()));
  const Position count = header.end - header.first;
  const bool is_whole = header.first >= 0 && count > 0 && header.segment_tokens > 0 &&
                        out.tokens == static_cast<std::uint64_t>(count) * sizeof(Token) &&
                        out.logits % sizeof(float) == 0 && header.first % header.segment_tokens == 0;
  if (!is_whole) fail(path, "its header contradicts itself");
  if (name.kind == StateKind::segment && count != header.segment_tokens)
    fail(path, fmt::format("a segment of {} tokens, expected {}", count, header.segment_tokens));
  return out;
}

std::vector<Token> decode_tokens(std::span<const std::byte> bytes, const StateLayout& layout, const std::string& path) {
  if (bytes.size() < layout.tokens) fail(path, "it ends within its tokens");
  checked(bytes.first(layout.tokens), layout.tokens_hash, "tokens", path);
  std::vector<Token> tokens(layout.tokens / sizeof(Token));
  std::memcpy(tokens.data(), bytes.data(), layout.tokens);
  const StateName& name = layout.header.name;
  if (state_key(name.kind, name.parent, tokens) != name.key) fail(path, "its tokens are not those of its key");
  return tokens;
}

StateParts decode_parts(std::span<const std::byte> file, const StateLayout& layout, const std::string& path) {
  LOCKSTEP_CHECK(file.size() == layout.file_bytes());
  std::span<const std::byte> rest = file.subspan(kStateHeaderBytes + layout.tokens);
  StateParts parts;
  parts.rows = checked(rest.first(layout.rows), layout.rows_hash, "rows", path);
  parts.rings = checked(rest.subspan(layout.rows, layout.rings), layout.rings_hash, "rings", path);
  parts.logits = checked(rest.subspan(layout.rows + layout.rings), layout.logits_hash, "logits", path);
  return parts;
}

}  // namespace lockstep
