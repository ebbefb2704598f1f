// The way of large data into a file: one buffer is written while the next one is made, since copying into the page
// cache takes about as long as making the bytes. Between buffers it asks whether to stop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <vector>

#include "tensor/gguf_writer.h"

namespace lockstep {

class GgufSink {
 public:
  /// `writer` has begun; both outlive the sink. `cancelled` may be empty.
  GgufSink(GgufWriter& writer, std::filesystem::path out, std::function<bool()> cancelled);
  ~GgufSink();
  GgufSink(const GgufSink&) = delete;
  GgufSink& operator=(const GgufSink&) = delete;

  /// The buffer to fill next; its size is the caller's business.
  std::vector<std::byte>& buffer() { return buffers_[current_]; }
  /// Takes the filled buffer. Throws what the writer threw, and Error::cancelled.
  void take();
  /// Waits for the last buffer. Throws what the writer threw.
  void finish();

 private:
  GgufWriter& writer_;
  std::filesystem::path out_;
  std::function<bool()> cancelled_;
  std::vector<std::byte> buffers_[2];
  int current_ = 0;
  std::future<void> writing_;
};

/// Throws Error::io if the folder of `out` has too little room for `bytes` and some to spare.
void check_room(const std::filesystem::path& out, std::uint64_t bytes);

}  // namespace lockstep
