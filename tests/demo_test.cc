// What runs without MODEL, what memory it is told to need, and `eval` and `perplexity` from outside.
#include "cli/demo.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/memory_plan.h"
#include "cli_run.h"
#include "engine/synth.h"
#include "gguf_build.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using test::Ran;
using test::run_program;
using test::TempFolder;

std::string message_of_error(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void touch(const fs::path& path, const std::string& text = "") {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(Demo, TheFirstFolderThatHasItWins) {
  const TempFolder folder;
  const std::vector<fs::path> folders = {folder / "a", folder / "b"};
  const std::string message = message_of_error([&] { find_demo("m.gguf", folders, "MODEL"); });
  EXPECT_EQ(message.rfind("MODEL: not given", 0), 0u) << message;
  EXPECT_NE(message.find((folder / "a" / "m.gguf").string()), std::string::npos) << message;
  EXPECT_NE(message.find((folder / "b" / "m.gguf").string()), std::string::npos) << message;
  touch(folder / "b" / "m.gguf");
  EXPECT_EQ(find_demo("m.gguf", folders, "MODEL"), folder / "b" / "m.gguf");
  touch(folder / "a" / "m.gguf");
  EXPECT_EQ(find_demo("m.gguf", folders, "MODEL"), folder / "a" / "m.gguf");
}

TEST(Demo, ItsSuitesComeByName) {
  const TempFolder folder;
  EXPECT_THROW(demo_suites({folder.path()}), Error) << "no folder of prompts";
  touch(folder / "prompts" / "notes.txt");
  EXPECT_THROW(demo_suites({folder.path()}), Error) << "no suite in it";
  touch(folder / "prompts" / "b.jsonl");
  touch(folder / "prompts" / "a.jsonl");
  const std::vector<fs::path> expected = {folder / "prompts" / "a.jsonl", folder / "prompts" / "b.jsonl"};
  EXPECT_EQ(demo_suites({folder.path()}), expected);
}

TEST(MemoryPlan, WhatDoesNotFitIsRefusedWithWhatWouldHelp) {
  MemoryPlan plan;
  plan.weights = 6'000'000;
  plan.sequence = 3'000'000;
  plan.workspace = 1'000'000;
  plan.context = 1000;
  const auto refusal = [&](std::uint64_t bytes, std::uint64_t others = 0) {
    return message_of_error([&] { check_plan(plan, others, {bytes, "this machine has"}, "m.gguf"); });
  };
  EXPECT_EQ(refusal(10'000'000), "no error") << "just fits";
  EXPECT_EQ(refusal(9'999'999),
            "m.gguf: needs 10.00 MB, this machine has 10.00 MB; expected a context of fewer than 1000 tokens");
  EXPECT_EQ(refusal(7'000'000),
            "m.gguf: needs 10.00 MB, this machine has 7.00 MB; expected a smaller file, or more memory");
  EXPECT_EQ(refusal(12'000'000, 2'000'000), "no error");
  EXPECT_EQ(
      refusal(11'000'000, 2'000'000),
      "m.gguf: needs 12.00 MB with the 2.00 MB of the model beside it, this machine has 11.00 MB; expected a context "
      "of fewer than 1000 tokens");
  EXPECT_EQ(plan_text(plan, std::nullopt),
            "memory: 6.00 MB of weights, 3.00 MB for 1000 tokens, 1.00 MB of workspace; 10.00 MB in all");
  EXPECT_EQ(
      plan_text(plan, MemoryLimit{20'000'000, "the control group allows"}),
      "memory: 6.00 MB of weights, 3.00 MB for 1000 tokens, 1.00 MB of workspace; 10.00 MB in all, the control group "
      "allows 20.00 MB");
}

/// A tree as an installation has it: bin/lockstep, and share/lockstep/demo with a small model and a suite.
class Installed : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempFolder>();
    fs::create_directories(program().parent_path());
    fs::copy_file(LOCKSTEP_PROGRAM, program());
    fs::create_directories(demo());
    SynthOptions options;
    options.preset = "nano";
    write_synth(plan_synth(options), demo() / kDemoModel);
    touch(demo() / "prompts" / "one.jsonl",
          R"({"name": "first", "skill": "talk", "messages": [{"role": "user", "content": "Hi"}], )"
          R"("limit": 4, "expect": {"content": "Hello."}})"
          "\n");
    touch(text(), "A small text that a model of noise finds as likely as any other.\n");
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static fs::path program() { return *folder_ / "tree/bin/lockstep"; }
  static fs::path demo() { return *folder_ / "tree/share/lockstep/demo"; }
  static fs::path text() { return *folder_ / "text.txt"; }
  static std::string model() { return (demo() / kDemoModel).string(); }
  static Ran run(const std::vector<std::string>& arguments) {
    return run_program(arguments, "", {}, program().string());
  }

 private:
  static inline std::unique_ptr<TempFolder> folder_;
};

TEST_F(Installed, WithoutAModelTheDemoRunsAndSaysSo) {
  const std::string note = "no MODEL given, so the demo model runs: " + model();
  const std::vector<std::string> commands[] = {{"complete", "-p", "Hi", "-n", "3"},
                                               {"inspect"},
                                               {"bench", "--prefill", "8", "--decode", "2", "--repetitions", "1"}};
  for (const auto& command : commands) {
    const Ran ran = run(command);
    EXPECT_EQ(ran.code, 0) << command[0] << ": " << ran.errors;
    EXPECT_NE(ran.errors.find(note), std::string::npos) << command[0] << ": " << ran.errors;
  }
  const Ran named = run({"complete", model(), "-p", "Hi", "-n", "3"});
  EXPECT_EQ(named.code, 0) << named.errors;
  EXPECT_EQ(named.errors.find("no MODEL given"), std::string::npos) << named.errors;
  EXPECT_NE(named.errors.find("memory: "), std::string::npos) << named.errors;
}

TEST_F(Installed, EvalRunsTheDemosSuites) {
  const Ran ran = run({"eval", "--json"});
  ASSERT_EQ(ran.code, 0) << ran.errors;
  const auto report = nlohmann::json::parse(ran.output);
  EXPECT_EQ(report["model"]["file"], model());
  EXPECT_EQ(report["model"]["bytes"], fs::file_size(model()));
  ASSERT_EQ(report["suites"].size(), 1u);
  EXPECT_EQ(report["suites"][0]["file"], (demo() / "prompts/one.jsonl").string());
  EXPECT_EQ(report["suites"][0]["skills"][0]["skill"], "talk");
  EXPECT_EQ(report["suites"][0]["all"]["cases"], 1);
  EXPECT_EQ(report["suites"][0]["failures"][0]["expected"], "\"Hello.\"");
  EXPECT_GT(report["answers"]["model"]["perplexity"], 1.0);
  EXPECT_FALSE(report.contains("reference"));
  EXPECT_FALSE(report.contains("text"));
}

TEST_F(Installed, EvalComparesWithTheOtherModeAndShowsFailures) {
  const Ran ran = run(
      {"eval", model(), "--suite", "demo", "--text", text().string(), "--compare-mode", "plain", "--failures", "1"});
  ASSERT_EQ(ran.code, 0) << ran.errors;
  for (const char* expected : {"reference ", ", plain\n", "KL(reference || model)", "prompts and answers", "text",
                               "1 of 1 failing cases", "first: ", "expected  \"Hello.\""})
    EXPECT_NE(ran.output.find(expected), std::string::npos) << expected << "\n" << ran.output;
  EXPECT_NE(ran.errors.find("memory: "), std::string::npos);
}

TEST_F(Installed, PerplexityIsThatOfEvalsText) {
  const Ran ran = run({"perplexity", "--text", text().string(), "--context", "16", "--stride", "5", "--json"});
  ASSERT_EQ(ran.code, 0) << ran.errors;
  const Ran eval = run({"eval", "--text", text().string(), "--context", "16", "--stride", "5", "--json"});
  ASSERT_EQ(eval.code, 0) << eval.errors;
  const auto a = nlohmann::json::parse(ran.output), b = nlohmann::json::parse(eval.output);
  EXPECT_GT(a["windows"], 2);
  EXPECT_EQ(a["perplexity"], b["text"]["model"]["perplexity"]);
  EXPECT_EQ(a["tokens"], b["text"]["model"]["tokens"]);
  EXPECT_EQ(b["suites"].size(), 0u) << "a text alone needs no suite";
}

TEST_F(Installed, WrongUseIsNamed) {
  const std::string bad = text().string();
  const struct {
    const char* name;
    std::vector<std::string> arguments;
    std::string message;
    int code = 2;
  } cases[] = {
      {"suite is not JSON", {"eval", "--suite", bad}, bad + ": line 1: "},
      {"suite missing", {"eval", "--suite", "none.jsonl"}, "--suite: none.jsonl cannot be read", 1},
      {"suite is a folder", {"eval", "--suite", demo().string()}, "--suite: " + demo().string() + " cannot be read", 1},
      {"text missing", {"perplexity", "--text", "none.txt"}, "--text: none.txt cannot be read", 1},
      {"no text", {"perplexity"}, "--text is required"},
      {"window without a text", {"eval", "--context", "64"}, "--text"},
      {"stride too long",
       {"perplexity", "--text", bad, "--context", "16", "--stride", "16"},
       "--stride: 16 tokens, expected 1 to 15"},
      {"same mode", {"eval", "--compare-mode", "official"}, "official is the mode of MODEL too"},
      {"same file", {"eval", model(), "--compare", model()}, "is MODEL, expected another file"},
  };
  for (const auto& c : cases) {
    const Ran ran = run(c.arguments);
    EXPECT_EQ(ran.code, c.code) << c.name << "\n" << ran.errors;
    EXPECT_NE(ran.errors.find(c.message), std::string::npos) << c.name << "\n" << ran.errors;
    EXPECT_EQ(ran.output, "") << c.name;
  }
}

TEST_F(Installed, AFileThatIsNotThereIsNotReplacedByTheDemo) {
  const Ran ran = run({"complete", "none.gguf", "-p", "Hi"});
  EXPECT_NE(ran.code, 0);
  EXPECT_NE(ran.errors.find("none.gguf"), std::string::npos) << ran.errors;
  EXPECT_EQ(ran.errors.find("demo"), std::string::npos) << ran.errors;
}

}  // namespace
}  // namespace lockstep
