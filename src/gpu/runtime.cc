#include "gpu/runtime.h"

#include <utility>

#include "base/error.h"

#if defined(LOCKSTEP_GPU_HIP)
#define LOCKSTEP_GPU(name) hip##name
#else
#define LOCKSTEP_GPU(name) cuda##name
#endif

namespace lockstep::gpu {

namespace {

constexpr Status kSuccess = LOCKSTEP_GPU(Success);

std::string text_of(Status status) { return LOCKSTEP_GPU(GetErrorString)(status); }

}  // namespace

void Runtime::check(Status status, const char* what) const {
  if (status != kSuccess)
    throw Error(Error::Kind::io,
                "device " + std::to_string(device_) + " (" + name_ + "): " + what + ": " + text_of(status));
}

Runtime::Runtime(int device) : name_("?"), device_(device) {
  int count = 0;
  const Status status = LOCKSTEP_GPU(GetDeviceCount)(&count);
  if (status != kSuccess || count == 0)
    throw Error(Error::Kind::unsupported,
                "no GPU can be used here: " + (status != kSuccess ? text_of(status) : "none found"));
  if (device < 0 || device >= count)
    throw Error(Error::Kind::bad_argument,
                "GPU " + std::to_string(device) + ": there are " + std::to_string(count) + ", counted from 0");
  check(LOCKSTEP_GPU(SetDevice)(device), "choosing the device");
#if defined(LOCKSTEP_GPU_HIP)
  hipDeviceProp_t properties;
#else
  cudaDeviceProp properties;
#endif
  check(LOCKSTEP_GPU(GetDeviceProperties)(&properties, device), "reading its properties");
  name_ = properties.name;
  total_bytes_ = properties.totalGlobalMem;
#if defined(LOCKSTEP_GPU_HIP)
  most_shared_bytes_ = properties.sharedMemPerBlock;
#else
  most_shared_bytes_ = properties.sharedMemPerBlockOptin;
#endif
  if (properties.warpSize != 32)
    throw Error(Error::Kind::unsupported,
                name_ + ": runs " + std::to_string(properties.warpSize) + " threads a warp, expected 32");
  check(LOCKSTEP_GPU(StreamCreateWithFlags)(&main_, LOCKSTEP_GPU(StreamNonBlocking)), "making a stream");
  check(LOCKSTEP_GPU(StreamCreateWithFlags)(&side_, LOCKSTEP_GPU(StreamNonBlocking)), "making a stream");
  check(LOCKSTEP_GPU(EventCreateWithFlags)(&forked_, LOCKSTEP_GPU(EventDisableTiming)), "making an event");
  check(LOCKSTEP_GPU(EventCreateWithFlags)(&side_done_, LOCKSTEP_GPU(EventDisableTiming)), "making an event");
  stream_ = main_;
}

Runtime::~Runtime() {
  static_cast<void>(LOCKSTEP_GPU(EventDestroy)(forked_));
  static_cast<void>(LOCKSTEP_GPU(EventDestroy)(side_done_));
  static_cast<void>(LOCKSTEP_GPU(StreamDestroy)(side_));
  static_cast<void>(LOCKSTEP_GPU(StreamDestroy)(main_));
}

std::size_t Runtime::free_bytes() const {
  std::size_t free = 0, total = 0;
  check(LOCKSTEP_GPU(MemGetInfo)(&free, &total), "asking for free memory");
  return free;
}

void* Runtime::allocate(std::size_t bytes) {
  void* memory = nullptr;
  const Status status = LOCKSTEP_GPU(Malloc)(&memory, bytes);
  if (status != kSuccess) {
    static_cast<void>(LOCKSTEP_GPU(GetLastError)());  // it would otherwise be reported by the next launch
    throw Error(Error::Kind::no_memory,
                name_ + ": cannot allocate " + std::to_string(bytes) + " bytes: " + text_of(status));
  }
  return memory;
}

void Runtime::release(void* memory) { static_cast<void>(LOCKSTEP_GPU(Free)(memory)); }

void Runtime::upload(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0)
    check(LOCKSTEP_GPU(MemcpyAsync)(to, from, bytes, LOCKSTEP_GPU(MemcpyHostToDevice), stream_), "copying to it");
}

void Runtime::download(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0)
    check(LOCKSTEP_GPU(MemcpyAsync)(to, from, bytes, LOCKSTEP_GPU(MemcpyDeviceToHost), stream_), "copying from it");
  synchronize();
}

void Runtime::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0)
    check(LOCKSTEP_GPU(MemcpyAsync)(to, from, bytes, LOCKSTEP_GPU(MemcpyDeviceToDevice), stream_), "copying inside it");
}

void Runtime::clear(void* memory, std::size_t bytes) {
  if (bytes > 0) check(LOCKSTEP_GPU(MemsetAsync)(memory, 0, bytes, stream_), "clearing memory");
}

void Runtime::synchronize() {
  const Status status = LOCKSTEP_GPU(StreamSynchronize)(stream_);
  if (!failure_.empty()) {
    const std::string failure = std::exchange(failure_, {});
    throw Error(Error::Kind::io, failure);
  }
  check(status, "waiting for its work");
}

void Runtime::allow_shared(const void* kernel, std::size_t bytes) {
  const int size = static_cast<int>(bytes < most_shared_bytes_ ? bytes : most_shared_bytes_);
  check(LOCKSTEP_GPU(FuncSetAttribute)(kernel, LOCKSTEP_GPU(FuncAttributeMaxDynamicSharedMemorySize), size),
        "giving a kernel shared memory");
}

void Runtime::launch(const void* kernel, Grid grid, unsigned threads, std::size_t shared_bytes, void** arguments) {
  const Status status =
      LOCKSTEP_GPU(LaunchKernel)(kernel, dim3(grid.x, grid.y, grid.z), dim3(threads), arguments, shared_bytes, stream_);
  if (status == kSuccess) return;
  static_cast<void>(LOCKSTEP_GPU(GetLastError)());
  if (failure_.empty()) failure_ = name_ + ": a kernel could not be launched: " + text_of(status);
}

void Runtime::fork() {
  check(LOCKSTEP_GPU(EventRecord)(forked_, main_), "forking");
  check(LOCKSTEP_GPU(StreamWaitEvent)(side_, forked_, 0), "forking");
  stream_ = side_;
}

void Runtime::switch_back() {
  stream_ = main_;
  check(LOCKSTEP_GPU(EventRecord)(side_done_, side_), "joining");
}

void Runtime::join() { check(LOCKSTEP_GPU(StreamWaitEvent)(main_, side_done_, 0), "joining"); }

void Runtime::begin_recording() {
  check(LOCKSTEP_GPU(StreamBeginCapture)(stream_, LOCKSTEP_GPU(StreamCaptureModeThreadLocal)), "beginning a recording");
}

Recording Runtime::end_recording() {
  stream_ = main_;
#if defined(LOCKSTEP_GPU_HIP)
  hipGraph_t graph{};
#else
  cudaGraph_t graph{};
#endif
  Recording recording{};
  const Status status = LOCKSTEP_GPU(StreamEndCapture)(stream_, &graph);
  if (status != kSuccess || graph == nullptr) {
    static_cast<void>(LOCKSTEP_GPU(GetLastError)());
    return nullptr;
  }
  if (LOCKSTEP_GPU(GraphInstantiateWithFlags)(&recording, graph, 0) != kSuccess) {
    static_cast<void>(LOCKSTEP_GPU(GetLastError)());
    recording = nullptr;
  }
  static_cast<void>(LOCKSTEP_GPU(GraphDestroy)(graph));
  return recording;
}

void Runtime::play(Recording recording) { check(LOCKSTEP_GPU(GraphLaunch)(recording, stream_), "playing a recording"); }

void Runtime::destroy(Recording recording) { static_cast<void>(LOCKSTEP_GPU(GraphExecDestroy)(recording)); }

}  // namespace lockstep::gpu
