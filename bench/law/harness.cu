// The timer, the bare read and the report. See harness.h.
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "harness.h"

namespace lockstep::law {

namespace {

__global__ void spin_kernel(long long* out) {
  unsigned long long begin_ns, end_ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin_ns));
  const long long begin = clock64();
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(end_ns));
  while (end_ns - begin_ns < 200000);
  out[0] = clock64() - begin;
  out[1] = static_cast<long long>(end_ns - begin_ns);
}

// Many short blocks read best; four loads in flight a thread.
constexpr int kReadThreads = 256, kReadLoads = 4;
__global__ void __launch_bounds__(kReadThreads)
    read_kernel(const uint4* __restrict__ data, std::size_t count, uint4* out) {
  const std::size_t begin = static_cast<std::size_t>(blockIdx.x) * kReadThreads * kReadLoads + threadIdx.x;
  uint4 sum = {};
#pragma unroll
  for (int i = 0; i < kReadLoads; ++i) {
    const std::size_t at = begin + static_cast<std::size_t>(i) * kReadThreads;
    if (at < count) {
      uint4 v;
      asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                   : "l"(data + at));
      sum.x ^= v.x, sum.y ^= v.y, sum.z ^= v.z, sum.w ^= v.w;
    }
  }
  if ((sum.x & sum.y & sum.z & sum.w) == 0xDEADBEEFu) out[0] = sum;  // never, but the compiler cannot know
}

}  // namespace

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

double time_us(const std::function<void(cudaStream_t, int)>& launch, int launches, int replays) {
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  check(cudaStreamCreate(&stream), "cudaStreamCreate");
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < launches; ++i) launch(stream, i);
  check(cudaGetLastError(), "launch");
  check(cudaStreamEndCapture(stream, &graph), "capture");
  check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<double> times;
  for (int i = 0; i < replays + 2; ++i) {  // the first two warm up
    check(cudaEventRecord(begin, stream), "event");
    check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
    check(cudaEventRecord(end, stream), "event");
    check(cudaEventSynchronize(end), "replay");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "event");
    if (i >= 2) times.push_back(1000.0 * ms / launches);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

double sm_clock_mhz() {
  DeviceArray<long long> out(2);
  spin_kernel<<<1, 1>>>(out.data());
  const auto host = out.to_host();
  return 1000.0 * static_cast<double>(host[0]) / static_cast<double>(host[1]);
}

double bare_read_us(std::size_t bytes) {
  const std::size_t count = bytes / 16;
  const int copies = static_cast<int>(std::max<std::size_t>(2, (512u << 20) / bytes));
  DeviceArray<uint4> data(count * static_cast<std::size_t>(copies)), out(1);
  data.poison();
  const auto grid = static_cast<unsigned>((count + kReadThreads * kReadLoads - 1) / (kReadThreads * kReadLoads));
  const int launches = std::max(copies, 8) / copies * copies;
  return time_us(
      [&](cudaStream_t stream, int i) {
        read_kernel<<<grid, kReadThreads, 0, stream>>>(data.data() + count * static_cast<std::size_t>(i % copies),
                                                       count, out.data());
      },
      launches, 20);
}

void Report::section(const std::string& title) {
  lines_.push_back("\n## " + title);
  std::printf("%s\n", lines_.back().c_str());
  std::fflush(stdout);
}

void Report::line(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  lines_.emplace_back(text);
  std::printf("%s\n", text);
  std::fflush(stdout);
}

void Report::print() const {
  std::printf("\n\n==== report ====\n");
  for (const auto& line : lines_) std::printf("%s\n", line.c_str());
  std::printf("\noutputs compared with the host's loop: %zu, different: %zu\n", compared_.outputs, compared_.wrong);
}

}  // namespace lockstep::law
