// Synthetic models: the same bytes for the same seed, real geometry, values of the size that was asked for, and files
// that load and run. The tensor table of the flash preset is compared with the one of the file format's description
// (docs/formats.md, "Tensors of the trunk"), written out here a second time.
#include "engine/synth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "base/bytes.h"
#include "base/error.h"
#include "cpu/cpu_ops.h"
#include "engine/bench.h"
#include "engine/schedule.h"
#include "engine/synth_blocks.h"
#include "engine/synth_vocabulary.h"
#include "gguf_build.h"
#include "tensor/dequantize.h"
#include "tensor/rocmfp2.h"
#include "text/tokenizer.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTypes[] = {"q2", "q4", "rocmfp2", "rocmfp4", "mxfp4", "f16"};

SynthPlan plan_of(const std::string& preset, const std::string& types, int layers = 0, int experts = 0,
                  std::uint64_t seed = 1) {
  return plan_synth({preset, types, layers, experts, seed});
}

/// A folder of its own that goes away with the test.
class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "lockstep-synth-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw Error(Error::Kind::io, pattern);
    path_ = pattern;
  }
  ~Folder() { fs::remove_all(path_); }
  fs::path operator/(const std::string& name) const { return path_ / name; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string contents_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// FNV-1a, as 64 bits: the bytes of a file in one number.
std::uint64_t hash_of(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::vector<float> decoded(const SynthTensor& tensor, const std::vector<std::byte>& bytes) {
  const std::int64_t values = tensor.rows() * tensor.ne[0];
  std::vector<float> out(static_cast<std::size_t>(values));
  dequantize_row(tensor.dtype, bytes.data(), values, out.data());
  return out;
}

// ---- Plans ----

TEST(SynthPlan, FlashHasTheTensorsOfTheRealFileInTheLayoutThatWasAsked) {
  struct Expected {
    DType dtype;
    std::vector<std::int64_t> ne;
  };
  std::map<std::string, Expected> expected = {
      {"token_embd.weight", {DType::f16, {4096, 129280}}}, {"output.weight", {DType::q8_0, {4096, 129280}}},
      {"output_norm.weight", {DType::f32, {4096}}},        {"output_hc_fn.weight", {DType::f16, {16384, 4}}},
      {"output_hc_base.weight", {DType::f32, {4}}},        {"output_hc_scale.weight", {DType::f32, {1}}}};
  for (int l = 0; l < 43; ++l) {
    const auto add = [&](const std::string& name, DType dtype, std::vector<std::int64_t> ne) {
      expected["blk." + std::to_string(l) + "." + name] = {dtype, std::move(ne)};
    };
    add("attn_norm.weight", DType::f32, {4096});
    add("ffn_norm.weight", DType::f32, {4096});
    add("attn_q_a.weight", DType::q8_0, {4096, 1024});
    add("attn_q_a_norm.weight", DType::f32, {1024});
    add("attn_q_b.weight", DType::q8_0, {1024, 32768});
    add("attn_kv.weight", DType::q8_0, {4096, 512});
    add("attn_kv_a_norm.weight", DType::f32, {512});
    add("attn_sinks.weight", DType::f32, {64});
    add("attn_output_a.weight", DType::q8_0, {4096, 8192});
    add("attn_output_b.weight", DType::q8_0, {8192, 4096});
    for (const std::string hyper : {"hc_attn", "hc_ffn"}) {
      add(hyper + "_fn.weight", DType::f16, {16384, 24});
      add(hyper + "_base.weight", DType::f32, {24});
      add(hyper + "_scale.weight", DType::f32, {3});
    }
    add("ffn_gate_inp.weight", DType::f16, {4096, 256});
    if (l < 3) {
      add("ffn_gate_tid2eid.weight", DType::i32, {6, 129280});
    } else {
      add("exp_probs_b.bias", DType::f32, {256});
    }
    add("ffn_gate_exps.weight", DType::iq2_xxs, {4096, 2048, 256});
    add("ffn_up_exps.weight", DType::iq2_xxs, {4096, 2048, 256});
    add("ffn_down_exps.weight", DType::q2_k, {2048, 4096, 256});
    add("ffn_gate_shexp.weight", DType::q8_0, {4096, 2048});
    add("ffn_up_shexp.weight", DType::q8_0, {4096, 2048});
    add("ffn_down_shexp.weight", DType::q8_0, {2048, 4096});
    if (l < 2) continue;
    const std::int64_t ratio = l % 2 == 0 ? 4 : 128;
    const std::int64_t width = ratio == 4 ? 1024 : 512;
    add("attn_compressor_kv.weight", DType::f16, {4096, width});
    add("attn_compressor_gate.weight", DType::f16, {4096, width});
    add("attn_compressor_ape.weight", DType::f16, {width, ratio});
    add("attn_compressor_norm.weight", DType::f32, {512});
    if (ratio != 4) continue;
    add("indexer.attn_q_b.weight", DType::f16, {1024, 8192});
    add("indexer.proj.weight", DType::f16, {4096, 64});
    add("indexer_compressor_kv.weight", DType::f16, {4096, 256});
    add("indexer_compressor_gate.weight", DType::f16, {4096, 256});
    add("indexer_compressor_ape.weight", DType::f16, {256, 4});
    add("indexer_compressor_norm.weight", DType::f32, {128});
  }
  ASSERT_EQ(expected.size(), 1328u);

  const SynthPlan plan = plan_of("flash", "q2");
  EXPECT_EQ(plan.tensors.size(), 1328u);
  for (const SynthTensor& tensor : plan.tensors) {
    const auto found = expected.find(tensor.name);
    ASSERT_NE(found, expected.end()) << tensor.name;
    EXPECT_EQ(tensor.dtype, found->second.dtype) << tensor.name;
    EXPECT_EQ(tensor.ne, found->second.ne) << tensor.name;
    expected.erase(found);
  }
  EXPECT_TRUE(expected.empty());
  EXPECT_NEAR(static_cast<double>(plan.bytes()), 86.7e9, 0.1e9);  // the size of the real file
}

TEST(SynthPlan, SliceHoldsEveryKindOfLayerUnderFourGigabytes) {
  const SynthPlan plan = plan_of("slice", "q2");
  EXPECT_LT(plan.bytes(), 4000000000u);
  EXPECT_GE(plan.config.layers.size(), 4u);
  EXPECT_GE(plan.config.experts, 16);
  std::set<std::pair<int, bool>> kinds;
  for (const LayerConfig& layer : plan.config.layers) kinds.insert({layer.ratio, layer.hash_routed});
  EXPECT_EQ(kinds, (std::set<std::pair<int, bool>>{{0, true}, {4, true}, {4, false}, {128, false}}));
}

TEST(SynthPlan, LayersKeepThePatternOfFlash) {
  const SynthPlan plan = plan_of("nano", "q4", 9);
  std::vector<int> ratios;
  for (const LayerConfig& layer : plan.config.layers) ratios.push_back(layer.ratio);
  EXPECT_EQ(ratios, (std::vector<int>{0, 0, 4, 128, 4, 128, 4, 128, 4}));
  EXPECT_EQ(plan.hash_layers, 3);
  EXPECT_EQ(plan_of("nano", "q4", 1).hash_layers, 1);
}

TEST(SynthPlan, BadOptionsAreRefusedByName) {
  const struct {
    const char* name;
    SynthOptions options;
    const char* says;
  } cases[] = {
      {"an unknown preset", {"huge", "q2", 0, 0, 1}, "--preset huge: expected one of flash, slice, nano"},
      {"unknown types", {"nano", "q3", 0, 0, 1}, "--types q3: expected one of q2, q4, rocmfp2, rocmfp4, mxfp4, f16"},
      {"a negative number of layers", {"nano", "q2", -1, 0, 1}, "--layers -1"},
      {"too many layers", {"nano", "q2", 100000, 0, 1}, "--layers 100000"},
      {"fewer experts than a token uses", {"nano", "q2", 0, 5, 1}, "--experts 5: expected 6"},
      {"too many experts", {"nano", "q2", 0, 1 << 20, 1}, "--experts 1048576"},
  };
  for (const auto& c : cases) {
    try {
      plan_synth(c.options);
      ADD_FAILURE() << c.name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::bad_argument) << c.name;
      EXPECT_NE(std::string(error.what()).find(c.says), std::string::npos) << c.name << ": " << error.what();
    }
  }
}

// ---- Values ----

TEST(SynthBlocks, ValuesHaveTheSizeThatWasAskedForAndMeanZero) {
  const DType dtypes[] = {DType::f32,     DType::f16,     DType::bf16,    DType::q8_0,
                          DType::q2_k,    DType::q4_k,    DType::iq2_xxs, DType::mxfp4,
                          DType::rocmfp2, DType::rocmfp3, DType::rocmfp4, DType::rocmfp4_fast};
  for (const DType dtype : dtypes) {
    for (const float rms : {1.0f, 1.0f / 64, 1.0f / 90}) {
      const RandomBlocks blocks(dtype, rms, 7);
      std::vector<std::byte> bytes(row_bytes(dtype, 1 << 18));
      blocks.fill(0, bytes);
      EXPECT_FALSE(find_invalid_block(dtype, bytes)) << info_of(dtype).name;
      std::vector<float> values(1 << 18);
      dequantize_row(dtype, bytes.data(), 1 << 18, values.data());
      double sum = 0, squares = 0;
      for (const float v : values) {
        sum += v;
        squares += static_cast<double>(v) * v;
      }
      const double found = std::sqrt(squares / (1 << 18));
      EXPECT_NEAR(found / rms, 1, 0.1) << info_of(dtype).name << " " << rms;
      EXPECT_LT(std::abs(sum / (1 << 18)) / found, 0.01) << info_of(dtype).name << " " << rms;
    }
  }
}

TEST(SynthBlocks, ARunDoesNotDependOnWhereAPieceBegins) {
  for (const DType dtype : {DType::f16, DType::q8_0, DType::iq2_xxs, DType::rocmfp2}) {
    const RandomBlocks blocks(dtype, 0.1f, 3);
    const std::size_t run = blocks.run_bytes();
    std::vector<std::byte> whole(run * 23);
    blocks.fill(0, whole);
    for (const std::size_t first : {1u, 3u, 4u, 22u}) {
      std::vector<std::byte> part(whole.size() - first * run);
      blocks.fill(static_cast<std::int64_t>(first), part);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(first * run)))
          << info_of(dtype).name;
    }
  }
}

TEST(SynthBlocks, AFormatWithoutAMakerIsRefused) { EXPECT_THROW(RandomBlocks(DType::iq1_s, 1, 1), Error); }

TEST(SynthBlocks, TypeId107IsRecognisedAsFixed) {
  const SynthPlan plan = plan_of("nano", "rocmfp2");
  int found = 0;
  for (const SynthTensor& tensor : plan.tensors) {
    if (tensor.dtype != DType::rocmfp2) continue;
    EXPECT_EQ(detect_rocmfp2(synth_tensor_bytes(plan, tensor), tensor.name).variant, Rocmfp2Variant::fixed)
        << tensor.name;
    ++found;
  }
  EXPECT_EQ(found, 12);
}

TEST(Synth, HashTablesHoldDifferentExpertsAndUseThemAll) {
  const SynthPlan plan = plan_of("nano", "q2");
  const auto table = std::find_if(plan.tensors.begin(), plan.tensors.end(),
                                  [](const SynthTensor& t) { return t.content == SynthTensor::Content::table; });
  ASSERT_NE(table, plan.tensors.end());
  const std::vector<std::byte> bytes = synth_tensor_bytes(plan, *table);
  std::set<std::int32_t> all;
  for (std::int64_t row = 0; row < table->ne[1]; ++row) {
    std::set<std::int32_t> ids;
    for (std::int64_t i = 0; i < table->ne[0]; ++i)
      ids.insert(load_as<std::int32_t>(bytes.data() + 4 * (row * table->ne[0] + i)));
    ASSERT_EQ(ids.size(), static_cast<std::size_t>(table->ne[0])) << row;
    all.insert(ids.begin(), ids.end());
  }
  EXPECT_EQ(all.size(), 16u);
  EXPECT_EQ(*all.begin(), 0);
  EXPECT_EQ(*all.rbegin(), 15);
}

TEST(Synth, NormWeightsAreNearOne) {
  const SynthPlan plan = plan_of("nano", "mxfp4");
  for (const SynthTensor& tensor : plan.tensors) {
    if (!tensor.name.ends_with("attn_norm.weight")) continue;
    for (const float v : decoded(tensor, synth_tensor_bytes(plan, tensor))) EXPECT_NEAR(v, 1, 0.5) << tensor.name;
  }
}

// ---- Vocabulary ----

TEST(SynthVocabulary, RealSizeHasEveryNamedTokenAtItsRealId) {
  const Vocabulary v = synth_vocabulary(129280);
  check_vocabulary(v, 129280);
  EXPECT_EQ(v.merges.size(), 127741u);
  const struct {
    Token id;
    const char* text;
  } cases[] = {{0, "<｜begin▁of▁sentence｜>"},
               {1, "<｜end▁of▁sentence｜>"},
               {2, "<｜▁pad▁｜>"},
               {3, "!"},
               {18, "0"},
               {35, "A"},
               {67, "a"},
               {191, "Ā"},
               {201, "Ċ"},
               {223, "Ġ"},
               {128000, "<｜place▁holder▁no▁0｜>"},
               {128803, "<｜User｜>"},
               {128804, "<｜Assistant｜>"},
               {128805, "<|EOT|>"},
               {128821, "<think>"},
               {128822, "</think>"},
               {128825, "｜DSML｜"},
               {128828, "<｜latest_reminder｜>"},
               {128839, "<｜search｜>"},
               {128846, "<｜end_of_query｜>"},
               {128847, "<|place_holder_mm_span_0021|>"},
               {129261, "<|place_holder_mm_span_0435|>"},
               {129262, "<｜rl_image_pad｜>"},
               {129279, "<｜image｜>"}};
  for (const auto& c : cases) EXPECT_EQ(v.tokens[static_cast<std::size_t>(c.id)], c.text) << c.id;
  const Tokenizer tokenizer(v);
  EXPECT_EQ(tokenizer.require_added("<｜Assistant｜>"), 128804);
}

TEST(SynthVocabulary, EverySizeEncodesAnyBytesAndBack) {
  const std::string text = "The rain in Spain\n\tstays; 1234 日本語 \xf0\x9f\x8d\xb5 <think>mainly</think>";
  for (const int size : {306, 307, 512, 5000, 128000, 129280}) {
    const Vocabulary v = synth_vocabulary(size);
    check_vocabulary(v, size);
    const Tokenizer tokenizer(v);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << size;
  }
  for (const int size : {0, 305, 128001, 200000}) EXPECT_THROW(synth_vocabulary(size), Error) << size;
}

// ---- Files ----

TEST(Synth, AFileIsAFunctionOfItsOptions) {
  const Folder folder;
  const auto make = [&](const SynthPlan& plan, const std::string& name, int threads) {
    write_synth(plan, folder / name, {threads, {}, {}});
    return contents_of(folder / name);
  };
  const SynthPlan plan = plan_of("nano", "q2", 3);
  const std::string one = make(plan, "one.gguf", 1);
  EXPECT_EQ(one, make(plan, "three.gguf", 3)) << "threads";
  EXPECT_NE(one, make(plan_of("nano", "q2", 3, 0, 2), "seed.gguf", 1)) << "seed";
  // What one tensor holds depends on nothing else in the file.
  const Gguf file(folder / "one.gguf");
  for (const SynthTensor& tensor : plan.tensors) {
    const std::vector<std::byte> bytes = synth_tensor_bytes(plan, tensor);
    const std::span<const std::byte> found = file.tensor(tensor.name).bytes;
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), found.begin(), found.end())) << tensor.name;
  }
}

constexpr struct {
  const char* types;
  std::uint64_t hash;
} kGolden[] = {
    {"q2", 0x38f88330e7cbda6f},      {"q4", 0x290b94fe6d67da10},    {"rocmfp2", 0x1f50c23d44bc9558},
    {"rocmfp4", 0x17b38522c2bf06ed}, {"mxfp4", 0x53a37a1930d77ee4}, {"f16", 0x84ff8b8d727fc0e3},
};

TEST(Synth, BytesOfEveryTypeSetAreGoldenAndTheFileRuns) {
  const Folder folder;
  for (const auto& golden : kGolden) {
    const fs::path path = folder / (std::string(golden.types) + ".gguf");
    write_synth(plan_of("nano", golden.types), path);
    EXPECT_TRUE(test::unfinished_in(path.parent_path()).empty());
    EXPECT_EQ(hash_of(contents_of(path)), golden.hash)
        << golden.types << std::hex << " 0x" << hash_of(contents_of(path));

    EngineOptions options;
    options.model = path;
    Engine engine(options, cpu::make_cpu_ops({2, "auto"}));
    engine.tokenizer().require_added("<｜User｜>");
    std::vector<Token> tokens;
    for (int i = 0; i < 140; ++i) tokens.push_back((7 * i + 3) % engine.config().vocabulary);  // past a window of 128
    double squares = 0;
    std::size_t count = 0;
    run_schedule(engine, {{tokens}}, {Schedule::Kind::chunk, 64, 0},
                 [&](std::size_t, Position, std::span<const float> logits) {
                   for (const float logit : logits) {
                     ASSERT_TRUE(std::isfinite(logit));
                     squares += static_cast<double>(logit) * logit;
                     ++count;
                   }
                 });
    const double spread = std::sqrt(squares / static_cast<double>(count));
    EXPECT_GT(spread, 1.5) << golden.types;
    EXPECT_LT(spread, 6) << golden.types;
    fs::remove(path);
  }
}

TEST(Synth, AnInterruptedRunLeavesNoFile) {
  const Folder folder;
  int asked = 0;
  SynthRun run;
  run.cancelled = [&] { return ++asked > 20; };
  EXPECT_THROW(write_synth(plan_of("nano", "q2"), folder / "x.gguf", run), Error);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Synth, AFolderThatIsNotThereAndADiskThatIsTooSmallAreRefusedAtOnce) {
  const Folder folder;
  EXPECT_THROW(write_synth(plan_of("nano", "q2"), folder / "missing/x.gguf"), Error);
  // 50 TB: more than the machines that run tests have free.
  EXPECT_THROW(write_synth(plan_of("flash", "f16", 256, 4096), folder / "x.gguf"), Error);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

// ---- Bench ----

TEST(Bench, ReportsEveryLengthAndDepthAndCountsWhatATokenReads) {
  const Folder folder;
  write_synth(plan_of("nano", "q4"), folder / "x.gguf");
  EngineOptions options;
  options.model = folder / "x.gguf";
  options.max_rows = 64;
  Engine engine(options, cpu::make_cpu_ops({2, "auto"}));
  BenchOptions bench;
  bench.prefill = {5, 100};
  bench.decode = 3;
  bench.depths = {140, 0};
  bench.repetitions = 2;
  const BenchReport report = run_bench(engine, bench);
  EXPECT_GT(report.read_bytes_per_second, 0);
  EXPECT_EQ(report.read_bytes, plan_of("nano", "q4").bytes());
  ASSERT_EQ(report.rows.size(), 4u);
  for (const BenchRow& row : report.rows) {
    EXPECT_EQ(row.seconds.size(), 2u);
    EXPECT_LE(row.min_rate(), row.mean_rate());
    EXPECT_LE(row.mean_rate(), row.max_rate());
  }
  EXPECT_EQ(report.rows[2].depth, 140);

  // By hand: q4 nano. A row of 256 values is 144 bytes in q4_K, 272 in q8_0, 512 in f16; of 128 values 136 in q8_0.
  const auto weights = token_bytes(engine.config(), engine.weights(), Mode::plain, 0).weights;
  const std::uint64_t experts = 6 * 3 * 256 * 144 + 3 * 256 * 272;
  const std::uint64_t attention = 128 * 272 + 512 * 136 + 64 * 272 + 128 * 272 + 256 * 136;
  const std::uint64_t hyper = 2 * 24 * 2048;
  const std::uint64_t layer = experts + attention + hyper + 16 * 512;
  const std::uint64_t ratio4 = 2 * 128 * 512 + 2 * 128 * 512 + 256 * 256 + 4 * 512;
  const std::uint64_t ratio128 = 2 * 64 * 512;
  EXPECT_EQ(weights, 6 * layer + 2 * ratio4 + 2 * ratio128 + 512 + 512 * 272 + 4 * 2048);
  // Depth 139, plain rows and keys of 64 floats: a full window in six layers; 35 rows of ratio 4, of which 8 are
  // chosen by their keys; one row of ratio 128.
  EXPECT_EQ(token_bytes(engine.config(), engine.weights(), Mode::plain, 139).cache,
            6u * 128 * 256 + 2u * (35 * 256 + 8 * 256) + 2u * 256);
}

TEST(Bench, BadLengthsAreRefused) {
  const Folder folder;
  write_synth(plan_of("nano", "q2", 1), folder / "x.gguf");
  EngineOptions options;
  options.model = folder / "x.gguf";
  Engine engine(options, cpu::make_cpu_ops({1, "auto"}));
  BenchOptions bench;
  bench.prefill = {-1};
  EXPECT_THROW(run_bench(engine, bench), Error);
  bench.prefill = {4};
  bench.depths = {-1};
  EXPECT_THROW(run_bench(engine, bench), Error);
  bench.depths = {0};
  bench.repetitions = 0;
  EXPECT_THROW(run_bench(engine, bench), Error);
}

}  // namespace
}  // namespace lockstep
