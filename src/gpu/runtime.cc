#include "gpu/runtime.h"

#include <algorithm>
#include <cstring>
#include <thread>
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
constexpr std::size_t kPieceBytes = std::size_t{8} << 20;   // of pinned memory
constexpr std::size_t kFillBytes = std::size_t{512} << 10;  // that a thread copies at a time
constexpr int kPieces = 4;

std::string text_of(Status status) { return LOCKSTEP_GPU(GetErrorString)(status); }

}  // namespace

void Runtime::check(Status status, const char* what) const {
  if (status != kSuccess)
    throw Error(Error::Kind::device,
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
  multiprocessors_ = properties.multiProcessorCount;
#if defined(LOCKSTEP_GPU_HIP)
  most_shared_bytes_ = properties.sharedMemPerBlock;
#else
  most_shared_bytes_ = properties.sharedMemPerBlockOptin;
  can_overlap_ = properties.major >= 9;
#endif
  if (properties.warpSize != 32)
    throw Error(Error::Kind::unsupported,
                name_ + ": runs " + std::to_string(properties.warpSize) + " threads a warp, expected 32");
  int clock_khz = 0;
#if defined(LOCKSTEP_GPU_HIP)
  const Status has_clock = hipDeviceGetAttribute(&clock_khz, hipDeviceAttributeClockRate, device);
#else
  const Status has_clock = cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, device);
#endif
  if (has_clock == kSuccess) most_clock_hz_ = 1e3 * clock_khz;
  static_cast<void>(LOCKSTEP_GPU(GetLastError)());
  check(LOCKSTEP_GPU(StreamCreateWithFlags)(&main_, LOCKSTEP_GPU(StreamNonBlocking)), "making a stream");
  // What goes beside is small and has to find room between the blocks of something large.
  int least = 0, greatest = 0;
  check(LOCKSTEP_GPU(DeviceGetStreamPriorityRange)(&least, &greatest), "reading its properties");
  check(LOCKSTEP_GPU(EventCreateWithFlags)(&forked_, LOCKSTEP_GPU(EventDisableTiming)), "making an event");
  for (Branch& branch : branches_) {
    check(LOCKSTEP_GPU(StreamCreateWithPriority)(&branch.stream, LOCKSTEP_GPU(StreamNonBlocking), greatest),
          "making a stream");
    check(LOCKSTEP_GPU(EventCreateWithFlags)(&branch.is_done, LOCKSTEP_GPU(EventDisableTiming)), "making an event");
  }
  stream_ = main_;
}

Runtime::~Runtime() {
  for (const Pinned& pinned : pinned_) {
    static_cast<void>(LOCKSTEP_GPU(EventDestroy)(pinned.is_free));
    release_pinned(pinned.memory);
  }
  if (pinned_back_ != nullptr) release_pinned(pinned_back_);
  static_cast<void>(LOCKSTEP_GPU(EventDestroy)(forked_));
  for (const Branch& branch : branches_) {
    static_cast<void>(LOCKSTEP_GPU(EventDestroy)(branch.is_done));
    static_cast<void>(LOCKSTEP_GPU(StreamDestroy)(branch.stream));
  }
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
  follows_kernel_ = false;
  if (bytes >= kPieceBytes) return upload_large(to, from, bytes);
  if (bytes > 0)
    check(LOCKSTEP_GPU(MemcpyAsync)(to, from, bytes, LOCKSTEP_GPU(MemcpyHostToDevice), stream_), "copying to it");
}

/// A mapped file's pages are read by the threads that copy them, so several of them keep a disk or memory busy.
void Runtime::upload_large(void* to, const void* from, std::size_t bytes) {
  if (pinned_.empty()) {
    fillers_ = std::make_unique<ThreadPool>(static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 8u)));
    pinned_.reserve(kPieces);
    for (int i = 0; i < kPieces; ++i) {
      Pinned pinned;
      pinned.memory = allocate_pinned();
      pinned_.push_back(pinned);
      check(LOCKSTEP_GPU(EventCreateWithFlags)(&pinned_.back().is_free, LOCKSTEP_GPU(EventDisableTiming)),
            "making an event");
    }
  }
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  for (std::size_t at = 0, piece = 0; at < bytes; at += kPieceBytes, ++piece) {
    Pinned& pinned = pinned_[piece % kPieces];
    if (pinned.is_used) check(LOCKSTEP_GPU(EventSynchronize)(pinned.is_free), "copying to it");
    const std::size_t n = std::min(kPieceBytes, bytes - at);
    fillers_->parallel_for(static_cast<int>((n + kFillBytes - 1) / kFillBytes), [&](int i, int) {
      const std::size_t begin = static_cast<std::size_t>(i) * kFillBytes;
      std::memcpy(static_cast<char*>(pinned.memory) + begin, in + at + begin, std::min(kFillBytes, n - begin));
    });
    check(LOCKSTEP_GPU(MemcpyAsync)(out + at, pinned.memory, n, LOCKSTEP_GPU(MemcpyHostToDevice), stream_),
          "copying to it");
    check(LOCKSTEP_GPU(EventRecord)(pinned.is_free, stream_), "copying to it");
    pinned.is_used = true;
  }
}

/// Through pinned memory: what the runtime does for other memory takes several times as long.
void Runtime::download(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0 && pinned_back_ == nullptr) pinned_back_ = allocate_pinned();
  for (std::size_t at = 0; at < bytes; at += kPieceBytes) {
    const std::size_t n = std::min(kPieceBytes, bytes - at);
    check(LOCKSTEP_GPU(MemcpyAsync)(pinned_back_, static_cast<const char*>(from) + at, n,
                                    LOCKSTEP_GPU(MemcpyDeviceToHost), stream_),
          "copying from it");
    synchronize();
    std::memcpy(static_cast<char*>(to) + at, pinned_back_, n);
  }
  if (bytes == 0) synchronize();
}

void* Runtime::allocate_pinned() const {
  void* memory = nullptr;
#if defined(LOCKSTEP_GPU_HIP)
  check(hipHostMalloc(&memory, kPieceBytes, hipHostMallocDefault), "allocating pinned memory");
#else
  check(cudaHostAlloc(&memory, kPieceBytes, cudaHostAllocDefault), "allocating pinned memory");
#endif
  return memory;
}

void Runtime::release_pinned(void* memory) {
#if defined(LOCKSTEP_GPU_HIP)
  static_cast<void>(hipHostFree(memory));
#else
  static_cast<void>(cudaFreeHost(memory));
#endif
}

void Runtime::copy(void* to, const void* from, std::size_t bytes) {
  follows_kernel_ = false;
  if (bytes > 0)
    check(LOCKSTEP_GPU(MemcpyAsync)(to, from, bytes, LOCKSTEP_GPU(MemcpyDeviceToDevice), stream_), "copying inside it");
}

void Runtime::clear(void* memory, std::size_t bytes) {
  follows_kernel_ = false;
  if (bytes > 0) check(LOCKSTEP_GPU(MemsetAsync)(memory, 0, bytes, stream_), "clearing memory");
}

void Runtime::synchronize() {
  follows_kernel_ = false;
  const Status status = LOCKSTEP_GPU(StreamSynchronize)(stream_);
  if (!failure_.empty()) {
    const std::string failure = std::exchange(failure_, {});
    throw Error(Error::Kind::device, failure);
  }
  check(status, "waiting for its work");
}

void Runtime::allow_shared(const void* kernel, std::size_t bytes) {
  const int size = static_cast<int>(bytes < most_shared_bytes_ ? bytes : most_shared_bytes_);
  check(LOCKSTEP_GPU(FuncSetAttribute)(kernel, LOCKSTEP_GPU(FuncAttributeMaxDynamicSharedMemorySize), size),
        "giving a kernel shared memory");
}

void Runtime::prefer_shared([[maybe_unused]] const void* kernel) {
#if !defined(LOCKSTEP_GPU_HIP)
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
        "giving a kernel shared memory");
#endif
}

void Runtime::launch(const void* kernel, Grid grid, unsigned threads, std::size_t shared_bytes, void** arguments) {
#if defined(LOCKSTEP_GPU_HIP)
  const Status status =
      hipLaunchKernel(kernel, dim3(grid.x, grid.y, grid.z), dim3(threads), arguments, shared_bytes, stream_);
#else
  cudaLaunchAttribute overlap;
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(grid.x, grid.y, grid.z);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream_;
  config.attrs = &overlap;
  config.numAttrs = can_overlap_ && follows_kernel_ ? 1 : 0;
  const Status status = cudaLaunchKernelExC(&config, kernel, arguments);
#endif
  follows_kernel_ = status == kSuccess;
  if (status == kSuccess) return;
  static_cast<void>(LOCKSTEP_GPU(GetLastError)());
  if (failure_.empty()) failure_ = name_ + ": a kernel could not be launched: " + text_of(status);
}

void Runtime::fork(int branch) {
  branch_ = branch;
  branches_[branch].is_forked = true;
  stream_ = branches_[branch].stream;
  check(LOCKSTEP_GPU(EventRecord)(forked_, main_), "forking");
  check(LOCKSTEP_GPU(StreamWaitEvent)(stream_, forked_, 0), "forking");
  main_follows_kernel_ = follows_kernel_;
  follows_kernel_ = false;
}

void Runtime::switch_back() {
  check(LOCKSTEP_GPU(EventRecord)(branches_[branch_].is_done, stream_), "joining");
  stream_ = main_;
  follows_kernel_ = main_follows_kernel_;
}

void Runtime::join() {
  follows_kernel_ = false;
  for (Branch& branch : branches_)
    if (std::exchange(branch.is_forked, false))
      check(LOCKSTEP_GPU(StreamWaitEvent)(main_, branch.is_done, 0), "joining");
}

Event Runtime::make_event() {
  Event event{};
  check(LOCKSTEP_GPU(EventCreate)(&event), "making an event");
  return event;
}

void Runtime::destroy(Event event) { static_cast<void>(LOCKSTEP_GPU(EventDestroy)(event)); }

void Runtime::put(Event event) {
  follows_kernel_ = false;
#if defined(LOCKSTEP_GPU_HIP)
  if (is_recording_)
    is_recording_spoilt_ = true;
  else
    check(hipEventRecord(event, stream_), "marking a point");
#else
  check(cudaEventRecordWithFlags(event, stream_, is_recording_ ? cudaEventRecordExternal : cudaEventRecordDefault),
        "marking a point");
#endif
}

double Runtime::seconds_between(Event first, Event second) const {
  float milliseconds = 0;
  check(LOCKSTEP_GPU(EventElapsedTime)(&milliseconds, first, second), "reading times");
  return 1e-3 * static_cast<double>(milliseconds);
}

void Runtime::begin_recording() {
  follows_kernel_ = false;
  is_recording_spoilt_ = false;
  check(LOCKSTEP_GPU(StreamBeginCapture)(stream_, LOCKSTEP_GPU(StreamCaptureModeThreadLocal)), "beginning a recording");
  is_recording_ = true;
}

Recording Runtime::end_recording() {
  stream_ = main_;
  for (Branch& branch : branches_) branch.is_forked = false;
  follows_kernel_ = false;
  is_recording_ = false;
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
  if (!is_recording_spoilt_ && LOCKSTEP_GPU(GraphInstantiateWithFlags)(&recording, graph, 0) != kSuccess) {
    static_cast<void>(LOCKSTEP_GPU(GetLastError)());
    recording = nullptr;
  }
  static_cast<void>(LOCKSTEP_GPU(GraphDestroy)(graph));
  return recording;
}

void Runtime::play(Recording recording) {
  follows_kernel_ = false;
  check(LOCKSTEP_GPU(GraphLaunch)(recording, stream_), "playing a recording");
}

void Runtime::destroy(Recording recording) { static_cast<void>(LOCKSTEP_GPU(GraphExecDestroy)(recording)); }

}  // namespace lockstep::gpu
