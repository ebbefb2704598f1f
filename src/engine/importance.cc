#include "engine/importance.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/bytes.h"
#include "base/error.h"
#include "tensor/gguf.h"
#include "tensor/gguf_writer.h"

namespace lockstep {
namespace {

constexpr std::string_view kSums = ".in_sum2";
constexpr std::string_view kCounts = ".counts";

/// The values of an f32 tensor, all finite and not negative.
std::vector<double> read_values(const Gguf& file, const GgufTensor& tensor) {
  std::vector<double> values(tensor.bytes.size() / sizeof(float));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = load_as<float>(tensor.bytes.data() + i * sizeof(float));
    if (!std::isfinite(value) || value < 0)
      throw Error(Error::Kind::bad_file, fmt::format("{}: tensor {}: value {} is {}, expected a number from 0 on",
                                                     file.name(), quoted(tensor.name), i, value));
    values[i] = static_cast<double>(value);
  }
  return values;
}

ImportanceEntry read_entry(const Gguf& file, const GgufTensor& sums, const GgufTensor& counts) {
  const std::int64_t width = sums.ne[0], planes = sums.rows();
  if (sums.dtype != DType::f32 || counts.dtype != DType::f32 || counts.ne[0] * counts.rows() != planes)
    throw Error(Error::Kind::bad_file,
                fmt::format("{}: tensor {}: {} x {} {} with {} counts in {}, expected f32 and one count a row",
                            file.name(), quoted(sums.name), width, planes, info_of(sums.dtype).name,
                            counts.ne[0] * counts.rows(), info_of(counts.dtype).name));
  ImportanceEntry entry(width, planes);
  entry.sums = read_values(file, sums);
  entry.counts = read_values(file, counts);
  return entry;
}

std::vector<float> narrowed(const std::vector<double>& values) {
  std::vector<float> out(values.size());
  std::transform(values.begin(), values.end(), out.begin(), [](double x) { return static_cast<float>(x); });
  return out;
}

}  // namespace

std::int64_t ImportanceEntry::unused_planes() const { return std::count(counts.begin(), counts.end(), 0.0); }

void ImportanceEntry::add(std::int64_t plane, const float* x) {
  double* sum = sums.data() + plane * width;
  for (std::int64_t i = 0; i < width; ++i) sum[i] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  counts[static_cast<std::size_t>(plane)] += 1;
}

std::vector<float> ImportanceEntry::mean_squares() const {
  std::vector<double> all(static_cast<std::size_t>(width));
  double inputs = 0;
  for (std::int64_t p = 0; p < planes(); ++p) {
    inputs += counts[static_cast<std::size_t>(p)];
    for (std::int64_t i = 0; i < width; ++i)
      all[static_cast<std::size_t>(i)] += sums[static_cast<std::size_t>(p * width + i)];
  }
  if (inputs == 0) return {};
  std::vector<float> means(sums.size());
  for (std::int64_t p = 0; p < planes(); ++p) {
    const double count = counts[static_cast<std::size_t>(p)];
    for (std::int64_t i = 0; i < width; ++i) {
      const auto at = static_cast<std::size_t>(p * width + i);
      means[at] = static_cast<float>(count > 0 ? sums[at] / count : all[static_cast<std::size_t>(i)] / inputs);
    }
  }
  return means;
}

const ImportanceEntry* Importance::find(std::string_view tensor) const {
  const auto at = entries.find(tensor);
  return at == entries.end() ? nullptr : &at->second;
}

Importance read_importance(const std::filesystem::path& path) {
  const Gguf file(path);
  const std::string_view type = file.string_or("general.type", "");
  if (type != "imatrix")
    throw Error(Error::Kind::bad_file, fmt::format("{}: general.type is {}, expected a file of importances (imatrix)",
                                                   file.name(), quoted(type)));
  Importance importance;
  const GgufValue* datasets = file.find("imatrix.datasets");
  const std::vector<std::string_view> names =
      datasets == nullptr ? std::vector<std::string_view>() : datasets->to_strings(1);
  importance.source = names.empty() ? path.filename().string() : std::string(names[0]);
  importance.chunks = file.int_or("imatrix.chunk_count", 0);
  importance.chunk_tokens = file.int_or("imatrix.chunk_size", 0);
  for (const GgufTensor& tensor : file.tensors()) {
    const bool is_sums = tensor.name.ends_with(kSums), is_counts = tensor.name.ends_with(kCounts);
    if (!is_sums && !is_counts) continue;
    const std::string name(tensor.name.substr(0, tensor.name.size() - (is_sums ? kSums : kCounts).size()));
    const GgufTensor* other = file.find_tensor(name + std::string(is_sums ? kCounts : kSums));
    if (other == nullptr)
      throw Error(Error::Kind::bad_file, fmt::format("{}: tensor {}: no {} beside it, expected both", file.name(),
                                                     quoted(tensor.name), is_sums ? kCounts : kSums));
    if (is_sums) importance.entries.emplace(name, read_entry(file, tensor, *other));
  }
  if (importance.entries.empty())
    throw Error(Error::Kind::bad_file, file.name() + ": no tensor NAME.in_sum2 in it, expected one a matrix");
  return importance;
}

void write_importance(const Importance& importance, const std::filesystem::path& path) {
  GgufWriter writer(path);
  writer.set("general.type", std::string_view("imatrix"));
  const std::string_view sources[] = {importance.source};
  writer.set_array("imatrix.datasets", std::span<const std::string_view>(sources));
  writer.set("imatrix.chunk_count", static_cast<std::uint32_t>(importance.chunks));
  writer.set("imatrix.chunk_size", static_cast<std::uint32_t>(importance.chunk_tokens));
  for (const auto& [name, entry] : importance.entries) {
    writer.add_tensor(name + std::string(kSums), DType::f32, std::array{entry.width, entry.planes()});
    writer.add_tensor(name + std::string(kCounts), DType::f32, std::array{std::int64_t{1}, entry.planes()});
  }
  writer.begin();
  for (const auto& [name, entry] : importance.entries) {
    const std::vector<float> sums = narrowed(entry.sums), counts = narrowed(entry.counts);
    writer.append(std::as_bytes(std::span(sums)));
    writer.append(std::as_bytes(std::span(counts)));
  }
  writer.finish();
}

}  // namespace lockstep
