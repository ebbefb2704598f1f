// The runtime of a device, under one name for CUDA and HIP: memory, one stream, recorded graphs, launches.
//
// Host code only. Errors: what needs memory throws Error::no_memory, all else Error::device with the runtime's words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "base/thread_pool.h"

#if defined(LOCKSTEP_GPU_EMULATED)
#include <functional>
#include <tuple>

#include "gpu/emulator.h"
#elif defined(LOCKSTEP_GPU_HIP)
#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>
#else
#include <cuda_runtime_api.h>
#endif

namespace lockstep::gpu {

#if defined(LOCKSTEP_GPU_EMULATED)
struct EmulatedRecording;
struct EmulatedEvent;
using Recording = EmulatedRecording*;
using Event = EmulatedEvent*;
#elif defined(LOCKSTEP_GPU_HIP)
using Stream = hipStream_t;
using Status = hipError_t;
using Recording = hipGraphExec_t;
using Event = hipEvent_t;
#else
using Stream = cudaStream_t;
using Status = cudaError_t;
using Recording = cudaGraphExec_t;
using Event = cudaEvent_t;
#endif

#if !defined(LOCKSTEP_GPU_EMULATED)
struct Grid {
  unsigned x = 1, y = 1, z = 1;
};
#endif

/// A stream of one device, in order, and the device's memory. Remembers the first launch that failed, since ops cannot
/// throw: synchronize() does.
class Runtime {
 public:
  /// Throws Error::unsupported if there is no device, or none that this build has code for.
  explicit Runtime(int device);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  std::string device_name() const { return name_; }
  std::size_t total_bytes() const { return total_bytes_; }
  std::size_t free_bytes() const;
  /// The clock of its processors at most, in Hz; 0 if it does not say.
  double most_clock_hz() const { return most_clock_hz_; }
  /// Shared memory that a block can be given, at most.
  std::size_t most_shared_bytes() const { return most_shared_bytes_; }
  int multiprocessors() const { return multiprocessors_; }
  /// Whether blocks can come in clusters (device.h).
  bool has_clusters() const { return can_overlap_; }
  /// Whether launches of a stream overlap, so that a line of small ones is better than branches; in the emulator they
  /// do not, but what is made for it is tried.
  bool can_overlap() const {
#if defined(LOCKSTEP_GPU_EMULATED)
    return true;
#else
    return can_overlap_;
#endif
  }

  void* allocate(std::size_t bytes);
  void release(void* memory);
  /// Host to device and back; back waits. The host memory may be reused when the call returns. What is large goes
  /// through pinned memory, a piece being copied by the device while threads fill the next.
  void upload(void* to, const void* from, std::size_t bytes);
  void download(void* to, const void* from, std::size_t bytes);
  void copy(void* to, const void* from, std::size_t bytes);
  void clear(void* memory, std::size_t bytes);
  void synchronize();

  /// Lets a kernel have that much dynamic shared memory, or as much as there is.
  void allow_shared(const void* kernel, std::size_t bytes);
  /// Of what the L1 cache and shared memory have between them, shared memory is to have all it can while the kernel
  /// runs: so one that needs much begins beside one that needs little.
  void prefer_shared(const void* kernel);
  /// Where the device can, the kernel begins before a kernel launched just before it has ended (device.h,
  /// wait_for_launch_before, which every kernel calls).
#if defined(LOCKSTEP_GPU_EMULATED)
  void launch(const void* kernel, Grid grid, unsigned threads, std::size_t shared_bytes, std::function<void()> body);
#else
  void launch(const void* kernel, Grid grid, unsigned threads, std::size_t shared_bytes, void** arguments);
#endif

  /// Launches between fork and switch_back go beside those between the last switch_back and join; up to kBranches forks
  /// before one join, each with another branch. While recording only.
  static constexpr int kBranches = 2;
  void fork(int branch);
  void switch_back();
  void join();

  /// Points in the stream. While recording they become part of it; where a runtime cannot do that, nothing is
  /// recorded.
  Event make_event();
  void destroy(Event event);
  void put(Event event);
  double seconds_between(Event first, Event second) const;

  void begin_recording();
  /// Null if nothing could be recorded; then the work has not been done either.
  Recording end_recording();
  void play(Recording recording);
  void destroy(Recording recording);

 private:
#if defined(LOCKSTEP_GPU_EMULATED)
  struct Emulation;
  std::unique_ptr<Emulation> emulation_;
#else
  void check(Status status, const char* what) const;
  Stream stream_{};  // where work goes: the main one, or, between fork and switch_back, one beside it
  Stream main_{};
  struct Branch {
    Stream stream{};
    Event is_done{};
    bool is_forked = false;
  };
  Branch branches_[kBranches];
  int branch_ = 0;  // the one that stream_ is, if it is not main_
  Event forked_{};
  struct Pinned {
    void* memory = nullptr;
    Event is_free{};
    bool is_used = false;
  };
  void upload_large(void* to, const void* from, std::size_t bytes);
  void* allocate_pinned() const;
  static void release_pinned(void* memory);

  bool is_recording_ = false;
  bool is_recording_spoilt_ = false;
  std::vector<Pinned> pinned_;
  void* pinned_back_ = nullptr;  // what downloads pass through
  std::unique_ptr<ThreadPool> fillers_;
  bool main_follows_kernel_ = false;  // the same of main_, while stream_ is the other one
  bool follows_kernel_ = false;       // the last thing put on stream_ is a kernel, and nothing else is waited for
  std::string failure_;
#endif
  std::string name_;
  std::size_t total_bytes_ = 0;
  double most_clock_hz_ = 0;
  std::size_t most_shared_bytes_ = 0;
  int multiprocessors_ = 1;
  bool can_overlap_ = false;  // launches of a stream
  int device_ = 0;
};

/// kernel<<<grid, threads, shared>>>(arguments...), which must have the kernel's own parameter types.
template <class... Parameters>
void launch(Runtime& runtime, void (*kernel)(Parameters...), Grid grid, unsigned threads, std::size_t shared_bytes,
            std::type_identity_t<Parameters>... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
#if defined(LOCKSTEP_GPU_EMULATED)
  const std::tuple<std::remove_const_t<Parameters>...> kept(arguments...);
  runtime.launch(reinterpret_cast<const void*>(kernel), grid, threads, shared_bytes,
                 [kernel, kept] { std::apply(kernel, kept); });
#else
  void* list[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  runtime.launch(reinterpret_cast<const void*>(kernel), grid, threads, shared_bytes, list);
#endif
}

inline unsigned blocks_for(std::int64_t items, int a_block) {
  return static_cast<unsigned>((items + a_block - 1) / a_block);
}

}  // namespace lockstep::gpu
