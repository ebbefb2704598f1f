#include "server/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/hash.h"
#include "engine/law_check.h"

namespace lockstep {
namespace {

constexpr std::size_t kSample = 4096;  // bytes, at the beginning, middle and end of a tensor

void add_text(Hasher& hasher, std::string_view text) {
  hasher.add_values(std::span(text.data(), text.size()));
  hasher.add_values(std::span("", 1));  // so that two names are not one
}

std::uint64_t hash_of_law() {
  Hasher hasher;
  for (const LawLine& line : golden_lines()) {
    if (!line.name.starts_with("function ") && !line.name.starts_with("dot ")) continue;
    add_text(hasher, line.name);
    hasher.add_values(std::span(&line.hash, 1));
  }
  return hasher.value();
}

std::uint64_t hash_of_weights(const Gguf& file) {
  Hasher hasher;
  for (const GgufKey& key : file.keys()) {
    add_text(hasher, key.name);
    hasher.add(key.value.bytes());
  }
  for (const GgufTensor& tensor : file.tensors()) {
    add_text(hasher, tensor.name);
    hasher.add_values(std::span(&tensor.file_id, 1));
    hasher.add_values(std::span<const std::int64_t>(tensor.ne));
    const std::size_t size = tensor.bytes.size(), sample = std::min(size, kSample);
    for (const std::size_t at : {std::size_t{0}, (size - sample) / 2, size - sample})
      hasher.add(tensor.bytes.subspan(at, sample));
  }
  return hasher.value();
}

}  // namespace

std::string system_fingerprint(const Gguf& file, Mode mode) {
  return fmt::format("fp_{:08x}_{:016x}_{}", hash_of_law() & 0xffffffff, hash_of_weights(file),
                     mode == Mode::official ? "official" : "plain");
}

}  // namespace lockstep
