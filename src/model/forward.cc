#include "model/forward.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"

namespace lockstep {
namespace {

bool is_quantised(const Weight& w) { return w.present() && info_of(w.dtype).quantised; }

bool any_quantised(std::initializer_list<const Weight*> weights) {
  return std::any_of(weights.begin(), weights.end(), [](const Weight* w) { return is_quantised(*w); });
}

}  // namespace

/// What a step carries from layer to layer. Pointers lie in the workspace.
struct Forward::Step {
  std::span<const BatchItem> items;
  int rows = 0;
  int layer = 0;  // that is being run
  Arena arena;
  // What varies from step to step while the sequence of ops stays the same. One upload brings all of it; the ops read
  // it in the back end's memory, the host plans by its own copy.
  Token* tokens = nullptr;
  Position* positions = nullptr;
  const std::int32_t* wanted = nullptr;   // rows with logits
  const SequenceSlice* slices = nullptr;  // [layers, items]
  const Ops::Copy* copies = nullptr;      // from the stage into the rings
  std::vector<SequenceSlice> host_slices;
  std::vector<Ops::Copy> host_copies;
  Rows turns, compressed_turns;  // cos, sin of every row's position
  Rows streams;
  std::vector<Stage> staged;  // by layer
};

Forward::Forward(const Config& config, const Weights& weights, Mode mode, Ops& ops, int max_rows)
    : config_(config), weights_(weights), ops_(ops), layout_(row_layout(config, mode)), max_rows_(max_rows) {
  LOCKSTEP_CHECK(max_rows > 0);
  hyper_ = {config.streams, config.sinkhorn_iterations, config.hyper_epsilon, config.norm_epsilon};
  workspace_ = Buffer(ops, workspace_bytes(config, max_rows));
}

/// An upper bound, by the same takes as the code below makes, with every input rounded. Arena::take checks it.
std::size_t Forward::workspace_bytes(const Config& c, int n) {
  Arena arena;
  const auto input = [&](int rows, int width) {
    arena.rows(rows, width);
    arena.rounded(rows, (width + 31) / 32 * 32);
  };
  const std::size_t rows = static_cast<std::size_t>(n), layers = c.layers.size();
  arena.take<Token>(rows);
  arena.take<Position>(rows);
  arena.take<std::int32_t>(rows);
  arena.take<SequenceSlice>(layers * rows);
  arena.take<Ops::Copy>(3 * layers * rows);
  arena.rows(n, 2 * c.rotary);
  arena.rows(n, c.streams * c.width);
  arena.rows(n, c.hyper_coefficients());
  arena.rows(n, c.width);
  const std::size_t sublayer = arena.used();
  const auto begin = [&] {
    arena.rounded(n, (c.streams * c.width + 31) / 32 * 32);
    arena.rows(n, c.hyper_coefficients());
    input(n, c.width);
  };
  begin();
  input(n, c.query_rank);
  input(n, c.heads * c.head_width);
  arena.rows(n, c.head_width);
  arena.rows(n, 4 * c.head_width);
  arena.rows(n, 4 * c.index_width);
  arena.rows(n, c.index_heads * c.index_width);
  arena.rows(n, c.index_heads);
  arena.take<std::int32_t>(static_cast<std::size_t>(n) * (c.index_top_k + 1));
  input(n, c.output_groups * c.output_rank);
  arena.reset(sublayer);
  begin();
  const int slots = n * c.experts_used;
  arena.rows(n, c.experts);
  arena.rows(slots, 2);
  arena.rows(n, c.width);
  arena.rows(n, c.expert_width);
  input(n, c.expert_width);
  arena.rows(slots, c.expert_width);
  input(slots, c.expert_width);
  arena.rows(slots, c.width);
  arena.reset(sublayer);
  arena.rows(n, c.streams * c.width);  // the head's gathered streams
  arena.rounded(n, (c.streams * c.width + 31) / 32 * 32);
  arena.rows(n, 4 * c.streams);
  return arena.peak() + 64 * 64;  // rounding up of the takes that are one here and two below
}

Slices Forward::slices(const Step& step, int layer) const {
  const std::size_t items = step.items.size(), first = static_cast<std::size_t>(layer) * items;
  return {std::span(step.host_slices).subspan(first, items), step.slices + first};
}

/// Hyper-connection in front of a sublayer: streams -> coefficients and the sublayer's normed input.
void Forward::begin_sublayer(Step& step, const HyperWeights& hyper, const float* norm, bool needs_rounded,
                             Rows coefficients, Input& x) {
  ops_.enter(StepPhase::hyper, step.layer);
  Input streams;
  streams.values = step.streams;
  if (is_quantised(hyper.fn)) {
    streams.rounded = step.arena.rounded(step.rows, step.streams.width);
    ops_.round(streams.rounded, step.streams);
  }
  const Rows mixes = step.arena.rows(step.rows, hyper.fn.rows);
  x = {};
  const Rows collapsed = step.arena.rows(step.rows, config_.width);
  x.values = collapsed;
  if (needs_rounded) x.rounded = step.arena.rounded(step.rows, config_.width);
  ops_.hyper_begin(coefficients, collapsed, needs_rounded ? &x.rounded : nullptr, mixes, hyper.fn, streams, hyper.scale,
                   hyper.base, hyper_, norm, config_.norm_epsilon);
}

void Forward::attention(Step& step, int index, Rows y, const Input& x, ConstRows coefficients) {
  const LayerConfig& layer = config_.layers[index];
  const LayerWeights& w = weights_.layers[index];
  const int n = step.rows;
  const Slices slices = this->slices(step, index);
  const bool compressed = layer.ratio != 0;
  const ConstRows turns = compressed ? step.compressed_turns : step.turns;
  const float* frequencies = compressed ? weights_.compressed_frequencies : weights_.frequencies;

  ops_.enter(StepPhase::attention, index);
  // The products for the compressors and the indexer in one op: most of them are small.
  std::vector<Ops::Part> parts;
  const auto product = [&](const Weight& weight) {
    parts.push_back({step.arena.rows(n, weight.rows), &weight});
    return parts.back().out;
  };
  const Rows low = step.arena.rows(n, w.query_a.rows), window_rows = step.arena.rows(n, w.kv.rows);
  Rows values, gates, key_values, key_gates, head_weights;
  if (compressed) {
    values = product(w.compressor.values);
    gates = product(w.compressor.gates);
  }
  if (layer.ratio == 4) {
    key_values = product(w.key_compressor.values);
    key_gates = product(w.key_compressor.gates);
    head_weights = product(w.index_heads);
  }

  const bool is_official = layout_.mode == Mode::official, has_index = layer.ratio == 4;
  const Rows queries = step.arena.rows(n, config_.heads * config_.head_width);
  const Rows index_queries = step.arena.rows(has_index ? n : 0, config_.index_heads * config_.index_width);
  Ops::NormedInput query = {low, w.query_norm, config_.norm_epsilon, low, {}, false};
  if (any_quantised({&w.query_b, &w.index_query})) query.rounded = step.arena.rounded(n, low.width);
  const auto make_queries = [&] {
    ops_.enter(StepPhase::attention, index);
    ops_.matmul_normed(queries, w.query_b, query);
  };
  const auto make_index_queries = [&] {
    ops_.enter(StepPhase::indexer, index);
    ops_.matmul_normed(index_queries, w.index_query, query);
    if (is_official)
      ops_.rotate_hadamard_fp4(index_queries, config_.index_width, turns);
    else
      ops_.rotate(index_queries, config_.index_width, turns, false);
  };
  const auto make_rows = [&] {
    const Stage& stage = step.staged[index];
    ops_.enter(StepPhase::attention, index);
    if (!parts.empty()) ops_.matmul_many(parts, x);
    Ops::KeptRows kept;
    kept.window_rows = window_rows;
    kept.norm = w.kv_norm;
    kept.epsilon = config_.norm_epsilon;
    kept.turns = turns;
    kept.fp8_channels = is_official ? layout_.fp8_channels() : 0;
    kept.stage = stage.window;
    kept.positions = step.positions;
    const auto keep = [&](const CompressorWeights& c, Rows c_values, Rows c_gates, int width, bool is_key,
                          float* c_stage) {
      kept.parts[kept.part_count++] = {c_values,
                                       c_gates,
                                       c.positions,
                                       {layer.ratio, width, is_key, c.norm, frequencies, config_.norm_epsilon},
                                       c_stage};
    };
    if (compressed) keep(w.compressor, values, gates, config_.head_width, false, stage.pending);
    if (has_index) {
      keep(w.key_compressor, key_values, key_gates, config_.index_width, true, stage.key_pending);
      const double keys = static_cast<double>(config_.index_heads) * config_.index_width;
      kept.head_weights = head_weights;
      kept.head_scale = static_cast<float>(1.0 / std::sqrt(keys));
    }
    if (compressed) ops_.enter(StepPhase::compressor, index);
    ops_.keep_rows(kept, slices, layout_);
  };
  ops_.matmul_many(std::array{Ops::Part{low, &w.query_a}, Ops::Part{window_rows, &w.kv}}, x);
  ops_.run_both(has_index ? std::function<void()>(make_index_queries) : make_queries, make_rows);

  // Small ops choose rows beside the large product.
  Selection selection;
  const auto choose_rows = [&] {
    ops_.enter(StepPhase::indexer, index);
    ops_.select_rows(selection, slices, index_queries, head_weights, layer.ratio, config_.index_top_k, layout_);
  };
  if (has_index) {
    selection = {step.arena.take<std::int32_t>(static_cast<std::size_t>(n) * config_.index_top_k),
                 step.arena.take<std::int32_t>(static_cast<std::size_t>(n)), config_.index_top_k};
    ops_.run_both(make_queries, choose_rows);
  }

  ops_.enter(StepPhase::attention, index);
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_width)));
  Input attended;
  attended.values = queries;
  const bool needs_rounded = is_quantised(w.output_a);
  if (needs_rounded) attended.rounded = step.arena.rounded(n, queries.width);
  ops_.attend_heads(queries, needs_rounded ? &attended.rounded : nullptr, window_rows, slices, config_.window,
                    layer.ratio, layer.ratio == 4 ? &selection : nullptr, w.sinks, scale, turns, config_.norm_epsilon,
                    layout_);

  Input grouped;
  const Rows groups = step.arena.rows(n, w.output_a.rows);
  grouped.values = groups;
  if (is_quantised(w.output_b)) {
    grouped.rounded = step.arena.rounded(n, groups.width);
    ops_.matmul_grouped_round(groups, grouped.rounded, w.output_a, attended, config_.output_groups);
  } else {
    ops_.matmul_grouped(groups, w.output_a, attended, config_.output_groups);
  }
  ops_.matmul_expand(step.streams, y, w.output_b, grouped, coefficients);
}

/// The experts of a layer, added and spread over the streams; y is room for their sum.
void Forward::experts(Step& step, int index, Rows y, const Input& x, ConstRows coefficients) {
  const LayerConfig& layer = config_.layers[index];
  const LayerWeights& w = weights_.layers[index];
  const int n = step.rows, slots = n * config_.experts_used;

  // gate is overwritten by the middle, whose rounded form the down matrix reads.
  const auto middle = [&](Rows gate, Rows up, const Weight& down, const float* row_weights, float limit) {
    Input input;
    input.values = gate;
    if (is_quantised(down)) {
      input.rounded = step.arena.rounded(gate.rows, gate.width);
      ops_.swiglu_round(gate, input.rounded, gate, up, row_weights, limit);
    } else {
      ops_.swiglu(gate, gate, up, row_weights, limit);
    }
    return input;
  };

  const Rows shared = step.arena.rows(n, config_.width);
  const Route route = {step.arena.take<std::int32_t>(static_cast<std::size_t>(slots)),
                       step.arena.take<float>(static_cast<std::size_t>(slots)), n, config_.experts_used};
  const Rows parts = step.arena.rows(slots, config_.width), logits = step.arena.rows(n, config_.experts);
  const auto half = [&](const Weight& gate, const Weight& up, int rows, float limit) {
    const Rows room[] = {step.arena.rows(rows, config_.expert_width), step.arena.rows(rows, config_.expert_width)};
    return Ops::ExpertsBegin::Half{&gate, &up, room[0], room[1], {}, limit};
  };
  Ops::ExpertsBegin begin = {&w.router,
                             logits,
                             route,
                             w.router_bias,
                             w.router_table,
                             step.tokens,
                             config_.route_scale,
                             half(w.shared.gate, w.shared.up, n, layer.shared_clamp),
                             half(w.experts.gate, w.experts.up, slots, layer.clamp),
                             index};
  ops_.enter(StepPhase::experts, index);  // of the shared one too, which a back end may run beside or before the router
  Input shared_mid, mid;
  if (is_quantised(w.experts.down) && is_quantised(w.shared.down)) {
    begin.shared.rounded = step.arena.rounded(n, config_.expert_width);
    begin.chosen.rounded = step.arena.rounded(slots, config_.expert_width);
    ops_.begin_experts(begin, x);
    shared_mid = {begin.shared.gate, begin.shared.rounded};
    mid = {begin.chosen.gate, begin.chosen.rounded};
  } else {
    ops_.enter(StepPhase::router, index);
    ops_.matmul(logits, w.router, x);
    ops_.route_experts(route, logits, w.router_bias, w.router_table, step.tokens, config_.route_scale);
    ops_.enter(StepPhase::experts, index);
    const auto parts_of = [](const Ops::ExpertsBegin::Half& h) {
      return std::array{Ops::Part{h.gate, h.gate_weight}, Ops::Part{h.up, h.up_weight}};
    };
    ops_.matmul_many(parts_of(begin.shared), x);
    shared_mid = middle(begin.shared.gate, begin.shared.up, w.shared.down, nullptr, layer.shared_clamp);
    ops_.matmul_experts_many(parts_of(begin.chosen), x, route, false);
    mid = middle(begin.chosen.gate, begin.chosen.up, w.experts.down, route.weight, layer.clamp);
  }
  ops_.matmul_experts_expand(step.streams, y, parts, shared, w.experts.down, mid, route, w.shared.down, shared_mid,
                             coefficients);
}

void Forward::run_layer(Step& step, int index) {
  const LayerWeights& w = weights_.layers[index];
  step.layer = index;
  const std::size_t mark = step.arena.used();
  const Rows coefficients = step.arena.rows(step.rows, hyper_.coefficients());
  const Rows y = step.arena.rows(step.rows, config_.width);
  const std::size_t sublayer = step.arena.used();
  Input x;

  begin_sublayer(step, w.attention_hyper, w.attention_norm,
                 any_quantised({&w.query_a, &w.kv, &w.compressor.values, &w.compressor.gates, &w.key_compressor.values,
                                &w.key_compressor.gates, &w.index_heads}),
                 coefficients, x);
  attention(step, index, y, x, coefficients);
  step.arena.reset(sublayer);

  begin_sublayer(step, w.ffn_hyper, w.ffn_norm,
                 any_quantised({&w.router, &w.experts.gate, &w.experts.up, &w.shared.gate, &w.shared.up}), coefficients,
                 x);
  experts(step, index, y, x, coefficients);
  step.arena.reset(mark);
}

void Forward::head(Step& step) {
  if (wanted_ == 0) return;
  ops_.enter(StepPhase::head);
  const std::size_t mark = step.arena.used();
  Input streams;
  const Rows gathered = step.arena.rows(wanted_, step.streams.width);
  ops_.gather(gathered, step.streams, step.wanted);
  streams.values = gathered;
  if (is_quantised(weights_.head_hyper.fn)) {
    streams.rounded = step.arena.rounded(wanted_, gathered.width);
    ops_.round(streams.rounded, gathered);
  }
  const Rows mixes = step.arena.rows(wanted_, config_.streams), pre = step.arena.rows(wanted_, config_.streams);
  ops_.matmul(mixes, weights_.head_hyper.fn, streams);
  ops_.hyper_head_coefficients(pre, mixes, gathered, weights_.head_hyper.scale, weights_.head_hyper.base, hyper_);

  ops_.hyper_collapse(hidden_rows_, gathered, pre);
  if (is_quantised(weights_.head)) {
    ops_.rms_norm_round(hidden_rows_, hidden_rounded_, hidden_rows_, weights_.final_norm, config_.norm_epsilon);
  } else {
    ops_.rms_norm(hidden_rows_, hidden_rows_, weights_.final_norm, config_.norm_epsilon);
  }
  step.arena.reset(mark);
}

void Forward::logits(int first, Rows out) {
  LOCKSTEP_CHECK(first >= 0 && first + out.rows <= wanted_);
  ops_.enter(StepPhase::head);
  Input x;
  x.values = ConstRows(hidden_rows_).from(first, out.rows);
  if (is_quantised(weights_.head)) x.rounded = hidden_rounded_.from(first, out.rows);
  ops_.matmul(out, weights_.head, x);
  ops_.enter(StepPhase::none);
}

void Forward::step(std::span<const BatchItem> items, const std::function<bool()>& cancelled,
                   const std::function<void()>& then) {
  Step step;
  step.items = items;
  wanted_ = 0;
  for (const BatchItem& item : items) {
    LOCKSTEP_CHECK(!item.tokens.empty() && item.cache->mode() == layout_.mode);
    LOCKSTEP_CHECK(item.wanted >= 0 && item.wanted <= static_cast<int>(item.tokens.size()));
    item.cache->reserve(static_cast<int>(item.tokens.size()));
    step.rows += static_cast<int>(item.tokens.size());
    wanted_ += item.wanted;
  }
  LOCKSTEP_CHECK(step.rows > 0 && step.rows <= max_rows_);
  prepare_step(step);
  const auto check_cancelled = [&] {
    if (cancelled && cancelled()) throw Error(Error::Kind::cancelled, "step cancelled");
  };
  check_cancelled();  // a step that is played again asks no more
  ops_.run(recording_key(step), [&] {
    ops_.enter(StepPhase::embed);
    ops_.rotation_table(step.turns, step.positions, weights_.frequencies);
    ops_.rotation_table(step.compressed_turns, step.positions, weights_.compressed_frequencies);
    const std::size_t mark = step.arena.used();
    const Rows embedded = step.arena.rows(step.rows, config_.width);
    ops_.embed(embedded, weights_.embedding, step.tokens);
    ops_.hyper_spread(step.streams, embedded);
    step.arena.reset(mark);
    for (int layer = 0; layer < static_cast<int>(config_.layers.size()); ++layer) {
      check_cancelled();
      run_layer(step, layer);
    }
    head(step);
    ops_.enter(StepPhase::attention);  // the rings that it reads
    ops_.copy({step.host_copies, step.copies});
    ops_.enter(StepPhase::none);
  });
  if (then) then();
  // Device work that fails throws here, before anything counts.
  ops_.synchronize();
  for (const BatchItem& item : items) item.cache->commit(static_cast<int>(item.tokens.size()));
}

/// What tells one recording of a step from another (Ops::run).
std::vector<std::uint64_t> Forward::recording_key(const Step& step) const {
  std::vector<std::uint64_t> key = {reinterpret_cast<std::uintptr_t>(workspace_.bytes()),
                                    reinterpret_cast<std::uintptr_t>(stage_.bytes()),
                                    reinterpret_cast<std::uintptr_t>(hidden_.bytes())};
  Position longest = 0;
  for (const BatchItem& item : step.items) {
    key.push_back(item.tokens.size());
    key.push_back(static_cast<std::uint64_t>(item.wanted));
    longest = std::max(longest, item.cache->length() + static_cast<Position>(item.tokens.size()));
  }
  key.push_back(static_cast<std::uint64_t>(std::bit_width(static_cast<std::uint64_t>(longest))));
  return key;
}

void Forward::prepare_step(Step& step) {
  step.arena = Arena(workspace_);
  // Twice over the same list: once to count, once to hand out.
  const auto lay_out = [&](Arena& arena) {
    step.staged.clear();
    for (const LayerConfig& layer : config_.layers) {
      std::size_t window = 0, pending = 0;
      for (const BatchItem& item : step.items) {
        const int rows = static_cast<int>(item.tokens.size());
        window += static_cast<std::size_t>(std::min(rows, item.cache->window_slots()));
        pending += static_cast<std::size_t>(std::min(rows, SequenceCache::pending_slots(layer.ratio)));
      }
      Stage stage;
      stage.window = arena.take<std::byte>(window * layout_.row_bytes());
      const std::size_t halves = layer.ratio == 4 ? 2 : 1;
      stage.pending = arena.take<float>(pending * 2 * halves * config_.head_width);
      if (layer.ratio == 4) stage.key_pending = arena.take<float>(pending * 4 * config_.index_width);
      step.staged.push_back(stage);
    }
  };
  Arena plan;
  lay_out(plan);
  if (stage_.size() < plan.used()) stage_ = Buffer(ops_, plan.used());
  Arena stage(stage_);
  lay_out(stage);

  // Hidden rows outlive the step, because logits are computed on demand: a prompt's worth of them would not fit.
  // Where they lie is settled here and not by the ops: those of a step that is played again are not called.
  Arena count;
  count.rows(wanted_, config_.width);
  count.rounded(wanted_, config_.width);
  if (hidden_.size() < count.used()) hidden_ = Buffer(ops_, count.used());
  Arena hidden(hidden_);
  hidden_rows_ = hidden.rows(wanted_, config_.width);
  hidden_rounded_ = hidden.rounded(wanted_, config_.width);

  lay_out_parameters(step);
  step.turns = step.arena.rows(step.rows, config_.rotary);
  step.compressed_turns = step.arena.rows(step.rows, config_.rotary);
  step.streams = step.arena.rows(step.rows, config_.streams * config_.width);
}

/// Fills the front of the workspace with what the ops read of this step, in one upload.
void Forward::lay_out_parameters(Step& step) {
  std::vector<Token> tokens;
  std::vector<Position> positions;
  std::vector<std::int32_t> wanted;
  for (const BatchItem& item : step.items) {
    Position position = item.cache->length();
    for (const Token token : item.tokens) {
      LOCKSTEP_CHECK(token >= 0 && token < config_.vocabulary);
      tokens.push_back(token);
      positions.push_back(position++);
    }
    const int end = static_cast<int>(tokens.size());
    for (int i = end - item.wanted; i < end; ++i) wanted.push_back(i);
  }
  for (std::size_t l = 0; l < step.staged.size(); ++l) {
    Stage stage = step.staged[l];
    const int ratio = config_.layers[l].ratio;
    int row = 0;
    for (const BatchItem& item : step.items) {
      const int layer = static_cast<int>(l), rows = static_cast<int>(item.tokens.size());
      step.host_slices.push_back(item.cache->slice(layer, row, rows));
      row += rows;
      item.cache->stage_copies(layer, rows, stage.window, stage.pending, stage.key_pending, step.host_copies);
      stage.window += static_cast<std::size_t>(std::min(rows, item.cache->window_slots())) * layout_.row_bytes();
      const std::size_t kept = static_cast<std::size_t>(std::min(rows, SequenceCache::pending_slots(ratio)));
      if (ratio != 0) stage.pending += kept * 2 * (ratio == 4 ? 2 : 1) * config_.head_width;
      if (ratio == 4) stage.key_pending += kept * 4 * config_.index_width;
    }
  }

  std::vector<std::byte> image;
  std::byte* memory = nullptr;
  const auto put = [&]<class T>(const std::vector<T>& values) {
    T* place = step.arena.take<T>(values.size());
    if (memory == nullptr) memory = reinterpret_cast<std::byte*>(place);
    const std::size_t at = static_cast<std::size_t>(reinterpret_cast<std::byte*>(place) - memory);
    image.resize(at + values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(image.data() + at, values.data(), values.size() * sizeof(T));
    return place;
  };
  step.tokens = put(tokens);
  step.positions = put(positions);
  step.wanted = put(wanted);
  step.slices = put(step.host_slices);
  step.copies = put(step.host_copies);
  ops_.upload(memory, image.data(), image.size());
}

}  // namespace lockstep
