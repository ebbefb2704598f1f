// From a checkpoint to a file: every tensor's values, keys and vocabulary, and that the file runs. The checkpoints are
// small ones with published names and types (checkpoint_build.h).
#include "engine/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "base/bytes.h"
#include "base/error.h"
#include "checkpoint_build.h"
#include "convert_runs.h"
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
using test::convert;
using test::options_of;
using test::set_byte;
using test::TempFolder;
using Experts = CheckpointBuild::Experts;

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

/// Whether values are rounded is decided by the values, not by the names of the formats.
TEST(Convert, SaysWhetherValuesAreTheSame) {
  const struct {
    const char* name;
    Experts published;
    const char *experts, *dense, *rest;
    void (*change)(CheckpointBuild&);
    const char* note;
  } cases[] = {
      {"FP4 in f16", Experts::fp4, "f16", "q8_0", "source", [](CheckpointBuild&) {},
       "experts, FP4 to f16, the same values (18 tensors)"},
      {"FP8 in f16", Experts::fp4, "f16", "f16", "source", [](CheckpointBuild&) {},
       "dense, F8_E4M3 to f16, the same values (50 tensors)"},
      {"one FP4 block with a scale below f16's", Experts::fp4, "f16", "q8_0", "source",
       [](CheckpointBuild& b) {
         set_byte(b, "layers.2.ffn.experts.1.w3.scale", 5 * 8 + 2, 127 - 26);
         for (std::size_t i = 0; i < 16; ++i)
           set_byte(b, "layers.2.ffn.experts.1.w3.weight", 5 * 128 + 2 * 16 + i, 0x11);
       },
       "experts, FP4 to f16, rounded (1 tensors, 32 of 262144 values)"},
      {"and one whose codes are even", Experts::fp4, "f16", "q8_0", "source",
       [](CheckpointBuild& b) {
         set_byte(b, "layers.2.ffn.experts.1.w3.scale", 5 * 8 + 2, 127 - 24);
         for (std::size_t i = 0; i < 16; ++i)
           set_byte(b, "layers.2.ffn.experts.1.w3.weight", 5 * 128 + 2 * 16 + i, 0x22);
       },
       "experts, FP4 to f16, the same values (18 tensors)"},
      {"BF16 that f16 holds", Experts::fp4, "mxfp4", "q8_0", "f16",
       [](CheckpointBuild& b) {
         for (auto& [name, tensor] : b.tensors)
           if (tensor.type == StoredType::bf16)
             for (std::int64_t i = 0; i < tensor.count(); ++i) CheckpointBuild::set_value(tensor, i, 0.5f);
         CheckpointBuild::set_value(b.tensors.at("head.weight"), 7, 0x1p-30f);
       },
       "rest, BF16 to f16, rounded (1 tensors, 1 of 131072 values)"},
      {"the rest in blocks", Experts::fp4, "mxfp4", "q8_0", "q3_K", [](CheckpointBuild&) {},
       "rest, BF16 to q3_K, rounded ("},
      {"the rest widened", Experts::fp4, "mxfp4", "q8_0", "f32", [](CheckpointBuild&) {},
       "rest, BF16 to f32, the same values ("},
  };
  for (const auto& c : cases) {
    TempFolder folder;
    CheckpointBuild build(c.published);
    build.with_trunk();
    c.change(build);
    build.save(folder.path());
    const std::vector<std::string> notes = plan_conversion(options_of(folder.path(), c.experts, c.dense, c.rest)).notes;
    EXPECT_TRUE(std::any_of(notes.begin(), notes.end(), [&](const std::string& n) { return n.starts_with(c.note); }))
        << c.name << ": " << ::testing::PrintToString(notes);
  }
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
}  // namespace
}  // namespace lockstep
