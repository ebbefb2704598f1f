// Importances: what is recorded while a model runs, and the file that holds it.
#include "engine/importance.h"

#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "engine/collect_importance.h"
#include "engine/recording_ops.h"
#include "engine/synth.h"
#include "engine_runs.h"
#include "gguf_build.h"
#include "tensor/gguf_writer.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;

TEST(ImportanceEntry, IsTheMeanOfSquaresAPlane) {
  ImportanceEntry entry(2, 3);
  const float a[] = {1, 2}, b[] = {3, -4}, c[] = {0, 10};
  entry.add(0, a);
  entry.add(0, b);
  entry.add(2, c);
  EXPECT_EQ(entry.unused_planes(), 1);
  // Plane 1 has no input of its own, so it has the mean of all three.
  EXPECT_EQ(entry.mean_squares(), (std::vector<float>{5, 10, 10.0f / 3, 40, 0, 100}));
  EXPECT_TRUE(ImportanceEntry(2, 3).mean_squares().empty());
}

TEST(Importance, ComesBackFromItsFile) {
  const TempFolder folder;
  Importance importance;
  importance.source = "prompts.jsonl";
  importance.chunks = 3;
  importance.chunk_tokens = 512;
  ImportanceEntry& entry = importance.entries.emplace("blk.0.ffn_up_exps.weight", ImportanceEntry(32, 2)).first->second;
  for (std::size_t i = 0; i < entry.sums.size(); ++i) entry.sums[i] = static_cast<double>(i) / 4;
  entry.counts = {5, 0};
  importance.entries.emplace("output.weight", ImportanceEntry(64, 1));
  write_importance(importance, folder.path() / "i.gguf");
  EXPECT_TRUE(test::unfinished_in(folder.path()).empty());
  const Importance read = read_importance(folder.path() / "i.gguf");
  EXPECT_EQ(read.source, importance.source);
  EXPECT_EQ(read.chunks, 3);
  EXPECT_EQ(read.chunk_tokens, 512);
  ASSERT_EQ(read.entries.size(), 2u);
  ASSERT_NE(read.find("blk.0.ffn_up_exps.weight"), nullptr);
  EXPECT_EQ(read.find("blk.0.ffn_up_exps.weight")->sums, entry.sums);
  EXPECT_EQ(read.find("blk.0.ffn_up_exps.weight")->counts, entry.counts);
  EXPECT_EQ(read.find("output.weight")->width, 64);
  EXPECT_EQ(read.find("blk.0"), nullptr);
}

TEST(Importance, DamagedFilesAreRefusedByName) {
  const TempFolder folder;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const struct {
    const char* name;
    const char* type;
    std::vector<std::pair<std::string, std::vector<std::int64_t>>> tensors;
    float value;
    const char* expected;
  } kCases[] = {
      {"no sums", "imatrix", {{"x.counts", {1, 2}}}, 1, "'x.counts': no .in_sum2 beside it"},
      {"no counts", "imatrix", {{"x.in_sum2", {4, 2}}}, 1, "'x.in_sum2': no .counts beside it"},
      {"fewer counts than rows",
       "imatrix",
       {{"x.in_sum2", {4, 2}}, {"x.counts", {1, 1}}},
       1,
       "4 x 2 f32 with 1 counts"},
      {"infinite", "imatrix", {{"x.in_sum2", {4, 1}}, {"x.counts", {1, 1}}}, kInf, "'x.in_sum2': value 0 is inf"},
      {"negative", "imatrix", {{"x.in_sum2", {4, 1}}, {"x.counts", {1, 1}}}, -1, "'x.in_sum2': value 0 is -1"},
      {"empty", "imatrix", {}, 1, "no tensor NAME.in_sum2 in it"},
      {"a model", "model", {{"x.in_sum2", {4, 1}}, {"x.counts", {1, 1}}}, 1, "general.type is 'model'"},
  };
  for (const auto& c : kCases) {
    const fs::path path = folder.path() / "damaged.gguf";
    {
      GgufWriter writer(path);
      writer.set("general.type", std::string_view(c.type));
      for (const auto& [name, ne] : c.tensors) writer.add_tensor(name, DType::f32, ne);
      writer.begin();
      for (const auto& [name, ne] : c.tensors) {
        const std::vector<float> values(static_cast<std::size_t>(ne[0] * ne[1]), c.value);
        writer.append(std::as_bytes(std::span(values)));
      }
      writer.finish();
    }
    try {
      read_importance(path);
      ADD_FAILURE() << c.name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::bad_file);
      EXPECT_NE(std::string(error.what()).find(c.expected), std::string::npos) << c.name << ": " << error.what();
    }
  }
}

TEST(Importance, AFileCutAnywhereIsRefused) {
  const TempFolder folder;
  Importance importance;
  importance.entries.emplace("output.weight", ImportanceEntry(8, 1));
  write_importance(importance, folder.path() / "whole.gguf");
  const std::string bytes = testing::read_text(folder.path() / "whole.gguf");
  for (std::size_t size = 0; size < bytes.size() - 31; size += 7) {  // the last tensor's padding may be missing
    std::ofstream(folder.path() / "cut.gguf", std::ios::binary | std::ios::trunc) << bytes.substr(0, size);
    EXPECT_THROW(read_importance(folder.path() / "cut.gguf"), Error) << size;
  }
}

// ---- Recording ------------------------------------------------------------------------------------------------------

TEST(CutPrompt, BeginsEveryPieceWithTheFirstToken) {
  const std::vector<Token> prompt = {9, 1, 2, 3, 4, 5, 6};
  EXPECT_EQ(cut_prompt(prompt, 7), (std::vector<std::vector<Token>>{{9, 1, 2, 3, 4, 5, 6}}));
  EXPECT_EQ(cut_prompt(prompt, 4), (std::vector<std::vector<Token>>{{9, 1, 2, 3}, {9, 4, 5, 6}}));
  EXPECT_EQ(cut_prompt(prompt, 3), (std::vector<std::vector<Token>>{{9, 1, 2}, {9, 3, 4}, {9, 5, 6}}));
  EXPECT_TRUE(cut_prompt({}, 3).empty());
}

TEST(RecordingOps, AddsWhatGoesIntoEachMatrixAndPassesResultsOn) {
  const auto inner = make_reference_ops();
  RecordingOps ops(*inner);
  const std::vector<float> matrix = {1, 0, 0, 1, 2, 2, 0, 1};  // 4 x 2, or two planes, or two groups
  Weight plain, planes;
  plain.width = planes.width = 2;
  plain.rows = 4;
  planes.rows = planes.planes = 2;
  plain.data = planes.data = reinterpret_cast<const std::byte*>(matrix.data());
  plain.row_bytes = planes.row_bytes = 8;
  std::vector<float> x = {1, 2, 3, 4}, out(8);

  ops.record(plain, "plain", 1);
  Input input;
  input.values = ConstRows(x.data(), 2, 2, 2);
  ops.matmul({out.data(), 2, 4, 4}, plain, input);
  EXPECT_EQ(out, (std::vector<float>{1, 2, 6, 2, 3, 4, 14, 4}));
  EXPECT_EQ(ops.entries().begin()->second.second.sums, (std::vector<double>{1 + 9, 4 + 16}));
  EXPECT_EQ(ops.entries().begin()->second.second.counts, (std::vector<double>{2}));

  RecordingOps grouped(*inner);
  grouped.record(plain, "grouped", 2);
  input.values = ConstRows(x.data(), 1, 4, 4);
  grouped.matmul_grouped({out.data(), 1, 4, 4}, plain, input, 2);
  EXPECT_EQ(grouped.entries().begin()->second.second.sums, (std::vector<double>{1, 4, 9, 16}));
  EXPECT_EQ(grouped.entries().begin()->second.second.counts, (std::vector<double>{1, 1}));

  for (const bool per_slot : {false, true}) {
    RecordingOps experts(*inner);
    experts.record(planes, "experts", 2);
    std::int32_t ids[] = {1, 0};
    const Route route{ids, nullptr, 1, 2};
    input.values = per_slot ? ConstRows(x.data(), 2, 2, 2) : ConstRows(x.data(), 1, 2, 2);
    experts.matmul_experts({out.data(), 2, 2, 2}, planes, input, route, per_slot);
    const auto& entry = experts.entries().begin()->second.second;
    EXPECT_EQ(entry.sums, (per_slot ? std::vector<double>{9, 16, 1, 4} : std::vector<double>{1, 4, 1, 4}));
    EXPECT_EQ(entry.counts, (std::vector<double>{1, 1}));
  }
}

class Collect : public ::testing::Test {
 protected:
  void SetUp() override { write_synth(plan_synth({"nano", "q4", 5, 8, 1}), model()); }
  fs::path model() const { return folder_.path() / "model.gguf"; }
  static std::vector<std::vector<Token>> prompts() {
    std::vector<std::vector<Token>> prompts(2);
    for (Token token = 0; token < 150; ++token) prompts[0].push_back(token * 7 % 512);
    for (Token token = 0; token < 9; ++token) prompts[1].push_back(token + 30);
    return prompts;
  }

 private:
  TempFolder folder_;
};

TEST_F(Collect, CountsEveryTokenForEveryMatrixThatIsMultiplied) {
  const auto engine = testing::make_engine(model(), Mode::official, "auto", 1);
  const Importance importance = collect_importance(*engine, prompts());
  EXPECT_EQ(importance.chunks, 2);
  EXPECT_EQ(importance.chunk_tokens, 150);
  const Config& c = engine->config();
  for (const GgufTensor& tensor : engine->file().tensors()) {
    SCOPED_TRACE(tensor.name);
    const bool is_multiplied = tensor.rows() > 1 && tensor.dtype != DType::i32 && tensor.name != "token_embd.weight" &&
                               !tensor.name.ends_with("_ape.weight");
    const ImportanceEntry* entry = importance.find(tensor.name);
    ASSERT_EQ(entry != nullptr, is_multiplied);
    if (!is_multiplied) continue;
    EXPECT_EQ(entry->width, tensor.ne[0]);
    double inputs = 0, sum = 0;
    for (const double count : entry->counts) inputs += count;
    for (const double square : entry->sums) sum += square;
    EXPECT_GT(sum, 0);
    if (tensor.name.ends_with("_exps.weight")) {
      EXPECT_EQ(entry->planes(), c.experts);
      EXPECT_EQ(inputs, 159 * c.experts_used);
    } else if (tensor.name.ends_with("attn_output_a.weight")) {
      EXPECT_EQ(entry->planes(), c.output_groups);
      EXPECT_EQ(inputs, 159 * c.output_groups);
    } else {
      EXPECT_EQ(entry->planes(), 1);
      EXPECT_EQ(inputs, 159);
    }
  }
}

TEST_F(Collect, DoesNotDependOnLevelThreadsOrStepSize) {
  const auto engine = testing::make_engine(model(), Mode::official, "auto", 1);
  const Importance expected = collect_importance(*engine, prompts());
  const struct {
    const char* level;
    int threads, rows;
  } kCases[] = {{"scalar", 1, 512}, {"auto", 3, 512}, {"auto", 2, 16}};
  for (const auto& c : kCases) {
    const auto other = testing::make_engine(model(), Mode::official, c.level, c.threads, c.rows);
    const Importance found = collect_importance(*other, prompts());
    ASSERT_EQ(found.entries.size(), expected.entries.size());
    for (const auto& [name, entry] : expected.entries) {
      EXPECT_EQ(found.find(name)->sums, entry.sums) << name << ", " << c.level;
      EXPECT_EQ(found.find(name)->counts, entry.counts) << name << ", " << c.level;
    }
  }
}

TEST_F(Collect, ACancelledRunSaysHowFarItCame) {
  const auto engine = testing::make_engine(model(), Mode::official, "auto", 1, 64);
  int asked = 0;
  CollectProgress progress;
  progress.cancelled = [&] { return ++asked > 4; };
  const Importance importance = collect_importance(*engine, prompts(), progress);
  EXPECT_EQ(importance.chunks, 1);
  EXPECT_EQ(importance.find("output.weight")->counts, (std::vector<double>{150}));
}

}  // namespace
}  // namespace lockstep
