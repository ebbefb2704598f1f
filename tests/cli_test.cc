// The program from outside: what it refuses and how, what lies on stdout, and Ctrl-C.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "cli/migration.h"
#include "cli_run.h"
#include "cpu/level.h"
#include "gguf_build.h"
#include "tensor/gguf_writer.h"
#include "text/chat.h"
#include "text/vocabulary.h"

namespace lockstep {
namespace {

using test::Program;
using test::Ran;
using test::run_program;
using test::TempFolder;

const std::string kNano = LOCKSTEP_TEST_DATA "/golden/nano-a.gguf";

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// nano-a with those control tokens of a chat that it lacks, in place of unused ones.
void write_chat_model(const std::filesystem::path& path) {
  const Gguf nano(kNano);
  std::vector<std::string_view> tokens = nano.strings_of("tokenizer.ggml.tokens");
  std::vector<std::int32_t> types;
  for (const std::int64_t type : nano.ints_of("tokenizer.ggml.token_type"))
    types.push_back(static_cast<std::int32_t>(type));
  std::size_t id = tokens.size();
  for (const std::string_view text : {kUserText, kAssistantText, kThinkBegin, kThinkEnd, kDsml}) {
    if (std::find(tokens.begin(), tokens.end(), text) != tokens.end()) continue;
    tokens[--id] = text;
    types[id] = 4;
  }
  GgufWriter writer(path);
  writer.set_all(nano);
  writer.set_array("tokenizer.ggml.tokens", std::span<const std::string_view>(tokens));
  writer.set_array("tokenizer.ggml.token_type", std::span<const std::int32_t>(types));
  for (const GgufTensor& tensor : nano.tensors())
    writer.add_tensor(tensor.name, tensor.dtype, {tensor.ne.data(), static_cast<std::size_t>(tensor.dims)});
  writer.begin();
  for (const GgufTensor& tensor : nano.tensors()) writer.append(tensor.bytes);
  writer.finish();
}

class ChatModel : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempFolder>();
    write_chat_model(*folder_ / "chat.gguf");
  }
  static void TearDownTestSuite() { folder_.reset(); }
  static std::string model() { return (*folder_ / "chat.gguf").string(); }
  /// "ID:-100" of a control token: the model never says it.
  static std::string never(std::string_view text) {
    const Gguf file(model());
    const std::vector<std::string_view> tokens = file.strings_of("tokenizer.ggml.tokens");
    return std::to_string(std::find(tokens.begin(), tokens.end(), text) - tokens.begin()) + ":-100";
  }

 private:
  static inline std::unique_ptr<TempFolder> folder_;
};

struct RefusedCase {
  const char* name;
  std::vector<std::string> arguments;
  std::string input;
  int code;
  std::string message;  // on stderr
};

TEST(Cli, RefusesWrongUseWithACodeAndAMessage) {
  const TempFolder folder;
  test::write_file(folder / "text.gguf", "not a model");
  test::write_file(folder / "empty.txt", "");
  const std::string text = (folder / "text.gguf").string(), empty = (folder / "empty.txt").string();
  const std::string none = (folder / "none").string();
  const std::string inside = folder.path().string();
  const RefusedCase cases[] = {
      {"no command", {}, "", 2, "subcommand"},
      {"unknown command", {"answer"}, "", 2, "no command \"answer\""},
      {"unknown option", {"complete", kNano, "-p", "a", "--wrong"}, "", 2, "--wrong"},
      {"missing file", {"complete", none, "-p", "a"}, "", 1, none},
      {"not GGUF", {"complete", text, "-p", "a"}, "", 2, text + ": "},
      {"no prompt", {"complete", kNano}, "", 2, "prompt: missing, expected -p TEXT or --prompt-file FILE"},
      {"two prompts", {"complete", kNano, "-p", "a", "--prompt-file", empty}, "", 2, "prompt: given twice"},
      {"empty prompt", {"complete", kNano, "-p", ""}, "", 2, "-p: the prompt is empty, expected text"},
      {"empty prompt file", {"complete", kNano, "--prompt-file", empty}, "", 2, empty + ": the prompt is empty"},
      {"empty prompt on stdin", {"complete", kNano, "--prompt-file", "-"}, "", 2, "-: the prompt is empty"},
      {"missing prompt file",
       {"complete", kNano, "--prompt-file", none},
       "",
       1,
       "--prompt-file: " + none + " cannot be read"},
      {"prompt not UTF-8", {"complete", kNano, "-p", "ab\xff"}, "", 2, "-p: not UTF-8 at byte 2, expected text"},
      {"no tokens", {"complete", kNano, "-p", "a", "-n", "0"}, "", 2, "-n"},
      {"tokens are no number", {"complete", kNano, "-p", "a", "-n", "many"}, "", 2, "many"},
      {"more tokens than the context has",
       {"complete", kNano, "-p", "a", "-n", "16384"},
       "",
       2,
       "limit: 16384 new tokens after a prompt of 2, expected at most 16382"},
      {"prompt longer than the context",
       {"complete", kNano, "-p", "a b c d e f g", "--context", "4"},
       "",
       2,
       "expected fewer than the context of 4"},
      {"context larger than the model's",
       {"complete", kNano, "-p", "a", "--context", "99999"},
       "",
       2,
       "context: 99999 tokens"},
      {"negative seed",
       {"complete", kNano, "-p", "a", "--seed", "-1"},
       "",
       2,
       "--seed: -1, expected a whole number from 0 to 18446744073709551615"},
      {"a model's negative seed",
       {"synth", "--seed", "-1", none},
       "",
       2,
       "--seed: -1, expected a whole number from 0 to 18446744073709551615"},
      {"a bench's seed that is no number", {"bench", kNano, "--seed", "1e3"}, "", 2, "--seed: 1e3, expected a whole"},
      {"seed past 64 bits", {"complete", kNano, "-p", "a", "--seed", "18446744073709551616"}, "", 2, "--seed: "},
      {"negative temperature",
       {"complete", kNano, "-p", "a", "--temperature", "-1"},
       "",
       2,
       "temperature: -1, expected 0 to 100"},
      {"top-p past 1", {"complete", kNano, "-p", "a", "--top-p", "1.5"}, "", 2, "top_p: 1.5, expected 0 to 1"},
      {"bias without a colon",
       {"complete", kNano, "-p", "a", "--logit-bias", "7"},
       "",
       2,
       "--logit-bias: \"7\", expected ID:BIAS"},
      {"bias of no token",
       {"complete", kNano, "-p", "a", "--logit-bias", "512:1"},
       "",
       2,
       "logit_bias: token 512, expected 0 to 511"},
      {"empty stop string", {"complete", kNano, "-p", "a", "--stop", ""}, "", 2, "stop strings: one is empty"},
      {"unknown level", {"complete", kNano, "-p", "a", "--level", "mmx"}, "", 2, "mmx"},
      {"too many threads", {"complete", kNano, "-p", "a", "--threads", "5000"}, "", 2, "--threads"},
      {"no-think without chat", {"complete", kNano, "-p", "a", "--no-think"}, "", 2, "--chat"},
      {"chat with a vocabulary that cannot",
       {"complete", kNano, "-p", "a", "--chat"},
       "",
       2,
       "cannot chat: vocabulary: no control token"},
      {"the same by `chat`", {"chat", kNano}, "hello\n", 2, "cannot chat: vocabulary: no control token"},
      {"tokenize without a model",
       {"tokenize"},
       "",
       2,
       "MODEL: missing, expected a GGUF file or --tokenizer tokenizer.json"},
      {"tokenize of two files", {"tokenize", kNano, empty, empty}, "", 2, "one file too many"},
      {"tokenize of a missing file", {"tokenize", kNano, none}, "", 1, none + ": cannot be read (No such file"},
      {"tokenize of a folder", {"tokenize", kNano, inside}, "", 1, inside + ": cannot be read (Is a directory)"},
      {"detokenize of a folder", {"detokenize", kNano, inside}, "", 1, inside + ": cannot be read (Is a directory)"},
      {"render of a folder", {"render", inside}, "", 1, inside + ": cannot be read (Is a directory)"},
      {"parse of a folder", {"parse", inside}, "", 1, inside + ": cannot be read (Is a directory)"},
      {"a prompt file that is a folder",
       {"complete", kNano, "--prompt-file", inside},
       "",
       1,
       "--prompt-file: " + inside + " cannot be read (Is a directory)"},
      {"a tokenizer that is a folder", {"tokenize", "--tokenizer", inside}, "", 1, "--tokenizer: " + inside},
      {"tokenize of no JSON", {"tokenize", kNano}, "{\"text\": \"a\"}\nnonsense\n", 2, "line 2: "},
      {"tokenizer.json that is none", {"tokenize", "--tokenizer", text}, "", 2, text},
      {"render of a request without messages", {"render"}, "{}\n", 2, "line 1: messages: missing, expected an array"},
      {"dequantize without a type", {"dequantize"}, "", 2, "--type is required"},
      {"dequantize of an unknown type",
       {"dequantize", "--type", "q9"},
       "",
       2,
       "--type: \"q9\" is no format, expected one of f32"},
      {"dequantize of half a block", {"dequantize", "--type", "q8_0"}, "abc", 2, "not a whole number of q8_0 blocks"},
      {"inspect of a text", {"inspect", text}, "", 2, text + ": "},
      {"inspect past the model's context",
       {"inspect", kNano, "--context", "99999"},
       "",
       2,
       "--context: 99999 tokens, expected at most 16384"},
      {"check of golden hashes by other tokens", {"check", "--tokens", "5"}, "", 2, "expected MODEL or --compare"},
      {"check of more tokens than it has",
       {"check", kNano, "--tokens", "200"},
       "",
       2,
       "--tokens: 200, expected at most 133"},
      {"one path to compare", {"check", kNano, "--compare", "cpu"}, "", 2, "one path, expected PATH_A,PATH_B"},
      {"a path that is no back end", {"check", kNano, "--compare", "cpu,tpu:chunk:4"}, "", 2, "no back end \"tpu\""},
      {"paths, and a level beside",
       {"check", kNano, "--compare", "cpu,reference", "--level", "avx2"},
       "",
       2,
       "--compare excludes --level"},
      {"paths, and a back end beside",
       {"check", kNano, "--compare", "cpu,reference", "--backend", "reference"},
       "",
       2,
       "--compare excludes --backend"},
  };
  for (const RefusedCase& c : cases) {
    const Ran ran = run_program(c.arguments, c.input);
    EXPECT_EQ(ran.code, c.code) << c.name << "\n" << ran.errors;
    EXPECT_NE(ran.errors.find(c.message), std::string::npos) << c.name << "\n" << ran.errors;
  }
}

TEST(Cli, CheckNeedsNoModelAndMeetsEveryGoldenHash) {
  const std::string best(cpu::available_levels().back()->name);  // all of them take minutes
  const Ran ran = run_program({"check", "--level", best});
  EXPECT_EQ(ran.code, 0) << ran.errors;
  EXPECT_NE(ran.errors.find("hashes compared on "), std::string::npos) << ran.errors;
  EXPECT_NE(ran.errors.find(": all equal"), std::string::npos) << ran.errors;
}

TEST(Cli, CompleteWritesTheSameAnswerByEveryPathAndNothingElse) {
  const std::vector<std::string> base = {"complete", kNano,    "-p", "the quick brown fox", "-n", "12", "--temperature",
                                         "1",        "--seed", "3"};
  const Ran first = run_program(base);
  ASSERT_EQ(first.code, 0) << first.errors;
  EXPECT_FALSE(first.output.empty());
  EXPECT_NE(first.errors.find("answer 12 tokens"), std::string::npos) << first.errors;
  const std::vector<std::vector<std::string>> others = {{"--threads", "1"},    {"--threads", "3"},
                                                        {"--level", "scalar"}, {"--backend", "reference"},
                                                        {"--chunk", "1"},      {"--chunk", "5"}};
  for (const std::vector<std::string>& more : others) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(run_program(arguments).output, first.output) << more[0] << " " << more[1];
  }
  std::vector<std::string> from_stdin = {"complete",      kNano, "--prompt-file", "-", "-n", "12",
                                         "--temperature", "1",   "--seed",        "3"};
  EXPECT_EQ(run_program(from_stdin, "the quick brown fox").output, first.output);
  from_stdin.back() = "4";
  EXPECT_NE(run_program(from_stdin, "the quick brown fox").output, first.output);
}

TEST_F(ChatModel, ThinkingGoesToStderrAndTheAnswerToStdout) {
  // A bias decides when the thought ends: at once, or never.
  const std::vector<std::string> base = {"complete", model(), "-p", "hello", "-n", "12", "--chat"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return run_program(more);
  };
  const Ran plain = with({"--no-think"});
  ASSERT_EQ(plain.code, 0) << plain.errors;
  EXPECT_FALSE(plain.output.empty());
  const auto lines = [](const std::string& text) { return std::count(text.begin(), text.end(), '\n'); };
  EXPECT_EQ(lines(plain.errors), 2) << "the memory plan, the rates and nothing else: " << plain.errors;
  const Ran thinking = with({"--logit-bias", never(kThinkEnd)});
  EXPECT_EQ(thinking.code, 0);
  EXPECT_EQ(thinking.output, "");
  EXPECT_GT(lines(thinking.errors), 2) << "a thought between them: " << thinking.errors;
  const Ran other = with({"--no-think", "--system", "Be brief."});
  EXPECT_NE(other.output, plain.output);
}

TEST_F(ChatModel, ChatAnswersLinesAndObeysCommands) {
  const std::string input =
      "hello\n\n/think off\n/clear\nhello\n/nonsense\n/clear\n/system Be brief.\nhello\n/quit\nnever read\n";
  const Ran chat = run_program({"chat", model(), "-n", "12", "--seed", "5"}, input);
  ASSERT_EQ(chat.code, 0) << chat.errors;
  EXPECT_NE(chat.errors.find("Thinking is off."), std::string::npos);
  EXPECT_NE(chat.errors.find("\"/nonsense\": no such command"), std::string::npos);
  const auto complete = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"complete", model(),         "-p", "hello", "-n", "12", "--seed",
                                          "5",        "--temperature", "1",  "--chat"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments).output;
  };
  EXPECT_EQ(chat.output, complete({}) + "\n" + complete({"--no-think"}) + "\n" +
                             complete({"--no-think", "--system", "Be brief."}) + "\n");
}

TEST_F(ChatModel, ASecondTurnReusesTheFirst) {
  const Ran chat =
      run_program({"chat", model(), "-n", "12", "--no-think"}, "hello there, how are you today?\nand now?\n");
  ASSERT_EQ(chat.code, 0) << chat.errors;
  // All but the last sampled token, which nothing was computed for: the answer is repeated as the tokens that it was.
  std::smatch first, second;
  ASSERT_TRUE(std::regex_search(chat.errors, first, std::regex(R"(prompt (\d+) tokens, .*; answer (\d+) tokens)")));
  ASSERT_TRUE(std::regex_search(chat.errors, second, std::regex(R"(tokens \((\d+) from the cache\))"))) << chat.errors;
  EXPECT_EQ(std::stoi(second[1]), std::stoi(first[1]) + std::stoi(first[2]) - 1) << chat.errors;
  const Ran thinking = run_program({"chat", model(), "-n", "60", "--logit-bias", never(kThinkEnd)},
                                   "hello there, how are you?\nand now?\n");
  EXPECT_NE(thinking.errors.find("from the cache"), std::string::npos) << thinking.errors;
}

TEST_F(ChatModel, CtrlCStopsTheAnswerAndTheConversationGoesOn) {
  Program chat({"chat", model(), "--no-think", "--logit-bias", never(kBosText), "--logit-bias", never(kEosText),
                "--logit-bias", never(kUserText), "--logit-bias", never(kAssistantText)});
  chat.write("hello\n");
  ASSERT_TRUE(chat.wait_for_some_output());
  chat.interrupt();
  ASSERT_TRUE(chat.wait_for_errors("ended by the caller")) << chat.errors;
  chat.write("/think on\n/quit\n");
  EXPECT_EQ(chat.finish(), 0);
  EXPECT_NE(chat.errors.find("Thinking is on."), std::string::npos) << chat.errors;
}

TEST(Cli, CtrlCEndsCompleteWithWhatThereIs) {
  Program complete({"complete", kNano, "-p", "hello", "--logit-bias", "0:-100", "--logit-bias", "1:-100",
                    "--logit-bias", "414:-100", "--logit-bias", "415:-100"});  // BOS, EOS, User, Assistant
  ASSERT_TRUE(complete.wait_for_some_output());
  complete.interrupt();
  EXPECT_EQ(complete.finish(), 1);
  EXPECT_NE(complete.errors.find("ended by the caller"), std::string::npos) << complete.errors;
}

TEST(Cli, TokenizeAndDetokenizeAreInverse) {
  const std::string lines = "{\"text\": \"the end\"}\n\n{\"text\": \"caf\xc3\xa9\"}\n";
  const Ran ids = run_program({"tokenize", kNano}, lines);
  ASSERT_EQ(ids.code, 0) << ids.errors;
  EXPECT_EQ(ids.output.find("{\"ids\": ["), 0u);
  const Ran text = run_program({"detokenize", kNano}, ids.output);
  EXPECT_EQ(text.output, "{\"text\": \"the end\"}\n{\"text\": \"caf\xc3\xa9\"}\n");
}

TEST(Cli, RenderWritesThePromptOfAFileOrStdin) {
  const std::string line = "{\"thinking\": false, \"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}\n";
  const std::string expected = "{\"prompt\": \"<｜begin▁of▁sentence｜><｜User｜>Hello<｜Assistant｜></think>\"}\n";
  EXPECT_EQ(run_program({"render"}, line).output, expected);
  const TempFolder folder;
  test::write_file(folder / "requests.jsonl", line);
  EXPECT_EQ(run_program({"render", (folder / "requests.jsonl").string()}).output, expected);
}

TEST(Cli, DequantizeGoesFromBlocksToFloats) {
  std::string block("\x00\x38", 2);  // f16 0.5
  std::string expected;
  for (int i = 0; i < 32; ++i) {
    block += static_cast<char>(i - 16);
    expected += test::raw(0.5f * static_cast<float>(i - 16));
  }
  const Ran ran = run_program({"dequantize", "--type", "Q8_0"}, block);
  EXPECT_EQ(ran.code, 0) << ran.errors;
  EXPECT_EQ(ran.output, expected);
}

TEST(Cli, InspectShowsTheMemoryPlanAndWhyThereIsNone) {
  const Ran text = run_program({"inspect", kNano, "--context", "1000"});
  EXPECT_EQ(text.code, 0) << text.errors;
  EXPECT_NE(text.output.find("memory for one sequence of 1000 tokens"), std::string::npos);
  const Ran json = run_program({"inspect", kNano, "--json"});
  const auto memory = nlohmann::json::parse(json.output).at("memory");
  EXPECT_EQ(memory.at("context"), 16384);
  EXPECT_EQ(memory.at("total"), memory.at("weights").get<std::uint64_t>() + memory.at("sequence").get<std::uint64_t>() +
                                    memory.at("workspace").get<std::uint64_t>());
  const TempFolder folder;
  test::RawGguf other;
  other.keys = {test::raw_key("general.architecture", 8, test::raw_text("llama"))};
  test::write_file(folder / "other.gguf", other.bytes());
  const Ran refused = run_program({"inspect", (folder / "other.gguf").string()});
  EXPECT_EQ(refused.code, 0) << refused.errors;
  EXPECT_NE(refused.output.find("general.architecture"), std::string::npos);
  EXPECT_NE(refused.output.find("no memory plan: "), std::string::npos);
}

TEST(Cli, DoctorNamesTheLevelsAndVariablesOfTheOtherEngine) {
  const Ran ran = run_program({"doctor"}, "", {{"DFLASH_DS4_SPEC", "1"}, {"DFLASH_MMID_X", "1"}, {"DFLASH_NEW", "1"}});
  EXPECT_EQ(ran.code, 0) << ran.errors;
  for (const char* text :
       {"levels     scalar", "back ends  cpu, reference", "DFLASH_DS4_SPEC is set and not read",
        "DFLASH_MMID_X is set and not read", "DFLASH_NEW is set and not read; instead: not known here"})
    EXPECT_NE(ran.output.find(text), std::string::npos) << text << "\n" << ran.output;
}

TEST(Cli, VariablesOfTheOtherEngineChangeNothingButANote) {
  const std::vector<std::string> arguments = {"complete", kNano, "-p", "hello", "-n", "8"};
  const Ran with = run_program(arguments, "", {{"DFLASH_DS4_TOPK", "2"}});
  EXPECT_EQ(with.output, run_program(arguments).output);
  EXPECT_NE(with.errors.find("DFLASH_DS4_TOPK is set and not read"), std::string::npos);
}

TEST(Migration, TheDocumentHasEveryVariable) {
  const std::string document = read_file(LOCKSTEP_TEST_DATA "/../../docs/migration.md");
  for (const Migration& migration : migration_table()) {
    const std::string cell = std::string(migration.variable) + "` | ";
    EXPECT_NE(document.find(cell), std::string::npos) << migration.variable;
    EXPECT_NE(document.find(migration.instead), std::string::npos) << migration.instead;
  }
}

}  // namespace
}  // namespace lockstep
