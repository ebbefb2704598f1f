// What every measurement here shares: device memory with an owner, a graph replay timer, the host's plain loops, and
// the table that is printed last.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "order_variants.h"

namespace lockstep::law {

/// Ends the program with a message if a CUDA call failed. A measurement has nobody to recover for.
void check(cudaError_t error, const char* what);

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    check(cudaMalloc(&data_, count * sizeof(T)), "cudaMalloc");
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* data() const { return data_; }
  std::size_t count() const { return count_; }

  /// Fills every byte with 0xFF, a NaN in each float, so that an unwritten output shows.
  void poison() { check(cudaMemset(data_, 0xFF, count_ * sizeof(T)), "cudaMemset"); }
  std::vector<T> to_host() const {
    std::vector<T> host(count_);
    check(cudaMemcpy(host.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return host;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

/// Microseconds of one launch: `launch(stream, i)` for i in [0, launches) is captured in a graph, the graph is
/// replayed, and the median of the replays is divided by `launches`.
double time_us(const std::function<void(cudaStream_t, int)>& launch, int launches, int replays);

/// The SM clock in MHz, read by a kernel that spins for about 0.2 ms right after what ran last.
double sm_clock_mhz();

/// out[token * rows + row] for rows x tokens of the Q8_0 x int8 product, on the host, in the given order. `row_ids` and
/// `token_ids` say which; the result is [row_ids][token_ids]. With `literal` the loop is numerics/order.h's own.
struct Q8Problem {
  int rows, width;
  std::uint32_t seed;
};
std::vector<float> reference_q8(const Q8Problem& problem, Order order, bool literal, const std::vector<int>& row_ids,
                                const std::vector<int>& token_ids);

/// The same for F16 weights and f32 activations: octets dealt to lanes, or with `one_chain` in ascending order.
std::vector<float> reference_f16(const Q8Problem& problem, bool one_chain, const std::vector<int>& row_ids,
                                 const std::vector<int>& token_ids);

/// `count` different indices below `n`, the first and last among them, or all of them if `count` >= n.
std::vector<int> sample(int n, int count);

/// Outputs whose bits were compared with the host's, and those among them that differ.
struct Compared {
  std::size_t outputs = 0, wrong = 0;
  Compared& operator+=(const Compared& more) {
    outputs += more.outputs, wrong += more.wrong;
    return *this;
  }
};

/// Compares out[token * rows + row] with the reference's. Fetches only those tokens.
Compared compare(const DeviceArray<float>& out, int rows, const std::vector<float>& expected,
                 const std::vector<int>& row_ids, const std::vector<int>& token_ids);

/// Collects the lines of the report, echoing each as it comes.
class Report {
 public:
  void section(const std::string& title);
  void line(const char* format, ...) __attribute__((format(printf, 2, 3)));
  void add(const Compared& compared) { compared_ += compared; }
  void print() const;
  std::size_t total_wrong() const { return compared_.wrong; }

 private:
  std::vector<std::string> lines_;
  Compared compared_;
};

// Seeds of the four operands, told apart by a constant added to a problem's seed.
inline constexpr std::uint32_t kWeightSeed = 1, kWeightScaleSeed = 2, kActivationSeed = 3, kActivationScaleSeed = 4;

void measure_matvec_q8(Report& report);
void measure_thin_q8(Report& report);
void measure_tile_q8(Report& report);
void measure_matvec_f16(Report& report);
void measure_tile_f16(Report& report);

/// Microseconds of a kernel that only reads `bytes`, launched over rotating buffers like the kernels it is compared
/// with.
double bare_read_us(std::size_t bytes);

}  // namespace lockstep::law
