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

 private:
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
       "--type blk.*.ffn_gate_exp.weight: no matrix of"},
      {"matches vectors only", error_of(options_of("", {"output_norm.weight=q8_0"})), "no matrix of"},
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
  EXPECT_FALSE(fs::exists(path("from-bad.gguf.part")));
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
  EXPECT_FALSE(fs::exists(path("cancelled.gguf.part")));
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
