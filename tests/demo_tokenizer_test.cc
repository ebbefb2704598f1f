// The demo model's tokenizer through the engine: the same ids as the encoder that training uses (demo/data/encode.py,
// which itself reproduces all 560 lines of the V4 tokenizer's vectors), on lines of generated conversations and on
// awkward texts. tests/data/demo/tokenizer_lines.jsonl holds that encoder's ids.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "text/python_json.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace lockstep {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Vocabulary demo_vocabulary() {
  return vocabulary_from_tokenizer_json(read_file(std::string(LOCKSTEP_DEMO) + "/tokenizer.json"), "tokenizer.json");
}

TEST(DemoTokenizer, EncodesAsTrainingDoesAndDecodesBack) {
  const Tokenizer tokenizer(demo_vocabulary());
  std::ifstream lines(std::string(LOCKSTEP_TEST_DATA) + "/demo/tokenizer_lines.jsonl");
  int n = 0;
  for (std::string line; std::getline(lines, line); ++n) {
    const Json json = parse_json(line, "tokenizer_lines.jsonl");
    const std::string text = json.at("text").get<std::string>();
    const std::vector<Token> ids = tokenizer.encode(text);
    EXPECT_EQ(ids, json.at("ids").get<std::vector<Token>>()) << text;
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
  EXPECT_EQ(n, 400);
}

TEST(DemoTokenizer, HasEveryControlTokenOfAChatAndExactly4096Entries) {
  const Tokenizer tokenizer(demo_vocabulary());
  EXPECT_EQ(tokenizer.size(), 4096u);
  EXPECT_EQ(tokenizer.require_added("<｜begin▁of▁sentence｜>"), 0);
  EXPECT_EQ(tokenizer.require_added("<｜end▁of▁sentence｜>"), 1);
  EXPECT_EQ(tokenizer.require_added("<｜▁pad▁｜>"), 2);
  for (const char* text : {"<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "｜DSML｜", "<｜latest_reminder｜>",
                           "<｜action｜>", "<｜query｜>", "<｜title｜>"})
    EXPECT_TRUE(tokenizer.find_added(text).has_value()) << text;
}

TEST(DemoTokenizer, KeepsEveryDigitATokenOfItsOwn) {
  const Tokenizer tokenizer(demo_vocabulary());
  EXPECT_EQ(tokenizer.encode("1234567890").size(), 10u);
  EXPECT_EQ(tokenizer.encode("123+268=").size(), 8u);
}

}  // namespace
}  // namespace lockstep
