#include "engine/gguf_sink.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kSpareBytes = 64 << 20;  // left on the disk, and room for the header

}  // namespace

GgufSink::GgufSink(GgufWriter& writer, std::filesystem::path out, std::function<bool()> cancelled)
    : writer_(writer), out_(std::move(out)), cancelled_(std::move(cancelled)) {}

GgufSink::~GgufSink() {
  if (writing_.valid()) writing_.wait();
}

void GgufSink::take() {
  finish();
  if (cancelled_ && cancelled_())
    throw Error(Error::Kind::cancelled, out_.string() + ": interrupted, nothing is left of it");
  writing_ = std::async(std::launch::async, [this, &full = buffers_[current_]] { writer_.append(full); });
  current_ = 1 - current_;
}

void GgufSink::finish() {
  if (writing_.valid()) writing_.get();
}

void check_room(const std::filesystem::path& out, std::uint64_t bytes) {
  const std::filesystem::path folder = std::filesystem::absolute(out).parent_path();
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error) throw Error(Error::Kind::io, folder.string() + ": " + error.message());
  if (space.available < bytes + kSpareBytes)
    throw Error(Error::Kind::io,
                fmt::format("{}: {:.1f} MB are needed ({:.0f} of them to spare), {} has {:.1f} MB free", out.string(),
                            static_cast<double>(bytes + kSpareBytes) / 1e6, static_cast<double>(kSpareBytes) / 1e6,
                            folder.string(), static_cast<double>(space.available) / 1e6));
}

}  // namespace lockstep
