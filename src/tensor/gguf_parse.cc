#include "tensor/gguf_parse.h"

#include <algorithm>
#include <bit>

#include "base/bytes.h"
#include "base/error.h"

namespace lockstep {
namespace {

// Arrays of arrays are legal and no known writer makes them. They are stepped over, but not to any depth: the walk
// recurses.
constexpr int kMaxArrayDepth = 4;

constexpr std::uint64_t kLeastKeyBytes = 8 + 1 + 4 + 1;             // name, type, one-byte value
constexpr std::uint64_t kLeastTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name, dims, one ne, type, offset

/// A place in the file. Every read says what it wants, so that a short file is reported by the thing that is missing.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  std::uint64_t position() const { return position_; }
  std::uint64_t left() const { return bytes_.size() - position_; }

  [[noreturn]] void fail(std::uint64_t at, const std::string& what, Error::Kind kind = Error::Kind::bad_file) const {
    throw Error(kind, name_ + ": at byte " + std::to_string(at) + ": " + what);
  }

  std::span<const std::byte> take(std::uint64_t count, const char* what) {
    if (count > left())
      fail(position_, std::string(what) + " needs " + std::to_string(count) + " bytes, the file has " +
                          std::to_string(left()) + " more (cut short or damaged)");
    const auto taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }

  template <class T>
  T read(const char* what) {
    return load_as<T>(take(sizeof(T), what).data());
  }

  std::string_view text(const char* what) {
    const auto length = read<std::uint64_t>(what);
    const auto taken = take(length, what);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

  /// A text that names something: not empty, not absurd.
  std::string_view label(const char* what) {
    const std::uint64_t at = position_;
    const std::string_view label = text(what);
    if (label.empty() || label.size() > kGgufMaxName)
      fail(at, std::string(what) + " has " + std::to_string(label.size()) + " bytes, expected 1 to " +
                   std::to_string(kGgufMaxName));
    return label;
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& name_;
  std::uint64_t position_ = 0;
};

GgufType read_type(Cursor& cursor, std::string_view key) {
  const std::uint64_t at = cursor.position();
  const auto type = cursor.read<std::uint32_t>("a value type");
  if (type >= kGgufTypeCount)
    cursor.fail(at, "key " + quoted(key) + " has value type " + std::to_string(type) + ", expected 0 to 12");
  return static_cast<GgufType>(type);
}

void check_truths(const Cursor& cursor, std::uint64_t at, std::string_view key, std::span<const std::byte> bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (std::to_integer<unsigned>(bytes[i]) > 1)
      cursor.fail(at + i, "key " + quoted(key) + " holds " + std::to_string(std::to_integer<unsigned>(bytes[i])) +
                              " as a bool, expected 0 or 1");
}

/// The elements of an array; leaves the cursor behind the last one.
GgufValue read_array(Cursor& cursor, std::string_view key, std::span<const std::byte> all, int depth) {
  const std::uint64_t at = cursor.position();
  if (depth == kMaxArrayDepth)
    cursor.fail(at, "key " + quoted(key) + " nests arrays deeper than " + std::to_string(kMaxArrayDepth));
  const GgufType element = read_type(cursor, key);
  const auto count = cursor.read<std::uint64_t>("an array length");
  const std::uint64_t begin = cursor.position();
  const std::uint64_t least = element == GgufType::array ? 12 : element == GgufType::string ? 8 : size_of(element);
  if (count > cursor.left() / least)
    cursor.fail(at, "key " + quoted(key) + " claims " + std::to_string(count) + " elements of type " +
                        std::string(name_of(element)) + ", the file has " + std::to_string(cursor.left()) +
                        " more bytes (cut short or damaged)");
  if (element == GgufType::array) {
    for (std::uint64_t i = 0; i < count; ++i) read_array(cursor, key, all, depth + 1);
  } else if (element == GgufType::string) {
    for (std::uint64_t i = 0; i < count; ++i) cursor.text("a string of an array");
  } else {
    const auto bytes = cursor.take(count * least, "an array");
    if (element == GgufType::boolean) check_truths(cursor, begin, key, bytes);
  }
  return {GgufType::array, element, count, all.subspan(begin, cursor.position() - begin)};
}

GgufValue read_value(Cursor& cursor, std::string_view key, std::span<const std::byte> all) {
  const GgufType type = read_type(cursor, key);
  if (type == GgufType::array) return read_array(cursor, key, all, 0);
  const std::uint64_t begin = cursor.position();
  if (type == GgufType::string) {
    cursor.text("a string value");
  } else {
    const auto bytes = cursor.take(size_of(type), "a value");
    if (type == GgufType::boolean) check_truths(cursor, begin, key, bytes);
  }
  return {type, type, 1, all.subspan(begin, cursor.position() - begin)};
}

/// What a tensor type that we do not read is called elsewhere, for the message.
std::string_view foreign_name(std::uint32_t id) {
  switch (id) {
    case 4:
    case 5:
    case 31:
    case 32:
    case 33:
    case 36:
    case 37:
    case 38:
      return "retired";
    case 9:
      return "Q8_1, a format of activations";
    case 15:
      return "Q8_K, a format of activations";
    case 24:
      return "I8";
    case 25:
      return "I16";
    case 27:
      return "I64";
    case 28:
      return "F64";
    case 34:
      return "TQ1_0";
    case 35:
      return "TQ2_0";
    case 41:
      return "Q1_0";
    case 47:
    case 48:
      return "ROCmFP4 in one fork, which others number 100 and 101";
    case 109:
      return "Q5_0_ROCMFPX in one tree";
    case 110:
      return "Q7_0_ROCMFPX in one tree";
    default:
      return "not a type that we know";
  }
}

std::string name_in_messages(DType dtype) { return std::string(info_of(dtype).name); }

DType dtype_of(const Cursor& cursor, std::uint64_t at, std::string_view name, std::uint32_t id,
               const GgufOptions& options) {
  const std::string tensor = "tensor " + quoted(name) + " has type " + std::to_string(id);
  if (id == 108) {
    if (!options.meaning_of_108)
      cursor.fail(at,
                  tensor + ", which means " + name_in_messages(DType::rocmi4) + " (ROCmFPX main tree), " +
                      name_in_messages(DType::rocmfp2_s40) + " (ciru-ai tree) or " +
                      name_in_messages(DType::rocmfp2_affine) +
                      " (one other tree); nothing in the file says which: give the meaning to open it",
                  Error::Kind::unsupported);
    return *options.meaning_of_108;
  }
  if (id == info_of(DType::rocmfp2).file_id) return DType::rocmfp2;
  for (const DTypeInfo& info : all_dtypes())
    if (info.file_id == id) return info.dtype;
  cursor.fail(at, tensor + " (" + std::string(foreign_name(id)) + "), which is not supported",
              Error::Kind::unsupported);
}

/// Reads one entry of the tensor table. Its offset is still relative and its bytes are still unset, but for their
/// count: the data section begins behind the last entry.
struct Entry {
  GgufTensor tensor;
  std::uint64_t at;        // of the entry, for messages
  std::uint64_t relative;  // offset in the data section
  std::uint64_t size;
};

Entry read_entry(Cursor& cursor, const GgufOptions& options) {
  Entry entry{};
  GgufTensor& tensor = entry.tensor;
  entry.at = cursor.position();
  tensor.name = cursor.label("a tensor name");
  const std::string who = "tensor " + quoted(tensor.name);
  std::uint64_t at = cursor.position();
  const auto dims = cursor.read<std::uint32_t>("a number of dimensions");
  if (dims < 1 || dims > 4) cursor.fail(at, who + " has " + std::to_string(dims) + " dimensions, expected 1 to 4");
  tensor.dims = static_cast<int>(dims);
  tensor.ne = {1, 1, 1, 1};
  std::int64_t values = 1;
  for (std::uint32_t i = 0; i < dims; ++i) {
    at = cursor.position();
    const auto extent = cursor.read<std::uint64_t>("a dimension");
    if (extent < 1 || extent > INT64_MAX || __builtin_mul_overflow(values, static_cast<std::int64_t>(extent), &values))
      cursor.fail(at, who + " has ne[" + std::to_string(i) + "] = " + std::to_string(extent) +
                          ", expected at least 1 and fewer than 2^63 values in all");
    tensor.ne[i] = static_cast<std::int64_t>(extent);
  }
  at = cursor.position();
  tensor.file_id = cursor.read<std::uint32_t>("a tensor type");
  tensor.dtype = dtype_of(cursor, at, tensor.name, tensor.file_id, options);
  const DTypeInfo& info = info_of(tensor.dtype);
  if (tensor.ne[0] % info.block_values != 0)
    cursor.fail(at, who + " has rows of " + std::to_string(tensor.ne[0]) + " values, expected a multiple of " +
                        std::to_string(info.block_values) + " for " + std::string(info.name));
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(values / info.block_values),
                             static_cast<std::uint64_t>(info.block_bytes), &entry.size))
    cursor.fail(at, who + " would take more than 2^64 bytes");
  entry.relative = cursor.read<std::uint64_t>("a tensor offset");
  return entry;
}

/// Places the tensors in the file and checks that each lies inside it, aligned, and over no other.
void place_tensors(const Cursor& cursor, std::span<const std::byte> bytes, GgufPart& part,
                   std::vector<Entry>& entries) {
  const std::uint64_t data_bytes = bytes.size() - std::min<std::uint64_t>(part.data_start, bytes.size());
  for (Entry& entry : entries) {
    const std::string who = "tensor " + quoted(entry.tensor.name);
    if (entry.relative % part.alignment != 0)
      cursor.fail(entry.at, who + " has offset " + std::to_string(entry.relative) + ", expected a multiple of " +
                                std::to_string(part.alignment));
    if (entry.relative > data_bytes || entry.size > data_bytes - entry.relative)
      cursor.fail(entry.at, who + " has " + std::to_string(entry.size) + " bytes at offset " +
                                std::to_string(entry.relative) + ", the data section has " +
                                std::to_string(data_bytes) + " (cut short or damaged)");
    entry.tensor.offset = part.data_start + entry.relative;
    entry.tensor.bytes = bytes.subspan(entry.tensor.offset, entry.size);
  }

  std::vector<const Entry*> by_offset;
  by_offset.reserve(entries.size());
  for (const Entry& entry : entries) by_offset.push_back(&entry);
  std::sort(by_offset.begin(), by_offset.end(),
            [](const Entry* a, const Entry* b) { return a->tensor.offset < b->tensor.offset; });
  for (std::size_t i = 0; i < by_offset.size(); ++i) {
    const Entry& entry = *by_offset[i];
    const std::string who = "tensor " + quoted(entry.tensor.name);
    const bool is_last = i + 1 == by_offset.size();
    const std::uint64_t room = (is_last ? bytes.size() : by_offset[i + 1]->tensor.offset) - entry.tensor.offset;
    if (entry.size > room)
      cursor.fail(entry.at, who + " has " + std::to_string(entry.size) + " bytes and " +
                                quoted(by_offset[i + 1]->tensor.name) + " begins " + std::to_string(room) +
                                " bytes behind it: they overlap");
    // Types that mean several things are told apart by the room that the writer left for them.
    const auto fits = [&](std::uint64_t size) { return size <= room && room <= align_up(size, part.alignment); };
    if (entry.tensor.file_id == 42 && !fits(entry.size))
      cursor.fail(entry.at,
                  who + " has type 42 and room for " + std::to_string(room) + " bytes; f8_e4m3_b128 would have " +
                      std::to_string(entry.size) + ", and the other meanings of 42 (Q2_0) are not supported",
                  Error::Kind::unsupported);
    if (entry.tensor.file_id == 107 && !fits(entry.size) && fits(entry.size * 3))
      cursor.fail(entry.at,
                  who + " has type 107 and room for " + std::to_string(room) +
                      " bytes: Q7_0_ROCMFPX (240 bytes per 256 values), which is not supported; expected a " +
                      "two-bit format of " + std::to_string(entry.size) + " bytes",
                  Error::Kind::unsupported);
  }
}

std::uint64_t alignment_of(const Cursor& cursor, const GgufPart& part, std::span<const std::byte> bytes) {
  for (const GgufKey& key : part.keys) {
    if (key.name != "general.alignment") continue;
    const auto value = key.value.is_array() ? std::nullopt : key.value.to_int();
    if (!value || *value < 8 || static_cast<std::uint64_t>(*value) > kGgufMaxAlignment ||
        !std::has_single_bit(static_cast<std::uint64_t>(*value)))
      cursor.fail(static_cast<std::uint64_t>(key.value.bytes().data() - bytes.data()),
                  "general.alignment is " + (value ? std::to_string(*value) : "of type " + key.value.describe()) +
                      ", expected a power of two from 8 to 2^30");
    return static_cast<std::uint64_t>(*value);
  }
  return kGgufAlignment;
}

std::uint64_t read_count(Cursor& cursor, const char* what, std::uint64_t most, std::uint64_t least_bytes) {
  const std::uint64_t at = cursor.position();
  const auto count = cursor.read<std::uint64_t>(what);
  if (count > most || count > cursor.left() / least_bytes)
    cursor.fail(at, std::string(what) + " is " + std::to_string(count) + ", expected at most " +
                        std::to_string(std::min(most, cursor.left() / least_bytes)) + " in a file of this size");
  return count;
}

}  // namespace

GgufPart parse_gguf(std::span<const std::byte> bytes, const std::string& name, const GgufOptions& options) {
  if (const auto meaning = options.meaning_of_108)
    if (*meaning != DType::rocmi4 && *meaning != DType::rocmfp2_s40 && *meaning != DType::rocmfp2_affine)
      throw Error(Error::Kind::bad_argument, "the meaning of tensor type 108 is " + name_in_messages(*meaning) +
                                                 ", expected " + name_in_messages(DType::rocmi4) + ", " +
                                                 name_in_messages(DType::rocmfp2_s40) + " or " +
                                                 name_in_messages(DType::rocmfp2_affine));
  Cursor cursor(bytes, name);
  GgufPart part{};
  if (const auto magic = cursor.read<std::uint32_t>("the magic"); magic != kGgufMagic)
    cursor.fail(0, "not a GGUF file, begins with " + quoted({reinterpret_cast<const char*>(bytes.data()), 4}) +
                       ", expected 'GGUF'");
  part.version = cursor.read<std::uint32_t>("the version");
  if ((part.version & 0xffff) == 0 && part.version != 0)
    cursor.fail(4, "a big-endian file, expected a little-endian one", Error::Kind::unsupported);
  if (part.version != 2 && part.version != kGgufVersion)
    cursor.fail(4, "GGUF version " + std::to_string(part.version) + ", expected 3 (or 2)", Error::Kind::unsupported);
  const std::uint64_t tensor_count = read_count(cursor, "the number of tensors", kGgufMaxTensors, kLeastTensorBytes);
  const std::uint64_t key_count = read_count(cursor, "the number of keys", kGgufMaxKeys, kLeastKeyBytes);

  // Neither table is reserved: the counts are bounded, but a damaged one may still be far above what the file holds.
  for (std::uint64_t i = 0; i < key_count; ++i) {
    const std::string_view key = cursor.label("a key");
    part.keys.push_back({key, read_value(cursor, key, bytes)});
  }
  std::vector<Entry> entries;
  for (std::uint64_t i = 0; i < tensor_count; ++i) entries.push_back(read_entry(cursor, options));

  part.alignment = alignment_of(cursor, part, bytes);
  part.data_start = align_up(cursor.position(), part.alignment);
  place_tensors(cursor, bytes, part, entries);
  part.tensors.reserve(entries.size());
  for (const Entry& entry : entries) part.tensors.push_back(entry.tensor);
  return part;
}

}  // namespace lockstep
