#include "engine/model_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep {

void set_model_keys(GgufWriter& writer, std::string_view prefix, const Config& c, int hash_layers,
                    std::span<const std::int32_t> ratios) {
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", prefix, name); };
  const auto number = [&](std::string_view name, std::int64_t value) {
    writer.set(key(name), static_cast<std::uint32_t>(value));
  };
  const auto real = [&](std::string_view name, double value) { writer.set(key(name), static_cast<float>(value)); };
  number("block_count", static_cast<std::int64_t>(c.layers.size()));
  number("context_length", c.context_length);
  number("embedding_length", c.width);
  number("vocab_size", c.vocabulary);
  number("attention.head_count", c.heads);
  number("attention.head_count_kv", 1);
  number("attention.key_length", c.head_width);
  number("attention.value_length", c.head_width);
  number("rope.dimension_count", c.rotary);
  real("attention.layer_norm_rms_epsilon", c.norm_epsilon);
  number("attention.q_lora_rank", c.query_rank);
  number("attention.output_lora_rank", c.output_rank);
  number("attention.output_group_count", c.output_groups);
  number("attention.sliding_window", c.window);
  writer.set_array<std::int32_t>(key("attention.compress_ratios"), ratios);
  real("attention.compress_rope_freq_base", c.compressed_rope_base);
  number("attention.indexer.head_count", c.index_heads);
  number("attention.indexer.key_length", c.index_width);
  number("attention.indexer.top_k", c.index_top_k);
  real("rope.freq_base", c.rope_base);
  writer.set(key("rope.scaling.type"), std::string_view("yarn"));
  real("rope.scaling.factor", c.yarn_factor);
  number("rope.scaling.original_context_length", static_cast<std::int64_t>(c.yarn_original));
  real("rope.scaling.yarn_beta_fast", c.yarn_beta_fast);
  real("rope.scaling.yarn_beta_slow", c.yarn_beta_slow);
  number("expert_count", c.experts);
  number("expert_used_count", c.experts_used);
  number("expert_shared_count", 1);
  number("expert_feed_forward_length", c.expert_width);
  real("expert_weights_scale", c.route_scale);
  writer.set(key("expert_weights_norm"), true);
  number("expert_gating_func", 4);
  number("hash_layer_count", hash_layers);
  std::vector<float> clamps, shared_clamps;
  for (const LayerConfig& layer : c.layers) {
    clamps.push_back(layer.clamp);
    shared_clamps.push_back(layer.shared_clamp);
  }
  writer.set_array<float>(key("swiglu_clamp_exp"), clamps);
  writer.set_array<float>(key("swiglu_clamp_shexp"), shared_clamps);
  number("hyper_connection.count", c.streams);
  number("hyper_connection.sinkhorn_iterations", c.sinkhorn_iterations);
  real("hyper_connection.epsilon", c.hyper_epsilon);
}

void set_tokenizer_keys(GgufWriter& writer, const Vocabulary& vocabulary) {
  const auto views = [](const std::vector<std::string>& texts) {
    return std::vector<std::string_view>(texts.begin(), texts.end());
  };
  const auto id = [&](std::string_view key, std::optional<Token> token) {
    if (token) writer.set(key, static_cast<std::uint32_t>(*token));
  };
  writer.set("tokenizer.ggml.model", vocabulary.model);
  writer.set("tokenizer.ggml.pre", vocabulary.pre);
  writer.set_array("tokenizer.ggml.tokens", views(vocabulary.tokens));
  writer.set_array<std::int32_t>("tokenizer.ggml.token_type", vocabulary.types);
  writer.set_array("tokenizer.ggml.merges", views(vocabulary.merges));
  id("tokenizer.ggml.bos_token_id", vocabulary.bos);
  id("tokenizer.ggml.eos_token_id", vocabulary.eos);
  id("tokenizer.ggml.padding_token_id", vocabulary.pad);
  writer.set("tokenizer.ggml.add_bos_token", false);  // the chat text carries it
  writer.set("tokenizer.ggml.add_eos_token", false);
  if (!vocabulary.chat_template.empty()) writer.set("tokenizer.chat_template", vocabulary.chat_template);
}

std::uint32_t file_type_of(std::span<const std::uint64_t, kDTypeCount> bytes) {
  // The numbers are llama.cpp's, and those of its ROCmFPX fork.
  constexpr struct {
    DType dtype;
    std::uint32_t file_type;
  } kFileTypes[] = {{DType::f32, 0},       {DType::f16, 1},       {DType::q4_0, 2},           {DType::q8_0, 7},
                    {DType::q2_k, 10},     {DType::q3_k, 12},     {DType::q4_k, 15},          {DType::q5_k, 17},
                    {DType::q6_k, 18},     {DType::iq2_xxs, 19},  {DType::iq3_xxs, 23},       {DType::bf16, 32},
                    {DType::mxfp4, 38},    {DType::rocmfp4, 100}, {DType::rocmfp4_fast, 103}, {DType::rocmfp6, 110},
                    {DType::rocmfp8, 111}, {DType::rocmfp3, 112}, {DType::rocmfp2, 118}};
  const auto most = static_cast<DType>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
  for (const auto& entry : kFileTypes)
    if (entry.dtype == most) return entry.file_type;
  return 1024;
}

}  // namespace lockstep
