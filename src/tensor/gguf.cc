#include "tensor/gguf.h"

#include <cstdio>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr int kDigits = 5;  // of a number in a split file's name

const GgufValue* find_key(const GgufPart& part, std::string_view key) {
  for (const GgufKey& candidate : part.keys)
    if (candidate.name == key) return &candidate.value;
  return nullptr;
}

/// A whole number of the split keys, which writers give any integer type; nothing when absent.
std::optional<std::int64_t> split_number(const GgufPart& part, std::string_view key, const std::string& file) {
  const GgufValue* value = find_key(part, key);
  if (value == nullptr) return std::nullopt;
  const auto number = value->is_array() ? std::nullopt : value->to_int();
  if (!number)
    throw Error(Error::Kind::bad_file,
                file + ": " + std::string(key) + " is of type " + value->describe() + ", expected an integer");
  return number;
}

/// How many files the model is split into, as this part says; 1 for a whole file.
std::int64_t split_count(const GgufPart& part, const std::string& file) {
  const std::int64_t count = split_number(part, "split.count", file).value_or(0);
  return count == 0 ? 1 : count;
}

std::optional<int> digits(std::string_view text) {
  int number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + (c - '0');
  }
  return number;
}

}  // namespace

std::optional<SplitName> parse_split_name(const std::filesystem::path& path) {
  constexpr std::string_view kOf = "-of-";
  constexpr std::string_view kEnd = ".gguf";
  constexpr std::size_t kTail = 1 + kDigits + kOf.size() + kDigits + kEnd.size();
  const std::string file = path.filename().string();
  if (file.size() < kTail || !file.ends_with(kEnd)) return std::nullopt;
  const std::string_view tail = std::string_view(file).substr(file.size() - kTail);
  const auto number = digits(tail.substr(1, kDigits));
  const auto count = digits(tail.substr(1 + kDigits + kOf.size(), kDigits));
  if (tail[0] != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf || !number || !count) return std::nullopt;
  if (*number < 1 || *number > *count) return std::nullopt;
  return SplitName{path.parent_path() / file.substr(0, file.size() - kTail), *number, *count};
}

std::filesystem::path split_path(const std::filesystem::path& prefix, int number, int count) {
  char tail[48];
  std::snprintf(tail, sizeof tail, "-%05d-of-%05d.gguf", number, count);
  std::filesystem::path path = prefix;
  path += tail;
  return path;
}

Gguf::Gguf(const std::filesystem::path& path, const GgufOptions& options) : name_(path.string()) {
  std::vector<GgufPart> parts;
  open_parts(path, options, parts);
  merge(parts);
}

Gguf::Gguf(std::span<const std::byte> bytes, std::string name, const GgufOptions& options) : name_(std::move(name)) {
  std::vector<GgufPart> parts;
  parts.push_back(parse_gguf(bytes, name_, options));
  if (split_count(parts.front(), name_) != 1)
    throw Error(Error::Kind::unsupported, name_ + ": is one part of a split file, expected a whole one: give its path");
  part_names_.push_back(name_);
  file_bytes_ = bytes.size();
  merge(parts);
}

void Gguf::open_parts(const std::filesystem::path& path, const GgufOptions& options, std::vector<GgufPart>& parts) {
  const auto open = [&](const std::filesystem::path& file) {
    files_.emplace_back(file);
    part_names_.push_back(file.string());
    file_bytes_ += files_.back().bytes().size();
    parts.push_back(parse_gguf(files_.back().bytes(), part_names_.back(), options));
  };
  open(path);
  const std::int64_t count = split_count(parts.front(), name_);
  if (count == 1) return;

  const auto split = parse_split_name(path);
  if (!split || split->count != count) {
    const std::string expected =
        count > 0 && count < 100000 ? split_path("NAME", 1, static_cast<int>(count)).string() : "a count of 1 to 99999";
    throw Error(Error::Kind::bad_file, name_ + ": split.count is " + std::to_string(count) +
                                           ", which does not fit the file's name, expected " + expected);
  }
  // Start again from part 1, so that the parts are in order whichever was given. Reading one header twice is cheaper
  // than a second path through this function.
  files_.clear();
  part_names_.clear();
  parts.clear();
  file_bytes_ = 0;
  for (int number = 1; number <= split->count; ++number) {
    const std::filesystem::path file = split_path(split->prefix, number, split->count);
    if (std::error_code ignored; !std::filesystem::exists(file, ignored))
      throw Error(Error::Kind::bad_file, name_ + ": part " + std::to_string(number) + " of " +
                                             std::to_string(split->count) + " is missing, expected " + file.string());
    open(file);
  }
  std::size_t tensors = 0;
  for (const GgufPart& part : parts) tensors += part.tensors.size();
  for (std::size_t i = 0; i < parts.size(); ++i) check_split(parts[i], i, parts.size(), tensors);
}

void Gguf::check_split(const GgufPart& part, std::size_t index, std::size_t count, std::size_t tensors) const {
  const std::string& file = part_names_[index];
  const auto expect = [&](std::string_view key, std::size_t expected, bool required) {
    const auto number = split_number(part, key, file);
    if (!number && !required) return;
    if (!number)
      throw Error(Error::Kind::bad_file,
                  file + ": has no key " + std::string(key) + ", expected it to be " + std::to_string(expected));
    if (*number < 0 || static_cast<std::uint64_t>(*number) != expected)
      throw Error(Error::Kind::bad_file, file + ": " + std::string(key) + " is " + std::to_string(*number) +
                                             ", expected " + std::to_string(expected));
  };
  expect("split.count", count, true);
  expect("split.no", index, true);
  expect("split.tensors.count", tensors, false);
}

void Gguf::merge(std::vector<GgufPart>& parts) {
  version_ = parts.front().version;
  for (const GgufKey& key : parts.front().keys)
    if (key_index_.emplace(key.name, keys_.size()).second) keys_.push_back(key);
  std::size_t count = 0;
  for (const GgufPart& part : parts) count += part.tensors.size();
  tensors_.reserve(count);
  tensor_index_.reserve(count);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (GgufTensor& tensor : parts[i].tensors) {
      tensor.part = static_cast<int>(i);
      const auto [at, is_new] = tensor_index_.emplace(tensor.name, tensors_.size());
      if (!is_new) {
        const int first = tensors_[at->second].part;
        throw Error(Error::Kind::bad_file, part_names_[i] + ": tensor " + quoted(tensor.name) + " is there twice" +
                                               (first == tensor.part ? "" : ", also in " + part_names_[first]) +
                                               ", expected every name once");
      }
      tensors_.push_back(tensor);
    }
  }
}

std::vector<std::filesystem::path> Gguf::inputs(std::initializer_list<std::filesystem::path> more) const {
  std::vector<std::filesystem::path> paths(part_names_.begin(), part_names_.end());
  paths.insert(paths.end(), more);
  return paths;
}

const GgufValue* Gguf::find(std::string_view key) const {
  const auto at = key_index_.find(key);
  return at == key_index_.end() ? nullptr : &keys_[at->second].value;
}

const GgufValue& Gguf::require(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) throw Error(Error::Kind::bad_file, name_ + ": has no key " + std::string(key));
  return *value;
}

void Gguf::refuse(std::string_view key, const GgufValue& value, const char* expected) const {
  throw Error(Error::Kind::bad_file,
              name_ + ": key " + std::string(key) + " is of type " + value.describe() + ", expected " + expected);
}

std::int64_t Gguf::int_of(std::string_view key) const {
  const GgufValue& value = require(key);
  const auto number = value.is_array() ? std::nullopt : value.to_int();
  if (!number) refuse(key, value, "an integer below 2^63");
  return *number;
}

std::int64_t Gguf::int_or(std::string_view key, std::int64_t fallback) const {
  return find(key) == nullptr ? fallback : int_of(key);
}

float Gguf::float_of(std::string_view key) const {
  const GgufValue& value = require(key);
  const auto number = value.is_array() ? std::nullopt : value.to_number();
  if (!number) refuse(key, value, "a number");
  return static_cast<float>(*number);
}

float Gguf::float_or(std::string_view key, float fallback) const {
  return find(key) == nullptr ? fallback : float_of(key);
}

bool Gguf::bool_of(std::string_view key) const {
  const GgufValue& value = require(key);
  const auto truth = value.is_array() ? std::nullopt : value.to_bool();
  if (!truth) refuse(key, value, "a bool, or 0 or 1");
  return *truth;
}

bool Gguf::bool_or(std::string_view key, bool fallback) const { return find(key) == nullptr ? fallback : bool_of(key); }

std::string_view Gguf::string_of(std::string_view key) const {
  const GgufValue& value = require(key);
  const auto text = value.to_string();
  if (!text) refuse(key, value, "a string");
  return *text;
}

std::string_view Gguf::string_or(std::string_view key, std::string_view fallback) const {
  return find(key) == nullptr ? fallback : string_of(key);
}

std::vector<std::int64_t> Gguf::ints_of(std::string_view key) const {
  const GgufValue& value = require(key);
  if (!is_integer(value.element_type())) refuse(key, value, "integers");
  std::vector<std::int64_t> numbers;
  numbers.reserve(value.count());
  for (std::uint64_t i = 0; i < value.count(); ++i) {
    const auto number = value.to_int(i);
    if (!number) refuse(key, value, "integers below 2^63");
    numbers.push_back(*number);
  }
  return numbers;
}

std::vector<float> Gguf::floats_of(std::string_view key) const {
  const GgufValue& value = require(key);
  std::vector<float> numbers;
  numbers.reserve(value.count());
  for (std::uint64_t i = 0; i < value.count(); ++i) {
    const auto number = value.to_number(i);
    if (!number) refuse(key, value, "numbers");
    numbers.push_back(static_cast<float>(*number));
  }
  return numbers;
}

std::vector<std::string_view> Gguf::strings_of(std::string_view key) const {
  const GgufValue& value = require(key);
  if (value.element_type() != GgufType::string) refuse(key, value, "strings");
  return value.to_strings();
}

std::span<const std::byte> Gguf::bytes_of(std::string_view key) const {
  const GgufValue& value = require(key);
  if (value.element_type() != GgufType::u8 && value.element_type() != GgufType::i8)
    refuse(key, value, "an array of u8");
  return value.bytes();
}

const GgufTensor* Gguf::find_tensor(std::string_view name) const {
  const auto at = tensor_index_.find(name);
  return at == tensor_index_.end() ? nullptr : &tensors_[at->second];
}

const GgufTensor& Gguf::tensor(std::string_view name) const {
  const GgufTensor* tensor = find_tensor(name);
  if (tensor == nullptr) throw Error(Error::Kind::bad_file, name_ + ": has no tensor " + std::string(name));
  return *tensor;
}

}  // namespace lockstep
