// The published vectors, line by line: tests/data/text/tokenizer.jsonl (560 lines, made with the Hugging Face
// tokenizers library) and chat.jsonl (78 lines, made with DeepSeek's V4 encoder), and the commands that read such
// files.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <sstream>

#include "cli/render.h"
#include "cli/tokenize.h"
#include "text/chat.h"
#include "text/chat_request.h"
#include "text/utf8_stream.h"
#include "text_support.h"

namespace lockstep {
namespace {

class TextLines : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { tokenizer_ = std::make_unique<Tokenizer>(v4_vocabulary()); }
  static void TearDownTestSuite() { tokenizer_.reset(); }
  static std::unique_ptr<Tokenizer> tokenizer_;
};
std::unique_ptr<Tokenizer> TextLines::tokenizer_;

TEST_F(TextLines, EveryTextGivesItsTokens) {
  const auto lines = read_lines("tokenizer.jsonl");
  ASSERT_EQ(lines.size(), 560u);
  for (const std::string& line : lines) {
    const Json json = parse_json(line, "line");
    EXPECT_EQ(tokenizer_->encode(json["text"].get<std::string>()), json["ids"].get<std::vector<Token>>()) << line;
  }
}

TEST_F(TextLines, EveryTextComesBackFromItsTokens) {
  for (const std::string& line : read_lines("tokenizer.jsonl")) {
    const Json json = parse_json(line, "line");
    const auto ids = json["ids"].get<std::vector<Token>>();
    EXPECT_EQ(tokenizer_->decode(ids), json["text"].get<std::string>()) << line;
    Detokenizer stream(*tokenizer_);
    EXPECT_EQ(stream.push(ids) + stream.finish(), json["text"].get<std::string>()) << line;
  }
}

TEST_F(TextLines, WithoutACacheTheTokensAreTheSame) {
  const Tokenizer plain(v4_vocabulary(), 0);
  for (const std::string& line : read_lines("tokenizer.jsonl")) {
    const std::string text = parse_json(line, "line")["text"].get<std::string>();
    EXPECT_EQ(plain.encode(text), tokenizer_->encode(text)) << line;
  }
}

TEST_F(TextLines, EveryRequestGivesItsPrompt) {
  const auto lines = read_lines("chat.jsonl");
  ASSERT_EQ(lines.size(), 78u);
  for (const std::string& line : lines) {
    const Json json = parse_json(line, "line");
    EXPECT_EQ(render_chat(chat_request_from_json(json)).text(), json["prompt"].get<std::string>()) << json["name"];
  }
}

TEST_F(TextLines, EveryPromptGivesItsTokensButForControlTextInMessages) {
  // In these two the message text spells a control token. The vectors recognise it, a span does not: it is only text.
  const std::set<std::string> literal = {"special-token-text-in-user", "tool-result-literal-markup"};
  for (const std::string& line : read_lines("chat.jsonl")) {
    const Json json = parse_json(line, "line");
    const Prompt prompt = render_chat(chat_request_from_json(json));
    const auto ids = json["ids"].get<std::vector<Token>>();
    EXPECT_EQ(tokenizer_->encode(prompt.text()), ids) << json["name"];
    if (literal.contains(json["name"].get<std::string>())) {
      EXPECT_NE(tokenizer_->encode(prompt), ids) << json["name"];
      EXPECT_EQ(tokenizer_->decode(tokenizer_->encode(prompt)), prompt.text()) << json["name"];
    } else {
      EXPECT_EQ(tokenizer_->encode(prompt), ids) << json["name"];
    }
  }
}

std::string joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

TEST_F(TextLines, TokenizeAnswersEachLine) {
  const auto lines = read_lines("tokenizer.jsonl");
  std::istringstream in(joined(lines));
  std::ostringstream out, errors;
  EXPECT_EQ(run_tokenize(in, out, errors, *tokenizer_), 0);
  EXPECT_EQ(errors.str(), "");
  std::istringstream answers(out.str());
  std::string answer;
  for (const std::string& line : lines) {
    ASSERT_TRUE(std::getline(answers, answer));
    EXPECT_EQ(parse_json(answer, "answer")["ids"], parse_json(line, "line")["ids"]);
  }
  EXPECT_FALSE(std::getline(answers, answer));
}

TEST_F(TextLines, DetokenizeUndoesTokenize) {
  std::istringstream in(joined(read_lines("tokenizer.jsonl")));
  std::stringstream ids, texts, errors;
  EXPECT_EQ(run_tokenize(in, ids, errors, *tokenizer_), 0);
  EXPECT_EQ(run_detokenize(ids, texts, errors, *tokenizer_), 0);
  EXPECT_EQ(errors.str(), "");
  std::string text;
  for (const std::string& line : read_lines("tokenizer.jsonl")) {
    ASSERT_TRUE(std::getline(texts, text));
    EXPECT_EQ(parse_json(text, "answer")["text"], parse_json(line, "line")["text"]);
  }
}

TEST_F(TextLines, RenderAnswersEachLine) {
  const auto lines = read_lines("chat.jsonl");
  std::istringstream in(joined(lines));
  std::ostringstream out, errors;
  EXPECT_EQ(run_render(in, out, errors), 0);
  EXPECT_EQ(errors.str(), "");
  std::istringstream answers(out.str());
  std::string answer;
  for (const std::string& line : lines) {
    ASSERT_TRUE(std::getline(answers, answer));
    EXPECT_EQ(parse_json(answer, "answer")["prompt"], parse_json(line, "line")["prompt"]);
  }
}

std::ptrdiff_t lines_in(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST_F(TextLines, ABadLineIsNamedAndTheOthersAreAnswered) {
  std::istringstream in("{\"text\": \"a\"}\n{\"text\": 1}\n\nnot json\n[]\n{\"text\": \"\xff\"}\n{\"text\": \"a\"}");
  std::ostringstream out, errors;
  EXPECT_EQ(run_tokenize(in, out, errors, *tokenizer_), 2);
  // 2808 is U+FFFD, for the byte that is not UTF-8.
  EXPECT_EQ(out.str(), "{\"ids\": [67]}\n{\"ids\": [2808]}\n{\"ids\": [67]}\n");
  EXPECT_NE(errors.str().find("line 2: text: missing or not a string"), std::string::npos) << errors.str();
  EXPECT_NE(errors.str().find("line 4: JSON: not JSON"), std::string::npos) << errors.str();
  EXPECT_NE(errors.str().find("line 5: not a JSON object"), std::string::npos) << errors.str();
  EXPECT_EQ(lines_in(errors.str()), 3);
}

TEST_F(TextLines, ABadTokenIsNamed) {
  std::istringstream in("{\"ids\": [129280]}\n{\"ids\": [-1]}\n{\"ids\": [1.5]}\n{\"ids\": [67]}\n{\"ids\": [1e99]}\n");
  std::ostringstream out, errors;
  EXPECT_EQ(run_detokenize(in, out, errors, *tokenizer_), 2);
  EXPECT_EQ(out.str(), "{\"text\": \"a\"}\n");
  EXPECT_NE(errors.str().find("line 1: token 129280: not in the vocabulary"), std::string::npos) << errors.str();
  EXPECT_EQ(lines_in(errors.str()), 4);
}

TEST_F(TextLines, ABadRequestIsNamedByLineAndField) {
  std::istringstream in(
      "{\"messages\": [{\"role\": \"robot\"}]}\n{\"messages\": []}\n{}\n{\"messages\": [{\"role\": \"user\", "
      "\"content\": 3}]}\n"
      "{\"messages\": [7]}\n{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"thinking\": false}\n");
  std::ostringstream out, errors;
  EXPECT_EQ(run_render(in, out, errors), 2);
  EXPECT_EQ(out.str(), "{\"prompt\": \"<｜begin▁of▁sentence｜><｜User｜>x<｜Assistant｜></think>\"}\n");
  for (const char* part : {"line 1: messages[0].role: 'robot', expected one of system", "line 2: messages: empty",
                           "line 3: messages: missing", "line 4: messages[0].content: 3", "line 5: messages[0]: 7"})
    EXPECT_NE(errors.str().find(part), std::string::npos) << part << "\n" << errors.str();
}

}  // namespace
}  // namespace lockstep
