// Builds GGUF files byte by byte, so that the reader is tested against the layout and not against our own writer.
// Nothing is checked here: wrong files are the point.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::test {

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline std::string raw_text(std::string_view text) { return raw<std::uint64_t>(text.size()) + std::string(text); }

inline std::string raw_key(std::string_view name, std::uint32_t type, const std::string& payload) {
  return raw_text(name) + raw(type) + payload;
}

inline std::string raw_array(std::uint32_t element, std::uint64_t count, const std::string& payload) {
  return raw(element) + raw(count) + payload;
}

inline std::string raw_tensor(std::string_view name, const std::vector<std::uint64_t>& ne, std::uint32_t type,
                              std::uint64_t offset) {
  std::string bytes = raw_text(name) + raw(static_cast<std::uint32_t>(ne.size()));
  for (const std::uint64_t extent : ne) bytes += raw(extent);
  return bytes + raw(type) + raw(offset);
}

struct RawGguf {
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::vector<std::string> keys;
  std::vector<std::string> tensors;
  std::string data;
  std::size_t alignment = 32;  // of the data section's beginning

  std::string bytes() const {
    std::string out = magic + raw(version) + raw<std::uint64_t>(tensors.size()) + raw<std::uint64_t>(keys.size());
    for (const std::string& key : keys) out += key;
    for (const std::string& tensor : tensors) out += tensor;
    if (!data.empty()) out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
    return out + data;
  }
};

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// A folder of its own that is gone at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-gguf-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// What a writer has left behind in a folder.
inline std::vector<std::string> unfinished_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (const std::string name = entry.path().filename().string(); name.find(".part-") != std::string::npos)
      names.push_back(name);
  return names;
}

}  // namespace lockstep::test
