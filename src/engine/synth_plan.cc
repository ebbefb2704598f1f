// What a synthetic model consists of: geometry, formats and the sizes of its values. synth.cc writes it.
#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "engine/synth.h"

namespace lockstep {
namespace {

using Content = SynthTensor::Content;

/// The formats of one family of files, by what a tensor does.
struct TypeSet {
  std::string_view name;
  DType gate_up, down;  // routed experts
  DType dense;          // attention and shared expert
  DType head, embedding;
  DType small;  // router, compressors, head weights of the indexer
  DType index_query;
  DType hyper;      // fn of the hyper-connections
  DType positions;  // ape of the compressors
};

constexpr TypeSet kTypeSets[] = {
    {"q2", DType::iq2_xxs, DType::q2_k, DType::q8_0, DType::q8_0, DType::f16, DType::f16, DType::f16, DType::f16,
     DType::f16},
    {"q4", DType::q4_k, DType::q4_k, DType::q8_0, DType::q8_0, DType::f16, DType::f16, DType::f16, DType::f16,
     DType::f16},
    {"rocmfp2", DType::rocmfp2, DType::rocmfp3, DType::rocmfp4_fast, DType::rocmfp4_fast, DType::f16, DType::f16,
     DType::f16, DType::f16, DType::f32},
    {"rocmfp4", DType::rocmfp4, DType::rocmfp4, DType::rocmfp4_fast, DType::rocmfp4_fast, DType::f16, DType::f16,
     DType::f16, DType::f16, DType::f32},
    {"mxfp4", DType::mxfp4, DType::mxfp4, DType::q8_0, DType::bf16, DType::bf16, DType::bf16, DType::q8_0, DType::f32,
     DType::f32},
    {"f16", DType::f16, DType::f16, DType::f16, DType::f16, DType::f16, DType::f16, DType::f16, DType::f16, DType::f16},
};

/// The geometry of V4 Flash, without layers.
Config flash_config() {
  Config c;
  c.vocabulary = 129280;
  c.width = 4096;
  c.heads = 64;
  c.head_width = 512;
  c.rotary = 64;
  c.query_rank = 1024;
  c.output_groups = 8;
  c.output_rank = 1024;
  c.window = 128;
  c.sinkhorn_iterations = 20;
  c.hyper_epsilon = c.norm_epsilon = 1e-6f;
  c.index_heads = 64;
  c.index_width = 128;
  c.index_top_k = 512;
  c.experts = 256;
  c.experts_used = 6;
  c.expert_width = 2048;
  c.route_scale = 1.5f;
  c.rope_base = 10000;
  c.compressed_rope_base = 160000;
  c.yarn_factor = 16;
  c.yarn_original = 65536;
  c.yarn_beta_fast = 32;
  c.yarn_beta_slow = 1;
  c.context_length = 1048576;
  return c;
}

/// Every kind of layer in a few megabytes. Rows that a 256-value format holds are 256 wide, so not smaller.
Config nano_config() {
  Config c = flash_config();
  c.vocabulary = 512;
  c.width = 256;
  c.heads = 8;
  c.head_width = 64;
  c.rotary = 16;
  c.query_rank = 128;
  c.output_groups = 2;
  c.output_rank = 64;
  c.index_heads = 4;
  c.index_width = 64;
  c.index_top_k = 8;
  c.experts = 16;
  c.expert_width = 256;
  c.yarn_original = 1024;
  c.context_length = 16384;
  return c;
}

struct Preset {
  std::string_view name;
  Config (*config)();
  int layers, experts;
};
// Five layers are the least that hold every kind: by hash and by score with ratio 4, by hash with 0, by score with 128.
constexpr Preset kPresets[] = {
    {"flash", flash_config, 43, 256}, {"slice", flash_config, 5, 16}, {"nano", nano_config, 6, 16}};

constexpr int kHashLayers = 3;
constexpr int kMostSynthLayers = 256;
constexpr int kMaxExperts = 4096;

template <class T, std::size_t N>
const T& named(const T (&all)[N], std::string_view name, std::string_view option) {
  std::string names;
  for (const T& item : all) {
    if (item.name == name) return item;
    names += (names.empty() ? "" : ", ") + std::string(item.name);
  }
  throw Error(Error::Kind::bad_argument, fmt::format("{} {}: expected one of {}", option, name, names));
}

/// The pattern of Flash: 0, 0, then 4 and 128 in turn.
int ratio_of(int layer) { return layer < 2 ? 0 : layer % 2 == 0 ? 4 : 128; }

class Planner {
 public:
  Planner(const Config& c, const TypeSet& types, std::vector<SynthTensor>& out) : c_(c), types_(types), out_(out) {}

  void globals() {
    matrix("token_embd", types_.embedding, c_.width, c_.vocabulary, 1);
    matrix("output", types_.head, c_.width, c_.vocabulary, kLogitSpread / root(c_.width));
    norm("output_norm", c_.width, 1);
    matrix("output_hc_fn", types_.hyper, c_.streams * c_.width, c_.streams, kMixSpread / root(c_.streams * c_.width));
    vector("output_hc_base", c_.streams, {0}, 0.3f);
    vector("output_hc_scale", 1, {0.3f}, 0.05f);
  }

  void layer(int index) {
    const std::string blk = fmt::format("blk.{}.", index);
    const LayerConfig& l = c_.layers[static_cast<std::size_t>(index)];
    const int group_width = c_.heads / c_.output_groups * c_.head_width;
    const int low_width = c_.output_groups * c_.output_rank;
    norm(blk + "attn_norm", c_.width, 1);
    matrix(blk + "attn_q_a", types_.dense, c_.width, c_.query_rank, 1 / root(c_.width));
    norm(blk + "attn_q_a_norm", c_.query_rank, 1);
    matrix(blk + "attn_q_b", types_.dense, c_.query_rank, c_.heads * c_.head_width, 1 / root(c_.query_rank));
    matrix(blk + "attn_kv", types_.dense, c_.width, c_.head_width, 1 / root(c_.width));
    norm(blk + "attn_kv_a_norm", c_.head_width, kRowSize);
    vector(blk + "attn_sinks", c_.heads, {0}, 1);
    matrix(blk + "attn_output_a", types_.dense, group_width, low_width, 1 / root(group_width));
    matrix(blk + "attn_output_b", types_.dense, low_width, c_.width, kAttentionGain / root(low_width));
    if (l.ratio != 0) compressor(blk + "attn_compressor", l.ratio, c_.head_width, kRowSize);
    if (l.ratio == 4) {
      matrix(blk + "indexer.attn_q_b", types_.index_query, c_.query_rank, c_.index_heads * c_.index_width,
             1 / root(c_.query_rank));
      matrix(blk + "indexer.proj", types_.small, c_.width, c_.index_heads, 1 / root(c_.width));
      compressor(blk + "indexer_compressor", l.ratio, c_.index_width, 1);
    }
    hyper(blk + "hc_attn", 2 * index);
    hyper(blk + "hc_ffn", 2 * index + 1);
    norm(blk + "ffn_norm", c_.width, 1);
    matrix(blk + "ffn_gate_inp", types_.small, c_.width, c_.experts, kRouterSpread / root(c_.width));
    if (l.hash_routed) {
      add(blk + "ffn_gate_tid2eid.weight", DType::i32, {c_.experts_used, c_.vocabulary}, Content::table).ids =
          c_.experts;
    } else {
      SynthTensor& bias = add(blk + "exp_probs_b.bias", DType::f32, {c_.experts}, Content::vector);
      bias.means = {0};
      bias.spread = 0.02f;
    }
    mlp(blk, "exps", types_.gate_up, types_.down, c_.experts);
    mlp(blk, "shexp", types_.dense, types_.dense, 1);
  }

 private:
  // Sizes of values, against inputs of root mean square 1. With random rows a head averages its window, so what it
  // brings is small: keys of size 1.5 make its weights uneven, and the gain makes up for the rest. The other numbers
  // keep what a sublayer adds at half to once the size of an embedding, so that the streams grow like the root of the
  // depth.
  static constexpr float kLogitSpread = 3;   // deviation of the logits
  static constexpr float kMixSpread = 2.5f;  // of a hyper-connection's mixes, before their scale
  static constexpr float kRowSize = 1.5f;    // of keys, which are values too
  static constexpr float kAttentionGain = 1.5f;
  static constexpr float kRouterSpread = 1.5f;
  static constexpr float kGateSpread = 1.5f;  // in the bent part of the SwiGLU
  static constexpr float kDownGain = 0.6f;
  static constexpr float kPoolSpread = 1.5f;  // of the gates that pool a window's tokens

  static float root(int n) { return std::sqrt(static_cast<float>(n)); }

  SynthTensor& add(std::string name, DType dtype, std::vector<std::int64_t> ne, Content content) {
    const int block = info_of(dtype).block_values;
    if (ne[0] % block != 0)
      throw Error(Error::Kind::bad_argument, fmt::format("tensor {}: rows of {} values, {} needs a multiple of {}",
                                                         name, ne[0], info_of(dtype).name, block));
    SynthTensor& tensor = out_.emplace_back();
    tensor.name = std::move(name);
    tensor.dtype = dtype;
    tensor.ne = std::move(ne);
    tensor.content = content;
    return tensor;
  }
  void matrix(const std::string& name, DType dtype, std::int64_t width, std::int64_t rows, float rms) {
    add(name + ".weight", dtype, {width, rows}, Content::matrix).spread = rms;
  }
  void vector(const std::string& name, std::int64_t width, std::vector<float> means, float spread) {
    SynthTensor& tensor = add(name + ".weight", DType::f32, {width}, Content::vector);
    tensor.means = std::move(means);
    tensor.spread = spread;
  }
  void norm(const std::string& name, int width, float size) { vector(name, width, {size}, 0.1f * size); }

  void mlp(const std::string& blk, std::string_view suffix, DType gate_up, DType down, int planes) {
    const auto part = [&](std::string_view name, DType dtype, int width, int rows, float rms) {
      std::vector<std::int64_t> ne{width, rows};
      if (suffix == "exps") ne.push_back(planes);
      add(fmt::format("{}ffn_{}_{}.weight", blk, name, suffix), dtype, std::move(ne), Content::matrix).spread = rms;
    };
    part("gate", gate_up, c_.width, c_.expert_width, kGateSpread / root(c_.width));
    part("up", gate_up, c_.width, c_.expert_width, 1 / root(c_.width));
    part("down", down, c_.expert_width, c_.width, kDownGain / root(c_.expert_width));
  }

  void compressor(const std::string& name, int ratio, int row_width, float size) {
    const int width = ratio == 4 ? 2 * row_width : row_width;
    matrix(name + "_kv", types_.small, c_.width, width, 1 / root(c_.width));
    matrix(name + "_gate", types_.small, c_.width, width, kPoolSpread / root(c_.width));
    matrix(name + "_ape", types_.positions, width, ratio, 0.5f);
    norm(name + "_norm", row_width, size);
  }

  /// Sublayer n reads mostly stream n % S, writes to all of them with different strengths, and mixes them a little.
  void hyper(const std::string& name, int sublayer) {
    const int s = c_.streams;
    std::vector<float> base;
    for (int stream = 0; stream < s; ++stream) base.push_back(stream == sublayer % s ? 1.0f : -1.5f);
    for (int stream = 0; stream < s; ++stream) base.push_back(static_cast<float>((stream + sublayer) % s) - 1.5f);
    for (int from = 0; from < s; ++from)
      for (int to = 0; to < s; ++to) base.push_back(from == to ? 4.5f : 0.0f);
    matrix(name + "_fn", types_.hyper, s * c_.width, c_.hyper_coefficients(), kMixSpread / root(s * c_.width));
    vector(name + "_base", c_.hyper_coefficients(), std::move(base), 0.3f);
    vector(name + "_scale", 3, {0.2f, 0.3f, 0.3f}, 0.03f);
  }

  const Config& c_;
  const TypeSet& types_;
  std::vector<SynthTensor>& out_;
};

}  // namespace

std::int64_t SynthTensor::rows() const {
  std::int64_t rows = 1;
  for (std::size_t axis = 1; axis < ne.size(); ++axis) rows *= ne[axis];
  return rows;
}

std::uint64_t SynthTensor::bytes() const { return static_cast<std::uint64_t>(rows()) * row_bytes(dtype, ne[0]); }

std::uint64_t SynthPlan::bytes() const {
  std::uint64_t sum = 0;
  for (const SynthTensor& tensor : tensors) sum += tensor.bytes();
  return sum;
}

SynthPlan plan_synth(const SynthOptions& options) {
  const Preset& preset = named(kPresets, options.preset, "--preset");
  const TypeSet& types = named(kTypeSets, options.types, "--types");
  SynthPlan plan;
  plan.options = options;
  plan.config = preset.config();
  Config& c = plan.config;
  const int layers = options.layers == 0 ? preset.layers : options.layers;
  c.experts = options.experts == 0 ? preset.experts : options.experts;
  if (layers < 1 || layers > kMostSynthLayers)
    throw Error(Error::Kind::bad_argument,
                fmt::format("--layers {}: expected 1 to {}", options.layers, kMostSynthLayers));
  if (c.experts < c.experts_used || c.experts > kMaxExperts)
    throw Error(Error::Kind::bad_argument, fmt::format("--experts {}: expected {} (a token's experts) to {}",
                                                       options.experts, c.experts_used, kMaxExperts));
  plan.hash_layers = std::min(kHashLayers, layers);
  for (int l = 0; l < layers; ++l) {
    LayerConfig& layer = c.layers.emplace_back();
    layer.ratio = ratio_of(l);
    layer.hash_routed = l < plan.hash_layers;
  }
  Planner planner(c, types, plan.tensors);
  planner.globals();
  for (int l = 0; l < layers; ++l) planner.layer(l);
  return plan;
}

}  // namespace lockstep
