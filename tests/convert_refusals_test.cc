// What conversion refuses, and how it names what is wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/bytes.h"
#include "base/error.h"
#include "checkpoint_build.h"
#include "convert_runs.h"
#include "engine/convert.h"
#include "engine_runs.h"
#include "gguf_build.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using test::BuiltTensor;
using test::CheckpointBuild;
using test::TempFolder;
using Experts = CheckpointBuild::Experts;
using test::convert;
using test::options_of;
using test::set_byte;

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
       [](CheckpointBuild& b) { b.config["rope_scaling"]["type"] = "linear"; },
       "in/config.json: rope_scaling: key type: is \"linear\""},
      {"no rotary scaling", Kind::bad_file, [](CheckpointBuild& b) { b.config["rope_scaling"] = nullptr; },
       "key rope_scaling: is null, expected a value"},
      {"half a rotary scaling", Kind::bad_file,
       [](CheckpointBuild& b) { b.config["rope_scaling"]["factor"] = nullptr; },
       "rope_scaling: key factor: is null, expected a value"},
      {"no limit", Kind::bad_file, [](CheckpointBuild& b) { b.config["swiglu_limit"] = nullptr; },
       "key swiglu_limit: is null, expected a value"},
      {"no size", Kind::bad_file, [](CheckpointBuild& b) { b.config["hidden_size"] = nullptr; },
       "key hidden_size: is null, expected a value"},
      {"a setting left open", Kind::bad_file, [](CheckpointBuild& b) { b.config["norm_topk_prob"] = nullptr; },
       "key norm_topk_prob: is null, expected a value"},
      {"an epsilon that f32 does not have", Kind::bad_file,
       [](CheckpointBuild& b) { b.config["rms_norm_eps"] = 1e-60; },
       "key rms_norm_eps: is 1e-60, expected a number from 1e-12 to 0.1"},
      {"an epsilon above everything", Kind::bad_file, [](CheckpointBuild& b) { b.config["rms_norm_eps"] = 1e25; },
       "expected a number from 1e-12 to 0.1"},
      {"a scaling that shrinks", Kind::bad_file, [](CheckpointBuild& b) { b.config["rope_scaling"]["factor"] = 0.25; },
       "key factor: is 0.25, expected a number from 1 to 1e+06"},
      {"weights of another quantisation", Kind::unsupported,
       [](CheckpointBuild& b) {
         b.config["quantization_config"] = {{"quant_method", "awq"}};
       },
       "in/config.json: quantization_config: key quant_method: is \"awq\", this engine does \"fp8\" only"},
      {"tiles of another size", Kind::unsupported,
       [](CheckpointBuild& b) {
         b.config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {64, 64}}};
       },
       "key weight_block_size: is [64, 64]"},
      {"a vocabulary that its merges do not fit", Kind::bad_file,
       [](CheckpointBuild& b) { b.tokenizer["model"]["merges"][0] = "no merge at all"; }, "in/tokenizer.json: "},
      {"no tensor of a model", Kind::bad_file,
       [](CheckpointBuild& b) {
         b.tensors.clear();
         b.with_mtp();
       },
       "no tensor of a model is there, expected embed.weight and others; those of a drafter (mtp.*) are converted with "
       "--drafter"},
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
       "tensor 'layers.2.attn.wq_a.weight', row 3, column 17 is nan, expected a number that q8_0 holds"},
      {"an FP4 scale that is not a number", Kind::bad_file,
       [](CheckpointBuild& b) { set_byte(b, "layers.2.ffn.experts.1.w3.scale", 5 * 8 + 2, 255); },
       "tensor 'layers.2.ffn.experts.1.w3.weight', row 5, the scale of columns 64 to 95"},
      {"an expert that is not there", Kind::bad_file,
       [](CheckpointBuild& b) { set_byte(b, "layers.1.ffn.gate.tid2eid", 8 * (2 * 9 + 1), 4); },
       "tensor 'layers.1.ffn.gate.tid2eid', row 9, column 1 is expert 4 of 4, expected 0 to 3"},
      {"an expert below 0", Kind::bad_file,
       [](CheckpointBuild& b) { set_byte(b, "layers.1.ffn.gate.tid2eid", 7, 0x80); }, "row 0, column 0 is expert -"},
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
  EXPECT_NE(refusal(options_of(folder.path(), "mxfp4", "q8_0", "f16"))
                .find("row 0, column 5 is 999424, expected a number that f16 holds"),
            std::string::npos);
  ConvertOptions drafter = options_of(folder.path(), "mxfp4", "q8_0");
  drafter.drafter = true;
  EXPECT_NE(refusal(drafter).find("no drafter"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder / "out.gguf"));
}

TEST(Convert, RefusesValuesThatTheFormatsScalesDoNotReach) {
  constexpr struct {
    const char* name;
    float value;
    const char* dense;
    bool is_held;
  } kCases[] = {
      {"beyond f16's scales of Q8_0", 1e12f, "q8_0", false},
      {"the same below zero in Q4_0", -1e12f, "q4_0", false},
      {"ROCmFP4, whose scales end early", 65504, "q4_0_rocmfp4", false},
      {"an outlier that Q8_0 has a scale for", 65504, "q8_0", true},
      {"bf16 holds nearly all of f32", 1e12f, "bf16", true},
  };
  for (const auto& c : kCases) {
    TempFolder folder;
    CheckpointBuild build(Experts::bf16);
    build.with_trunk();
    for (const char* part : {"weight", "scale"}) build.tensors.erase(std::string("layers.2.attn.wq_a.") + part);
    build.floats("layers.2.attn.wq_a.weight", {128, 256}, StoredType::bf16, 0.05f);
    CheckpointBuild::set_value(build.tensors.at("layers.2.attn.wq_a.weight"), 3 * 256 + 17, c.value);
    build.save(folder / "in");
    try {
      convert(options_of(folder / "in", "bf16", c.dense), folder / "out.gguf");
      EXPECT_TRUE(c.is_held) << c.name << ": was accepted";
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_FALSE(c.is_held) << c.name << ": " << what;
      EXPECT_NE(what.find("in: tensor 'layers.2.attn.wq_a.weight', row 3, column 17 is "), std::string::npos) << what;
      EXPECT_NE(what.find("expected a number that " + std::string(c.dense) + " holds"), std::string::npos) << what;
      EXPECT_FALSE(fs::exists(folder / "out.gguf"));
    }
  }
}

TEST(Convert, NamesWhatAnIncompleteDrafterLacks) {
  const struct {
    const char* name;
    bool is_dspark;
    std::vector<std::string> erased;
    const char* says;
  } cases[] = {
      {"a norm of the middle stage", true, {"mtp.1.attn_norm.weight"}, "tensor mtp.1.attn_norm.weight is missing"},
      {"a norm of the last stage", true, {"mtp.2.attn_norm.weight"}, "tensor mtp.2.attn_norm.weight is missing"},
      {"its projection", true, {"mtp.0.main_proj.weight"}, "tensor mtp.0.main_proj.weight is missing"},
      {"a Markov matrix",
       true,
       {"mtp.2.markov_head.markov_w2.weight"},
       "tensor mtp.2.markov_head.markov_w2.weight is missing"},
      {"a projection of an MTP layer", false, {"mtp.0.e_proj.weight"}, "tensor mtp.0.e_proj.weight is missing"},
      {"a norm of an MTP layer", false, {"mtp.0.hnorm.weight"}, "tensor mtp.0.hnorm.weight is missing"},
      {"everything that tells which it is",
       false,
       {"mtp.0.e_proj.weight", "mtp.0.h_proj.weight", "mtp.0.enorm.weight", "mtp.0.hnorm.weight", "mtp.0.e_proj.scale",
        "mtp.0.h_proj.scale"},
       "no drafter: neither mtp.0.main_proj.weight (DSpark) nor mtp.0.e_proj.weight (MTP) is there"},
  };
  CheckpointBuild dspark, mtp;
  dspark.with_dspark();
  mtp.with_mtp();
  for (const auto& c : cases) {
    TempFolder folder;
    CheckpointBuild build = c.is_dspark ? dspark : mtp;
    for (const std::string& name : c.erased) build.tensors.erase(name);
    build.save(folder.path());
    ConvertOptions options = options_of(folder.path(), "mxfp4", "q8_0");
    options.drafter = true;
    try {
      plan_conversion(options);
      ADD_FAILURE() << c.name << ": was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::bad_file) << c.name;
      EXPECT_NE(std::string(error.what()).find(c.says), std::string::npos) << c.name << ": " << error.what();
    }
  }
}

TEST(Convert, KeysThatAreNotThereAreAssumedAndNamed) {
  TempFolder folder;
  CheckpointBuild build;
  for (const char* key : {"rms_norm_eps", "swiglu_limit", "scoring_func"}) build.config.erase(key);
  build.config["rope_scaling"].erase("beta_fast");
  build.with_trunk().save(folder.path());
  const ConvertPlan plan = plan_conversion(options_of(folder.path(), "mxfp4", "q8_0"));
  EXPECT_EQ(plan.model.norm_epsilon, 1e-6f);
  const auto says = std::find_if(plan.notes.begin(), plan.notes.end(),
                                 [](const std::string& note) { return note.find("assumed") != std::string::npos; });
  ASSERT_NE(says, plan.notes.end());
  for (const char* what :
       {"rms_norm_eps 1e-06", "swiglu_limit 10", "scoring_func \"sqrtsoftplus\"", "rope_scaling.beta_fast 32"})
    EXPECT_NE(says->find(what), std::string::npos) << *says;
  EXPECT_EQ(says->find("hc_eps"), std::string::npos) << *says;
}

TEST(Convert, OnlyAKeyThatNothingReadsCanBeIgnored) {
  TempFolder folder;
  CheckpointBuild build;
  build.with_trunk().save(folder.path());
  const struct {
    const char *key, *says;
  } cases[] = {
      {"attention_trick", "--ignore-key attention_trick: "},
      {"rms_norm_eps", "--ignore-key rms_norm_eps: this program reads that key of "},
      {"rope_scaling", "--ignore-key rope_scaling: this program reads that key of "},
  };
  for (const auto& c : cases) {
    ConvertOptions options = options_of(folder.path(), "mxfp4", "q8_0");
    options.ignored_keys = {c.key};
    try {
      plan_conversion(options);
      ADD_FAILURE() << c.key << ": was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::bad_argument);
      EXPECT_NE(std::string(error.what()).find(c.says), std::string::npos) << error.what();
    }
  }
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
