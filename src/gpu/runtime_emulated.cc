// The runtime of the device that the CPU plays (emulator.h).
//
// Work is done when it is asked for; what is recorded, when it is played. Every second time that work forks, the part
// beside is done last, so that parts which are not independent show in the bits.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <utility>

#include "base/error.h"
#include "gpu/runtime.h"

namespace lockstep::gpu {

namespace {

constexpr std::size_t kTotalBytes = std::size_t{8} << 30, kAlignment = 256;
constexpr std::size_t kSharedWithoutAsking = std::size_t{48} << 10;
/// What a block of such a device can have: of an H200, or of any AMD one.
constexpr std::size_t kMostSharedBytes =
    LOCKSTEP_GPU_EMULATED == LOCKSTEP_EMULATED_CUDA ? emulator::kMostSharedBytes : std::size_t{64} << 10;

}  // namespace

struct EmulatedRecording {
  std::vector<std::function<void()>> work;
};

struct EmulatedEvent {
  std::chrono::steady_clock::time_point time;
};

struct Runtime::Emulation {
  emulator::Blocks blocks{0};
  std::map<void*, std::size_t> sizes;
  std::size_t used_bytes = 0;
  std::map<const void*, std::size_t> allowed_shared;
  std::unique_ptr<EmulatedRecording> recording;
  bool is_beside = false, is_beside_last = false;
  std::vector<std::function<void()>> beside;
  std::string failure;

  void put(std::function<void()> work) {
    if (is_beside && is_beside_last)
      beside.push_back(std::move(work));
    else if (recording)
      recording->work.push_back(std::move(work));
    else
      work();
  }
};

Runtime::Runtime(int device) : name_("emulated"), device_(device) {
  if (device != 0)
    throw Error(Error::Kind::bad_argument,
                "GPU " + std::to_string(device) + ": there is 1, which is emulated, counted from 0");
  emulation_ = std::make_unique<Emulation>();
  total_bytes_ = kTotalBytes;
  multiprocessors_ = 3;
  most_shared_bytes_ = kMostSharedBytes;
}

Runtime::~Runtime() = default;

std::size_t Runtime::free_bytes() const { return total_bytes_ - emulation_->used_bytes; }

/// Full of NaNs: what is read must have been written.
void* Runtime::allocate(std::size_t bytes) {
  if (bytes > free_bytes())
    throw Error(Error::Kind::no_memory, "device 0 (emulated): allocating " + std::to_string(bytes) +
                                            " bytes: " + std::to_string(free_bytes()) + " are free");
  void* memory = ::operator new (std::max<std::size_t>(bytes, 1), std::align_val_t{kAlignment});
  std::memset(memory, 0xff, bytes);
  emulation_->sizes[memory] = bytes;
  emulation_->used_bytes += bytes;
  return memory;
}

void Runtime::release(void* memory) {
  const auto found = emulation_->sizes.find(memory);
  if (found == emulation_->sizes.end()) return;
  emulation_->used_bytes -= found->second;
  emulation_->sizes.erase(found);
  ::operator delete (memory, std::align_val_t{kAlignment});
}

void Runtime::upload(void* to, const void* from, std::size_t bytes) { copy(to, from, bytes); }

void Runtime::download(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  synchronize();
}

void Runtime::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) emulation_->put([=] { std::memcpy(to, from, bytes); });
}

void Runtime::clear(void* memory, std::size_t bytes) {
  if (bytes > 0) emulation_->put([=] { std::memset(memory, 0, bytes); });
}

void Runtime::synchronize() {
  if (!emulation_->failure.empty()) throw Error(Error::Kind::device, std::exchange(emulation_->failure, {}));
}

void Runtime::allow_shared(const void* kernel, std::size_t bytes) {
  emulation_->allowed_shared[kernel] = std::min(bytes, most_shared_bytes_);
}

void Runtime::prefer_shared(const void* /*kernel*/) {}

void Runtime::launch(const void* kernel, Grid grid, unsigned threads, std::size_t shared_bytes,
                     std::function<void()> body) {
  const auto allowed = emulation_->allowed_shared.find(kernel);
  const std::size_t most = allowed == emulation_->allowed_shared.end() ? kSharedWithoutAsking : allowed->second;
  emulation_->put([=, this, body = std::move(body)] {
    const std::string wrong = shared_bytes > std::max(most, kSharedWithoutAsking)
                                  ? "it was not allowed " + std::to_string(shared_bytes) + " bytes of shared memory"
                                  : emulation_->blocks.run(grid, threads, shared_bytes, body);
    if (!wrong.empty() && emulation_->failure.empty()) emulation_->failure = "emulated: a kernel failed: " + wrong;
  });
}

void Runtime::fork(int) { emulation_->is_beside = true; }

void Runtime::switch_back() { emulation_->is_beside = false; }

void Runtime::join() {
  for (auto& work : std::exchange(emulation_->beside, {})) emulation_->put(std::move(work));
  emulation_->is_beside_last = !emulation_->is_beside_last;
}

Event Runtime::make_event() { return new EmulatedEvent; }

void Runtime::destroy(Event event) { delete event; }

void Runtime::put(Event event) {
  emulation_->put([=] { event->time = std::chrono::steady_clock::now(); });
}

double Runtime::seconds_between(Event first, Event second) const {
  return std::chrono::duration<double>(second->time - first->time).count();
}

void Runtime::begin_recording() { emulation_->recording = std::make_unique<EmulatedRecording>(); }

Recording Runtime::end_recording() {
  emulation_->is_beside = false;
  emulation_->beside.clear();
  return emulation_->recording.release();
}

void Runtime::play(Recording recording) {
  for (const auto& work : recording->work) work();
}

void Runtime::destroy(Recording recording) { delete recording; }

}  // namespace lockstep::gpu
