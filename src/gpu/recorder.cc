#include "gpu/recorder.h"

#include <algorithm>

namespace lockstep::gpu {
namespace {

constexpr std::size_t kMostEntries = 64;

}  // namespace

void Recorder::run(std::span<const std::uint64_t> key, const std::function<void()>& body) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return std::ranges::equal(entry.key, key); });
  if (found == entries_.end()) {
    is_refused_ = false;
    body();
    if (entries_.size() == kMostEntries) {
      if (entries_.back().recording != nullptr) runtime_.destroy(entries_.back().recording);
      entries_.pop_back();
    }
    entries_.push_front({{key.begin(), key.end()}, {}, is_refused_});
    return;
  }
  entries_.splice(entries_.begin(), entries_, found);
  Entry& entry = entries_.front();
  if (entry.recording == nullptr && !entry.is_refused) {
    runtime_.begin_recording();
    is_recording_ = true;
    try {
      body();
    } catch (...) {
      is_recording_ = false;
      if (const Recording part = runtime_.end_recording(); part != nullptr) runtime_.destroy(part);
      throw;
    }
    is_recording_ = false;
    entry.recording = runtime_.end_recording();
    entry.is_refused = entry.recording == nullptr;
  }
  if (entry.recording != nullptr)
    runtime_.play(entry.recording);
  else
    body();
}

void Recorder::forget() {
  for (Entry& entry : entries_)
    if (entry.recording != nullptr) runtime_.destroy(entry.recording);
  entries_.clear();
}

void Recorder::forget(const void* address) {
  const auto value = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(address));
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    if (std::find(entry->key.begin(), entry->key.end(), value) == entry->key.end()) {
      ++entry;
      continue;
    }
    if (entry->recording != nullptr) runtime_.destroy(entry->recording);
    entry = entries_.erase(entry);
  }
}

}  // namespace lockstep::gpu
