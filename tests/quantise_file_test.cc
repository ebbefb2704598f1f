// Whole files through the quantiser: what every tensor becomes, that the results run, rules, keys, and what goes wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/bytes.h"
#include "base/error.h"
#include "engine/engine.h"
#include "engine/quantise.h"
#include "engine/synth.h"
#include "engine_runs.h"
#include "gguf_build.h"
#include "numerics/random.h"
#include "numerics/round.h"
#include "tensor/dequantize.h"
#include "tensor/gguf_writer.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;

/// A folder with a small f16 model of every kind of layer.
class QuantiseFile : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempFolder>();
    write_synth(plan_synth({"nano", "f16", 5, 6, 1}), model());
  }
  static void TearDownTestSuite() { folder_.reset(); }
  static fs::path path(const std::string& name) { return folder_->path() / name; }
  static fs::path model() { return path("model.gguf"); }

  static QuantiseOptions options_of(const std::string& recipe, const std::vector<std::string>& types = {}) {
    QuantiseOptions options;
    options.in = model();
    options.recipe = recipe;
    for (const std::string& type : types) options.rules.push_back(parse_type_rule(type));
    return options;
  }
  static QuantiseResult quantise(const QuantiseOptions& options, const fs::path& out, const QuantiseRun& run = {}) {
    return write_quantised(plan_quantisation(options), out, run);
  }
  static std::string error_of(const QuantiseOptions& options) {
    try {
      plan_quantisation(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  static std::unique_ptr<TempFolder> folder_;
};
std::unique_ptr<TempFolder> QuantiseFile::folder_;

TEST_F(QuantiseFile, RecipesGiveEveryKindOfMatrixItsFormatAndTheResultRuns) {
  const struct {
    const char* recipe;
    DType gate, down, dense, kv, head, embedding, router, index_query, positions;
    std::int64_t file_type;
  } kCases[] = {
      {"antirez-q2", DType::iq2_xxs, DType::q2_k, DType::q8_0, DType::q8_0, DType::q8_0, DType::f16, DType::f16,
       DType::f16, DType::f16, 19},
      {"antirez-q4", DType::q4_k, DType::q4_k, DType::q8_0, DType::q8_0, DType::q8_0, DType::f16, DType::f16,
       DType::f16, DType::f16, 15},
      {"rocmfp2-strix", DType::rocmfp2, DType::rocmfp3, DType::rocmfp4_fast, DType::rocmfp4, DType::q6_k, DType::q6_k,
       DType::f16, DType::f16, DType::f32, 119},
      {"rocmfp4", DType::mxfp4, DType::mxfp4, DType::rocmfp4, DType::rocmfp4, DType::q6_k, DType::q6_k, DType::f16,
       DType::f16, DType::f32, 106},
      {"mxfp4-native", DType::mxfp4, DType::mxfp4, DType::q8_0, DType::q8_0, DType::f16, DType::f16, DType::f16,
       DType::q8_0, DType::f16, 38},
  };
  ASSERT_EQ(std::size(kCases), recipe_names().size());
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.recipe);
    const fs::path out = path(std::string(c.recipe) + ".gguf");
    quantise(options_of(c.recipe), out);
    const Gguf file(out);
    const auto type_of = [&](const char* name) { return file.tensor(name).dtype; };
    EXPECT_EQ(type_of("blk.3.ffn_gate_exps.weight"), c.gate);
    EXPECT_EQ(type_of("blk.3.ffn_up_exps.weight"), c.gate);
    EXPECT_EQ(type_of("blk.3.ffn_down_exps.weight"), c.down);
    for (const char* name :
         {"attn_q_a", "attn_q_b", "attn_output_a", "attn_output_b", "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"})
      EXPECT_EQ(file.tensor("blk.2." + std::string(name) + ".weight").dtype, c.dense) << name;
    EXPECT_EQ(type_of("blk.2.attn_kv.weight"), c.kv);
    EXPECT_EQ(type_of("output.weight"), c.head);
    EXPECT_EQ(type_of("token_embd.weight"), c.embedding);
    for (const char* name : {"ffn_gate_inp", "attn_compressor_kv", "attn_compressor_gate", "indexer.proj",
                             "indexer_compressor_kv", "hc_attn_fn", "hc_ffn_fn"})
      EXPECT_EQ(file.tensor("blk.2." + std::string(name) + ".weight").dtype, c.router) << name;
    EXPECT_EQ(type_of("blk.2.indexer.attn_q_b.weight"), c.index_query);
    EXPECT_EQ(type_of("blk.2.attn_compressor_ape.weight"), c.positions);
    EXPECT_EQ(file.int_of("general.file_type"), c.file_type);

    const auto engine = testing::make_engine(out, Mode::official, "auto", 1);
    std::vector<Token> tokens;
    for (Token token = 3; token < 40; ++token) tokens.push_back(token);
    const testing::RunResult result = testing::run(*engine, {tokens}, "chunk:16");
    for (const float logit : result.logits[0]) ASSERT_TRUE(std::isfinite(logit));
  }
}

TEST_F(QuantiseFile, VectorsAndTablesAndKeysStayAsTheyAre) {
  quantise(options_of("", {"*=q8_0"}), path("all.gguf"));
  const Gguf before(model()), after(path("all.gguf"));
  ASSERT_EQ(after.tensors().size(), before.tensors().size());
  for (const GgufTensor& tensor : before.tensors()) {
    const GgufTensor& made = after.tensor(tensor.name);
    EXPECT_EQ(made.ne, tensor.ne) << tensor.name;
    const bool is_kept = tensor.rows() == 1 || tensor.dtype == DType::i32 || tensor.name.ends_with("_ape.weight");
    EXPECT_EQ(made.dtype, is_kept ? tensor.dtype : DType::q8_0) << tensor.name;
    if (!is_kept) continue;
    EXPECT_TRUE(std::equal(made.bytes.begin(), made.bytes.end(), tensor.bytes.begin(), tensor.bytes.end()))
        << tensor.name;
  }
  for (const GgufKey& key : before.keys()) {
    const GgufValue* value = after.find(key.name);
    ASSERT_NE(value, nullptr) << key.name;
    EXPECT_TRUE(
        std::equal(value->bytes().begin(), value->bytes().end(), key.value.bytes().begin(), key.value.bytes().end()))
        << key.name;
  }
  EXPECT_EQ(after.int_of("general.file_type"), 7);
  EXPECT_EQ(after.int_of("general.quantization_version"), 2);
}

TEST_F(QuantiseFile, DoesNotDependOnThreads) {
  const QuantiseOptions options = options_of("antirez-q2");
  QuantiseRun one, three;
  one.threads = 1;
  three.threads = 3;
  quantise(options, path("one.gguf"), one);
  quantise(options, path("three.gguf"), three);
  EXPECT_EQ(testing::read_text(path("one.gguf")), testing::read_text(path("three.gguf")));
}

TEST_F(QuantiseFile, TheLastRuleThatMatchesWins) {
  const QuantisePlan plan = plan_quantisation(options_of(
      "antirez-q2", {"blk.[01].*_exps.weight=q4_K", "blk.1.ffn_down_exps.weight=source", "output.weight=q6_K"}));
  std::map<std::string_view, DType> types;
  for (const QuantiseTensor& tensor : plan.tensors) types[tensor.source->name] = tensor.to;
  EXPECT_EQ(types["blk.0.ffn_gate_exps.weight"], DType::q4_k);
  EXPECT_EQ(types["blk.1.ffn_up_exps.weight"], DType::q4_k);
  EXPECT_EQ(types["blk.1.ffn_down_exps.weight"], DType::f16);
  EXPECT_EQ(types["blk.2.ffn_down_exps.weight"], DType::q2_k);
  EXPECT_EQ(types["output.weight"], DType::q6_k);
}

TEST_F(QuantiseFile, AWidthThatDoesNotFitFallsBackAndSaysSo) {
  const QuantisePlan plan =
      plan_quantisation(options_of("", {"blk.*.attn_q_b.weight=q4_K", "blk.*.attn_output_b.weight=q6_K"}));
  std::map<std::string_view, DType> types;
  for (const QuantiseTensor& tensor : plan.tensors) types[tensor.source->name] = tensor.to;
  EXPECT_EQ(types["blk.0.attn_q_b.weight"], DType::q4_0);
  EXPECT_EQ(types["blk.0.attn_output_b.weight"], DType::q8_0);
  const auto says = [&](const char* text) {
    return std::any_of(plan.notes.begin(), plan.notes.end(),
                       [&](const std::string& note) { return note.find(text) != std::string::npos; });
  };
  EXPECT_TRUE(says("made q4_0 instead of q4_K: rows of 128 values"));
  EXPECT_TRUE(says("made q8_0 instead of q6_K: rows of 128 values"));
  EXPECT_EQ(fitting(DType::iq2_xxs, 2048), DType::iq2_xxs);
  EXPECT_EQ(fitting(DType::iq3_xxs, 96), DType::q4_0);
  EXPECT_EQ(fitting(DType::q5_k, 96), DType::q8_0);
  EXPECT_EQ(fitting(DType::mxfp4, 24), DType::f16);
}

TEST_F(QuantiseFile, BadRulesAreNamed) {
  const struct {
    const char* name;
    std::string found, expected;
  } kCases[] = {
      {"matches nothing", error_of(options_of("", {"blk.*.ffn_gate_exp.weight=q4_K"})),
       "--type blk.*.ffn_gate_exp.weight=q4_K: no matrix of"},
      {"matches vectors only", error_of(options_of("", {"output_norm.weight=q8_0"})),
       "--type output_norm.weight=q8_0: 'output_norm.weight' of"},
      {"and says so", error_of(options_of("", {"output_norm.weight=source"})), "is a vector, which stays as it is"},
      {"a table", error_of(options_of("", {"*tid2eid*=q8_0"})), "is a table of ids, which stays as it is"},
      {"an unknown recipe", error_of(options_of("q2")), "--recipe q2: expected one of antirez-q2, antirez-q4"},
      {"nothing to do", error_of(options_of("")), "--recipe or --type: neither is given"},
  };
  for (const auto& c : kCases) EXPECT_NE(c.found.find(c.expected), std::string::npos) << c.name << ": " << c.found;
  const struct {
    const char* text;
    const char* expected;
  } kTexts[] = {
      {"output.weight", "expected PATTERN=TYPE"},
      {"=q8_0", "expected PATTERN=TYPE"},
      {"output.weight=q9", "\"q9\" is no type, expected one of f32, f16"},
      {"output.weight=iq1_s", "\"iq1_s\" is read but not made"},
      {"output.weight=i32", "\"i32\" is read but not made"},
  };
  for (const auto& c : kTexts) {
    try {
      parse_type_rule(c.text);
      ADD_FAILURE() << c.text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(c.expected), std::string::npos) << error.what();
    }
  }
}

TEST_F(QuantiseFile, ReadsAndWritesSplitFilesAndRoundsWhatWasRounded) {
  QuantiseRun run;
  run.part_bytes = 2 << 20;
  const QuantiseResult parts = quantise(options_of("", {"*=q8_0"}), path("parts.gguf"), run);
  ASSERT_GT(parts.files.size(), 2u);
  QuantiseOptions options = options_of("", {"*_exps.weight=q4_0"});
  options.in = parts.files[1];
  const QuantisePlan plan = plan_quantisation(options);
  EXPECT_NE(plan.notes.at(0).find("15 matrices rounded a second time: q8_0 in the input"), std::string::npos)
      << plan.notes.at(0);
  const QuantiseResult whole = write_quantised(plan, path("whole.gguf"));
  ASSERT_EQ(whole.files.size(), 1u);
  const Gguf file(path("whole.gguf"));
  EXPECT_EQ(file.tensor("blk.0.ffn_up_exps.weight").dtype, DType::q4_0);
  EXPECT_EQ(file.tensor("output.weight").dtype, DType::q8_0);
  EXPECT_EQ(file.int_or("split.count", 0), 0);
}

TEST_F(QuantiseFile, ReportsTheErrorOfEveryFormat) {
  const QuantiseResult result = quantise(options_of("antirez-q2"), path("report.gguf"));
  std::map<DType, QuantisedFormat> formats;
  for (const QuantisedFormat& format : result.formats) formats[format.dtype] = format;
  EXPECT_NEAR(formats[DType::q8_0].error, 0.0055, 0.002);
  EXPECT_GT(formats[DType::iq2_xxs].error, 0.2);
  EXPECT_LT(formats[DType::iq2_xxs].error, 0.36);
  EXPECT_EQ(formats[DType::iq2_xxs].tensors, 10);
  EXPECT_FALSE(formats[DType::f32].is_measured);
}

/// A file of one block's matrices and vectors under a drafter's names.
void write_drafter(const fs::path& path, const std::string& architecture, const std::string& block,
                   std::initializer_list<const char*> others) {
  GgufWriter writer(path);
  writer.set("general.architecture", std::string_view(architecture));
  std::vector<std::string> names;
  for (const char* part : {"attn_q_a", "attn_kv", "attn_output_b", "ffn_gate_exps", "ffn_down_exps", "ffn_up_shexp"})
    names.push_back(block + part + ".weight");
  names.insert(names.end(), others.begin(), others.end());
  for (const std::string& name : names) writer.add_tensor(name, DType::bf16, std::vector<std::int64_t>{256, 8});
  writer.begin();
  const std::vector<std::uint16_t> values(256 * 8, 0x3f80);
  for (std::size_t i = 0; i < names.size(); ++i) writer.append(std::as_bytes(std::span(values)));
  writer.finish();
}

TEST_F(QuantiseFile, RecipesTreatADraftersBlocksAsTheModels) {
  write_drafter(path("mtp.gguf"), "deepseek4_mtp_support", "mtp.0.",
                {"mtp.0.e_proj.weight", "mtp.0.h_proj.weight", "mtp.0.hc_head_fn.weight"});
  write_drafter(path("dspark.gguf"), "dflash", "blk.2.", {"fc.weight", "markov_w1.weight"});
  const struct {
    const char *file, *recipe;
    std::map<std::string, DType> types;
  } cases[] = {
      {"mtp.gguf",
       "antirez-q2",
       {{"mtp.0.ffn_gate_exps.weight", DType::iq2_xxs},
        {"mtp.0.ffn_down_exps.weight", DType::q2_k},
        {"mtp.0.attn_q_a.weight", DType::q8_0},
        {"mtp.0.ffn_up_shexp.weight", DType::q8_0},
        {"mtp.0.e_proj.weight", DType::q8_0},
        {"mtp.0.h_proj.weight", DType::q8_0},
        {"mtp.0.hc_head_fn.weight", DType::f16}}},
      {"mtp.gguf",
       "rocmfp2-strix",
       {{"mtp.0.ffn_gate_exps.weight", DType::rocmfp2},
        {"mtp.0.ffn_down_exps.weight", DType::rocmfp3},
        {"mtp.0.attn_kv.weight", DType::rocmfp4},
        {"mtp.0.attn_output_b.weight", DType::rocmfp4_fast}}},
      {"mtp.gguf",
       "mxfp4-native",
       {{"mtp.0.ffn_gate_exps.weight", DType::mxfp4},
        {"mtp.0.attn_kv.weight", DType::q8_0},
        {"mtp.0.hc_head_fn.weight", DType::bf16}}},
      {"dspark.gguf",
       "antirez-q4",
       {{"blk.2.ffn_gate_exps.weight", DType::q4_k},
        {"blk.2.attn_kv.weight", DType::q8_0},
        {"fc.weight", DType::q8_0},
        {"markov_w1.weight", DType::f16}}},
  };
  for (const auto& c : cases) {
    QuantiseOptions options = options_of(c.recipe);
    options.in = path(c.file);
    const QuantisePlan plan = plan_quantisation(options);
    std::map<std::string_view, DType> found;
    for (const QuantiseTensor& tensor : plan.tensors) found[tensor.source->name] = tensor.to;
    for (const auto& [name, type] : c.types)
      EXPECT_EQ(info_of(found.at(name)).name, info_of(type).name) << c.recipe << ", " << name;
  }
}

TEST_F(QuantiseFile, AValueThatTheScalesDoNotReachIsNamedAndNothingIsLeft) {
  const struct {
    const char* name;
    float value;
    const char* type;
    bool is_held;
  } cases[] = {
      {"f16's largest in ROCmFP4", 65504, "q4_0_rocmfp4", false},
      {"a negative one in ROCmFP2", -60000, "q2_0_rocmfp2", false},
      {"f16's largest in Q8_0", 65504, "q8_0", true},
      {"f16's largest in IQ2_XXS", 65504, "iq2_xxs", true},
      {"two thousand in ROCmFP4", 2000, "q4_0_rocmfp4", true},
      {"two thousand in ROCmFP2", 2000, "q2_0_rocmfp2", false},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    {
      GgufWriter writer(path("large.gguf"));
      writer.set("general.architecture", std::string_view("deepseek4"));
      writer.add_tensor("output.weight", DType::f16, std::vector<std::int64_t>{256, 9});
      writer.begin();
      std::vector<std::uint16_t> values(256 * 9);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = f32_to_f16(random_normal(3, i));
      values[7 * 256 + 40] = f32_to_f16(c.value);
      writer.append(std::as_bytes(std::span(values)));
      writer.finish();
    }
    QuantiseOptions options = options_of("", {std::string("*=") + c.type});
    options.in = path("large.gguf");
    try {
      quantise(options, path("from-large.gguf"));
      EXPECT_TRUE(c.is_held);
    } catch (const Error& error) {
      EXPECT_FALSE(c.is_held) << error.what();
      EXPECT_NE(std::string(error.what()).find("'output.weight', row 7, column 40 is "), std::string::npos)
          << error.what();
      EXPECT_NE(std::string(error.what()).find("expected a number that " + std::string(c.type) + " holds"),
                std::string::npos)
          << error.what();
    }
    EXPECT_EQ(fs::exists(path("from-large.gguf")), c.is_held);
    fs::remove(path("from-large.gguf"));
  }
}

TEST_F(QuantiseFile, AValueThatIsNoNumberIsNamedAndNothingIsLeft) {
  const fs::path bad = path("bad.gguf");
  std::string bytes = testing::read_text(model());
  std::int64_t width = 0;
  {
    const Gguf file(model());
    const GgufTensor& tensor = file.tensor("blk.1.ffn_up_exps.weight");
    width = tensor.ne[0];
    const std::uint16_t nan = 0x7e00;
    std::memcpy(bytes.data() + tensor.offset + static_cast<std::size_t>(2 * (5 * width + 17)), &nan, sizeof nan);
    std::memcpy(bytes.data() + tensor.offset + static_cast<std::size_t>(2 * (900 * width + 3)), &nan, sizeof nan);
  }
  std::ofstream(bad, std::ios::binary) << bytes;
  QuantiseOptions options = options_of("antirez-q4");
  options.in = bad;
  try {
    quantise(options, path("from-bad.gguf"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::bad_file);
    EXPECT_NE(std::string(error.what()).find("'blk.1.ffn_up_exps.weight', row 5, column 17 is nan"), std::string::npos)
        << error.what();
  }
  EXPECT_FALSE(fs::exists(path("from-bad.gguf")));
  EXPECT_TRUE(test::unfinished_in(folder_->path()).empty());
}

TEST_F(QuantiseFile, CancellingLeavesNothing) {
  QuantiseRun run;
  int asked = 0;
  run.cancelled = [&] { return ++asked > 3; };
  try {
    quantise(options_of("antirez-q4"), path("cancelled.gguf"), run);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::cancelled);
  }
  EXPECT_FALSE(fs::exists(path("cancelled.gguf")));
  EXPECT_TRUE(test::unfinished_in(folder_->path()).empty());
}

TEST_F(QuantiseFile, TheInputIsNotOverwritten) {
  const std::string before = testing::read_text(model());
  EXPECT_THROW(quantise(options_of("antirez-q4"), model()), Error);
  EXPECT_EQ(testing::read_text(model()), before);
}

// ---- Importances ----------------------------------------------------------------------------------------------------

/// Importances of all experts' matrices: a few columns matter, in another place for each expert. Expert 5 was not used.
Importance some_importance(const Gguf& file) {
  Importance importance;
  importance.source = "prompts.txt";
  importance.chunks = 7;
  for (const GgufTensor& tensor : file.tensors()) {
    if (!tensor.name.ends_with("_exps.weight")) continue;
    ImportanceEntry entry(tensor.ne[0], tensor.ne[2]);
    for (std::int64_t p = 0; p < 5; ++p) {
      entry.counts[static_cast<std::size_t>(p)] = 2;
      for (std::int64_t i = 0; i < entry.width; ++i)
        entry.sums[static_cast<std::size_t>(p * entry.width + i)] = i % 6 == p ? 200 : 0.2;
    }
    importance.entries.emplace(tensor.name, std::move(entry));
  }
  return importance;
}

std::vector<float> plane_of(const GgufTensor& tensor, std::int64_t plane) {
  const std::int64_t values = tensor.ne[0] * tensor.ne[1];
  std::vector<float> out(static_cast<std::size_t>(values));
  dequantize_row(tensor.dtype, tensor.bytes.data() + static_cast<std::size_t>(plane) * row_bytes(tensor.dtype, values),
                 values, out.data());
  return out;
}

double error_in_columns(const Gguf& exact, const Gguf& made, std::int64_t plane, std::int64_t column) {
  const GgufTensor& tensor = exact.tensor("blk.1.ffn_down_exps.weight");
  const auto x = plane_of(tensor, plane), y = plane_of(made.tensor(tensor.name), plane);
  double error = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (static_cast<std::int64_t>(i % static_cast<std::size_t>(tensor.ne[0])) % 6 == column)
      error += std::pow(static_cast<double>(x[i] - y[i]), 2);
  return error;
}

TEST_F(QuantiseFile, ImportancesGoToTheirOwnExpert) {
  const Gguf exact(model());
  write_importance(some_importance(exact), path("importance.gguf"));
  QuantiseOptions options = options_of("antirez-q2");
  quantise(options, path("plain.gguf"));
  options.importance = path("importance.gguf");
  const QuantisePlan plan = plan_quantisation(options);
  EXPECT_NE(std::find(plan.notes.begin(), plan.notes.end(),
                      "15 expert matrices that no prompt used have the importances of the others"),
            plan.notes.end());
  write_quantised(plan, path("weighted.gguf"));
  const Gguf plain(path("plain.gguf")), weighted(path("weighted.gguf"));
  for (std::int64_t expert = 0; expert < 5; ++expert) {
    EXPECT_LT(error_in_columns(exact, weighted, expert, expert), 0.6 * error_in_columns(exact, plain, expert, expert));
    EXPECT_GT(error_in_columns(exact, weighted, expert, 5), error_in_columns(exact, plain, expert, 5));
  }
  // The unused expert goes by the mean of the others: columns 0 to 4 before column 5.
  EXPECT_LT(error_in_columns(exact, weighted, 5, 2), error_in_columns(exact, plain, 5, 2));
  EXPECT_EQ(weighted.string_of("quantize.imatrix.file"), "importance.gguf");
  EXPECT_EQ(weighted.string_of("quantize.imatrix.dataset"), "prompts.txt");
  EXPECT_EQ(weighted.int_of("quantize.imatrix.entries_count"), 15);
  EXPECT_EQ(weighted.int_of("quantize.imatrix.chunks_count"), 7);
}

TEST_F(QuantiseFile, ImportancesOfAModelAreNotADrafters) {
  Importance importance;
  importance.entries.emplace("blk.0.ffn_gate_exps.weight", ImportanceEntry(256, 1));
  write_importance(importance, path("trunk.gguf"));
  for (const char* architecture : {"dflash", "deepseek4_mtp_support"}) {
    write_drafter(path("drafter.gguf"), architecture, "blk.0.", {});
    QuantiseOptions options = options_of("mxfp4-native");
    options.in = path("drafter.gguf");
    EXPECT_EQ(error_of(options), "no error");
    options.importance = path("trunk.gguf");
    const std::string message = error_of(options);
    for (const std::string& part : {path("drafter.gguf").string(), path("trunk.gguf").string(),
                                    std::string("'") + architecture + "'", std::string("expected deepseek4")})
      EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST_F(QuantiseFile, ImportancesOfAnotherModelAreRefused) {
  const Gguf exact(model());
  QuantiseOptions options = options_of("antirez-q2");
  options.importance = path("other.gguf");
  Importance importance;
  importance.entries.emplace("blk.0.ffn_gate_exps.weight", ImportanceEntry(512, 6));
  write_importance(importance, options.importance);
  EXPECT_NE(error_of(options).find("'blk.0.ffn_gate_exps.weight' has 6 planes of 512 columns, the matrix has 1536 rows "
                                   "of 256"),
            std::string::npos)
      << error_of(options);
  importance.entries.clear();
  importance.entries.emplace("model.layers.0.weight", ImportanceEntry(256, 1));
  write_importance(importance, options.importance);
  EXPECT_NE(error_of(options).find("none of its 1 matrices"), std::string::npos) << error_of(options);
  options.importance = model();
  EXPECT_NE(error_of(options).find("general.type is 'model', expected a file of importances"), std::string::npos)
      << error_of(options);
}

}  // namespace
}  // namespace lockstep
