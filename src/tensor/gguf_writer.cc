#include "tensor/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kReportBytes = 4 << 20;
constexpr std::size_t kMaxParts = 65535;  // split.count is a u16

template <class T>
void encode(std::string& out, T value) {
  char bytes[sizeof value];
  store_as(bytes, value);
  out.append(bytes, sizeof bytes);
}

void encode_text(std::string& out, std::string_view text) {
  encode<std::uint64_t>(out, text.size());
  out += text;
}

template <class T>
void encode_key(std::string& out, std::string_view key, T value) {
  encode_text(out, key);
  encode(out, static_cast<std::uint32_t>(kGgufTypeOf<T>));
  encode(out, value);
}

bool is_own_key(std::string_view key) { return key == "general.alignment" || key.starts_with("split."); }

std::uint64_t entry_bytes(std::string_view name, std::size_t dims) { return 8 + name.size() + 4 + 8 * dims + 4 + 8; }

}  // namespace

GgufWriter::GgufWriter(std::filesystem::path out, GgufWriterOptions options)
    : out_(std::move(out)), options_(std::move(options)) {
  if (!std::has_single_bit(options_.alignment) || options_.alignment < 8 || options_.alignment > kGgufMaxAlignment)
    throw Error(Error::Kind::bad_argument,
                "alignment: " + std::to_string(options_.alignment) + " is not a power of two from 8 to 2^30");
}

void GgufWriter::set(std::string_view key, std::string_view value) {
  std::string payload;
  encode_text(payload, value);
  put(key, GgufType::string, GgufType::string, 1, std::as_bytes(std::span(payload)));
}

void GgufWriter::set_array(std::string_view key, std::span<const std::string_view> values) {
  std::string payload;
  for (const std::string_view value : values) encode_text(payload, value);
  put(key, GgufType::array, GgufType::string, values.size(), std::as_bytes(std::span(payload)));
}

void GgufWriter::set_value(std::string_view key, const GgufValue& value) {
  put(key, value.type(), value.element_type(), value.count(), value.bytes());
}

void GgufWriter::set_all(const Gguf& from) {
  for (const GgufKey& key : from.keys())
    if (!is_own_key(key.name)) set_value(key.name, key.value);
}

void GgufWriter::put(std::string_view key, GgufType type, GgufType element, std::uint64_t count,
                     std::span<const std::byte> bytes) {
  LOCKSTEP_CHECK(!has_begun_);
  if (key.empty() || key.size() > kGgufMaxName || is_own_key(key))
    throw Error(Error::Kind::bad_argument, "key " + quoted(key) + ": expected a name of 1 to " +
                                               std::to_string(kGgufMaxName) +
                                               " bytes that is not general.alignment or split.*");
  std::string encoded;
  encode_text(encoded, key);
  encode(encoded, static_cast<std::uint32_t>(type));
  if (type == GgufType::array) {
    encode(encoded, static_cast<std::uint32_t>(element));
    encode(encoded, count);
  }
  encoded.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto at = std::find_if(keys_.begin(), keys_.end(), [&](const Key& other) { return other.name == key; });
  if (at != keys_.end()) {
    at->encoded = std::move(encoded);
  } else {
    keys_.push_back({std::string(key), std::move(encoded)});
  }
}

void GgufWriter::add_tensor(std::string_view name, DType dtype, std::span<const std::int64_t> ne) {
  LOCKSTEP_CHECK(!has_begun_);
  const DTypeInfo& info = info_of(dtype);
  const auto refuse = [&](const std::string& what) {
    throw Error(Error::Kind::bad_argument, "tensor " + quoted(name) + ": " + what);
  };
  if (name.empty() || name.size() > kGgufMaxName)
    refuse("its name has " + std::to_string(name.size()) + " bytes, expected 1 to " + std::to_string(kGgufMaxName));
  if (ne.empty() || ne.size() > 4) refuse(std::to_string(ne.size()) + " dimensions, expected 1 to 4");
  std::int64_t values = 1;
  for (const std::int64_t extent : ne)
    if (extent < 1 || __builtin_mul_overflow(values, extent, &values))
      refuse("an extent of " + std::to_string(extent) + ", expected at least 1 and fewer than 2^63 values in all");
  if (ne[0] % info.block_values != 0)
    refuse("rows of " + std::to_string(ne[0]) + " values, expected a multiple of " + std::to_string(info.block_values) +
           " for " + std::string(info.name));
  std::uint64_t size = 0;
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(values / info.block_values),
                             static_cast<std::uint64_t>(info.block_bytes), &size) ||
      size > INT64_MAX - total_bytes_)
    refuse("the data would take more than 2^63 bytes");
  if (!tensor_names_.emplace(name).second) refuse("declared twice");
  if (tensors_.size() == kGgufMaxTensors) refuse("one more than " + std::to_string(kGgufMaxTensors) + " tensors");
  tensors_.push_back({std::string(name), info.file_id, {ne.begin(), ne.end()}, size, 0});
  total_bytes_ += size;
}

/// Deals the tensors out to parts in order, and gives each its offset.
void GgufWriter::plan_parts() {
  // The header's size before its tensor entries; the keys that name the part always take the same room.
  std::string split_keys;
  encode_key<std::uint16_t>(split_keys, "split.no", 0);
  encode_key<std::uint16_t>(split_keys, "split.count", 0);
  encode_key<std::int32_t>(split_keys, "split.tensors.count", 0);
  std::string alignment_key;
  encode_key<std::uint32_t>(alignment_key, "general.alignment", 0);
  const std::uint64_t bare = 4 + 4 + 8 + 8 + split_keys.size() + alignment_key.size();
  std::uint64_t header = bare;
  for (const Key& key : keys_) header += key.encoded.size();

  std::uint64_t data = 0;
  parts_.emplace_back();
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    Tensor& tensor = tensors_[i];
    const std::uint64_t entry = entry_bytes(tensor.name, tensor.ne.size());
    const std::uint64_t padded = align_up(tensor.size, options_.alignment);
    const bool is_empty = parts_.back().first == i;
    if (options_.part_bytes > 0 && !is_empty &&
        align_up(header + entry, options_.alignment) + data + padded > options_.part_bytes) {
      parts_.emplace_back().first = i;
      header = bare;
      data = 0;
    }
    tensor.offset = data;
    header += entry;
    data += padded;
    parts_.back().last = i + 1;
  }
  if (parts_.size() > kMaxParts)
    throw Error(Error::Kind::bad_argument, out_.string() + ": parts of " + std::to_string(options_.part_bytes) +
                                               " bytes make " + std::to_string(parts_.size()) +
                                               " of them, expected at most " + std::to_string(kMaxParts));
}

/// Throws Error::bad_argument for a place where no file can be put, or where an input lies.
void GgufWriter::name_parts() {
  std::filesystem::path prefix = out_;
  if (prefix.extension() == ".gguf") prefix.replace_extension();
  const int count = static_cast<int>(parts_.size());
  for (int i = 0; i < count; ++i) {
    Part& part = parts_[static_cast<std::size_t>(i)];
    part.path = replaced_file(count == 1 ? out_ : split_path(prefix, i + 1, count));
    refuse_input(part.path, options_.inputs);
  }
}

std::string GgufWriter::header_of(std::size_t index) const {
  const Part& part = parts_[index];
  const bool is_split = parts_.size() > 1;
  const bool is_first = index == 0;
  std::uint64_t key_count = (is_first ? keys_.size() : 0) + (is_split ? 3 : 0);
  const bool has_alignment = options_.alignment != kGgufAlignment;
  if (has_alignment) ++key_count;
  std::string out;
  encode(out, kGgufMagic);
  encode(out, kGgufVersion);
  encode<std::uint64_t>(out, part.last - part.first);
  encode(out, key_count);
  if (is_first)
    for (const Key& key : keys_) out += key.encoded;
  if (has_alignment) encode_key(out, "general.alignment", static_cast<std::uint32_t>(options_.alignment));
  if (is_split) {
    encode_key(out, "split.no", static_cast<std::uint16_t>(index));
    encode_key(out, "split.count", static_cast<std::uint16_t>(parts_.size()));
    encode_key(out, "split.tensors.count", static_cast<std::int32_t>(tensors_.size()));
  }
  for (std::size_t i = part.first; i < part.last; ++i) {
    const Tensor& tensor = tensors_[i];
    encode_text(out, tensor.name);
    encode(out, static_cast<std::uint32_t>(tensor.ne.size()));
    for (const std::int64_t extent : tensor.ne) encode(out, extent);
    encode(out, tensor.file_id);
    encode(out, tensor.offset);
  }
  out.resize(align_up(out.size(), options_.alignment), '\0');
  return out;
}

void GgufWriter::check_keys() const {
  if (keys_.size() + 4 > kGgufMaxKeys)
    throw Error(Error::Kind::bad_argument, out_.string() + ": more than " + std::to_string(kGgufMaxKeys) + " keys");
}

std::string GgufWriter::header() {
  LOCKSTEP_CHECK(!has_begun_ && options_.part_bytes == 0);
  check_keys();
  has_begun_ = has_finished_ = true;  // nothing can be declared or written any more
  plan_parts();
  return header_of(0);
}

void GgufWriter::begin() {
  LOCKSTEP_CHECK(!has_begun_);
  check_keys();
  has_begun_ = true;
  plan_parts();
  name_parts();
  open_part();
}

void GgufWriter::append(std::span<const std::byte> bytes) {
  LOCKSTEP_CHECK(has_begun_ && !has_finished_);
  if (bytes.empty()) return;
  LOCKSTEP_CHECK(current_ < tensors_.size() && bytes.size() <= tensors_[current_].size - filled_);
  if (current_ == parts_[part_].last) {
    parts_[part_].file->close();
    ++part_;
    open_part();
  }
  write(bytes);
  filled_ += bytes.size();
  done_bytes_ += bytes.size();
  if (filled_ == tensors_[current_].size) advance();
  report(false);
}

/// Pads the tensor that is complete, so that the file stays a multiple of the alignment.
void GgufWriter::advance() {
  constexpr std::byte kZeros[4096] = {};
  std::uint64_t padding = align_up(filled_, options_.alignment) - filled_;
  while (padding > 0) {
    const std::uint64_t count = std::min<std::uint64_t>(padding, sizeof kZeros);
    write({kZeros, count});
    padding -= count;
  }
  ++current_;
  filled_ = 0;
}

std::vector<std::filesystem::path> GgufWriter::finish() {
  LOCKSTEP_CHECK(has_begun_ && !has_finished_);
  LOCKSTEP_CHECK(current_ == tensors_.size());
  parts_[part_].file->close();
  std::vector<std::filesystem::path> paths;
  for (const Part& part : parts_) paths.push_back(part.path);
  for (std::size_t i = parts_.size(); i-- > 0;) parts_[i].file->commit();
  has_finished_ = true;
  report(true);
  return paths;
}

void GgufWriter::open_part() {
  parts_[part_].file = std::make_unique<OutputFile>(parts_[part_].path);
  const std::string header = header_of(part_);
  write(std::as_bytes(std::span(header)));
}

void GgufWriter::report(bool at_end) {
  if (!options_.progress) return;
  if (!at_end && done_bytes_ - reported_bytes_ < kReportBytes) return;
  reported_bytes_ = done_bytes_;
  options_.progress(done_bytes_, total_bytes_);
}

}  // namespace lockstep
