// A token from a row of logits, by the rules of ops/draw.h: one block a row.
//
// Everything that is added is an integer, so it is added in any order. A token whose weight is not 0 lies within 28
// temperatures below the greatest logit. What top-k and top-p keep ends at one key (ops/rows.h, ranking_key): a
// histogram over these 28 temperatures, in equal steps, tells in which step that key lies; if many keys do, histograms
// over their range divide it until a few are left, which are then compared with each other. The draw goes by ascending
// id: the sums of 32 stretches of the row, then the stretch in which the target is passed. Exponentials are made again
// in each pass over the row. There are two to draw from all of it, four with top-p, six with a large top-k before that;
// up to 256 tokens that top-k keeps lie in shared memory after the fourth.
#include "gpu/device.h"
#include "gpu/kernels.h"
#include "ops/draw.h"
#include "ops/rows.h"

namespace lockstep::gpu {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / kWarp;
constexpr int kBins = kThreads, kHeld = 256;
constexpr int kAhead = 4;         // values of a row that a thread has asked for
constexpr float kBinsAUnit = 36;  // of the exponent
static_assert(-kLowestDrawn * kBinsAUnit < kBins);

struct Room {
  std::uint64_t of_warps[kWarps];
  std::uint32_t count[kBins], low[kBins], high[kBins];  // of every bin: keys, and the two halves of a sum
  std::uint64_t keys[kHeld], weights[kHeld];
  std::uint64_t before, found;
  int held, bin;
};

/// The row of a block, and the lowest key of it that is kept.
struct Drawn {
  const float* values;
  int width;
  float greatest, temperature;
  std::uint64_t cut;

  LOCKSTEP_DEVICE float exponent(float value) const { return draw_exponent(value, greatest, temperature); }
  LOCKSTEP_DEVICE float power(float value) const { return exp_f32(exponent(value)); }
};

/// body(i, value) of values[i], i from `begin` in steps of `step`, several of them asked for at once; and of some i
/// from `end` on, where the value is -infinity.
template <class Body>
LOCKSTEP_DEVICE void for_each_value(const float* values, int begin, int end, int step, const Body& body) {
  for (int i = begin; i < end; i += kAhead * step) {
    float value[kAhead];
#pragma unroll
    for (int e = 0; e < kAhead; ++e) value[e] = i + e * step < end ? values[i + e * step] : -f32_of(kInfinity);
#pragma unroll
    for (int e = 0; e < kAhead; ++e) body(i + e * step, value[e]);
  }
}

LOCKSTEP_DEVICE std::uint64_t shuffle_long(std::uint64_t value, int lane) {
  const auto low = static_cast<std::uint32_t>(shuffle(static_cast<int>(value), lane));
  const auto high = static_cast<std::uint32_t>(shuffle(static_cast<int>(value >> 32), lane));
  return static_cast<std::uint64_t>(high) << 32 | low;
}

LOCKSTEP_DEVICE std::uint32_t add_to(std::uint32_t* to, std::uint32_t value) {
  return static_cast<std::uint32_t>(atomic_add(reinterpret_cast<int*>(to), static_cast<int>(value)));
}

/// The greatest of all threads' keys, the same in all of them.
LOCKSTEP_DEVICE std::uint64_t greatest_key(Room& room, std::uint64_t key) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const std::uint64_t other = shuffle_long(key, lane_index() ^ mask);
    key = other > key ? other : key;
  }
  block_barrier();  // whoever read the last ones has them
  if (lane_index() == 0) room.of_warps[thread_index() / kWarp] = key;
  block_barrier();
#pragma unroll 4
  for (int w = 0; w < kWarps; ++w) key = room.of_warps[w] > key ? room.of_warps[w] : key;
  return key;
}

struct Sums {
  std::uint64_t to_here;      // of the threads up to this one, itself included
  std::uint64_t before_warp;  // of the threads of the warps before this one's
  std::uint64_t total;
};
LOCKSTEP_DEVICE Sums sums_of(Room& room, std::uint64_t value) {
  const int lane = lane_index(), warp = thread_index() / kWarp;
  for (int step = 1; step < kWarp; step *= 2) {
    const std::uint64_t other = shuffle_long(value, lane >= step ? lane - step : lane);
    if (lane >= step) value += other;
  }
  block_barrier();  // as above
  if (lane == kWarp - 1) room.of_warps[warp] = value;
  block_barrier();
  Sums sums = {value, 0, 0};
#pragma unroll 4
  for (int w = 0; w < kWarps; ++w) {
    if (w == warp) sums.before_warp = sums.total;
    sums.total += room.of_warps[w];
  }
  sums.to_here += sums.before_warp;
  return sums;
}

/// What a thread adds to a histogram: neighbours in one bin are added up first, so that a flat row does not make all
/// threads wait for one bin.
struct Adder {
  int bin = 0;
  std::uint32_t count = 0;
  std::uint64_t sum = 0;

  LOCKSTEP_DEVICE void flush(Room& room) {
    if (count == 0) return;
    add_to(&room.count[bin], count);
    const auto low = static_cast<std::uint32_t>(sum);
    const std::uint32_t before = add_to(&room.low[bin], low);
    const std::uint32_t high = static_cast<std::uint32_t>(sum >> 32) + (before + low < before ? 1u : 0u);
    if (high != 0) add_to(&room.high[bin], high);
    count = 0;
    sum = 0;
  }
  LOCKSTEP_DEVICE void add(Room& room, int to, std::uint64_t value) {
    if (to != bin) flush(room);
    bin = to;
    ++count;
    sum += value;
  }
};

/// Empties the histogram. Before and after it is a barrier's.
LOCKSTEP_DEVICE void clear_bins(Room& room) {
  block_barrier();
  room.count[thread_index()] = room.low[thread_index()] = room.high[thread_index()] = 0;
  block_barrier();
}

struct Crossing {
  int bin;
  int count;             // of keys in it
  std::uint64_t before;  // the sum of the bins before it
};
/// Where the running sum of the bins reaches `wanted`, which is at least 1 and at most their total.
LOCKSTEP_DEVICE Crossing crossing_of(Room& room, const Sums& sums, std::uint64_t own, std::uint64_t wanted) {
  if (sums.to_here >= wanted && sums.to_here - own < wanted) {
    room.bin = thread_index();
    room.before = sums.to_here - own;
  }
  block_barrier();
  return {room.bin, static_cast<int>(room.count[room.bin]), room.before};
}

LOCKSTEP_DEVICE std::uint64_t sum_of_bin(const Room& room, int bin) {
  return static_cast<std::uint64_t>(room.high[bin]) << 32 | room.low[bin];
}

/// The key at which the sum of measures, from the greatest key down, reaches what is wanted: of the tokens that are
/// kept and within reach. A measure is 1, or the weight if `by_weight`. `wanted_of` says by the sum of all what is
/// wanted; 0: nothing is to be cut.
template <class WantedOf>
LOCKSTEP_DEVICE std::uint64_t find_cut(Room& room, const Drawn& row, bool by_weight, const WantedOf& wanted_of) {
  const int t = thread_index();
  const auto measure = [&](float exponent) { return by_weight ? draw_weight(exp_f32(exponent)) : std::uint64_t{1}; };
  const auto bin_of = [](float exponent) { return static_cast<int>(-exponent * kBinsAUnit); };
  clear_bins(room);
  Adder adder;
  for_each_value(row.values, t, row.width, kThreads, [&](int i, float value) {
    const float exponent = row.exponent(value);
    if (exponent >= kLowestDrawn && ranking_key(value, i) >= row.cut)
      adder.add(room, bin_of(exponent), measure(exponent));
  });
  adder.flush(room);
  block_barrier();
  std::uint64_t own = sum_of_bin(room, t);
  Sums sums = sums_of(room, own);
  std::uint64_t wanted = wanted_of(sums.total);
  if (wanted == 0) return row.cut;
  Crossing crossing = crossing_of(room, sums, own, wanted);
  wanted -= crossing.before;

  // The keys of that bin from `lowest` to `highest`.
  const int bin = crossing.bin;
  std::uint64_t lowest = row.cut, highest = ~std::uint64_t{0};
  const auto for_each_there = [&](const auto& body) {
    for_each_value(row.values, t, row.width, kThreads, [&](int i, float value) {
      const float exponent = row.exponent(value);
      if (!(exponent >= kLowestDrawn) || bin_of(exponent) != bin) return;
      const std::uint64_t key = ranking_key(value, i);
      if (key >= lowest && key <= highest) body(key, exponent);
    });
  };
  if (crossing.count > kHeld) {
    std::uint64_t most = 0, most_of_inverse = 0;
    for_each_there([&](std::uint64_t key, float) {
      most = key > most ? key : most;
      most_of_inverse = ~key > most_of_inverse ? ~key : most_of_inverse;
    });
    highest = greatest_key(room, most);
    lowest = ~greatest_key(room, most_of_inverse);
  }
  while (crossing.count > kHeld) {
    int shift = 0;
    while ((highest - lowest) >> shift >= static_cast<std::uint64_t>(kBins)) ++shift;
    clear_bins(room);
    for_each_there([&](std::uint64_t key, float exponent) {
      adder.add(room, static_cast<int>((highest - key) >> shift), measure(exponent));
    });
    adder.flush(room);
    block_barrier();
    own = sum_of_bin(room, t);
    sums = sums_of(room, own);
    crossing = crossing_of(room, sums, own, wanted);
    wanted -= crossing.before;
    highest -= static_cast<std::uint64_t>(crossing.bin) << shift;
    const std::uint64_t step = (std::uint64_t{1} << shift) - 1;
    lowest = highest - lowest > step ? highest - step : lowest;
  }

  if (t == 0) room.held = 0;
  block_barrier();
  for_each_there([&](std::uint64_t key, float exponent) {
    const int at = atomic_add(&room.held, 1);
    room.keys[at] = key;
    room.weights[at] = measure(exponent);
  });
  block_barrier();
  const int held = room.held;
  if (t < held) {
    const std::uint64_t key = room.keys[t];
    std::uint64_t sum = 0;
    for (int other = 0; other < held; ++other) sum += room.keys[other] >= key ? room.weights[other] : 0;
    if (sum >= wanted && sum - room.weights[t] < wanted) room.found = key;
  }
  block_barrier();
  return room.found;
}

/// The rest of the rules for few tokens: the keys from row.cut on, `count` of them.
LOCKSTEP_DEVICE void draw_from_held(Token* out, Room& room, const Drawn& row, const DrawChoice& choice, int count) {
  const int t = thread_index();
  if (t == 0) room.held = 0;
  block_barrier();
  for_each_value(row.values, t, row.width, kThreads, [&](int i, float value) {
    const std::uint64_t key = ranking_key(value, i);
    if (key < row.cut) return;
    const int at = atomic_add(&room.held, 1);
    room.keys[at] = key;
    room.weights[at] = draw_weight(row.power(value));
  });
  block_barrier();
  const auto total = [&] {
    std::uint64_t sum = 0;
    for (int other = 0; other < count; ++other) sum += room.weights[other];
    return sum;
  };
  const bool is_mine = t < count;
  const std::uint64_t key = is_mine ? room.keys[t] : 0;
  bool is_kept = is_mine;
  if (is_mine && choice.top_p < 1) {
    std::uint64_t before = 0;
    for (int other = 0; other < count; ++other) before += room.keys[other] > key ? room.weights[other] : 0;
    is_kept = before < enough_weight(choice.top_p, total());
  }
  if (is_mine && choice.min_p > 0) is_kept = is_kept && !(row.power(row.values[ranked_id(key)]) < choice.min_p);
  block_barrier();
  if (is_mine && !is_kept) room.weights[t] = 0;
  block_barrier();
  if (!is_mine) return;
  const std::uint64_t target = draw_target(choice, total());
  std::uint64_t sum = 0;
  for (int other = 0; other < count; ++other)
    sum += ranked_id(room.keys[other]) <= ranked_id(key) ? room.weights[other] : 0;
  if (sum > target && sum - room.weights[t] <= target) *out = ranked_id(key);
}

/// The last two rules.
LOCKSTEP_DEVICE void draw_from_row(Token* out, Room& room, const Drawn& row, const DrawChoice& choice) {
  const int t = thread_index();
  const auto weight = [&](int i, float value) {
    const float power = row.power(value);
    const bool is_kept = ranking_key(value, i) >= row.cut && !(choice.min_p > 0 && power < choice.min_p);
    return is_kept ? draw_weight(power) : std::uint64_t{0};
  };
  // A stretch of the row a warp.
  const int stretch = (row.width + kThreads - 1) / kThreads * kWarp;
  const auto end_of = [&](int begin, int count) { return begin + count < row.width ? begin + count : row.width; };
  const int my_begin = t / kWarp * stretch, my_end = end_of(my_begin, stretch);
  std::uint64_t own = 0;
  for_each_value(row.values, my_begin + lane_index(), my_end, kWarp,
                 [&](int i, float value) { own += weight(i, value); });
  Sums sums = sums_of(room, own);
  const std::uint64_t target = draw_target(choice, sums.total);
  if (sums.to_here > target && sums.to_here - own <= target) {
    room.bin = t / kWarp;
    room.before = sums.before_warp;
  }
  block_barrier();
  // A run of that stretch a thread.
  const std::uint64_t before = room.before;
  const int run = (stretch + kThreads - 1) / kThreads, first = room.bin * stretch, last = end_of(first, stretch);
  const int run_begin = first + t * run, run_end = run_begin + run < last ? run_begin + run : last;
  own = 0;
  for (int i = run_begin; i < run_end; ++i) own += weight(i, row.values[i]);
  sums = sums_of(room, own);
  std::uint64_t sum = before + sums.to_here - own;
  if (sum > target || sum + own <= target) return;
  for (int i = run_begin; i < run_end; ++i) {
    sum += weight(i, row.values[i]);
    if (sum > target) {
      *out = i;
      return;
    }
  }
}

LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kThreads, 1) draw_kernel(Token* tokens, ConstRows x, const DrawChoice* choices) {
  follow_launch();
  LOCKSTEP_SHARED Room room;
  const int t = thread_index();
  const DrawChoice choice = choices[block_x()];
  Token* out = tokens + block_x();
  Drawn row = {x.data + choice.row * x.stride, x.width, 0, choice.temperature, 0};
  std::uint64_t key = 0;
  for_each_value(row.values, t, row.width, kThreads, [&](int i, float value) {
    const std::uint64_t other = value == value ? ranking_key(value, i) : ~std::uint64_t{0};
    key = other > key ? other : key;
  });
  key = greatest_key(room, key);
  // Only a finite value can be the greatest: infinities and NaN rank above all of them, -infinity below.
  const bool is_finite =
      key >= ranking_key(-f32_of(0x7f7fffffu), 0x7fffffff) && key < ranking_key(f32_of(0x7f800000u), 0x7fffffff);
  if (!is_finite || choice.temperature == 0) {
    if (t == 0) *out = is_finite ? ranked_id(key) : -1;
    return;
  }
  row.greatest = row.values[ranked_id(key)];
  if (choice.top_k > 0 && choice.top_k < row.width) {
    // Where fewer are within reach, all of them are kept: the others weigh nothing.
    const auto wanted = static_cast<std::uint64_t>(choice.top_k);
    row.cut = find_cut(room, row, false, [&](std::uint64_t all) { return all > wanted ? wanted : 0; });
    if (row.cut != 0 && choice.top_k <= kHeld) return draw_from_held(out, room, row, choice, choice.top_k);
  }
  if (choice.top_p < 1)
    row.cut = find_cut(room, row, true, [&](std::uint64_t all) { return enough_weight(choice.top_p, all); });
  draw_from_row(out, room, row, choice);
}

}  // namespace

void draw(Runtime& runtime, Token* out, ConstRows x, const DrawChoice* choices, int count) {
  if (count > 0) launch(runtime, draw_kernel, {static_cast<unsigned>(count)}, kThreads, 0, out, x, choices);
}

}  // namespace lockstep::gpu
