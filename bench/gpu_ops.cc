// How long single ops take on a GPU, in chains as a step has them: `bench_gpu_ops [PART [FORMAT [TOKENS]]]`, where PART
// is products (TOKENS: of so many, else of one), tiles (FORMAT: of that alone), rows, attention, decode (attention of
// one and of eight sequences' tokens) or index (its deepest case, for a profiler); all of them if there is none.
//
// A chain of one op over rotating operands, together larger than the device's cache, is recorded as a step is
// (Ops::run) and played; what is printed is the time a play takes over the ops in it, the best of several. So it holds
// the launch, the ramp and what overlaps with the next launch, as in decoding. Operands are random bytes: what comes
// out means nothing, and tests/gpu_ops_test.cc has the bits.
#include "gpu/gpu_ops.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>
#include <string_view>
#include <vector>

#include "numerics/random.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

constexpr std::size_t kAtLeast = std::size_t{400} << 20;  // bytes of rotating weights
constexpr int kRounds = 5, kPlays = 4;

class Bench {
 public:
  Bench() : ops_(gpu::make_gpu_ops({})) { std::printf("%s\n", ops_->description().c_str()); }
  ~Bench() {
    ops_->synchronize();
    for (void* memory : memory_) ops_->release(memory);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  Ops& ops() { return *ops_; }

  template <class T>
  T* take(std::size_t count) {
    memory_.push_back(ops_->allocate(count * sizeof(T)));
    std::vector<T> values(count);
    for (std::size_t i = 0; i < count; ++i)  // one pattern of 65,536, again and again
      values[i] = i < 65536 ? static_cast<T>(random_u64(7, i) % 15) : values[i - 65536];
    ops_->upload(memory_.back(), values.data(), count * sizeof(T));
    ops_->synchronize();
    return static_cast<T*>(memory_.back());
  }
  Rows rows(int n, int width) { return {take<float>(static_cast<std::size_t>(n) * width), n, width, width}; }
  Input input(int n, int width) {
    const std::size_t values = static_cast<std::size_t>(n) * width;
    return {rows(n, width),
            {take<std::int8_t>(values), take<float>(values / 32), take<std::int16_t>(values / 16), n, width, width}};
  }
  /// Weights of one shape, as many as exceed the cache.
  std::vector<Weight> weights(DType dtype, int rows, int width, int planes, std::size_t read_bytes) {
    Weight w;
    w.dtype = dtype;
    w.rows = rows;
    w.width = width;
    w.planes = planes;
    w.row_bytes = row_bytes(dtype, width);
    std::vector<std::byte> bytes(w.row_bytes * static_cast<std::size_t>(rows) * static_cast<std::size_t>(planes));
    for (std::size_t i = 0; i < bytes.size(); ++i)  // one pattern of 64 KiB, again and again
      bytes[i] = i < 65536 ? static_cast<std::byte>(random_u64(11, i)) : bytes[i - 65536];
    w.data = bytes.data();
    std::vector<Weight> all;
    const std::size_t copies = std::clamp<std::size_t>((kAtLeast + read_bytes - 1) / read_bytes, 2, 64);
    for (std::size_t i = 0; i < copies; ++i) all.push_back(ops_->prepare(w));
    return all;
  }

  /// Microseconds an op, of `count` ops that `body` issues one by one.
  double time(int count, const std::function<void(int)>& body) {
    const std::vector<std::uint64_t> key = {++key_};
    const auto play = [&] {
      ops_->run(key, [&] {
        for (int i = 0; i < count; ++i) body(i);
      });
    };
    for (int i = 0; i < 4; ++i) {
      play();
      ops_->synchronize();  // as a step does, also before it is recorded
    }
    double best = 1e30;
    for (int round = 0; round < kRounds; ++round) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kPlays; ++i) play();
      ops_->synchronize();
      const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
      best = std::min(best, taken.count() / (kPlays * count));
    }
    return best;
  }

 private:
  std::unique_ptr<Ops> ops_;
  std::vector<void*> memory_;
  std::uint64_t key_ = 0;
};

struct Product {
  DType dtype;
  int rows, width, used;  // used: experts of a token; 0: an ordinary matrix
  bool is_pair = false;   // gate and up in one launch
  bool per_slot = false;
  int experts = 16;
};
constexpr Product kProducts[] = {
    {DType::q8_0, 8192, 4096, 0},
    {DType::q8_0, 32768, 1024, 0},
    {DType::q8_0, 4096, 8192, 0},
    {DType::q8_0, 4096, 2048, 0},
    {DType::q8_0, 1536, 4096, 0},
    {DType::q8_0, 129280, 4096, 0},
    {DType::f16, 24, 16384, 0},
    {DType::f16, 2624, 4096, 0},
    {DType::f16, 8192, 1024, 0},
    {DType::f16, 256, 4096, 0},
    {DType::iq2_xxs, 2048, 4096, 6, true},
    {DType::q2_k, 4096, 2048, 6, false, true},
    {DType::q4_k, 2048, 4096, 6, true},
    {DType::mxfp4, 2048, 4096, 6, true},
    {DType::iq2_xxs, 2048, 4096, 6, true, false, 256},
    {DType::q2_k, 4096, 2048, 6, false, true, 256},
};

constexpr int kFewTokens = 64;  // of which memory is what bounds

/// Experts of each slot: every one alike, or, of a few tokens, as chance has it.
std::vector<std::int32_t> chosen_experts(const Product& p, int tokens) {
  std::vector<std::int32_t> chosen(static_cast<std::size_t>(tokens * std::max(1, p.used)));
  for (std::size_t s = 0; s < chosen.size(); ++s) {
    const std::size_t used = static_cast<std::size_t>(std::max(1, p.used)), token = s / used;
    const std::size_t first = tokens > 1 && tokens <= kFewTokens ? random_u64(5, token) % 65536 : token * used * 7;
    chosen[s] = static_cast<std::int32_t>((first + s % used * 7) % static_cast<std::size_t>(p.experts));
  }
  return chosen;
}

void measure_product(const Product& p, int tokens) {
  Bench bench;
  Ops& ops = bench.ops();
  const int slots = p.used > 0 ? tokens * p.used : tokens, parts = p.is_pair ? 2 : 1;
  const std::size_t matrix = row_bytes(p.dtype, p.width) * static_cast<std::size_t>(p.rows);
  const std::vector<std::int32_t> chosen = chosen_experts(p, tokens);
  const std::size_t planes = p.used > 0 ? std::set(chosen.begin(), chosen.end()).size() : 1;
  const std::size_t read = matrix * static_cast<std::size_t>(parts) * planes;
  const Input x = bench.input(p.per_slot ? slots : tokens, p.width);
  const Rows out[] = {bench.rows(slots, p.rows), bench.rows(slots, p.rows)};
  Route route = {bench.take<std::int32_t>(chosen.size()), bench.take<float>(chosen.size()), tokens, p.used};
  ops.upload(route.expert, chosen.data(), chosen.size() * sizeof(std::int32_t));
  std::vector<Weight> all = bench.weights(p.dtype, p.rows, p.width, p.used > 0 ? p.experts : 1, read / parts);
  const int count = static_cast<int>(all.size()) / parts;
  const double us = bench.time(count, [&](int i) {
    const Weight* w = &all[static_cast<std::size_t>(i * parts)];
    if (p.used == 0) return ops.matmul(out[0], *w, x);
    if (!p.is_pair) return ops.matmul_experts(out[0], *w, x, route, p.per_slot);
    const Ops::Part both[] = {{out[0], &w[0]}, {out[1], &w[1]}};
    ops.matmul_experts_many(both, x, route, p.per_slot);
  });
  const double operations = 2.0 * p.rows * p.width * slots * parts;
  std::printf("%-8s %6d x %5d  %2d of %3d%-6s %5d tokens %9.2f us", std::string(info_of(p.dtype).name).c_str(), p.rows,
              p.width, p.used == 0 ? 1 : p.used, p.used == 0 ? 1 : p.experts, p.is_pair ? " twice" : "", tokens, us);
  if (tokens <= kFewTokens)
    std::printf("  %5.2f TB/s\n", static_cast<double>(read) / us * 1e-6);
  else
    std::printf("  %6.1f TOP/s\n", operations / us * 1e-6);
  if (p.is_pair && tokens <= kFewTokens) {
    const Input middle = bench.input(slots, p.rows);
    const double gated = bench.time(count, [&](int i) {
      const Weight* w = &all[static_cast<std::size_t>(i * parts)];
      ops.matmul_experts_gated(out[0], out[1], middle.rounded, w[0], w[1], x, route, 10.0f);
    });
    std::printf("%-8s the same, with SwiGLU and rounding %28.2f us\n", std::string(info_of(p.dtype).name).c_str(),
                gated);
  }
  std::fflush(stdout);
}

/// The second half of a layer's experts, behind the first one: gate and up, then down, sum and streams.
void measure_experts() {
  constexpr int kWidth = 4096, kMiddle = 2048, kExperts = 64, kUsed = 6;
  Bench bench;
  Ops& ops = bench.ops();
  const std::size_t read = std::size_t{80} << 20;
  const std::vector<Weight> gates = bench.weights(DType::iq2_xxs, kMiddle, kWidth, kExperts, read),
                            ups = bench.weights(DType::iq2_xxs, kMiddle, kWidth, kExperts, read),
                            downs = bench.weights(DType::q2_k, kWidth, kMiddle, kExperts, read),
                            shareds = bench.weights(DType::q8_0, kWidth, kMiddle, 1, read);
  const int count = static_cast<int>(gates.size());
  for (const int tokens : {1, 8, 32}) {
    const int slots = tokens * kUsed;
    const Input x = bench.input(tokens, kWidth), mid = bench.input(slots, kMiddle),
                shared_mid = bench.input(tokens, kMiddle);
    const Rows gate = bench.rows(slots, kMiddle), up = bench.rows(slots, kMiddle), parts = bench.rows(slots, kWidth),
               y = bench.rows(tokens, kWidth), shared = bench.rows(tokens, kWidth),
               streams = bench.rows(tokens, 4 * kWidth), coefficients = bench.rows(tokens, 24);
    const Route route = {bench.take<std::int32_t>(static_cast<std::size_t>(slots)),
                         bench.take<float>(static_cast<std::size_t>(slots)), tokens, kUsed};
    std::vector<std::int32_t> chosen(static_cast<std::size_t>(slots));
    for (std::size_t s = 0; s < chosen.size(); ++s)
      chosen[s] = static_cast<std::int32_t>((random_u64(5, s / kUsed) % kExperts + s % kUsed * 7) % kExperts);
    ops.upload(route.expert, chosen.data(), chosen.size() * sizeof(std::int32_t));
    const auto report = [&](const char* name, const std::function<void(std::size_t)>& body) {
      std::printf("%-50s %2d tokens %7.2f us\n", name, tokens,
                  bench.time(count, [&](int i) { body(static_cast<std::size_t>(i)); }));
      std::fflush(stdout);
    };
    const auto first = [&](std::size_t i) {
      ops.matmul_experts_gated(gate, up, mid.rounded, gates[i], ups[i], x, route, 10.0f);
    };
    report("gate and up", first);
    report("gate and up, down, sum over the streams", [&](std::size_t i) {
      first(i);
      ops.matmul_experts(parts, downs[i], mid, route, true);
      ops.combine_expand(streams, y, parts, route, shared, coefficients);
    });
    report("the shared expert's down", [&](std::size_t i) { ops.matmul(shared, shareds[i], shared_mid); });
    report("gate and up, both downs and sum in one", [&](std::size_t i) {
      first(i);
      ops.matmul_experts_expand(streams, y, parts, shared, downs[i], mid, route, shareds[i], shared_mid, coefficients);
    });
    report("down alone", [&](std::size_t i) { ops.matmul_experts(parts, downs[i], mid, route, true); });
    report("both downs and sum in one, alone", [&](std::size_t i) {
      ops.matmul_experts_expand(streams, y, parts, shared, downs[i], mid, route, shareds[i], shared_mid, coefficients);
    });
  }
}

void measure_rows() {
  constexpr int kWidth = 4096, kCount = 64;
  Bench bench;
  Ops& ops = bench.ops();
  const auto report = [&](const char* name, const std::function<void(int)>& body) {
    std::printf("%-40s %7.2f us\n", name, bench.time(kCount, body));
  };
  const Rows streams = bench.rows(1, 4 * kWidth), coefficients = bench.rows(1, 24);
  const Input low = bench.input(1, 1024), heads = bench.input(1, 32768);
  const Rows y = bench.rows(1, kWidth), turns = bench.rows(1, 64), slots = bench.rows(6, 2048),
             up = bench.rows(6, 2048);
  const Rows parts = bench.rows(6, kWidth), logits = bench.rows(1, 256);
  const Input gated = bench.input(6, 2048);
  const float* scale = bench.take<float>(3);
  const float* base = bench.take<float>(24);
  const float* norm = bench.take<float>(kWidth);
  const Route route = {bench.take<std::int32_t>(6), bench.take<float>(6), 1, 6};
  Rows all_heads = {const_cast<float*>(heads.values.data), 1, 32768, 32768};
  const std::vector<Weight> fn = bench.weights(DType::f16, 24, 4 * kWidth, 1, std::size_t{24} * 4 * kWidth * 2);
  for (const int tokens : {1, 2, 4, 8}) {
    Input several;
    several.values = bench.rows(tokens, 4 * kWidth);
    const Input begun = bench.input(tokens, kWidth);
    const Rows begun_values = {const_cast<float*>(begun.values.data), tokens, kWidth, kWidth},
               split = bench.rows(tokens, 24), mixed = bench.rows(tokens, 24);
    report(("hyper_begin, tokens " + std::to_string(tokens)).c_str(), [&](int i) {
      ops.hyper_begin(split, begun_values, &begun.rounded, mixed, fn[static_cast<std::size_t>(i) % fn.size()], several,
                      scale, base, {4, 20, 1e-6f, 1e-6f}, norm, 1e-6f);
    });
  }
  report("hyper_expand", [&](int) { ops.hyper_expand(streams, y, coefficients); });
  report("combine_expand", [&](int) { ops.combine_expand(streams, y, parts, route, y, coefficients); });
  report("rms_norm_round, 1024", [&](int) {
    ops.rms_norm_round({const_cast<float*>(low.values.data), 1, 1024, 1024}, low.rounded, low.values, norm, 1e-6f);
  });
  report("norm_rotate, 64 heads", [&](int) { ops.norm_rotate(all_heads, 512, nullptr, 1e-6f, turns, 0); });
  report("rotate_round, 64 heads", [&](int) { ops.rotate_round(all_heads, heads.rounded, 512, turns, true); });
  report("rotate_hadamard_fp4, 64 heads", [&](int) {
    ops.rotate_hadamard_fp4({all_heads.data, 1, 8192, 8192}, 128, turns);
  });
  report("round, 8192", [&](int) {
    ops.round({heads.rounded.codes, heads.rounded.scales, heads.rounded.half_sums, 1, 8192, 8192},
              ConstRows(all_heads.data, 1, 8192, 8192));
  });
  report("route_experts, 256", [&](int) { ops.route_experts(route, logits, nullptr, nullptr, nullptr, 1.5f); });
  report("swiglu_round, 6 x 2048", [&](int) { ops.swiglu_round(slots, gated.rounded, slots, up, nullptr, 10.0f); });
}

/// Attention and the indexer's choice, in the model's shape, of a step of `sequences` times `tokens` tokens, each
/// sequence's from `begin` on. Of few tokens attention is measured as a step has it, with norm, rotations and rounding.
void measure_attention(Position begin, int ratio, int sequences = 1, int tokens = 2048) {
  constexpr int kHeads = 64, kWidth = 512, kKeyWidth = 128, kWindow = 128, kTopK = 512;
  const int n = sequences * tokens, count = n > 8 ? 4 : 24;
  Bench bench;
  Ops& ops = bench.ops();
  const RowLayout layout = {Mode::official, kWidth, 64, kKeyWidth};
  // Packed rows whose exponents, from byte `first` to `last`, are ordinary. No two keys are alike, lest their scores
  // be.
  const auto packed = [&](std::size_t rows, std::size_t bytes, std::size_t first, std::size_t last) {
    std::vector<std::byte> values(rows * bytes);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] =
          i % bytes >= first && i % bytes < last ? std::byte{120} : static_cast<std::byte>(random_u64(11, i) % 119);
    auto* data = bench.take<std::byte>(values.size());
    ops.upload(data, values.data(), values.size());
    ops.synchronize();
    return data;
  };
  const auto pages_of = [&](std::size_t bytes, std::size_t first, std::size_t last) {
    const auto page_count = static_cast<std::size_t>((begin + tokens) / ratio / kPageRows + 1);
    std::byte* const data = packed(page_count * kPageRows, bytes, first, last);
    std::vector<std::byte*> pages;
    for (std::size_t p = 0; p < page_count; ++p) pages.push_back(data + p * kPageRows * bytes);
    auto* table = bench.take<std::uint64_t>(page_count);
    ops.upload(table, pages.data(), page_count * sizeof(std::byte*));
    ops.synchronize();
    return reinterpret_cast<std::byte* const*>(table);
  };
  std::vector<SequenceSlice> all(static_cast<std::size_t>(sequences));
  for (int s = 0; s < sequences; ++s) {
    SequenceSlice& slice = all[static_cast<std::size_t>(s)];
    slice.first_row = s * tokens;
    slice.rows = tokens;
    slice.begin = begin;
    slice.window_slots = kWindow + 16;
    slice.window = packed(static_cast<std::size_t>(slice.window_slots), layout.row_bytes(), kWidth - 64, kWidth - 57);
    slice.pages = pages_of(layout.row_bytes(), kWidth - 64, kWidth - 57);
    slice.key_pages = pages_of(layout.key_bytes(), kKeyWidth / 2, layout.key_bytes());
  }
  auto* memory = reinterpret_cast<SequenceSlice*>(bench.take<std::byte>(all.size() * sizeof(SequenceSlice)));
  ops.upload(memory, all.data(), all.size() * sizeof(SequenceSlice));
  ops.synchronize();
  const Slices slices = {all, memory};
  const Input heads = bench.input(n, kHeads * kWidth);
  const Rows queries = {const_cast<float*>(heads.values.data), n, kHeads * kWidth, kHeads * kWidth},
             rows = bench.rows(n, kWidth), keys = bench.rows(n, kHeads * kKeyWidth), weights = bench.rows(n, kHeads),
             turns = bench.rows(n, 64);
  const std::size_t chosen = static_cast<std::size_t>(n) * kTopK;
  const Selection selection = {bench.take<std::int32_t>(chosen), bench.take<std::int32_t>(static_cast<std::size_t>(n)),
                               kTopK};
  const float* sinks = bench.take<float>(kHeads);
  const auto report = [&](const char* name, double us) {
    std::printf("%-12s %2d x %4d tokens from %6d on, ratio %3d %9.2f us\n", name, sequences, tokens,
                static_cast<int>(begin), ratio, us);
    std::fflush(stdout);
  };
  if (ratio == 4) {
    ops.hadamard_fp4(keys, kKeyWidth);
    report("select_rows",
           bench.time(count, [&](int) { ops.select_rows(selection, slices, keys, weights, ratio, kTopK, layout); }));
  }
  const Selection* const chosen_rows = ratio == 4 ? &selection : nullptr;
  report(n > 8 ? "attend" : "attend_heads", bench.time(count, [&](int) {
    if (n > 8) return ops.attend(queries, queries, rows, slices, kWindow, ratio, chosen_rows, sinks, 0.044f, layout);
    ops.attend_heads(queries, &heads.rounded, rows, slices, kWindow, ratio, chosen_rows, sinks, 0.044f, turns, 1e-6f,
                     layout);
  }));
}

}  // namespace
}  // namespace lockstep

int main(int count, char** arguments) {
  const std::string_view part = count > 1 ? arguments[1] : "", format = count > 2 ? arguments[2] : "";
  const int tokens = count > 3 ? std::max(1, std::atoi(arguments[3])) : 1;
  if (part.empty() || part == "products")
    for (const lockstep::Product& product : lockstep::kProducts)
      if (product.experts == (tokens == 1 ? 16 : 256) || product.used == 0)
        if (format.empty() || lockstep::info_of(product.dtype).name == format)
          lockstep::measure_product(product, tokens);
  if (part.empty() || part == "rows") lockstep::measure_rows();
  if (part.empty() || part == "experts") lockstep::measure_experts();
  if (part.empty() || part == "tiles")
    for (const lockstep::Product& product : lockstep::kProducts)
      if (product.rows < 100000 && (format.empty() || lockstep::info_of(product.dtype).name == format))
        lockstep::measure_product(product, 2048);
  if (part == "index") lockstep::measure_attention(129024, 4);
  if (part.empty() || part == "decode")
    for (const lockstep::Position depth : {2048, 32768, 131072})
      for (const int ratio : {4, 128})
        for (const int sequences : {1, 8}) lockstep::measure_attention(depth - 1, ratio, sequences, 1);
  if (part.empty() || part == "attention")
    for (const lockstep::Position begin : {0, 6144, 30720, 129024})
      for (const int ratio : {4, 128}) lockstep::measure_attention(begin, ratio);
  return 0;
}
