// From a checkpoint to a file: every tensor's values, keys and vocabulary, what is refused and why, and that the file
// runs. The checkpoints are small ones with published names and types (checkpoint_build.h).
#include "engine/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "base/bytes.h"
#include "base/error.h"
#include "checkpoint_build.h"
#include "cpu/cpu_ops.h"
#include "engine/convert_rows.h"
#include "engine/engine.h"
#include "engine_runs.h"
#include "gguf_build.h"
#include "tensor/dequantize.h"
#include "tensor/quantise.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using test::BuiltTensor;
using test::CheckpointBuild;
using test::TempFolder;
using Experts = CheckpointBuild::Experts;

ConvertOptions options_of(const fs::path& folder, const std::string& experts, const std::string& dense,
                          const std::string& rest = "source") {
  ConvertOptions options;
  options.checkpoint = folder;
  options.experts = experts;
  options.dense = dense;
  options.rest = rest;
  return options;
}

void convert(const ConvertOptions& options, const fs::path& out, const ConvertRun& run = {}) {
  write_conversion(plan_conversion(options), out, run);
}

std::vector<float> decoded(const GgufTensor& tensor, std::int64_t plane = 0) {
  const std::int64_t values = tensor.ne[0] * tensor.ne[1];
  std::vector<float> out(static_cast<std::size_t>(values));
  dequantize_row(tensor.dtype, tensor.bytes.data() + static_cast<std::size_t>(plane) * row_bytes(tensor.dtype, values),
                 values, out.data());
  return out;
}

/// Whether the file holds the checkpoint's values, which its format is wide enough for.
void expect_same_values(const CheckpointBuild& build, const std::string& from, const GgufTensor& tensor,
                        std::int64_t plane = 0) {
  const std::vector<double> expected = build.values(from);
  const std::vector<float> found = decoded(tensor, plane);
  ASSERT_EQ(found.size(), expected.size()) << from;
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_EQ(static_cast<double>(found[i]), expected[i]) << from << " value " << i;
}

/// The published names of a block and where they go (docs/formats.md), written out a second time.
struct Pair {
  const char *from, *to;
  bool is_dense = false;
};
constexpr Pair kBlock[] = {{"attn_norm.weight", "attn_norm.weight"},
                           {"ffn_norm.weight", "ffn_norm.weight"},
                           {"hc_attn_fn", "hc_attn_fn.weight"},
                           {"hc_attn_base", "hc_attn_base.weight"},
                           {"hc_attn_scale", "hc_attn_scale.weight"},
                           {"hc_ffn_fn", "hc_ffn_fn.weight"},
                           {"hc_ffn_base", "hc_ffn_base.weight"},
                           {"hc_ffn_scale", "hc_ffn_scale.weight"},
                           {"attn.wq_a.weight", "attn_q_a.weight", true},
                           {"attn.q_norm.weight", "attn_q_a_norm.weight"},
                           {"attn.wq_b.weight", "attn_q_b.weight", true},
                           {"attn.wkv.weight", "attn_kv.weight", true},
                           {"attn.kv_norm.weight", "attn_kv_a_norm.weight"},
                           {"attn.attn_sink", "attn_sinks.weight"},
                           {"attn.wo_a.weight", "attn_output_a.weight", true},
                           {"attn.wo_b.weight", "attn_output_b.weight", true},
                           {"ffn.gate.weight", "ffn_gate_inp.weight"},
                           {"ffn.shared_experts.w1.weight", "ffn_gate_shexp.weight", true},
                           {"ffn.shared_experts.w3.weight", "ffn_up_shexp.weight", true},
                           {"ffn.shared_experts.w2.weight", "ffn_down_shexp.weight", true}};
constexpr Pair kCompressor[] = {{"attn.compressor.wkv.weight", "attn_compressor_kv.weight"},
                                {"attn.compressor.wgate.weight", "attn_compressor_gate.weight"},
                                {"attn.compressor.ape", "attn_compressor_ape.weight"},
                                {"attn.compressor.norm.weight", "attn_compressor_norm.weight"}};
constexpr Pair kIndexer[] = {{"attn.indexer.wq_b.weight", "indexer.attn_q_b.weight", true},
                             {"attn.indexer.weights_proj.weight", "indexer.proj.weight"},
                             {"attn.indexer.compressor.wkv.weight", "indexer_compressor_kv.weight"},
                             {"attn.indexer.compressor.wgate.weight", "indexer_compressor_gate.weight"},
                             {"attn.indexer.compressor.ape", "indexer_compressor_ape.weight"},
                             {"attn.indexer.compressor.norm.weight", "indexer_compressor_norm.weight"}};
constexpr Pair kGlobal[] = {{"embed.weight", "token_embd.weight"},     {"head.weight", "output.weight"},
                            {"norm.weight", "output_norm.weight"},     {"hc_head_fn", "output_hc_fn.weight"},
                            {"hc_head_base", "output_hc_base.weight"}, {"hc_head_scale", "output_hc_scale.weight"}};
constexpr Pair kExpertParts[] = {
    {"w1", "ffn_gate_exps.weight"}, {"w3", "ffn_up_exps.weight"}, {"w2", "ffn_down_exps.weight"}};

/// Compares a block's tensors with the checkpoint's; returns how many there are.
std::size_t expect_block(const CheckpointBuild& build, const Gguf& file, const std::string& from, const std::string& to,
                         std::int64_t ratio, bool is_hash_routed) {
  std::size_t count = 0;
  const auto expect = [&](std::span<const Pair> pairs) {
    for (const Pair& pair : pairs) {
      expect_same_values(build, from + pair.from, file.tensor(to + pair.to));
      ++count;
    }
  };
  expect(kBlock);
  if (ratio != 0) expect(kCompressor);
  if (ratio == 4) expect(kIndexer);
  for (const Pair& part : kExpertParts) {
    const GgufTensor& stack = file.tensor(to + part.to);
    EXPECT_EQ(stack.ne[2], CheckpointBuild::kExperts);
    for (std::int64_t e = 0; e < CheckpointBuild::kExperts; ++e)
      expect_same_values(build, from + "ffn.experts." + std::to_string(e) + "." + part.from + ".weight", stack, e);
    ++count;
  }
  if (!is_hash_routed) {
    expect_same_values(build, from + "ffn.gate.bias", file.tensor(to + "exp_probs_b.bias"));
    return count + 1;
  }
  const BuiltTensor& table = build.tensors.at(from + "ffn.gate.tid2eid");
  const GgufTensor& found = file.tensor(to + "ffn_gate_tid2eid.weight");
  EXPECT_EQ(found.dtype, DType::i32);
  for (std::int64_t i = 0; i < table.count(); ++i) {
    const auto expected = load_as<std::int64_t>(table.bytes.data() + 8 * i);
    EXPECT_EQ(load_as<std::int32_t>(found.bytes.data() + 4 * i), expected);
  }
  return count + 1;
}

TEST(Convert, EveryTensorHoldsTheCheckpointsValues) {
  constexpr struct {
    const char* name;
    Experts published;
    const char *experts, *dense, *rest;
  } kCases[] = {
      {"FP4 experts and FP8 matrices without loss", Experts::fp4, "mxfp4", "bf16", "source"},
      {"all f32", Experts::fp4, "f32", "f32", "f32"},
      {"the base release's FP8 experts as bf16", Experts::fp8, "bf16", "bf16", "source"},
      {"BF16 experts as they are", Experts::bf16, "bf16", "f32", "bf16"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.name);
    TempFolder folder;
    CheckpointBuild build(c.published);
    build.with_trunk().save(folder.path());
    convert(options_of(folder.path(), c.experts, c.dense, c.rest), folder / "out.gguf");
    const Gguf file(folder / "out.gguf");
    std::size_t count = 0;
    for (const Pair& pair : kGlobal) {
      expect_same_values(build, pair.from, file.tensor(pair.to));
      ++count;
    }
    for (std::int64_t l = 0; l < CheckpointBuild::kLayers; ++l)
      count += expect_block(build, file, "layers." + std::to_string(l) + ".", "blk." + std::to_string(l) + ".",
                            CheckpointBuild::kRatios[l], l < CheckpointBuild::kHashLayers);
    EXPECT_EQ(file.tensors().size(), count);
    EXPECT_EQ(info_of(file.tensor("blk.0.ffn_up_exps.weight").dtype).name, std::string(c.experts));
    EXPECT_EQ(info_of(file.tensor("blk.0.attn_q_a.weight").dtype).name, std::string(c.dense));
    EXPECT_EQ(file.tensor("blk.0.hc_attn_fn.weight").dtype, DType::f32);
    EXPECT_EQ(file.tensor("blk.0.attn_norm.weight").dtype, DType::f32);
  }
}

TEST(Convert, RoundedFormatsAreTheQuantisersBytes) {
  TempFolder folder;
  CheckpointBuild build;
  build.with_trunk().save(folder.path());
  convert(options_of(folder.path(), "q4_K", "q8_0", "q8_0"), folder / "out.gguf");
  const Gguf file(folder / "out.gguf");
  const auto expect = [&](const std::string& from, const GgufTensor& tensor, DType dtype, std::int64_t plane) {
    ASSERT_EQ(tensor.dtype, dtype) << from;
    const std::vector<double> exact = build.values(from);
    const std::vector<float> values(exact.begin(), exact.end());
    const Quantiser quantiser(dtype);
    const std::int64_t width = tensor.ne[0];
    const std::size_t bytes = row_bytes(dtype, width);
    std::vector<std::byte> row(bytes);
    for (std::int64_t r = 0; r < tensor.ne[1]; ++r) {
      quantiser.quantise_row(
          std::span(values).subspan(static_cast<std::size_t>(r * width), static_cast<std::size_t>(width)), {},
          row.data());
      ASSERT_EQ(std::memcmp(row.data(),
                            tensor.bytes.data() + static_cast<std::size_t>(plane * tensor.ne[1] + r) * bytes, bytes),
                0)
          << from << " row " << r;
    }
  };
  expect("layers.3.ffn.experts.2.w2.weight", file.tensor("blk.3.ffn_down_exps.weight"), DType::q4_k, 2);
  expect("layers.3.attn.wq_b.weight", file.tensor("blk.3.attn_q_b.weight"), DType::q8_0, 0);
  expect("head.weight", file.tensor("output.weight"), DType::q8_0, 0);
  EXPECT_EQ(file.tensor("blk.3.ffn_gate_inp.weight").dtype, DType::bf16);  // the router is not put into blocks
}

TEST(Convert, KeysSayWhatTheConfigurationSays) {
  TempFolder folder;
  CheckpointBuild build;
  build.config["_name_or_path"] = "somewhere/Small-V4-0731";
  build.with_trunk().save(folder.path());
  convert(options_of(folder.path(), "mxfp4", "q8_0"), folder / "out.gguf");
  const Gguf file(folder / "out.gguf");
  EXPECT_EQ(file.string_of("general.architecture"), "deepseek4");
  EXPECT_EQ(file.string_of("general.name"), "Small-V4-0731");
  EXPECT_EQ(file.producer(), "llama.cpp");
  EXPECT_EQ(file.float_of("general.sampling.temp"), 0.6f);
  EXPECT_EQ(file.float_of("general.sampling.top_p"), 0.95f);
  EXPECT_EQ(file.ints_of("deepseek4.attention.compress_ratios"), (std::vector<std::int64_t>{0, 0, 4, 128, 4, 128, 0}));
  const Config c = read_config(file);
  EXPECT_EQ(c.vocabulary, 512);
  EXPECT_EQ(c.width, 256);
  EXPECT_EQ(c.heads, 8);
  EXPECT_EQ(c.head_width, 64);
  EXPECT_EQ(c.rotary, 16);
  EXPECT_EQ(c.query_rank, 128);
  EXPECT_EQ(c.output_groups, 2);
  EXPECT_EQ(c.output_rank, 64);
  EXPECT_EQ(c.window, 128);
  EXPECT_EQ(c.sinkhorn_iterations, 20);
  EXPECT_EQ(c.index_heads, 4);
  EXPECT_EQ(c.index_width, 64);
  EXPECT_EQ(c.index_top_k, 8);
  EXPECT_EQ(c.experts, 4);
  EXPECT_EQ(c.experts_used, 2);
  EXPECT_EQ(c.expert_width, 256);
  EXPECT_EQ(c.route_scale, 1.5f);
  EXPECT_EQ(c.context_length, 16384);
  EXPECT_EQ(c.yarn_factor, 16);
  ASSERT_EQ(c.layers.size(), 6u);
  for (std::size_t l = 0; l < 6; ++l) {
    EXPECT_EQ(c.layers[l].ratio, CheckpointBuild::kRatios[l]);
    EXPECT_EQ(c.layers[l].hash_routed, l < 3);
    EXPECT_EQ(c.layers[l].clamp, 10);
  }
}

TEST(Convert, TheVocabularyIsTheTokenizersWithControlTokensByTheirLook) {
  TempFolder folder;
  CheckpointBuild build;
  build.config["vocab_size"] = 512;
  auto& added = build.tokenizer["added_tokens"];
  const std::size_t last = added.size() - 1;
  added.erase(last);  // id 511 is then no token
  build.with_trunk().save(folder.path());
  convert(options_of(folder.path(), "mxfp4", "q8_0"), folder / "out.gguf");
  const Gguf file(folder / "out.gguf");
  const Vocabulary v = vocabulary_of(file);
  EXPECT_EQ(v.model, "gpt2");
  EXPECT_EQ(v.pre, "joyai-llm");
  ASSERT_EQ(v.tokens.size(), 512u);
  EXPECT_EQ(v.tokens[511], "[PAD511]");
  EXPECT_EQ(v.types[511], 5);
  EXPECT_EQ(v.bos, 0);
  EXPECT_EQ(v.eos, 1);
  EXPECT_EQ(v.pad, 1);
  EXPECT_EQ(v.chat_template, "{{ messages }}");
  EXPECT_FALSE(file.bool_of("tokenizer.ggml.add_bos_token"));
  const Vocabulary expected = synth_vocabulary(512);
  EXPECT_EQ(v.merges, expected.merges);
  for (std::size_t i = 0; i < 511; ++i) {
    EXPECT_EQ(v.tokens[i], expected.tokens[i]);
    EXPECT_EQ(v.types[i], expected.types[i]) << v.tokens[i];
  }
}

TEST(Convert, TheFileRunsWithTheSameLogitsFromPacked4BitAndFromF32Values) {
  TempFolder folder;
  CheckpointBuild build;
  build.with_trunk().save(folder.path());
  convert(options_of(folder.path(), "f32", "f32", "f32"), folder / "wide.gguf");
  convert(options_of(folder.path(), "f32", "bf16", "source"), folder / "published.gguf");
  std::vector<Token> tokens;
  for (int i = 0; i < 40; ++i) tokens.push_back((i * 37 + 5) % 512);
  const auto wide = testing::make_engine(folder / "wide.gguf", Mode::official, "auto", 1);
  const auto published = testing::make_engine(folder / "published.gguf", Mode::official, "auto", 1);
  const std::vector<float> a = testing::run(*wide, {tokens}, "chunk:16").logits[0];
  const std::vector<float> b = testing::run(*published, {tokens}, "chunk:16").logits[0];
  float most = 0;
  for (const float logit : a) {
    ASSERT_TRUE(std::isfinite(logit));
    most = std::max(most, std::fabs(logit));
  }
  EXPECT_GT(most, 0.1f);
  EXPECT_TRUE(testing::same_bits(a, b));  // widened exactly, added in the same order

  convert(options_of(folder.path(), "mxfp4", "q8_0"), folder / "usual.gguf");
  const auto usual = testing::make_engine(folder / "usual.gguf", Mode::official, "auto", 1);
  const std::vector<float> c = testing::run(*usual, {tokens}, "chunk:16").logits[0];
  for (const float logit : c) ASSERT_TRUE(std::isfinite(logit));
}

TEST(Convert, NeitherThreadsNorPartsNorAPrefixChangeAByte) {
  TempFolder folder;
  CheckpointBuild build;
  build.with_trunk();
  build.save(folder / "a");
  const ConvertOptions options = options_of(folder / "a", "mxfp4", "q8_0");
  ConvertRun run;
  run.threads = 1;
  convert(options, folder / "one.gguf", run);
  run.threads = 3;
  convert(options, folder / "three.gguf", run);
  EXPECT_EQ(testing::read_text(folder / "one.gguf"), testing::read_text(folder / "three.gguf"));

  run.part_bytes = 1 << 20;
  const auto parts = write_conversion(plan_conversion(options), folder / "split.gguf", run);
  EXPECT_GT(parts.size(), 2u);
  CheckpointBuild prefixed = build;
  prefixed.tensors.clear();
  for (const auto& [name, tensor] : build.tensors) prefixed.tensors["model." + name] = tensor;
  prefixed.save(folder / "b", 1);
  convert(options_of(folder / "b", "mxfp4", "q8_0"), folder / "prefixed.gguf");
  const Gguf one(folder / "one.gguf"), split(parts.front()), other(folder / "prefixed.gguf");
  ASSERT_EQ(one.tensors().size(), split.tensors().size());
  ASSERT_EQ(one.tensors().size(), other.tensors().size());
  for (const GgufTensor& tensor : one.tensors())
    for (const Gguf* file : {&split, &other}) {
      const GgufTensor& same = file->tensor(tensor.name);
      EXPECT_EQ(same.dtype, tensor.dtype);
      EXPECT_TRUE(std::equal(tensor.bytes.begin(), tensor.bytes.end(), same.bytes.begin(), same.bytes.end()))
          << tensor.name;
    }
}

TEST(Convert, ADsparkDrafterGetsTheNamesAndKeysOfDflash) {
  TempFolder folder;
  CheckpointBuild build;
  build.with_trunk().with_dspark();
  build.save(folder.path());
  for (int i = 0; i < 3; ++i) fs::remove(folder / ("model-" + std::to_string(i) + ".safetensors"));  // not needed
  ConvertOptions options = options_of(folder.path(), "mxfp4", "bf16");
  options.drafter = true;
  convert(options, folder / "out.gguf");
  const Gguf file(folder / "out.gguf");
  EXPECT_EQ(file.string_of("general.architecture"), "dflash");
  EXPECT_EQ(file.int_of("dflash.block_count"), 3);
  EXPECT_EQ(file.int_of("dflash.block_size"), 5);
  EXPECT_EQ(file.ints_of("dflash.target_layers"), (std::vector<std::int64_t>{4, 5, 6}));  // inputs, not outputs
  EXPECT_EQ(file.ints_of("dflash.attention.compress_ratios"), (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_EQ(file.int_of("dflash.hash_layer_count"), 0);
  EXPECT_EQ(file.int_of("tokenizer.ggml.mask_token_id"), 7);
  EXPECT_EQ(file.strings_of("tokenizer.ggml.tokens").size(), 512u);
  constexpr Pair kOthers[] = {{"mtp.0.main_proj.weight", "fc.weight"},
                              {"mtp.0.main_norm.weight", "enc.output_norm.weight"},
                              {"mtp.2.norm.weight", "output_norm.weight"},
                              {"mtp.2.hc_head_fn", "output_hc_fn.weight"},
                              {"mtp.2.hc_head_base", "output_hc_base.weight"},
                              {"mtp.2.hc_head_scale", "output_hc_scale.weight"},
                              {"mtp.2.markov_head.markov_w1.weight", "markov_w1.weight"},
                              {"mtp.2.markov_head.markov_w2.weight", "markov_w2.weight"},
                              {"mtp.2.confidence_head.proj.weight", "conf_proj.weight"}};
  for (const Pair& pair : kOthers) expect_same_values(build, pair.from, file.tensor(pair.to));
  std::size_t count = std::size(kOthers);
  for (int n = 0; n < 3; ++n)
    count += expect_block(build, file, "mtp." + std::to_string(n) + ".", "blk." + std::to_string(n) + ".", 0, false);
  EXPECT_EQ(count, 81u);
  EXPECT_EQ(file.tensors().size(), count);
  EXPECT_EQ(file.tensor("fc.weight").ne[0], 3 * 256);
}

TEST(Convert, AnMtpLayerGetsTheNamesAndKeysOfTheSidecar) {
  TempFolder folder;
  CheckpointBuild build;
  build.with_mtp().save(folder.path());
  ConvertOptions options = options_of(folder.path(), "mxfp4", "bf16");
  options.drafter = true;
  convert(options, folder / "out.gguf");
  const Gguf file(folder / "out.gguf");
  EXPECT_EQ(file.string_of("general.architecture"), "deepseek4_mtp_support");
  EXPECT_EQ(file.int_of("deepseek4.mtp_layer_count"), 1);
  EXPECT_EQ(file.int_of("deepseek4.nextn_predict_layers"), 1);
  EXPECT_EQ(file.int_of("deepseek4.expert_count"), 4);
  EXPECT_EQ(file.producer(), "ds4 sidecar");
  constexpr Pair kOthers[] = {
      {"mtp.0.e_proj.weight", "mtp.0.e_proj.weight"},      {"mtp.0.h_proj.weight", "mtp.0.h_proj.weight"},
      {"mtp.0.enorm.weight", "mtp.0.enorm.weight"},        {"mtp.0.hnorm.weight", "mtp.0.hnorm.weight"},
      {"mtp.0.norm.weight", "mtp.0.norm.weight"},          {"mtp.0.hc_head_fn", "mtp.0.hc_head_fn.weight"},
      {"mtp.0.hc_head_base", "mtp.0.hc_head_base.weight"}, {"mtp.0.hc_head_scale", "mtp.0.hc_head_scale.weight"}};
  for (const Pair& pair : kOthers) expect_same_values(build, pair.from, file.tensor(pair.to));
  const std::size_t count = expect_block(build, file, "mtp.0.", "mtp.0.", 0, false) + std::size(kOthers);
  EXPECT_EQ(count, 32u);
  EXPECT_EQ(file.tensors().size(), count);
}

TEST(Convert, TheModelIsConvertedWithoutItsDraftersFiles) {
  TempFolder folder;
  CheckpointBuild build;
  build.with_trunk().with_dspark().save(folder.path());
  fs::remove(folder / "model-drafter.safetensors");
  convert(options_of(folder.path(), "mxfp4", "q8_0"), folder / "out.gguf");
  EXPECT_EQ(Gguf(folder / "out.gguf").trunk_layers(), 6);
}

/// The only byte or value of a tensor that is wrong.
void set_byte(CheckpointBuild& build, const std::string& tensor, std::size_t at, int value) {
  build.tensors.at(tensor).bytes.at(at) = static_cast<std::byte>(value);
}

struct Refusal {
  const char* name;
  Error::Kind kind;
  void (*change)(CheckpointBuild&);
  const char* says;
};

TEST(Convert, RefusesByNameWhatItDoesNotKnowOrCannotUse) {
  using Kind = Error::Kind;
  const Refusal cases[] = {
      {"a tensor that nobody knows", Kind::unsupported,
       [](CheckpointBuild& b) { b.floats("layers.0.attn.extra.weight", {4}, StoredType::f32, 1); },
       "1 tensors not known to this program: 'layers.0.attn.extra.weight'"},
      {"names of a checkpoint saved again", Kind::unsupported,
       [](CheckpointBuild& b) { b.floats("layers.0.self_attn.q_a_proj.weight", {4}, StoredType::f32, 1); },
       "saved again by transformers"},
      {"a layer too many", Kind::unsupported,
       [](CheckpointBuild& b) { b.floats("layers.6.attn_norm.weight", {256}, StoredType::bf16, 1); },
       "'layers.6.attn_norm.weight'"},
      {"a missing tensor", Kind::bad_file, [](CheckpointBuild& b) { b.tensors.erase("layers.4.attn.wkv.weight"); },
       "tensor layers.4.attn.wkv.weight is missing"},
      {"a missing scale", Kind::bad_file, [](CheckpointBuild& b) { b.tensors.erase("layers.4.attn.wkv.scale"); },
       "tensor layers.4.attn.wkv.scale is missing"},
      {"a missing expert", Kind::bad_file,
       [](CheckpointBuild& b) { b.tensors.erase("layers.5.ffn.experts.3.w2.weight"); },
       "tensor layers.5.ffn.experts.3.w2.weight is missing"},
      {"a wrong shape", Kind::bad_file, [](CheckpointBuild& b) { b.floats("norm.weight", {255}, StoredType::bf16, 1); },
       "tensor 'norm.weight' is BF16 [255], expected [256]"},
      {"rows and columns exchanged", Kind::bad_file, [](CheckpointBuild& b) { b.fp8("layers.0.attn.wq_a", 256, 128); },
       "tensor 'layers.0.attn.wq_a.weight' is F8_E4M3 [256, 128], expected [128, 256]"},
      {"scales of another shape", Kind::bad_file,
       [](CheckpointBuild& b) {
         b.tensors.at("layers.0.attn.wq_a.scale").shape = {2, 1};
       },
       "tensor 'layers.0.attn.wq_a.scale' is F8_E8M0 [2, 1], expected [1, 2]"},
      {"scales of another type", Kind::bad_file,
       [](CheckpointBuild& b) { b.tensors.at("layers.0.attn.wq_a.scale").type = StoredType::i8; },
       "'layers.0.attn.wq_a.scale' is I8 [1, 2], expected F8_E8M0"},
      {"a vector of integers", Kind::bad_file,
       [](CheckpointBuild& b) { b.tensors.at("layers.0.attn.attn_sink").type = StoredType::i32; },
       "tensor 'layers.0.attn.attn_sink' is I32 [8], expected F32, F16 or BF16"},
      {"a table of floats", Kind::bad_file,
       [](CheckpointBuild& b) {
         b.floats("layers.0.ffn.gate.tid2eid", {512, 2}, StoredType::f32, 1);
       },
       "expected I64 or I32"},
      {"a tensor of the successor", Kind::unsupported,
       [](CheckpointBuild& b) { b.floats("layers.1.engram.key.weight", {4}, StoredType::f32, 1); },
       "belongs to DeepSeek V4.1"},
      {"no head of hyper-connections", Kind::unsupported, [](CheckpointBuild& b) { b.tensors.erase("hc_head_fn"); },
       "V4.1"},
      {"the successor by its name", Kind::unsupported,
       [](CheckpointBuild& b) { b.config["architectures"] = {"DeepseekV41ForCausalLM"}; }, "is DeepSeek V4.1"},
      {"another model", Kind::unsupported, [](CheckpointBuild& b) { b.config["model_type"] = "deepseek_v3"; },
       "\"deepseek_v3\", expected DeepSeek V4"},
      {"a key that nobody knows", Kind::unsupported, [](CheckpointBuild& b) { b.config["attention_trick"] = 1; },
       "key attention_trick: not known"},
      {"a missing key", Kind::bad_file, [](CheckpointBuild& b) { b.config.erase("index_topk"); },
       "key index_topk: is missing"},
      {"a key of another kind", Kind::bad_file, [](CheckpointBuild& b) { b.config["hidden_size"] = "256"; },
       "key hidden_size: is \"256\", expected a whole number"},
      {"a size out of range", Kind::bad_file, [](CheckpointBuild& b) { b.config["num_hidden_layers"] = 100000; },
       "key num_hidden_layers: is 100000, expected a whole number from 1 to 1024"},
      {"another scoring function", Kind::unsupported, [](CheckpointBuild& b) { b.config["scoring_func"] = "sigmoid"; },
       "key scoring_func: is \"sigmoid\""},
      {"another compression", Kind::unsupported, [](CheckpointBuild& b) { b.config["compress_ratios"][2] = 8; },
       "layer 2 has 8"},
      {"too few ratios", Kind::bad_file,
       [](CheckpointBuild& b) {
         b.config["compress_ratios"] = {0, 0, 4};
       },
       "has 3 entries for 6 layers"},
      {"another rotary scaling", Kind::unsupported,
       [](CheckpointBuild& b) { b.config["rope_scaling"]["type"] = "linear"; }, "key type: is \"linear\""},
      {"no tokenizer", Kind::io, [](CheckpointBuild& b) { b.tokenizer = nullptr; }, "tokenizer.json"},
      {"another pre-tokenizer", Kind::unsupported, [](CheckpointBuild& b) { b.tokenizer["pre_tokenizer"] = nullptr; },
       "pre-tokenizer"},
      {"more tokens than rows", Kind::bad_file,
       [](CheckpointBuild& b) {
         b.tokenizer["added_tokens"].push_back({{"id", 512}, {"content", "<more>"}, {"special", false}});
       },
       "513 tokens, expected at most 512"},
      {"a value that is not a number", Kind::bad_file,
       [](CheckpointBuild& b) { set_byte(b, "layers.2.attn.wq_a.weight", 3 * 256 + 17, 0x7f); },
       "tensor layers.2.attn.wq_a.weight: row 3: column 17 is"},
      {"an FP4 scale that is not a number", Kind::bad_file,
       [](CheckpointBuild& b) { set_byte(b, "layers.2.ffn.experts.1.w3.scale", 5 * 8 + 2, 255); },
       "tensor layers.2.ffn.experts.1.w3.weight: row 5: the scale of columns 64 to 95"},
      {"an expert that is not there", Kind::bad_file,
       [](CheckpointBuild& b) { set_byte(b, "layers.1.ffn.gate.tid2eid", 8 * (2 * 9 + 1), 4); },
       "tensor layers.1.ffn.gate.tid2eid: row 9: column 1 is expert 4 of 4"},
      {"an expert below 0", Kind::bad_file,
       [](CheckpointBuild& b) { set_byte(b, "layers.1.ffn.gate.tid2eid", 7, 0x80); }, "row 0: column 0 is expert -"},
  };
  CheckpointBuild good;
  good.with_trunk();
  for (const Refusal& c : cases) {
    TempFolder folder;
    CheckpointBuild build = good;
    c.change(build);
    build.save(folder / "in");
    try {
      convert(options_of(folder / "in", "mxfp4", "q8_0"), folder / "out.gguf");
      ADD_FAILURE() << c.name << ": was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), c.kind) << c.name;
      EXPECT_NE(std::string(error.what()).find(c.says), std::string::npos) << c.name << ": " << error.what();
    }
    for (const auto& entry : fs::directory_iterator(folder.path()))
      EXPECT_EQ(entry.path().filename(), "in") << c.name << " left something behind";
  }
}

TEST(Convert, RefusesOptionsThatDoNotFit) {
  TempFolder folder;
  CheckpointBuild build;
  build.with_trunk();
  CheckpointBuild::set_value(build.tensors.at("embed.weight"), 5, 1e6f);
  build.save(folder.path());
  const auto refusal = [&](const ConvertOptions& options) -> std::string {
    try {
      convert(options, folder / "out.gguf");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal(options_of(folder.path(), "q9_9", "q8_0")).find("--experts q9_9: expected one of"),
            std::string::npos);
  EXPECT_NE(
      refusal(options_of(folder.path(), "mxfp4", "q4_K")).find("rows of 128 values, q4_K needs a multiple of 256"),
      std::string::npos);
  EXPECT_NE(refusal(options_of(folder.path(), "mxfp4", "q8_0", "f16")).find("which f16 does not hold"),
            std::string::npos);
  ConvertOptions drafter = options_of(folder.path(), "mxfp4", "q8_0");
  drafter.drafter = true;
  EXPECT_NE(refusal(drafter).find("no drafter"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder / "out.gguf"));
}

TEST(Convert, AKeyThatTheCallerTakesResponsibilityForIsIgnored) {
  TempFolder folder;
  CheckpointBuild build;
  build.config["attention_trick"] = 1;
  build.with_trunk().save(folder.path());
  ConvertOptions options = options_of(folder.path(), "mxfp4", "q8_0");
  options.ignored_keys = {"attention_trick"};
  EXPECT_NO_THROW(plan_conversion(options));
}

TEST(Convert, SaysWhatIsRoundedAndWhatIsLeftOut) {
  TempFolder folder;
  CheckpointBuild build;
  build.with_trunk().with_mtp();
  build.floats("layers.3.ffn.gate.bias_vl", {4}, StoredType::f32, 1);
  build.floats("layers.0.ffn.gate.bias", {4}, StoredType::f32, 1);
  build.save(folder.path(), 1);
  const std::vector<std::string> notes = plan_conversion(options_of(folder.path(), "mxfp4", "q8_0")).notes;
  const auto has = [&](const std::string& text) {
    return std::any_of(notes.begin(), notes.end(), [&](const std::string& note) { return note.starts_with(text); });
  };
  EXPECT_TRUE(has("experts, FP4 to mxfp4, the same values (18 tensors)"));
  EXPECT_TRUE(has("dense, F8_E4M3 to q8_0, rounded (50 tensors)"));
  EXPECT_TRUE(has("2 tensors for pictures are left out"));
  const auto of_drafter = std::count_if(build.tensors.begin(), build.tensors.end(),
                                        [](const auto& tensor) { return tensor.first.starts_with("mtp."); });
  EXPECT_TRUE(has(std::to_string(of_drafter) + " tensors of a drafter are left out"));
}

TEST(Convert, AnInterruptedRunLeavesNothing) {
  TempFolder folder;
  CheckpointBuild build;
  build.with_trunk().save(folder / "in");
  const ConvertPlan plan = plan_conversion(options_of(folder / "in", "mxfp4", "q8_0"));
  for (const int after : {0, 1, 57, 150}) {
    ConvertRun run;
    int asked = 0;
    run.cancelled = [&] { return asked++ == after; };
    try {
      write_conversion(plan, folder / "out.gguf", run);
      ADD_FAILURE() << after;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::cancelled);
    }
    for (const auto& entry : fs::directory_iterator(folder.path())) EXPECT_EQ(entry.path().filename(), "in") << after;
  }
  EXPECT_EQ(write_conversion(plan, folder / "out.gguf").size(), 1u);
}

TEST(Convert, ADamagedHeaderIsRefusedWhereverTheDamageIs) {
  TempFolder folder;
  CheckpointBuild build;
  build.with_mtp().save(folder.path(), 1);
  const fs::path path = folder / "model.safetensors";
  const std::string file = testing::read_text(path);
  const auto header = static_cast<std::size_t>(load_as<std::uint64_t>(file.data())) + 8;
  ConvertOptions options = options_of(folder.path(), "mxfp4", "q8_0");
  options.drafter = true;
  EXPECT_NO_THROW(plan_conversion(options));
  // A digit, a bracket or a letter becomes something else; spaces that pad the header may become nothing but spaces.
  const std::size_t end = file.find_last_not_of(' ', header - 1);
  std::fstream damage(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto put = [&](std::size_t at, char byte) {
    damage.seekp(static_cast<std::streamoff>(at));
    damage.put(byte).flush();
  };
  for (std::size_t at = 0; at <= end; at += 7) {
    put(at, static_cast<char>(file[at] ^ 1));
    EXPECT_THROW(plan_conversion(options), Error) << at << ": " << file.substr(at < 20 ? 0 : at - 20, 40);
    put(at, file[at]);
  }
}

}  // namespace
}  // namespace lockstep
