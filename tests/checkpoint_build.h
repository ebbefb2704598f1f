// Small checkpoints with the published names and element types, built from plain rules so that the converter is tested
// against the layout and not against itself. Values come from a fixed generator; what they mean is worked out here a
// second time, by the definitions of the formats.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/synth_vocabulary.h"
#include "numerics/round.h"
#include "tensor/safetensors.h"

namespace lockstep::test {

using Json = nlohmann::ordered_json;

struct BuiltTensor {
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;

  std::int64_t count() const {
    std::int64_t n = 1;
    for (const std::int64_t extent : shape) n *= extent;
    return n;
  }
};

class CheckpointBuild {
 public:
  enum class Experts { fp4, fp8, bf16 };

  Json config, tokenizer;
  Json tokenizer_config = {{"pad_token", {{"content", "<｜end▁of▁sentence｜>"}}}, {"chat_template", "{{ messages }}"}};
  Json generation_config = {{"temperature", 0.6}, {"top_p", 0.95}, {"do_sample", true}};
  std::map<std::string, BuiltTensor> tensors;

  static constexpr std::int64_t kVocabulary = 512, kWidth = 256, kHeads = 8, kHead = 64, kRank = 128, kGroups = 2,
                                kOutputRank = 64, kStreams = 4, kExperts = 4, kUsed = 2, kExpertWidth = 256,
                                kIndexHeads = 4, kIndexWidth = 64, kLayers = 6, kHashLayers = 3, kMarkov = 32;
  static constexpr std::int64_t kRatios[] = {0, 0, 4, 128, 4, 128};

  explicit CheckpointBuild(Experts experts = Experts::fp4) : experts_(experts) {
    config = {{"architectures", {"DeepseekV4ForCausalLM"}},
              {"model_type", "deepseek_v4"},
              {"vocab_size", kVocabulary},
              {"hidden_size", kWidth},
              {"num_hidden_layers", kLayers},
              {"num_attention_heads", kHeads},
              {"num_key_value_heads", 1},
              {"head_dim", kHead},
              {"qk_rope_head_dim", 16},
              {"q_lora_rank", kRank},
              {"o_groups", kGroups},
              {"o_lora_rank", kOutputRank},
              {"sliding_window", 128},
              {"hc_mult", kStreams},
              {"hc_sinkhorn_iters", 20},
              {"hc_eps", 1e-6},
              {"rms_norm_eps", 1e-6},
              {"index_n_heads", kIndexHeads},
              {"index_head_dim", kIndexWidth},
              {"index_topk", 8},
              {"n_routed_experts", kExperts},
              {"num_experts_per_tok", kUsed},
              {"n_shared_experts", 1},
              {"moe_intermediate_size", kExpertWidth},
              {"num_hash_layers", kHashLayers},
              {"scoring_func", "sqrtsoftplus"},
              {"norm_topk_prob", true},
              {"routed_scaling_factor", 1.5},
              {"swiglu_limit", 10.0},
              {"rope_theta", 10000},
              {"compress_rope_theta", 160000},
              {"rope_scaling",
               {{"type", "yarn"},
                {"factor", 16},
                {"original_max_position_embeddings", 65536},
                {"beta_fast", 32},
                {"beta_slow", 1}}},
              {"max_position_embeddings", 16384},
              {"tie_word_embeddings", false},
              {"num_nextn_predict_layers", 1},
              {"torch_dtype", "bfloat16"},
              {"compress_ratios", {0, 0, 4, 128, 4, 128, 0}}};
    make_tokenizer();
  }

  CheckpointBuild& with_trunk() {
    floats("embed.weight", {kVocabulary, kWidth}, StoredType::bf16, 1);
    floats("head.weight", {kVocabulary, kWidth}, StoredType::bf16, 0.2f);
    floats("norm.weight", {kWidth}, StoredType::bf16, 0.1f, 1);
    hyper("hc_head_", kStreams, 1);
    for (std::int64_t l = 0; l < kLayers; ++l) block("layers." + std::to_string(l) + ".", kRatios[l], l < kHashLayers);
    return *this;
  }

  CheckpointBuild& with_dspark(int stages = 3) {
    config["dspark_block_size"] = 5;
    config["dspark_target_layer_ids"] = {3, 4, 5};
    config["dspark_noise_token_id"] = 7;
    config["dspark_markov_rank"] = kMarkov;
    fp8("mtp.0.main_proj", kWidth, 3 * kWidth);
    floats("mtp.0.main_norm.weight", {kWidth}, StoredType::bf16, 0.1f, 1);
    for (int n = 0; n < stages; ++n) block("mtp." + std::to_string(n) + ".", 0, false);
    const std::string last = "mtp." + std::to_string(stages - 1) + ".";
    floats(last + "norm.weight", {kWidth}, StoredType::bf16, 0.1f, 1);
    hyper(last + "hc_head_", kStreams, 1);
    floats(last + "markov_head.markov_w1.weight", {kVocabulary, kMarkov}, StoredType::bf16, 1);
    floats(last + "markov_head.markov_w2.weight", {kVocabulary, kMarkov}, StoredType::bf16, 1);
    floats(last + "confidence_head.proj.weight", {1, kWidth + kMarkov}, StoredType::bf16, 0.1f);
    return *this;
  }

  CheckpointBuild& with_mtp() {
    block("mtp.0.", 0, false);
    fp8("mtp.0.e_proj", kWidth, kWidth);
    fp8("mtp.0.h_proj", kWidth, kWidth);
    for (const char* name : {"enorm", "hnorm", "norm"})
      floats(std::string("mtp.0.") + name + ".weight", {kWidth}, StoredType::bf16, 0.1f, 1);
    hyper("mtp.0.hc_head_", kStreams, 1);
    return *this;
  }

  /// Normal values around `mean`.
  void floats(const std::string& name, std::vector<std::int64_t> shape, StoredType type, float spread, float mean = 0) {
    BuiltTensor& tensor = tensors[name];
    tensor = {type, std::move(shape), {}};
    tensor.bytes.resize(static_cast<std::size_t>(tensor.count()) * size_of(type));
    for (std::int64_t i = 0; i < tensor.count(); ++i) set_value(tensor, i, mean + spread * normal());
  }
  static void set_value(BuiltTensor& tensor, std::int64_t i, float value) {
    std::byte* at = tensor.bytes.data() + static_cast<std::size_t>(i) * size_of(tensor.type);
    if (tensor.type == StoredType::f32) {
      std::memcpy(at, &value, 4);
    } else {
      const std::uint16_t half = tensor.type == StoredType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
      std::memcpy(at, &half, 2);
    }
  }

  /// Random codes and scales; no NaN among them.
  void fp8(const std::string& name, std::int64_t rows, std::int64_t width) {
    BuiltTensor weight{StoredType::f8_e4m3, {rows, width}, std::vector<std::byte>(std::size_t(rows * width))};
    for (std::byte& code : weight.bytes) {
      std::uint32_t c = random() & 255;
      if ((c & 127) == 127) c ^= 1;
      code = static_cast<std::byte>(c);
    }
    tensors[name + ".weight"] = std::move(weight);
    scales(name + ".scale", (rows + 127) / 128, (width + 127) / 128, 127 - 13);
  }
  void fp4(const std::string& name, std::int64_t rows, std::int64_t width) {
    BuiltTensor weight{StoredType::i8, {rows, width / 2}, std::vector<std::byte>(std::size_t(rows * width / 2))};
    for (std::byte& code : weight.bytes) code = static_cast<std::byte>(random() & 255);
    tensors[name + ".weight"] = std::move(weight);
    scales(name + ".scale", rows, width / 32, 127 - 6);
  }

  /// The values of a matrix or vector by the definitions of its formats, in f64: what they are, exactly.
  std::vector<double> values(const std::string& name) const {
    const BuiltTensor& tensor = tensors.at(name);
    const bool is_fp4 = tensor.type == StoredType::i8;
    const std::int64_t width = tensor.shape.back() * (is_fp4 ? 2 : 1);
    std::vector<double> out(static_cast<std::size_t>(tensor.count() * (is_fp4 ? 2 : 1)));
    const BuiltTensor* scale = nullptr;
    if (is_fp4 || tensor.type == StoredType::f8_e4m3) scale = &tensors.at(name.substr(0, name.size() - 6) + "scale");
    const auto byte = [](const BuiltTensor& from, std::int64_t i) {
      return std::to_integer<int>(from.bytes[static_cast<std::size_t>(i)]);
    };
    for (std::int64_t i = 0; i < std::ssize(out); ++i) {
      double& value = out[static_cast<std::size_t>(i)];
      const std::int64_t row = i / width, column = i % width;
      if (is_fp4) {
        constexpr double kLevels[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
        const int code = byte(tensor, i / 2) >> (column % 2 * 4) & 15;
        value = std::ldexp(code & 8 ? -kLevels[code & 7] : kLevels[code & 7],
                           byte(*scale, row * (width / 32) + column / 32) - 127);
      } else if (tensor.type == StoredType::f8_e4m3) {
        const int code = byte(tensor, i), exponent = code >> 3 & 15, mantissa = code & 7;
        const double size = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
        value =
            std::ldexp(code & 128 ? -size : size, byte(*scale, row / 128 * ((width + 127) / 128) + column / 128) - 127);
      } else if (tensor.type == StoredType::f32) {
        float f;
        std::memcpy(&f, tensor.bytes.data() + 4 * i, 4);
        value = f;
      } else {
        std::uint16_t half;
        std::memcpy(&half, tensor.bytes.data() + 2 * i, 2);
        value = tensor.type == StoredType::f16 ? f16_to_f32(half) : bf16_to_f32(half);
      }
    }
    return out;
  }

  /// Writes everything: trunk and drafter in files of their own, `files` for the trunk; an index unless there is one
  /// file in all.
  void save(const std::filesystem::path& folder, std::size_t files = 3) const {
    std::filesystem::create_directories(folder);
    write_json(folder / "config.json", config);
    if (!tokenizer.is_null()) write_json(folder / "tokenizer.json", tokenizer);
    write_json(folder / "tokenizer_config.json", tokenizer_config);
    write_json(folder / "generation_config.json", generation_config);
    std::map<std::string, std::vector<StoredTensor>> parts;
    std::size_t n = 0;
    for (const auto& [name, tensor] : tensors) {
      const std::string part = files == 1                 ? "model.safetensors"
                               : name.starts_with("mtp.") ? "model-drafter.safetensors"
                                                          : "model-" + std::to_string(n++ % files) + ".safetensors";
      parts[part].push_back({name, tensor.type, tensor.shape, tensor.bytes});
    }
    Json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", Json::object()}};
    for (const auto& [part, contents] : parts) {
      write_safetensors(folder / part, contents);
      for (const StoredTensor& tensor : contents) index["weight_map"][tensor.name] = part;
    }
    if (files > 1) write_json(folder / "model.safetensors.index.json", index);
  }

 private:
  static void write_json(const std::filesystem::path& path, const Json& json) { std::ofstream(path) << json.dump(); }

  void block(const std::string& at, std::int64_t ratio, bool is_hash_routed) {
    floats(at + "attn_norm.weight", {kWidth}, StoredType::bf16, 0.1f, 1);
    floats(at + "ffn_norm.weight", {kWidth}, StoredType::bf16, 0.1f, 1);
    hyper(at + "hc_attn_", 24, 3);
    hyper(at + "hc_ffn_", 24, 3);
    fp8(at + "attn.wq_a", kRank, kWidth);
    floats(at + "attn.q_norm.weight", {kRank}, StoredType::bf16, 0.1f, 1);
    fp8(at + "attn.wq_b", kHeads * kHead, kRank);
    fp8(at + "attn.wkv", kHead, kWidth);
    floats(at + "attn.kv_norm.weight", {kHead}, StoredType::bf16, 0.1f, 1);
    floats(at + "attn.attn_sink", {kHeads}, StoredType::f32, 1);
    fp8(at + "attn.wo_a", kGroups * kOutputRank, kHeads * kHead / kGroups);
    fp8(at + "attn.wo_b", kWidth, kGroups * kOutputRank);
    if (ratio != 0) compressor(at + "attn.compressor.", ratio, kHead);
    if (ratio == 4) {
      fp8(at + "attn.indexer.wq_b", kIndexHeads * kIndexWidth, kRank);
      floats(at + "attn.indexer.weights_proj.weight", {kIndexHeads, kWidth}, StoredType::bf16, 0.1f);
      compressor(at + "attn.indexer.compressor.", ratio, kIndexWidth);
    }
    floats(at + "ffn.gate.weight", {kExperts, kWidth}, StoredType::bf16, 0.1f);
    if (is_hash_routed) {
      BuiltTensor table{StoredType::i64, {kVocabulary, kUsed}, {}};
      for (std::int64_t v = 0; v < kVocabulary; ++v)
        for (const std::int64_t id : {v % kExperts, (v + 1 + v / kExperts % (kExperts - 1)) % kExperts}) {
          const auto* bytes = reinterpret_cast<const std::byte*>(&id);
          table.bytes.insert(table.bytes.end(), bytes, bytes + 8);
        }
      tensors[at + "ffn.gate.tid2eid"] = std::move(table);
    } else {
      floats(at + "ffn.gate.bias", {kExperts}, StoredType::f32, 0.02f);
    }
    for (std::int64_t e = 0; e < kExperts; ++e)
      for (const char* part : {"w1", "w2", "w3"})
        expert(at + "ffn.experts." + std::to_string(e) + "." + part, kExpertWidth, kWidth);  // both are 256
    for (const char* part : {"w1", "w2", "w3"}) fp8(at + "ffn.shared_experts." + part, kExpertWidth, kWidth);
  }

  void compressor(const std::string& at, std::int64_t ratio, std::int64_t row_width) {
    const std::int64_t width = ratio == 4 ? 2 * row_width : row_width;
    floats(at + "wkv.weight", {width, kWidth}, StoredType::bf16, 0.06f);
    floats(at + "wgate.weight", {width, kWidth}, StoredType::bf16, 0.06f);
    floats(at + "ape", {ratio, width}, StoredType::f32, 0.5f);
    floats(at + "norm.weight", {row_width}, StoredType::bf16, 0.1f, 1);
  }

  void hyper(const std::string& at, std::int64_t coefficients, std::int64_t scales) {
    floats(at + "fn", {coefficients, kStreams * kWidth}, StoredType::f32, 0.05f);
    floats(at + "base", {coefficients}, StoredType::f32, 0.5f);
    floats(at + "scale", {scales}, StoredType::f32, 0.05f, 0.3f);
  }

  void expert(const std::string& name, std::int64_t rows, std::int64_t width) {
    if (experts_ == Experts::fp4) return fp4(name, rows, width);
    if (experts_ == Experts::fp8) return fp8(name, rows, width);
    floats(name + ".weight", {rows, width}, StoredType::bf16, 0.06f);
  }

  void scales(const std::string& name, std::int64_t rows, std::int64_t width, std::uint32_t middle) {
    BuiltTensor scale{StoredType::f8_e8m0, {rows, width}, std::vector<std::byte>(std::size_t(rows * width))};
    for (std::byte& code : scale.bytes) code = static_cast<std::byte>(middle - 1 + random() % 3);
    tensors[name] = std::move(scale);
  }

  void make_tokenizer() {
    const Vocabulary v = synth_vocabulary(static_cast<int>(kVocabulary));
    Json vocab = Json::object(), added = Json::array();
    for (std::size_t i = 0; i < v.tokens.size(); ++i) {
      if (v.is_added(static_cast<Token>(i))) {
        added.push_back({{"id", i}, {"content", v.tokens[i]}, {"special", i < 3}});
      } else {
        vocab[v.tokens[i]] = i;
      }
    }
    const auto split = [](const char* pattern) {
      return Json{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
    };
    const Json steps = {
        split(R"(\p{N}{1,3})"),
        split("[一-龥\u3040-ゟ゠-ヿ]+"),
        split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
              " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"),
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}};
    tokenizer = {{"normalizer", nullptr},
                 {"added_tokens", added},
                 {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", steps}}},
                 {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", v.merges}}}};
  }

  std::uint32_t random() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state_ >> 33);
  }
  float normal() {  // near enough: the sum of four uniform numbers
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(random() >> 7) * 0x1p-24f;
    return (sum - 2) * 1.7320508f;
  }

  Experts experts_;
  std::uint64_t state_ = 1;
};

}  // namespace lockstep::test
