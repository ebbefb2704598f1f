// Any bytes either open or throw Error; what opens can be read to the last byte. Seeds: tests/fuzz/corpus/gguf.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "tensor/gguf.h"

namespace {

using lockstep::DType;
using lockstep::Gguf;
using lockstep::GgufKey;
using lockstep::GgufTensor;

// So that no read is dropped as unused.
volatile unsigned sink;

void read_everything(const Gguf& file) {
  unsigned sum = 0;
  for (const GgufKey& key : file.keys()) {
    if (file.find(key.name) == nullptr) std::abort();
    for (std::uint64_t i = 0; i < key.value.count() && i < 64; ++i) {
      sum += static_cast<unsigned>(key.value.to_int(i).value_or(0));
      sum += key.value.to_number(i).has_value() ? 1 : 0;
      sum += key.value.to_bool(i).value_or(false) ? 1 : 0;
    }
    for (const std::string_view text : key.value.to_strings())
      if (!text.empty()) sum += static_cast<unsigned>(text.front()) + static_cast<unsigned>(text.back());
    sum += static_cast<unsigned>(lockstep::quoted(key.name).size() + key.value.describe().size());
  }
  for (const GgufTensor& tensor : file.tensors()) {
    if (file.find_tensor(tensor.name) == nullptr || tensor.bytes.empty()) std::abort();
    sum += static_cast<unsigned>(tensor.bytes.front()) + static_cast<unsigned>(tensor.bytes.back());
    sum += static_cast<unsigned>(tensor.rows());
  }
  sum += static_cast<unsigned>(file.producer().size()) + static_cast<unsigned>(file.trunk_layers());
  sink = sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  for (const auto meaning : {std::optional<DType>(), std::optional(DType::rocmi4)}) {
    try {
      read_everything(Gguf(bytes, "input", {.meaning_of_108 = meaning}));
    } catch (const lockstep::Error& error) {
      sink = static_cast<unsigned>(error.what()[0]);
    }
  }
  return 0;
}
