#include "cli/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "cli/memory_plan.h"
#include "tensor/gguf.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kTextBytes = 100;  // shown of a string; a chat template has tens of thousands

struct Total {
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;
};

/// Bytes by type, in the order of DType.
std::map<DType, Total> totals_of(const Gguf& file) {
  std::map<DType, Total> totals;
  for (const GgufTensor& tensor : file.tensors()) {
    Total& total = totals[tensor.dtype];
    ++total.tensors;
    total.bytes += tensor.bytes.size();
  }
  return totals;
}

/// The shortest text that reads back as the same number, f32 as f32.
template <class T>
std::string shortest(T value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

/// A u64 may be beyond what to_int gives.
std::uint64_t u64_of(const GgufValue& value, std::uint64_t index) {
  return load_as<std::uint64_t>(value.bytes().data() + index * sizeof(std::uint64_t));
}

std::string scalar_text(const GgufValue& value, std::uint64_t index) {
  switch (value.element_type()) {
    case GgufType::boolean:
      return value.to_bool(index).value_or(false) ? "true" : "false";
    case GgufType::f32:
      return shortest(static_cast<float>(value.to_number(index).value_or(0)));
    case GgufType::f64:
      return shortest(value.to_number(index).value_or(0));
    case GgufType::u64:
      return std::to_string(u64_of(value, index));
    default:
      return std::to_string(value.to_int(index).value_or(0));
  }
}

std::string value_text(const GgufValue& value, std::uint64_t most) {
  if (const auto text = value.to_string()) return quoted(*text, kTextBytes);
  if (!value.is_array()) return scalar_text(value, 0);
  if (value.element_type() == GgufType::array) return "(arrays of arrays are not shown)";
  std::vector<std::string> items;
  const std::uint64_t shown = std::min(most, value.count());
  if (value.element_type() == GgufType::string) {
    for (const std::string_view text : value.to_strings(shown)) items.push_back(quoted(text, kTextBytes));
  } else {
    for (std::uint64_t i = 0; i < shown; ++i) items.push_back(scalar_text(value, i));
  }
  return fmt::format("[{}{}]", fmt::join(items, ", "), value.count() > shown ? ", ..." : "");
}

Json number_json(const GgufValue& value, std::uint64_t index) {
  if (value.element_type() == GgufType::boolean) return value.to_bool(index).value_or(false);
  if (value.element_type() == GgufType::u64) return u64_of(value, index);
  if (const auto number = value.to_int(index)) return *number;
  const double number = value.to_number(index).value_or(0);
  return std::isfinite(number) ? Json(number) : Json(nullptr);
}

Json value_json(const GgufValue& value, std::uint64_t most) {
  if (const auto text = value.to_string()) return std::string(*text);
  if (!value.is_array()) return number_json(value, 0);
  Json items = Json::array();
  const std::uint64_t shown = std::min(most, value.count());
  if (value.element_type() == GgufType::string) {
    for (const std::string_view text : value.to_strings(shown)) items.push_back(std::string(text));
  } else if (value.element_type() != GgufType::array) {
    for (std::uint64_t i = 0; i < shown; ++i) items.push_back(number_json(value, i));
  }
  return items;
}

std::string shape_text(const GgufTensor& tensor) {
  return fmt::format("{{{}}}", fmt::join(tensor.ne.begin(), tensor.ne.begin() + tensor.dims, ", "));
}

/// A plan, or why there is none.
struct PlanOrReason {
  std::optional<InspectPlan> plan;
  std::string reason;
};

PlanOrReason plan_of(const Gguf& file, const InspectOptions& options) {
  try {
    return {options.plan(file), {}};
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::bad_file && error.kind() != Error::Kind::unsupported) throw;
    return {std::nullopt, error.what()};
  }
}

void write_plan_text(const Gguf& file, const InspectOptions& options, std::ostream& out) {
  const PlanOrReason result = plan_of(file, options);
  if (!result.plan) {
    out << fmt::format("\nno memory plan: {}\n", result.reason);
    return;
  }
  const InspectPlan& plan = *result.plan;
  out << fmt::format("\nmemory for one sequence of {} tokens\n", plan.context);
  const auto line = [&](const char* what, std::uint64_t bytes) {
    out << fmt::format("  {:20}  {:>16}  {:>10}\n", what, bytes, human_bytes(bytes));
  };
  line("weights", plan.weights);
  line("sequence", plan.sequence);
  line("workspace", plan.workspace);
  line("all", plan.weights + plan.sequence + plan.workspace);
}

void write_text(const Gguf& file, const InspectOptions& options, std::ostream& out) {
  std::uint64_t tensor_bytes = 0;
  for (const GgufTensor& tensor : file.tensors()) tensor_bytes += tensor.bytes.size();
  out << fmt::format("file      {}\n", file.name());
  out << fmt::format("size      {} bytes ({}) in {} {}, GGUF version {}\n", file.file_bytes(),
                     human_bytes(file.file_bytes()), file.part_count(), file.part_count() == 1 ? "file" : "files",
                     file.version());
  out << fmt::format("producer  {}\n", file.producer());
  out << fmt::format("layers    {} in the trunk\n", file.trunk_layers());

  std::size_t width = 0;
  for (const GgufKey& key : file.keys()) width = std::max(width, std::min<std::size_t>(key.name.size() + 2, 60));
  out << fmt::format("\nmetadata, {} keys\n", file.keys().size());
  for (const GgufKey& key : file.keys()) {
    const std::string name = quoted(key.name);
    out << fmt::format("  {:{}}  {:18}  {}\n", name.substr(1, name.size() - 2), width, key.value.describe(),
                       value_text(key.value, options.array_items));
  }

  width = 0;
  for (const GgufTensor& tensor : file.tensors())
    width = std::max(width, std::min<std::size_t>(tensor.name.size(), 60));
  out << fmt::format("\ntensors, {}\n", file.tensors().size());
  for (const GgufTensor& tensor : file.tensors()) {
    const std::string name = quoted(tensor.name);
    out << fmt::format("  {:{}}  {:14}  {:24}  {:>14}\n", name.substr(1, name.size() - 2), width,
                       info_of(tensor.dtype).name, shape_text(tensor), tensor.bytes.size());
  }

  out << "\nbytes by type\n";
  for (const auto& [dtype, total] : totals_of(file))
    out << fmt::format("  {:20}  {:>5} {:7}  {:>16}  {:>10}  {:5.1f} %\n", info_of(dtype).name, total.tensors,
                       total.tensors == 1 ? "tensor" : "tensors", total.bytes, human_bytes(total.bytes),
                       100.0 * static_cast<double>(total.bytes) / static_cast<double>(tensor_bytes));
  out << fmt::format("  {:20}  {:>5} {:7}  {:>16}  {:>10}\n", "all", file.tensors().size(),
                     file.tensors().size() == 1 ? "tensor" : "tensors", tensor_bytes, human_bytes(tensor_bytes));
  if (options.plan) write_plan_text(file, options, out);
}

void write_json(const Gguf& file, const InspectOptions& options, std::ostream& out) {
  Json root;
  root["file"] = file.name();
  root["parts"] = Json::array();
  for (std::size_t i = 0; i < file.part_count(); ++i) root["parts"].push_back(file.part_name(i));
  root["bytes"] = file.file_bytes();
  root["version"] = file.version();
  root["producer"] = std::string(file.producer());
  root["trunk_layers"] = file.trunk_layers();
  root["metadata"] = Json::array();
  for (const GgufKey& key : file.keys()) {
    Json entry;
    entry["key"] = std::string(key.name);
    entry["type"] = std::string(name_of(key.value.type()));
    if (key.value.is_array()) {
      entry["element_type"] = std::string(name_of(key.value.element_type()));
      entry["count"] = key.value.count();
    }
    entry["value"] = value_json(key.value, options.array_items);  // of an array, its first items
    root["metadata"].push_back(std::move(entry));
  }
  root["tensors"] = Json::array();
  for (const GgufTensor& tensor : file.tensors()) {
    Json entry;
    entry["name"] = std::string(tensor.name);
    entry["type"] = std::string(info_of(tensor.dtype).name);
    entry["type_id"] = tensor.file_id;
    entry["ne"] = std::vector<std::int64_t>(tensor.ne.begin(), tensor.ne.begin() + tensor.dims);
    entry["bytes"] = tensor.bytes.size();
    entry["part"] = tensor.part;
    entry["offset"] = tensor.offset;
    root["tensors"].push_back(std::move(entry));
  }
  root["totals"] = Json::object();
  for (const auto& [dtype, total] : totals_of(file))
    root["totals"][std::string(info_of(dtype).name)] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  if (options.plan) {
    const PlanOrReason result = plan_of(file, options);
    Json& memory = root["memory"];
    if (result.plan) {
      const InspectPlan& plan = *result.plan;
      memory = {{"context", plan.context},
                {"weights", plan.weights},
                {"sequence", plan.sequence},
                {"workspace", plan.workspace},
                {"total", plan.weights + plan.sequence + plan.workspace}};
    } else {
      memory = {{"error", result.reason}};
    }
  }
  // Names come from the file and may be anything; broken UTF-8 must not stop the output.
  out << root.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
}

}  // namespace

int run_inspect(const InspectOptions& options, std::ostream& out) {
  const Gguf file(options.path, GgufOptions{.meaning_of_108 = options.meaning_of_108});
  if (options.json) {
    write_json(file, options, out);
  } else {
    write_text(file, options, out);
  }
  return 0;
}

}  // namespace lockstep
