// The test vectors of the weight formats, in data/quants: a binary file a format, whose sections index.json describes.
//
// Made with the public CPU codecs of the formats (entries of origin "reference") or from their description
// ("specification", where several incompatible codecs exist). Sections used here:
//   random_blocks, random_deq, edge_blocks, edge_deq   blocks and their f32 values; +0 and -0 count as equal
//   dot_w          a weight row for each of the 12 activation rows: even rows quantised, odd rows random blocks
//   dot_isum       exact integer partial sums, per scale group (32-value formats) or isum and msum per 256 (the others)
//   dot_f64_qact   f64 dot of the weights with the quantised activations;  dot_abs_qact  the sum of the magnitudes
//   dot_f64_f32act f64 dot of the weights with the unquantised activations
#pragma once

#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::test {

class FormatVectors {
 public:
  static constexpr int kRowLength = 1024;
  static constexpr int kDotRows = 12;

  explicit FormatVectors(const std::string& format) {
    const std::string folder = std::string(LOCKSTEP_TEST_DATA) + "/quants/";
    std::ifstream index(folder + "index.json");
    about_ = nlohmann::json::parse(index).at("formats").at(format);
    std::ifstream file(folder + about_.at("file").get<std::string>(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    bytes_.resize(text.size());
    std::memcpy(bytes_.data(), text.data(), text.size());
  }

  const nlohmann::json& about() const { return about_; }

  bool has(const std::string& name) const { return find(name) != nullptr; }

  std::span<const std::byte> bytes(const std::string& name) const {
    const nlohmann::json* section = find(name);
    if (section == nullptr) throw std::runtime_error("no section " + name);
    return std::span(bytes_).subspan(section->at("offset"), section->at("bytes"));
  }

  template <class T>
  std::vector<T> values(const std::string& name) const {
    const auto from = bytes(name);
    std::vector<T> values(from.size() / sizeof(T));
    std::memcpy(values.data(), from.data(), from.size());
    return values;
  }

  /// Row i of a section that has kDotRows rows.
  std::span<const std::byte> dot_row(const std::string& name, int i) const {
    const auto all = bytes(name);
    return all.subspan(all.size() / kDotRows * static_cast<std::size_t>(i), all.size() / kDotRows);
  }

 private:
  const nlohmann::json* find(const std::string& name) const {
    for (const auto& section : about_.at("sections")) {
      if (section.at("name") == name) return &section;
    }
    return nullptr;
  }

  nlohmann::json about_;
  std::vector<std::byte> bytes_;
};

}  // namespace lockstep::test
