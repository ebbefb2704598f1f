#include "model/config.h"

#include <bit>
#include <string>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr std::string_view kPrefix = "deepseek4.";

class Reader {
 public:
  explicit Reader(const Gguf& file) : file_(file) {}

  static std::string key(std::string_view name) { return std::string(kPrefix) + std::string(name); }

  Error bad(std::string_view name, const std::string& what) const {
    return Error(Error::Kind::bad_file, file_.name() + ": key " + key(name) + ": " + what);
  }
  Error unsupported(std::string_view name, const std::string& what) const {
    return Error(Error::Kind::unsupported, file_.name() + ": key " + key(name) + ": " + what);
  }

  int size(std::string_view name, std::int64_t most = 1 << 24) const {
    return checked(name, file_.int_of(key(name)), 1, most);
  }
  int size_or(std::string_view name, std::int64_t fallback, std::int64_t least = 1) const {
    return checked(name, file_.int_or(key(name), fallback), least, 1 << 24);
  }
  void must_be(std::string_view name, std::int64_t fallback, std::int64_t expected) const {
    const std::int64_t value = file_.int_or(key(name), fallback);
    if (value != expected)
      throw unsupported(name,
                        "is " + std::to_string(value) + ", this engine does " + std::to_string(expected) + " only");
  }
  float positive(std::string_view name, float fallback) const {
    const float value = file_.float_or(key(name), fallback);
    if (!(value > 0) || value > 1e30f) throw bad(name, "is " + std::to_string(value) + ", expected a positive number");
    return value;
  }
  /// One number a layer, from an array or a scalar; a missing tail repeats the last.
  std::vector<float> per_layer(std::string_view name, int layers, const std::vector<float>& fallback) const {
    if (file_.find(key(name)) == nullptr) return fallback;
    std::vector<float> values = file_.floats_of(key(name));
    if (values.empty()) throw bad(name, "is an empty array");
    values.resize(static_cast<std::size_t>(layers), values.back());
    for (float value : values)
      if (!(value > 0)) throw bad(name, "holds " + std::to_string(value) + ", expected positive numbers");
    return values;
  }

 private:
  int checked(std::string_view name, std::int64_t value, std::int64_t least, std::int64_t most) const {
    if (value < least || value > most)
      throw bad(name,
                "is " + std::to_string(value) + ", expected " + std::to_string(least) + " to " + std::to_string(most));
    return static_cast<int>(value);
  }

  const Gguf& file_;
};

/// The successor model has other tensors under the same architecture string, or a string of its own.
void refuse_other_models(const Gguf& file) {
  const std::string_view architecture = file.string_of("general.architecture");
  if (architecture == "deepseek4_mtp_support" || architecture.starts_with("dflash"))
    throw Error(Error::Kind::unsupported,
                file.name() + ": a drafter (" + std::string(architecture) + "), not a model: give the main file");
  if (architecture != "deepseek4")
    throw Error(Error::Kind::unsupported, file.name() + ": architecture " + std::string(architecture) +
                                              ", this engine runs deepseek4 (DeepSeek V4 Flash) only");
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.name.find("engram") != std::string_view::npos ||
        tensor.name.find("indexer.k_norm") != std::string_view::npos ||
        tensor.name.find("indexer.attn_k") != std::string_view::npos)
      throw Error(Error::Kind::unsupported, file.name() + ": tensor " + std::string(tensor.name) +
                                                " belongs to DeepSeek V4.1, a model that this engine does not run");
  }
  if (file.trunk_layers() == 0)
    throw Error(Error::Kind::unsupported,
                file.name() + ": holds no trunk layers: a draft file, or one part of a model");
  if (file.find_tensor("output_hc_fn.weight") == nullptr)
    throw Error(Error::Kind::unsupported,
                file.name() + ": no output_hc_fn.weight: not V4 Flash (V4.1 has none), or an incomplete file");
}

}  // namespace

Config read_config(const Gguf& file) {
  refuse_other_models(file);
  const Reader read(file);
  Config c;
  const int layers = file.trunk_layers();
  c.width = read.size("embedding_length");
  c.heads = read.size("attention.head_count", 1 << 12);
  c.head_width = read.size("attention.key_length", 1 << 12);
  c.rotary = read.size("rope.dimension_count", 512);
  c.query_rank = read.size("attention.q_lora_rank");
  c.output_groups = read.size("attention.output_group_count");
  c.output_rank = read.size("attention.output_lora_rank");
  c.window = read.size("attention.sliding_window", 1 << 16);
  c.index_heads = read.size("attention.indexer.head_count", 1 << 12);
  c.index_width = read.size("attention.indexer.key_length", 1 << 12);
  c.index_top_k = read.size("attention.indexer.top_k");
  c.experts = read.size("expert_count", 1 << 16);
  c.experts_used = read.size("expert_used_count", 64);
  c.expert_width = read.size("expert_feed_forward_length");
  c.sinkhorn_iterations = read.size("hyper_connection.sinkhorn_iterations", 1000);
  const int hash_layers = read.size_or("hash_layer_count", 0, 0);
  read.must_be("attention.head_count_kv", 1, 1);
  read.must_be("attention.value_length", c.head_width, c.head_width);
  read.must_be("hyper_connection.count", 4, c.streams);
  read.must_be("expert_shared_count", 1, 1);
  read.must_be("expert_gating_func", 4, 4);
  read.must_be("expert_group_count", 0, 0);
  read.must_be("expert_group_used_count", 0, 0);
  if (!file.bool_or(read.key("expert_weights_norm"), true))
    throw read.unsupported("expert_weights_norm", "is false, this engine does normalised weights only");
  c.norm_epsilon = read.positive("attention.layer_norm_rms_epsilon", 1e-6f);
  c.hyper_epsilon = read.positive("hyper_connection.epsilon", 1e-6f);
  c.route_scale = read.positive("expert_weights_scale", 1.5f);
  c.rope_base = read.positive("rope.freq_base", 10000);
  c.compressed_rope_base = read.positive("attention.compress_rope_freq_base", 160000);
  c.yarn_factor = read.positive("rope.scaling.factor", 16);
  c.yarn_original = read.positive("rope.scaling.original_context_length", 65536);
  c.yarn_beta_fast = read.positive("rope.scaling.yarn_beta_fast", 32);
  c.yarn_beta_slow = read.positive("rope.scaling.yarn_beta_slow", 1);
  c.context_length = read.size_or("context_length", 1048576);

  if (c.rotary % 2 != 0 || c.rotary > c.head_width || c.rotary > c.index_width)
    throw read.bad("rope.dimension_count", "is " + std::to_string(c.rotary) + ", expected an even number of at most " +
                                               std::to_string(std::min(c.head_width, c.index_width)));
  if (c.heads % c.output_groups != 0)
    throw read.bad("attention.output_group_count", "does not divide the number of heads");
  if (!std::has_single_bit(static_cast<unsigned>(c.index_width)) || c.index_width < 32)
    throw read.bad("attention.indexer.key_length",
                   "is " + std::to_string(c.index_width) + ", expected a power of two from 32 on");
  if (c.experts_used > c.experts) throw read.bad("expert_used_count", "is more than expert_count");
  if (hash_layers > layers) throw read.bad("hash_layer_count", "is more than the file has layers");

  const std::vector<std::int64_t> ratios = file.ints_of(read.key("attention.compress_ratios"));
  if (ratios.size() < static_cast<std::size_t>(layers))
    throw read.bad("attention.compress_ratios",
                   "has " + std::to_string(ratios.size()) + " entries for " + std::to_string(layers) + " layers");
  const std::vector<float> clamp = read.per_layer("swiglu_clamp_exp", layers, std::vector<float>(layers, 10.0f));
  const std::vector<float> shared_clamp = read.per_layer("swiglu_clamp_shexp", layers, clamp);
  bool compressed = false;
  for (int l = 0; l < layers; ++l) {
    if (ratios[l] != 0 && ratios[l] != 4 && ratios[l] != 128)
      throw read.unsupported(
          "attention.compress_ratios",
          "layer " + std::to_string(l) + " has " + std::to_string(ratios[l]) + ", this engine does 0, 4 and 128");
    compressed = compressed || ratios[l] != 0;
    c.layers.push_back({static_cast<int>(ratios[l]), l < hash_layers, clamp[l], shared_clamp[l]});
  }
  if (const std::string_view scaling = file.string_or(read.key("rope.scaling.type"), "yarn");
      compressed && scaling != "yarn")
    throw read.unsupported("rope.scaling.type", "is " + std::string(scaling) + ", this engine does yarn only");

  const GgufTensor& embedding = file.tensor("token_embd.weight");
  const auto* tokens = file.find("tokenizer.ggml.tokens");
  const std::int64_t fallback =
      tokens != nullptr ? static_cast<std::int64_t>(file.strings_of("tokenizer.ggml.tokens").size()) : embedding.ne[1];
  c.vocabulary = read.size_or("vocab_size", fallback);
  return c;
}

}  // namespace lockstep
