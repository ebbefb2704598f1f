#include "tensor/safetensors.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "base/bytes.h"
#include "base/error.h"
#include "base/output_file.h"
#include "tensor/gguf_value.h"

namespace lockstep {
namespace {

// The format's own limit on a header. The index of a large model has seven megabytes.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::uint64_t kMaxIndexBytes = 256'000'000;
constexpr std::size_t kMaxAxes = 8;

struct TypeInfo {
  StoredType type;
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<TypeInfo, 9> kTypes = {{{StoredType::f32, "F32", 4},
                                             {StoredType::f16, "F16", 2},
                                             {StoredType::bf16, "BF16", 2},
                                             {StoredType::f8_e4m3, "F8_E4M3", 1},
                                             {StoredType::f8_e8m0, "F8_E8M0", 1},
                                             {StoredType::i8, "I8", 1},
                                             {StoredType::u8, "U8", 1},
                                             {StoredType::i32, "I32", 4},
                                             {StoredType::i64, "I64", 8}}};

const TypeInfo& info_of(StoredType type) { return kTypes[static_cast<std::size_t>(type)]; }

Error bad_file(const std::string& name, const std::string& what) {
  return Error(Error::Kind::bad_file, name + ": " + what);
}

/// One entry of a header, before its offsets are looked at.
struct Entry {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;
  std::array<std::uint64_t, 2> offsets{};
};

/// Follows the header's JSON, event by event. An event that does not belong ends the parse with `problem` set.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<Entry> entries;
  std::string problem;
  bool is_unsupported = false;

  bool null() override { return refuse("a null"); }
  bool boolean(bool) override { return refuse("a truth value"); }
  bool number_integer(number_integer_t) override { return refuse("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return refuse("a fraction"); }
  bool binary(binary_t&) override { return refuse("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ == State::shape) {
      if (entry_.shape.size() == kMaxAxes) return fail(fmt::format("more than {} axes", kMaxAxes));
      if (value > static_cast<std::uint64_t>(INT64_MAX)) return fail("an extent past 2^63");
      entry_.shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (state_ == State::offsets) {
      if (offsets_ == 2) return fail("more than two data_offsets");
      entry_.offsets[offsets_++] = value;
      return true;
    }
    return refuse("a number");
  }

  bool string(string_t& value) override {
    if (state_ == State::metadata) return true;
    if (state_ != State::tensor || member_ != "dtype") return refuse("a string");
    const auto type = stored_type_named(value);
    if (!type) {
      is_unsupported = true;
      return fail(fmt::format("dtype {}, which this program does not read", lockstep::quoted(value)));
    }
    entry_.type = *type;
    return true;
  }

  bool start_object(std::size_t) override {
    if (state_ == State::begin) {
      state_ = State::header;
    } else if (state_ == State::header && entry_.name == "__metadata__") {
      state_ = State::metadata;
    } else if (state_ == State::header) {
      state_ = State::tensor;
    } else {
      return refuse("an object");
    }
    return true;
  }

  bool key(string_t& name) override {
    if (state_ == State::header) {
      entry_ = Entry{name, {}, {}, {}};
      members_.clear();
      offsets_ = 0;
      if (!names_.insert(name).second) return fail("occurs twice");
      return true;
    }
    if (state_ == State::metadata) return true;
    member_ = name;
    if (name != "dtype" && name != "shape" && name != "data_offsets")
      return fail(fmt::format("a member {}, expected dtype, shape and data_offsets", lockstep::quoted(name)));
    if (!members_.insert(name).second) return fail(fmt::format("{} twice", name));
    return true;
  }

  bool end_object() override {
    if (state_ == State::header) {
      state_ = State::end;
      return true;
    }
    if (state_ == State::tensor) {
      if (members_.size() != 3 || offsets_ != 2) return fail("without one of dtype, shape and two data_offsets");
      entries.push_back(std::move(entry_));
    }
    state_ = State::header;
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ != State::tensor || (member_ != "shape" && member_ != "data_offsets")) return refuse("an array");
    state_ = member_ == "shape" ? State::shape : State::offsets;
    return true;
  }
  bool end_array() override {
    state_ = State::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    problem = fmt::format("its header is not JSON at byte {}", position);
    return false;
  }

 private:
  enum class State { begin, header, metadata, tensor, shape, offsets, end };

  bool fail(const std::string& what) {
    problem = fmt::format("header entry {}: {}", lockstep::quoted(entry_.name), what);
    return false;
  }
  bool refuse(const char* what) {
    problem = entry_.name.empty()
                  ? fmt::format("its header holds {}, expected an object of tensors", what)
                  : fmt::format("header entry {}: {} where none belongs", lockstep::quoted(entry_.name), what);
    return false;
  }

  State state_ = State::begin;
  Entry entry_;
  std::string member_;
  std::set<std::string> members_;
  std::size_t offsets_ = 0;
  std::set<std::string> names_;
};

/// Bytes of a tensor; nothing if they are more than 2^63.
std::optional<std::uint64_t> bytes_of(StoredType type, std::span<const std::int64_t> shape) {
  std::int64_t bytes = static_cast<std::int64_t>(size_of(type));
  for (const std::int64_t extent : shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

/// The index's map from tensors to files, checked for form: plain file names in the same folder.
std::vector<std::pair<std::string, std::string>> read_index(const std::filesystem::path& path) {
  const MappedFile file(path);
  const std::string name = path.string();
  if (file.bytes().size() > kMaxIndexBytes) throw bad_file(name, "more than 256 MB, expected an index");
  const char* text = reinterpret_cast<const char*>(file.bytes().data());
  const nlohmann::json index = nlohmann::json::parse(text, text + file.bytes().size(), nullptr, false);
  if (index.is_discarded()) throw bad_file(name, "not JSON, expected an object with \"weight_map\"");
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object())
    throw bad_file(name, "no \"weight_map\" object, expected one from tensors to files");
  std::vector<std::pair<std::string, std::string>> entries;
  for (const auto& [tensor, where] : map->items()) {
    if (!where.is_string())
      throw bad_file(name, "tensor " + lockstep::quoted(tensor) + ": its file is not a string, expected a name");
    const auto& in = where.get_ref<const std::string&>();
    if (in.empty() || in.find('/') != std::string::npos || in.find('\0') != std::string::npos || in == "." ||
        in == ".." || !in.ends_with(".safetensors"))
      throw bad_file(name, "tensor " + lockstep::quoted(tensor) + ": file " + lockstep::quoted(in) +
                               ", expected the name of a .safetensors file beside the index");
    entries.emplace_back(tensor, in);
  }
  return entries;
}

}  // namespace

std::string_view name_of(StoredType type) { return info_of(type).name; }

std::size_t size_of(StoredType type) { return info_of(type).bytes; }

std::optional<StoredType> stored_type_named(std::string_view name) {
  for (const TypeInfo& info : kTypes)
    if (info.name == name) return info.type;
  return std::nullopt;
}

std::string shape_text(std::span<const std::int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> bytes, const std::string& name) {
  if (bytes.size() < 8)
    throw bad_file(name, fmt::format("{} bytes, too short for a safetensors file, expected at least 8", bytes.size()));
  const auto header_bytes = load_as<std::uint64_t>(bytes.data());
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - 8)
    throw bad_file(name,
                   fmt::format("a header of {} bytes in a file of {}, expected one that lies in it and has at most {}",
                               header_bytes, bytes.size(), kMaxHeaderBytes));
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + 8,
                                static_cast<std::size_t>(header_bytes));
  if (!header.starts_with('{')) throw bad_file(name, "its header does not start with {, expected a JSON object");
  HeaderReader reader;
  if (!nlohmann::json::sax_parse(header.begin(), header.end(), &reader))
    throw Error(reader.is_unsupported ? Error::Kind::unsupported : Error::Kind::bad_file, name + ": " + reader.problem);

  const std::span<const std::byte> data = bytes.subspan(8 + static_cast<std::size_t>(header_bytes));
  std::sort(reader.entries.begin(), reader.entries.end(),
            [](const Entry& a, const Entry& b) { return a.offsets < b.offsets; });
  std::vector<StoredTensor> tensors;
  tensors.reserve(reader.entries.size());
  std::uint64_t end = 0;
  for (Entry& entry : reader.entries) {
    const auto [first, last] = entry.offsets;
    if (first != end || last < first || last > data.size())
      throw bad_file(name, fmt::format("tensor {}: bytes {} to {} of {}, expected to begin at {}",
                                       lockstep::quoted(entry.name), first, last, data.size(), end));
    if (bytes_of(entry.type, entry.shape) != last - first)
      throw bad_file(name, fmt::format("tensor {}: {} bytes for {} {}, expected {}", lockstep::quoted(entry.name),
                                       last - first, name_of(entry.type), shape_text(entry.shape),
                                       bytes_of(entry.type, entry.shape).value_or(0)));
    end = last;
    tensors.push_back({std::move(entry.name), entry.type, std::move(entry.shape),
                       data.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first))});
  }
  if (end != data.size())
    throw bad_file(name,
                   fmt::format("{} bytes after the last tensor, expected none: cut or damaged", data.size() - end));
  return tensors;
}

Checkpoint::Checkpoint(const std::filesystem::path& folder, const std::function<bool(std::string_view)>& wanted)
    : folder_(folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error))
    throw Error(Error::Kind::io, folder.string() + ": not a folder, expected one with a checkpoint");
  const std::filesystem::path index_path = folder / "model.safetensors.index.json";
  std::set<std::string> names;
  std::vector<std::pair<std::string, std::string>> index;
  const bool has_index = std::filesystem::exists(index_path, error);
  if (has_index) {
    index = read_index(index_path);
    for (const auto& [tensor, file] : index)
      if (!wanted || wanted(tensor)) names.insert(file);
  } else {
    for (const auto& entry : std::filesystem::directory_iterator(folder, error))
      if (entry.path().extension() == ".safetensors") names.insert(entry.path().filename().string());
    if (names.empty())
      throw Error(Error::Kind::io, folder.string() + ": no *.safetensors files, expected a checkpoint");
  }
  for (const std::string& name : names) open(folder / name);

  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (!by_name_.emplace(tensors_[i].name, i).second)
      throw bad_file(folder.string(),
                     "tensor " + lockstep::quoted(tensors_[i].name) + " lies in two files, expected one");
  if (!has_index) return;
  std::size_t listed = 0;
  for (const auto& [tensor, file] : index) {
    if (!names.contains(file)) continue;
    ++listed;
    const StoredTensor* found = find(tensor);
    const auto in = [&](const MappedFile& mapped) {
      return mapped.path().filename() == file && found->bytes.data() >= mapped.bytes().data() &&
             found->bytes.data() <= mapped.bytes().data() + mapped.bytes().size();
    };
    if (found == nullptr || std::none_of(files_.begin(), files_.end(), in))
      throw bad_file(index_path.string(), "tensor " + lockstep::quoted(tensor) + " is not in " +
                                              lockstep::quoted(file) + ", expected it there");
  }
  if (listed == tensors_.size()) return;
  const std::set<std::string_view> known = [&] {
    std::set<std::string_view> all;
    for (const auto& [tensor, file] : index) all.insert(tensor);
    return all;
  }();
  for (const StoredTensor& tensor : tensors_)
    if (!known.contains(tensor.name))
      throw bad_file(index_path.string(), "tensor " + lockstep::quoted(tensor.name) +
                                              " is in a file and not in the index, expected it in both");
}

void Checkpoint::open(const std::filesystem::path& path) {
  files_.emplace_back(path);
  std::vector<StoredTensor> tensors = parse_safetensors(files_.back().bytes(), path.string());
  tensors_.insert(tensors_.end(), std::make_move_iterator(tensors.begin()), std::make_move_iterator(tensors.end()));
}

std::uint64_t Checkpoint::file_bytes() const {
  std::uint64_t sum = 0;
  for (const MappedFile& file : files_) sum += file.bytes().size();
  return sum;
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

void Checkpoint::release(const StoredTensor& tensor) const {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(tensor.bytes.data());
  const std::uintptr_t begin = (first + page - 1) / page * page;
  const std::uintptr_t end = (first + tensor.bytes.size()) / page * page;
  // Advice: if the kernel does not take it, memory is given back later.
  if (end > begin) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

void write_safetensors(const std::filesystem::path& path, std::span<const StoredTensor> tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::uint64_t at = 0;
  for (const StoredTensor& tensor : tensors) {
    if (bytes_of(tensor.type, tensor.shape) != tensor.bytes.size() || header.contains(tensor.name))
      throw Error(Error::Kind::bad_argument,
                  fmt::format("tensor {}: {} bytes for {} {}, or given twice", lockstep::quoted(tensor.name),
                              tensor.bytes.size(), name_of(tensor.type), shape_text(tensor.shape)));
    header[tensor.name] = {
        {"dtype", name_of(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {at, at + tensor.bytes.size()}}};
    at += tensor.bytes.size();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');

  OutputFile file(path);
  const std::uint64_t length = text.size();
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(std::as_bytes(std::span(text)));
  for (const StoredTensor& tensor : tensors) file.write(tensor.bytes);
  file.commit();
}

}  // namespace lockstep
