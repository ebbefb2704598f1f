// `lockstep quantize` and `lockstep imatrix` as a user runs them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli_run.h"
#include "engine_runs.h"
#include "gguf_build.h"
#include "tensor/gguf.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using test::Program;
using test::Ran;
using test::run_program;
using test::TempFolder;

class QuantizeCommand : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempFolder>();
    const Ran ran = run_program({"synth", path("f16.gguf"), "--preset", "nano", "--types", "f16", "--layers", "5"});
    ASSERT_EQ(ran.code, 0) << ran.errors;
  }
  static void TearDownTestSuite() { folder_.reset(); }
  static std::string path(const std::string& name) { return (folder_->path() / name).string(); }

  static std::unique_ptr<TempFolder> folder_;
};
std::unique_ptr<TempFolder> QuantizeCommand::folder_;

TEST_F(QuantizeCommand, FromPromptsToAFileThatAnswers) {
  std::ofstream(path("prompts.txt")) << "Hello there\n\nWhat is it?\n";
  std::ofstream(path("prompts.jsonl")) << R"({"text": "Hello there"})"
                                       << "\n"
                                       << R"({"messages": [{"role": "user", "content": "Hi"}]})"
                                       << "\n";
  for (const char* prompts : {"prompts.txt", "prompts.jsonl"}) {
    const Ran ran = run_program({"imatrix", path("f16.gguf"), "--prompts", path(prompts), "--out", path("i.gguf")});
    ASSERT_EQ(ran.code, 0) << ran.errors;
    EXPECT_NE(ran.errors.find("2 of 2 prompts"), std::string::npos) << ran.errors;
    EXPECT_NE(ran.errors.find("expert matrices were never used"), std::string::npos) << ran.errors;
  }
  Ran ran = run_program(
      {"quantize", path("f16.gguf"), path("q2.gguf"), "--recipe", "antirez-q2", "--imatrix", path("i.gguf")});
  ASSERT_EQ(ran.code, 0) << ran.errors;
  EXPECT_EQ(ran.output, "");
  EXPECT_NE(ran.errors.find("iq2_xxs                 10 tensors"), std::string::npos) << ran.errors;
  EXPECT_NE(ran.errors.find("relative error 0."), std::string::npos) << ran.errors;
  ran = run_program({"complete", path("q2.gguf"), "-p", "Hello", "-n", "4", "--temperature", "0"});
  EXPECT_EQ(ran.code, 0) << ran.errors;
}

TEST_F(QuantizeCommand, APlanIsPrintedAndNothingWritten) {
  const Ran ran =
      run_program({"quantize", path("f16.gguf"), path("planned.gguf"), "--type", "output.weight=q6_K", "--plan"});
  ASSERT_EQ(ran.code, 0) << ran.errors;
  EXPECT_NE(ran.output.find("256 x 512                f16                q6_K"), std::string::npos) << ran.output;
  EXPECT_NE(ran.output.find("as it is"), std::string::npos);
  EXPECT_FALSE(fs::exists(path("planned.gguf")));
}

TEST_F(QuantizeCommand, AnInterruptedRunLeavesNothing) {
  Program program({"quantize", path("f16.gguf"), path("stopped.gguf"), "--type", "*=iq3_xxs", "--threads", "1"});
  ASSERT_TRUE(program.wait_for_errors("tensors, "));
  program.interrupt();
  EXPECT_EQ(program.finish(), 1);
  EXPECT_NE(program.errors.find("interrupted, nothing is left of it"), std::string::npos) << program.errors;
  EXPECT_FALSE(fs::exists(path("stopped.gguf")));
  EXPECT_TRUE(test::unfinished_in(folder_->path()).empty());
}

TEST_F(QuantizeCommand, WrongUseIsNamed) {
  std::ofstream(path("empty.txt")) << "\n\n";
  std::ofstream(path("nothing.txt")) << "";
  std::ofstream(path("bad.jsonl")) << "{\"text\": \"a\"}\n{\"prompt\": 1}\n";
  const struct {
    std::vector<std::string> arguments;
    const char* expected;
  } kCases[] = {
      {{"quantize", path("f16.gguf"), path("x.gguf")}, "--recipe or --type: neither is given"},
      {{"quantize", path("f16.gguf"), path("x.gguf"), "--type", "nothing=q8_0"}, "--type nothing=q8_0: no matrix of"},
      {{"quantize", path("f16.gguf"), path("x.gguf"), "--recipe", "q4"}, "--recipe q4: expected one of"},
      {{"quantize", path("f16.gguf"), path("f16.gguf"), "--recipe", "antirez-q4"}, "is an input, expected another file"},
      {{"quantize", path("none.gguf"), path("x.gguf"), "--recipe", "antirez-q4"}, "none.gguf"},
      {{"quantize", path("f16.gguf"), path("x.gguf"), "--recipe", "antirez-q4", "--imatrix", path("f16.gguf")},
       "expected a file of importances"},
      {{"quantize", path("f16.gguf"), path("x.gguf"), "--type", "*=q8_0", "--split", "nan"},
       "--split nan: expected 0 or a size of at most"},
      {{"quantize", path("f16.gguf"), path("x.gguf"), "--type", "*=q8_0", "--split", "-1"},
       "--split -1: expected 0 or a size of at most"},
      {{"quantize", path("f16.gguf"), path("x.gguf"), "--type", "*=q8_0", "--split", "1e-10"},
       "--split 1e-10: parts of 0 B, and tensor"},
      {{"quantize", path("f16.gguf"), path("x.gguf"), "--type", "*=q8_0", "--split", "0.000001"},
       "--split 1e-06: parts of 1.00 kB, and tensor"},
      {{"quantize", "", path("x.gguf"), "--type", "*=q8_0"}, "IN: is empty, expected a name"},
      {{"quantize", path("f16.gguf"), "", "--type", "*=q8_0"}, "OUT: is empty, expected a name"},
      {{"convert", "", path("x.gguf")}, "CHECKPOINT: is empty, expected a name"},
      {{"complete", "", "-p", "a"}, "MODEL: is empty, expected a name"},
      {{"imatrix", path("f16.gguf"), "--prompts", path("empty.txt"), "--out", ""}, "--out: is empty, expected a name"},
      {{"eval", path("f16.gguf"), "--failures", "-1"}, "--failures"},
      {{"perplexity", path("f16.gguf"), "--text", path("nothing.txt")}, "nothing.txt has no token"},
      {{"imatrix", path("f16.gguf"), "--prompts", path("empty.txt"), "--out", path("x.gguf")}, "has no prompt"},
      {{"imatrix", path("f16.gguf"), "--prompts", path("bad.jsonl"), "--out", path("x.gguf")},
       "bad.jsonl, line 2: expected"},
  };
  for (const auto& c : kCases) {
    const Ran ran = run_program(c.arguments);
    EXPECT_NE(ran.code, 0) << c.expected;
    EXPECT_NE(ran.errors.find(c.expected), std::string::npos) << ran.errors;
    EXPECT_FALSE(fs::exists(path("x.gguf")));
  }
}

}  // namespace
}  // namespace lockstep
