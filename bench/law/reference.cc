// The host's plain loops. They spell the sums as numerics/order.h does and know nothing of layouts or kernels.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "data.h"
#include "harness.h"

namespace lockstep::law {

namespace {

struct Q8Row {
  std::vector<std::int8_t> codes;
  std::vector<float> scales;
};

Q8Row make_row(const Q8Problem& problem, int index, bool weight) {
  const std::uint32_t seed = problem.seed + (weight ? kWeightSeed : kActivationSeed);
  Q8Row row{std::vector<std::int8_t>(static_cast<std::size_t>(problem.width)), {}};
  for (int i = 0; i < problem.width; i += 4) {
    const std::uint32_t four = four_codes((static_cast<std::uint64_t>(index) * problem.width + i) / 4, seed);
    std::memcpy(row.codes.data() + i, &four, 4);
  }
  for (int b = 0; b < problem.width / kBlock; ++b) {
    const std::uint64_t at = static_cast<std::uint64_t>(index) * (problem.width / kBlock) + b;
    row.scales.push_back(weight ? widen_half(half_bits(at, problem.seed + kWeightScaleSeed))
                                : scale_value(at, problem.seed + kActivationScaleSeed));
  }
  return row;
}

float add_block(float lane, const Q8Row& weight, const Q8Row& activation, int block) {
  std::int32_t dot = 0;
  for (int i = block * kBlock; i < (block + 1) * kBlock; ++i) dot += weight.codes[i] * activation.codes[i];
  const float term = static_cast<float>(dot) * weight.scales[block];
  return std::fma(term, activation.scales[block], lane);
}

float literal_dot(const Q8Row& weight, const Q8Row& activation, int width) {
  float sum = 0;
  for (int begin = 0; begin < width; begin += kChunk) {
    const int length = std::min(kChunk, width - begin), lanes = block_lanes_of(length);
    float lane[kMaxLanes] = {};
    for (int b = 0; b < length / kBlock; ++b)
      lane[b % lanes] = add_block(lane[b % lanes], weight, activation, begin / kBlock + b);
    const float chunk = fold(lane, lanes);
    sum = begin == 0 ? chunk : sum + chunk;
  }
  return sum;
}

float walked_dot(const Q8Row& weight, const Q8Row& activation, int width, Order order) {
  float sum = 0;
  int walk = 0;
  for (int begin = 0; begin < width / kBlock; begin += order.chunk_blocks()) {
    float chunk = 0;
    for (int c = 0; c < order.columns; ++c) {
      float column = 0;
      for (int g = 0; g < order.lanes_per_column; ++g) {
        float lane = 0;
        for (int i = 0; i < order.lane_blocks; ++i) lane = add_block(lane, weight, activation, order.block_at(walk++));
        column = g == 0 ? lane : column + lane;
      }
      chunk = c == 0 ? column : chunk + column;
    }
    sum = begin == 0 ? chunk : sum + chunk;
  }
  return sum;
}

float octet_dot(const std::vector<float>& weight, const std::vector<float>& activation, bool one_chain) {
  const int width = static_cast<int>(weight.size());
  float sum = 0;
  if (one_chain) {
    for (int k = 0; k < width; ++k) sum = std::fma(weight[k], activation[k], sum);
    return sum;
  }
  for (int begin = 0; begin < width; begin += kChunk) {
    const int length = std::min(kChunk, width - begin), lanes = octet_lanes_of(length);
    float partial[kMaxLanes][kOctet] = {};
    for (int k = begin; k < begin + length; ++k) {
      float& p = partial[(k - begin) / kOctet % lanes][k % kOctet];
      p = std::fma(weight[k], activation[k], p);
    }
    float lane[kMaxLanes];
    for (int l = 0; l < lanes; ++l) {
      lane[l] = partial[l][0];
      for (int p = 1; p < kOctet; ++p) lane[l] = lane[l] + partial[l][p];
    }
    const float chunk = fold(lane, lanes);
    sum = begin == 0 ? chunk : sum + chunk;
  }
  return sum;
}

/// Calls body(i) for every i in [0, count), shared out over the machine's cores.
void for_each(int count, const std::function<void(int)>& body) {
  const int threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t)
    workers.emplace_back([=, &body] {
      for (int i = t; i < count; i += threads) body(i);
    });
  for (auto& worker : workers) worker.join();
}

}  // namespace

std::vector<float> reference_q8(const Q8Problem& problem, Order order, bool literal, const std::vector<int>& row_ids,
                                const std::vector<int>& token_ids) {
  std::vector<Q8Row> activations(token_ids.size());
  for_each(static_cast<int>(token_ids.size()), [&](int t) { activations[t] = make_row(problem, token_ids[t], false); });
  std::vector<float> out(row_ids.size() * token_ids.size());
  for_each(static_cast<int>(row_ids.size()), [&](int r) {
    const Q8Row weight = make_row(problem, row_ids[r], true);
    for (std::size_t t = 0; t < token_ids.size(); ++t)
      out[r * token_ids.size() + t] = literal ? literal_dot(weight, activations[t], problem.width)
                                              : walked_dot(weight, activations[t], problem.width, order);
  });
  return out;
}

std::vector<float> reference_f16(const Q8Problem& problem, bool one_chain, const std::vector<int>& row_ids,
                                 const std::vector<int>& token_ids) {
  const auto width = static_cast<std::size_t>(problem.width);
  std::vector<std::vector<float>> activations(token_ids.size(), std::vector<float>(width));
  for_each(static_cast<int>(token_ids.size()), [&](int t) {
    for (std::size_t k = 0; k < width; ++k)
      activations[t][k] = activation_value(token_ids[t] * width + k, problem.seed + kActivationSeed);
  });
  std::vector<float> out(row_ids.size() * token_ids.size());
  for_each(static_cast<int>(row_ids.size()), [&](int r) {
    std::vector<float> weight(width);
    for (std::size_t k = 0; k < width; ++k)
      weight[k] = widen_half(half_bits(row_ids[r] * width + k, problem.seed + kWeightSeed));
    for (std::size_t t = 0; t < token_ids.size(); ++t)
      out[r * token_ids.size() + t] = octet_dot(weight, activations[t], one_chain);
  });
  return out;
}

std::vector<int> sample(int n, int count) {
  std::vector<int> ids;
  if (count >= n) {
    for (int i = 0; i < n; ++i) ids.push_back(i);
    return ids;
  }
  for (int i = 0; i < count; ++i)  // the first, the last, an irregular stride between, so that tiles are hit anywhere
    ids.push_back(i == count - 1 ? n - 1
                                 : std::min(n - 1, static_cast<int>(static_cast<long long>(i) * n / count) + i % 5));
  return ids;
}

Compared compare(const DeviceArray<float>& out, int rows, const std::vector<float>& expected,
                 const std::vector<int>& row_ids, const std::vector<int>& token_ids) {
  Compared compared{expected.size(), 0};
  std::vector<float> token_out(static_cast<std::size_t>(rows));
  for (std::size_t t = 0; t < token_ids.size(); ++t) {
    check(cudaMemcpy(token_out.data(), out.data() + static_cast<std::size_t>(token_ids[t]) * rows,
                     token_out.size() * sizeof(float), cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    for (std::size_t r = 0; r < row_ids.size(); ++r)
      compared.wrong += std::memcmp(&token_out[row_ids[r]], &expected[r * token_ids.size() + t], 4) != 0;
  }
  return compared;
}

}  // namespace lockstep::law
