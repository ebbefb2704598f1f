#include "engine/checkpoint_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/mapped_file.h"
#include "text/python_json.h"
#include "text/tokenizer.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLayers = 1024;
constexpr std::uint64_t kMaxFileBytes = 256 << 20;

// Keys that say how the model was trained or how another program runs it, or that say again what another key or a
// tensor's shape says. "vision_" and "dspark_" keys are looked at apart.
constexpr std::array<std::string_view, 44> kInertKeys = {"_commit_hash",
                                                         "attention_bias",
                                                         "attention_dropout",
                                                         "auto_map",
                                                         "aux_loss_alpha",
                                                         "bos_token_id",
                                                         "compress_rope_parameters",
                                                         "dtype",
                                                         "eos_token_id",
                                                         "ep_size",
                                                         "expert_dtype",
                                                         "first_k_dense_replace",
                                                         "hidden_act",
                                                         "image_token_id",
                                                         "initializer_range",
                                                         "intermediate_size",
                                                         "kv_lora_rank",
                                                         "layer_types",
                                                         "max_batch_size",
                                                         "max_seq_len",
                                                         "mlp_layer_types",
                                                         "moe_layer_freq",
                                                         "n_mtp_layers",
                                                         "num_nextn_predict_layers",
                                                         "output_attentions",
                                                         "output_hidden_states",
                                                         "output_router_logits",
                                                         "pad_token_id",
                                                         "partial_rotary_factor",
                                                         "pretraining_tp",
                                                         "qk_nope_head_dim",
                                                         "quantization_config",
                                                         "return_dict",
                                                         "rope_interleave",
                                                         "router_aux_loss_coef",
                                                         "router_jitter_noise",
                                                         "scale_fmt",
                                                         "seq_aux",
                                                         "topk_method",
                                                         "torch_dtype",
                                                         "transformers_version",
                                                         "use_cache",
                                                         "v_head_dim",
                                                         "architectures"};

Json read_json(const fs::path& path) {
  const MappedFile file(path);
  if (file.bytes().size() > kMaxFileBytes)
    throw Error(Error::Kind::bad_file, path.string() + ": more than 256 MB, expected a file of settings");
  try {
    return parse_json({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path.string());
  } catch (const Error& error) {  // the parser takes a request's side
    throw Error(Error::Kind::bad_file, error.what());
  }
}

/// Reads members of one object and remembers which, so that the others can be refused.
class Keys {
 public:
  Keys(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) throw Error(Error::Kind::bad_file, where_ + ": expected a JSON object");
  }

  Error bad(std::string_view key, const std::string& what) const {
    return Error(Error::Kind::bad_file, fmt::format("{}: key {}: {}", where_, key, what));
  }
  Error unsupported(std::string_view key, const std::string& what) const {
    return Error(Error::Kind::unsupported, fmt::format("{}: key {}: {}", where_, key, what));
  }

  /// nullptr when it is absent or null.
  const Json* find(std::string_view key) {
    read_.emplace_back(key);
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  const Json& require(std::string_view key) {
    const Json* found = find_given(key);
    if (found == nullptr) throw bad(key, "is missing, expected one as published");
    return *found;
  }
  /// nullptr when it is absent. Null would mean something, and we do not know what.
  const Json* find_given(std::string_view key) {
    if (object_.contains(key) && object_.find(key)->is_null()) throw bad(key, "is null, expected a value");
    return find(key);
  }

  int size(std::string_view key, std::int64_t least = 1, std::int64_t most = 1 << 24) {
    return integer(key, require(key), least, most);
  }
  int size_or(std::string_view key, int fallback, std::int64_t least = 1, std::int64_t most = 1 << 24) {
    const Json* found = find_given(key);
    if (found == nullptr) assume(key, fmt::format("{}", fallback));
    return found == nullptr ? fallback : integer(key, *found, least, most);
  }
  double real_or(std::string_view key, double fallback, double least, double most) {
    const Json* found = find_given(key);
    if (found == nullptr) {
      assume(key, fmt::format("{:g}", fallback));
      return fallback;
    }
    const double value = found->is_number() ? found->get<double>() : NAN;
    if (!(value >= least && value <= most))
      throw bad(key, fmt::format("is {}, expected a number from {:g} to {:g}", text(*found), least, most));
    return value;
  }
  std::vector<int> sizes(std::string_view key, std::int64_t least, std::int64_t most) {
    const Json& list = require(key);
    if (!list.is_array()) throw bad(key, fmt::format("is {}, expected a list of whole numbers", text(list)));
    std::vector<int> values;
    for (const Json& item : list) values.push_back(integer(key, item, least, most));
    return values;
  }
  /// A setting of which this engine does one value only; null is as good as false.
  template <class T>
  void must_be(std::string_view key, const T& expected) {
    const bool is_null = object_.contains(key) && object_.find(key)->is_null() && Json(expected) == Json(false);
    const Json* found = is_null ? nullptr : find_given(key);
    if (found != nullptr && *found != Json(expected))
      throw unsupported(key, fmt::format("is {}, this engine does {} only", text(*found), text(Json(expected))));
    if (found == nullptr && Json(expected) != Json(false)) assume(key, text(Json(expected)));
  }
  /// Groups of experts: one group, or none, is no grouping.
  void must_not_group(std::string_view key) {
    const Json* found = find(key);
    if (found != nullptr && *found != Json(0) && *found != Json(1))
      throw unsupported(key, fmt::format("is {}, this engine does not group experts", text(*found)));
  }

  /// What this model's published files say, where this one says nothing: "rms_norm_eps 1e-06".
  const std::vector<std::string>& assumed() const { return assumed_; }

  bool has(std::string_view key) const { return object_.contains(key); }
  bool has_read(std::string_view key) const { return std::find(read_.begin(), read_.end(), key) != read_.end(); }

  /// The members that nobody read.
  std::vector<std::string> unread() const {
    std::vector<std::string> names;
    for (const auto& [key, value] : object_.items())
      if (!has_read(key)) names.push_back(key);
    return names;
  }

 private:
  static std::string text(const Json& value) {
    std::string all = dump_python(value);
    if (all.size() > 60) all = all.substr(0, 57) + "...";
    return all;
  }
  int integer(std::string_view key, const Json& value, std::int64_t least, std::int64_t most) const {
    const std::int64_t number =
        value.is_number_unsigned() && value.get<std::uint64_t>() < (1ull << 40) ? value.get<std::int64_t>() : -1;
    if (number < least || number > most)
      throw bad(key, fmt::format("is {}, expected a whole number from {} to {}", text(value), least, most));
    return static_cast<int>(number);
  }

  void assume(std::string_view key, const std::string& value) { assumed_.push_back(fmt::format("{} {}", key, value)); }

  const Json& object_;
  std::string where_;
  std::vector<std::string> read_, assumed_;
};

void check_architecture(Keys& keys) {
  const auto refuse = [&](std::string_view key, const std::string& found) {
    const bool is_successor = found.find("V41") != std::string::npos || found.find("v41") != std::string::npos ||
                              found.find("V4_1") != std::string::npos || found.find("v4_1") != std::string::npos;
    throw keys.unsupported(key, is_successor ? found + " is DeepSeek V4.1, a model that this engine does not run"
                                             : found + ", expected DeepSeek V4 (DeepseekV4ForCausalLM, deepseek_v4)");
  };
  const Json* names = keys.find("architectures");
  const Json* type = keys.find("model_type");
  if (names == nullptr && type == nullptr) throw keys.bad("architectures", "is missing, and so is model_type");
  if (names != nullptr && (!names->is_array() || names->size() != 1 ||
                           ((*names)[0] != "DeepseekV4ForCausalLM" && (*names)[0] != "DeepseekV4DSparkModel")))
    refuse("architectures", dump_python(*names));
  if (type != nullptr && *type != "deepseek_v4") refuse("model_type", dump_python(*type));
}

/// Returns what was assumed of it.
std::vector<std::string> read_rope(Keys& keys, const std::string& path, Config& c) {
  constexpr double kLeastBase = 1, kMostBase = 1e12;
  c.rope_base = keys.real_or("rope_theta", 10000, kLeastBase, kMostBase);
  c.compressed_rope_base = keys.real_or("compress_rope_theta", 160000, kLeastBase, kMostBase);
  const Json* given = keys.find_given("rope_scaling");
  const Json none = Json::object();
  Keys rope(given == nullptr ? none : *given, path + ": rope_scaling");
  if (rope.has("type")) rope.must_be("type", "yarn");
  if (rope.has("rope_type") || !rope.has("type")) rope.must_be("rope_type", "yarn");
  c.yarn_factor = rope.real_or("factor", 16, 1, 1e6);
  c.yarn_original = rope.real_or("original_max_position_embeddings", 65536, 1, 1e9);
  c.yarn_beta_fast = rope.real_or("beta_fast", 32, 1e-3, 1e6);
  c.yarn_beta_slow = rope.real_or("beta_slow", 1, 1e-3, 1e6);
  // The model multiplies neither cosines nor scores by YaRN's magnitude, whatever these say.
  for (const char* key : {"mscale", "mscale_all_dim", "attention_factor"}) rope.find(key);
  if (const std::vector<std::string> unread = rope.unread(); !unread.empty())
    throw rope.unsupported(unread.front(), "is not known to this program");
  std::vector<std::string> assumed;
  for (const std::string& what : rope.assumed()) assumed.push_back("rope_scaling." + what);
  return assumed;
}

/// Weights of other methods may have the same names and element types, and mean something else.
void check_quantisation(Keys& keys, const std::string& path) {
  const Json* given = keys.find("quantization_config");
  if (given == nullptr) return;
  Keys config(*given, path + ": quantization_config");
  config.must_be("quant_method", "fp8");
  config.must_be("fmt", "e4m3");
  config.must_be("weight_block_size", std::vector<int>{128, 128});
}

void check_ignored(const Keys& keys, const std::string& path, const std::vector<std::string>& ignored) {
  for (const std::string& key : ignored) {
    if (!keys.has(key))
      throw Error(Error::Kind::bad_argument,
                  fmt::format("--ignore-key {}: {} has no such key, expected one that it has", key, path));
    if (keys.has_read(key))
      throw Error(Error::Kind::bad_argument,
                  fmt::format("--ignore-key {}: this program reads that key of {}, expected one that it does not know",
                              key, path));
  }
}

void refuse_unknown(const Keys& keys, const std::vector<std::string>& ignored) {
  std::string names;
  for (const std::string& key : keys.unread()) {
    if (std::find(kInertKeys.begin(), kInertKeys.end(), key) != kInertKeys.end() || key.starts_with("vision_") ||
        std::find(ignored.begin(), ignored.end(), key) != ignored.end())
      continue;
    names += (names.empty() ? "" : ", ") + key;
  }
  if (!names.empty())
    throw keys.unsupported(names,
                           "not known to this program, and may change what the model computes; "
                           "--ignore-key KEY leaves one out of account");
}

std::optional<DsparkConfig> read_dspark(Keys& keys, int layers, int vocabulary) {
  if (keys.find("dspark_block_size") == nullptr) return std::nullopt;
  DsparkConfig d;
  d.block_size = keys.size("dspark_block_size", 1, 64);
  d.target_layers = keys.sizes("dspark_target_layer_ids", 0, layers - 1);
  d.mask_token = keys.size("dspark_noise_token_id", 0, vocabulary - 1);
  d.markov_rank = keys.size("dspark_markov_rank", 1, 1 << 16);
  if (d.target_layers.empty() || !std::is_sorted(d.target_layers.begin(), d.target_layers.end(), std::less_equal<>()))
    throw keys.bad("dspark_target_layer_ids", "expected different layers in ascending order");
  return d;
}

Json read_json_if_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) ? read_json(path) : Json::object();
}

/// A special token's text, which is a string or an object with "content".
std::string special_text(const Json& config, const char* key) {
  const auto found = config.is_object() ? config.find(key) : config.end();
  if (!config.is_object() || found == config.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  if (found->is_object() && found->contains("content") && (*found)["content"].is_string())
    return (*found)["content"].get<std::string>();
  return {};
}

bool looks_like_control(std::string_view text) {
  return (text.starts_with("<|") && text.ends_with("|>")) || (text.starts_with("<｜") && text.ends_with("｜>"));
}

std::string read_text(const fs::path& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace

CheckpointConfig read_checkpoint_config(const fs::path& folder, const std::vector<std::string>& ignored_keys) {
  const fs::path path = folder / "config.json";
  const Json json = read_json(path);
  Keys keys(json, path.string());
  check_architecture(keys);
  CheckpointConfig out;
  Config& c = out.model;
  const int layers = keys.size("num_hidden_layers", 1, kMaxLayers);
  c.vocabulary = keys.size("vocab_size");
  c.width = keys.size("hidden_size");
  c.heads = keys.size("num_attention_heads", 1, 1 << 12);
  c.head_width = keys.size("head_dim", 1, 1 << 12);
  c.rotary = keys.size("qk_rope_head_dim", 1, 512);
  c.query_rank = keys.size("q_lora_rank");
  c.output_groups = keys.size("o_groups", 1, 1 << 12);
  c.output_rank = keys.size("o_lora_rank");
  c.window = keys.size("sliding_window", 1, 1 << 16);
  c.sinkhorn_iterations = keys.size("hc_sinkhorn_iters", 1, 1000);
  c.index_heads = keys.size("index_n_heads", 1, 1 << 12);
  c.index_width = keys.size("index_head_dim", 1, 1 << 12);
  c.index_top_k = keys.size("index_topk");
  c.experts = keys.size("n_routed_experts", 1, 1 << 16);
  c.experts_used = keys.size("num_experts_per_tok", 1, 64);
  c.expert_width = keys.size("moe_intermediate_size");
  c.streams = keys.size("hc_mult", 1, 64);
  if (c.streams != 4) throw keys.unsupported("hc_mult", fmt::format("is {}, this engine does 4 only", c.streams));
  out.hash_layers = keys.size("num_hash_layers", 0, layers);
  c.hyper_epsilon = static_cast<float>(keys.real_or("hc_eps", 1e-6, 1e-12, 0.1));
  c.norm_epsilon = static_cast<float>(keys.real_or("rms_norm_eps", 1e-6, 1e-12, 0.1));
  c.route_scale = static_cast<float>(keys.real_or("routed_scaling_factor", 1.5, 1e-3, 1e3));
  const auto clamp = static_cast<float>(keys.real_or("swiglu_limit", 10, 1e-3, 1e6));
  c.context_length = keys.size_or("max_position_embeddings", 1048576);
  const std::vector<std::string> assumed_of_rope = read_rope(keys, path.string(), c);
  keys.must_be("num_key_value_heads", 1);
  keys.must_be("n_shared_experts", 1);
  keys.must_be("scoring_func", "sqrtsoftplus");
  keys.must_be("norm_topk_prob", true);
  keys.must_be("tie_word_embeddings", false);
  keys.must_be("hidden_act", "silu");
  keys.must_be("attention_bias", false);
  keys.must_not_group("n_group");
  keys.must_not_group("topk_group");
  check_quantisation(keys, path.string());

  if (c.rotary % 2 != 0 || c.rotary > c.head_width || c.rotary > c.index_width)
    throw keys.bad("qk_rope_head_dim", fmt::format("is {}, expected an even number of at most {}", c.rotary,
                                                   std::min(c.head_width, c.index_width)));
  if (c.heads % c.output_groups != 0)
    throw keys.bad("o_groups",
                   fmt::format("is {}, expected a divisor of num_attention_heads ({})", c.output_groups, c.heads));
  if (!std::has_single_bit(static_cast<unsigned>(c.index_width)) || c.index_width < 32)
    throw keys.bad("index_head_dim", fmt::format("is {}, expected a power of two from 32 on", c.index_width));
  if (c.experts_used > c.experts)
    throw keys.bad("num_experts_per_tok",
                   fmt::format("is {}, expected at most n_routed_experts ({})", c.experts_used, c.experts));

  for (const int ratio : keys.sizes("compress_ratios", 0, 1 << 16)) out.ratios.push_back(ratio);
  if (out.ratios.size() < static_cast<std::size_t>(layers))
    throw keys.bad("compress_ratios",
                   fmt::format("has {} entries for {} layers, expected one a layer", out.ratios.size(), layers));
  for (int l = 0; l < layers; ++l) {
    const int ratio = out.ratios[static_cast<std::size_t>(l)];
    if (ratio != 0 && ratio != 4 && ratio != 128)
      throw keys.unsupported("compress_ratios",
                             fmt::format("layer {} has {}, this engine does 0, 4 and 128", l, ratio));
    c.layers.push_back({ratio, l < out.hash_layers, clamp, clamp});
  }
  out.dspark = read_dspark(keys, layers, c.vocabulary);
  if (const Json* name = keys.find("_name_or_path"); name != nullptr && name->is_string())
    out.name = fs::path(name->get<std::string>()).filename().string();
  if (out.name.empty()) out.name = fs::weakly_canonical(folder).filename().string();
  check_ignored(keys, path.string(), ignored_keys);
  refuse_unknown(keys, ignored_keys);
  out.assumed = keys.assumed();
  out.assumed.insert(out.assumed.end(), assumed_of_rope.begin(), assumed_of_rope.end());
  return out;
}

Vocabulary read_checkpoint_vocabulary(const fs::path& folder, int size) {
  const fs::path path = folder / "tokenizer.json";
  Vocabulary v;
  try {
    v = vocabulary_from_tokenizer_json(read_text(path), path.string());
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::bad_argument) throw;
    throw Error(Error::Kind::bad_file, error.what());
  }
  v.pre = "joyai-llm";
  if (v.tokens.size() > static_cast<std::size_t>(size))
    throw Error(Error::Kind::bad_file, fmt::format("{}: {} tokens, expected at most {}, the model's vocab_size",
                                                   path.string(), v.tokens.size(), size));
  for (std::size_t i = 0; i < v.tokens.size(); ++i)
    if (v.is_added(static_cast<Token>(i)) && looks_like_control(v.tokens[i]))
      v.types[i] = static_cast<std::int32_t>(TokenType::control);
  while (v.tokens.size() < static_cast<std::size_t>(size)) {
    v.tokens.push_back(fmt::format("[PAD{}]", v.tokens.size()));
    v.types.push_back(static_cast<std::int32_t>(TokenType::unused));
  }
  if (!v.bos || !v.eos)
    throw Error(Error::Kind::bad_file, fmt::format("{}: no added token {}, expected it among them", path.string(),
                                                   v.bos ? kEosText : kBosText));

  const Json config = read_json_if_there(folder / "tokenizer_config.json");
  const auto id_of = [&](const std::string& text) -> std::optional<Token> {
    if (text.empty()) return std::nullopt;
    const auto found = std::find(v.tokens.begin(), v.tokens.end(), text);
    if (found == v.tokens.end()) return std::nullopt;
    return static_cast<Token>(found - v.tokens.begin());
  };
  v.pad = id_of(special_text(config, "pad_token"));
  v.chat_template = special_text(config, "chat_template");
  std::error_code error;
  if (const fs::path jinja = folder / "chat_template.jinja"; fs::exists(jinja, error))
    v.chat_template = read_text(jinja);
  try {
    check_vocabulary(v, size);
    const Tokenizer tokenizer(v);   // merges and bytes are checked where they are used
  } catch (const Error& problem) {  // which speak of a GGUF file's keys
    constexpr std::string_view kKeys = "tokenizer.ggml.";
    std::string what = problem.what();
    if (what.starts_with(kKeys)) what.erase(0, kKeys.size());
    throw Error(problem.kind(), fmt::format("{}: {}", path.string(), what));
  }
  return v;
}

SamplingHints read_sampling_hints(const fs::path& folder) {
  const fs::path path = folder / "generation_config.json";
  const Json json = read_json_if_there(path);
  Keys keys(json, path.string());
  SamplingHints hints;
  const auto real = [&](std::string_view key, double least, double most) -> std::optional<float> {
    const Json* found = keys.find(key);
    if (found == nullptr) return std::nullopt;
    const double value = found->is_number() ? found->get<double>() : NAN;
    if (!(value >= least && value <= most))
      throw keys.bad(key, fmt::format("is {}, expected {} to {}", dump_python(*found), least, most));
    return static_cast<float>(value);
  };
  hints.temperature = real("temperature", 0, 100);
  hints.top_p = real("top_p", 0, 1);
  hints.min_p = real("min_p", 0, 1);
  hints.repetition_penalty = real("repetition_penalty", 0, 100);
  if (keys.find("top_k") != nullptr) hints.top_k = keys.size("top_k", 0, 1 << 24);
  return hints;
}

}  // namespace lockstep
