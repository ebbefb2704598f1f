// The exact replay map: when a turn is repeated as it was sampled, and when it is not.
#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "text/chat.h"
#include "text/output_parser.h"
#include "text/replay.h"

namespace lockstep {
namespace {

const std::string kTool = R"({"name": "f", "parameters": {"properties": {"n": {"type": "integer"}, "s": {}}}})";
// Not as the renderer writes it: one line, single quotes, other number text.
const std::string kAnswer =
    "Look:\n<｜DSML｜tool_calls><｜DSML｜invoke name='f'><｜DSML｜parameter name=\"n\" "
    "string=\"false\">10e-1</｜DSML｜parameter><｜DSML｜parameter name=\"s\" string=\"true\">x</｜DSML｜parameter>"
    "</｜DSML｜invoke></｜DSML｜tool_calls>";

struct Kept {
  ParsedOutput output;
  SampledTurn turn;
};

Kept parsed(const std::string& text, Phase opening) {
  OutputParser parser({.opening = opening, .tools = {kTool}});
  Kept kept;
  for (const ParserEvent& event : parser.feed(text)) append(kept.output, event);
  for (const ParserEvent& event : parser.finish(GenerationEnd::stop)) append(kept.output, event);
  kept.turn = parser.sampled_turn().value();
  return kept;
}

/// The message that a client sends back.
Message sent_back(const ParsedOutput& output, const std::string& id = "call_1") {
  Message message;
  message.role = Role::assistant;
  message.reasoning = output.reasoning;
  message.content = output.content;
  for (const ParsedCall& call : output.tool_calls) message.tool_calls.push_back({id, call.name, call.arguments});
  return message;
}

/// The prompt's text after the first user message.
std::string rendered(const Message& message, bool thinking = true) {
  ChatRequest request;
  request.thinking = thinking;
  request.tools = {kTool};
  Message user, result;
  user.content = "q";
  result.role = Role::tool;
  result.tool_call_id = "call_1";
  request.messages = {user, message, result};
  const std::string all = render_chat(request).text();
  const std::size_t begin = all.find(kAssistantText), end = all.find(kEosText);
  return all.substr(begin + kAssistantText.size(), end - begin - kAssistantText.size());
}

ReplayMap& with(ReplayMap& map, const Kept& kept) {
  map.remember(kept.output, kept.turn, std::vector<std::string>{"call_1"}, std::vector<std::string>{"key_1"});
  return map;
}

struct Case {
  const char* name;
  void (*change)(Message&);
  bool is_restored;
  std::string rendered;  // of a restored one
};

TEST(Replay, ATurnIsRepeatedUnlessTheClientChangedIt) {
  const Kept kept = parsed("thought</think>" + kAnswer, Phase::reasoning);
  ASSERT_EQ(kept.output.tool_calls.size(), 1u);
  const std::string all = "<think>thought</think>" + kAnswer;
  const Case cases[] = {
      {"unchanged", [](Message&) {}, true, all},
      {"reasoning dropped", [](Message& m) { m.reasoning.clear(); }, true, all},
      {"reasoning changed", [](Message& m) { m.reasoning = "other <｜User｜>"; }, true,
       "<think>other <｜User｜></think>" + kAnswer},
      {"keys in another order", [](Message& m) { m.tool_calls[0].arguments = R"({"s":"x","n":1})"; }, true, all},
      {"whitespace around the content", [](Message& m) { m.content = " Look:\n"; }, true, all},
      {"content dropped", [](Message& m) { m.content.clear(); }, true, all},
      {"content changed", [](Message& m) { m.content = "Looked:"; }, false, ""},
      {"a value changed", [](Message& m) { m.tool_calls[0].arguments = R"({"n": 2, "s": "x"})"; }, false, ""},
      {"a key more", [](Message& m) { m.tool_calls[0].arguments = R"({"n": 1, "s": "x", "t": 1})"; }, false, ""},
      {"no JSON", [](Message& m) { m.tool_calls[0].arguments = "{"; }, false, ""},
      {"another name", [](Message& m) { m.tool_calls[0].name = "g"; }, false, ""},
      {"another id", [](Message& m) { m.tool_calls[0].id = "call_2"; }, false, ""},
      {"a call more",
       [](Message& m) {
         m.tool_calls.push_back({"call_2", "f", "{}"});
       },
       false, ""},
      {"no call", [](Message& m) { m.tool_calls.clear(); }, false, ""},
      {"another role", [](Message& m) { m.role = Role::user; }, false, ""},
  };
  for (const Case& c : cases) {
    ReplayMap map(1 << 20);
    Message message = sent_back(kept.output);
    c.change(message);
    EXPECT_EQ(with(map, kept).restore(message), c.is_restored) << c.name;
    EXPECT_EQ(message.sampled.has_value(), c.is_restored) << c.name;
    if (c.is_restored) {
      EXPECT_EQ(rendered(message), c.rendered) << c.name;
    }
  }
}

TEST(Replay, WithoutReasoningInThePromptOnlyTheAnswerIsRepeated) {
  const Kept kept = parsed("thought</think>" + kAnswer, Phase::reasoning);
  ReplayMap map(1 << 20);
  Message message = sent_back(kept.output);
  ASSERT_TRUE(with(map, kept).restore(message));
  EXPECT_EQ(rendered(message, false), "</think>" + kAnswer);
}

TEST(Replay, ACallInsideAThoughtIsRepeatedAsItWas) {
  const std::string block = kAnswer.substr(kAnswer.find("\n<"));
  const Kept kept = parsed("I call" + block, Phase::reasoning);
  ASSERT_EQ(kept.output.reasoning, "I call");
  ReplayMap map(1 << 20);
  Message message = sent_back(kept.output);
  ASSERT_TRUE(with(map, kept).restore(message));
  EXPECT_EQ(rendered(message), "<think>I call" + block);
  EXPECT_EQ(rendered(message, false), "</think>" + block);
}

TEST(Replay, ATurnWithoutThoughtGetsAnEmptyOneWhereThePromptKeepsThem) {
  const Kept kept = parsed(kAnswer, Phase::content);
  ReplayMap map(1 << 20);
  Message message = sent_back(kept.output);
  ASSERT_TRUE(with(map, kept).restore(message));
  EXPECT_EQ(rendered(message), "<think></think>" + kAnswer);
  EXPECT_EQ(rendered(message, false), "</think>" + kAnswer);
}

TEST(Replay, ATurnWithoutCallsIsFoundByItsKeyAlone) {
  const Kept kept = parsed("thought</think>Yes.", Phase::reasoning);
  ReplayMap map(1 << 20);
  map.remember(kept.output, kept.turn, {}, std::vector<std::string>{"signature"});
  Message message = sent_back(kept.output);
  message.reasoning.clear();
  EXPECT_FALSE(map.restore(message));
  EXPECT_FALSE(map.restore(message, "other"));
  EXPECT_TRUE(map.restore(message, "signature"));
  EXPECT_EQ(rendered(message), "<think>thought</think>Yes.");
}

TEST(Replay, ControlTextThatWasNoControlTokenStaysText) {
  OutputParser parser({.opening = Phase::content, .tools = {kTool}});
  parser.feed_token("a <｜User｜> b", false);
  parser.finish(GenerationEnd::stop);
  const SampledTurn turn = parser.sampled_turn().value();
  ASSERT_EQ(turn.whole.spans.size(), 1u);
  for (const Span& span : turn.whole.spans) EXPECT_EQ(span.trust, Trust::untrusted);
}

TEST(Replay, TheTurnUsedLeastRecentlyGoesFirst) {
  const Kept kept = parsed(kAnswer, Phase::content);
  ReplayMap one(1 << 20);
  const std::vector<std::string> ids[] = {{"id_a"}, {"id_b"}, {"id_c"}};
  one.remember(kept.output, kept.turn, ids[0]);
  const std::size_t size = one.bytes();
  ReplayMap map(2 * size);
  const auto has = [&](const std::string& id) {
    Message message = sent_back(kept.output, id);
    return map.restore(message);
  };
  map.remember(kept.output, kept.turn, ids[0]);
  map.remember(kept.output, kept.turn, ids[1]);
  EXPECT_TRUE(has("id_a"));
  map.remember(kept.output, kept.turn, ids[2]);
  EXPECT_EQ(map.size(), 2u);
  EXPECT_LE(map.bytes(), 2 * size);
  EXPECT_TRUE(has("id_a"));
  EXPECT_FALSE(has("id_b"));
  EXPECT_TRUE(has("id_c"));
  map.remember(kept.output, kept.turn, ids[2]);
  EXPECT_EQ(map.size(), 2u) << "the same key again replaces its turn";
  ReplayMap small(size - 1);
  small.remember(kept.output, kept.turn, ids[0]);
  EXPECT_EQ(small.size(), 0u) << "a turn larger than the budget is not kept";
}

TEST(Replay, WhatIsSavedComesBackInOrder) {
  const Kept first = parsed("thought</think>" + kAnswer, Phase::reasoning), second = parsed("é\n", Phase::content);
  ReplayMap map(1 << 20);
  with(map, first);
  map.remember(second.output, second.turn, {}, std::vector<std::string>{"key_2"});
  ReplayMap loaded(1 << 20);
  loaded.load(map.save());
  EXPECT_EQ(loaded.save(), map.save());
  EXPECT_EQ(loaded.bytes(), map.bytes());
  Message message = sent_back(first.output);
  ASSERT_TRUE(loaded.restore(message));
  EXPECT_EQ(rendered(message), "<think>thought</think>" + kAnswer);
}

TEST(Replay, LinesOfTheFirstVersionAreTurnsWithoutTokens) {
  ReplayMap map(1 << 20);
  map.load(R"({"version": 1, "calls": [], "keys": ["k"], "reasoning": "t", "content": "Yes.", "thinking": true, )"
           R"("thought": [[false, "t"], [true, "</think>"]], "answer": [[false, "Yes."]]})");
  Message message;
  message.role = Role::assistant;
  message.content = "Yes.";
  ASSERT_TRUE(map.restore(message, "k"));
  EXPECT_EQ(rendered(message), "<think>t</think>Yes.");
  EXPECT_EQ(rendered(message, false), "</think>Yes.");
  ReplayMap again(1 << 20);
  again.load(map.save());
  EXPECT_EQ(again.save(), map.save());
}

TEST(Replay, ADamagedFileIsRefusedAndChangesNothing) {
  const Kept kept = parsed(kAnswer, Phase::content);
  ReplayMap map(1 << 20);
  const std::string saved = with(map, kept).save();
  for (std::size_t size = 1; size + 1 < saved.size(); ++size) {
    ReplayMap loaded(1 << 20);
    try {
      loaded.load(saved + saved.substr(0, size));
      FAIL() << size;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find("replay map: line 2: "), 0u) << error.what();
    }
    EXPECT_EQ(loaded.size(), 0u);
  }
  for (const char* line :
       {"[]", "{}", R"({"version": 3})", R"({"version": 1, "calls": [[1, 2, 3]]})",
        R"({"version": 2, "calls": [], "keys": ["k"], "reasoning": "", "content": "", "thinking": false,
                               "turn": [[false, "a", [1.5]]], "answer_begin": 0})",
        R"({"version": 2, "calls": [], "keys": ["k"], "reasoning": "", "content": "", "thinking": false,
                               "turn": [[false, "a", [1]]], "answer_begin": 2})"}) {
    ReplayMap loaded(1 << 20);
    EXPECT_THROW(loaded.load(line), Error) << line;
  }
}

TEST(Replay, ThreadsMayShareIt) {
  const Kept kept = parsed(kAnswer, Phase::content);
  ReplayMap map(20000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&map, &kept, t] {
      for (int i = 0; i < 200; ++i) {
        const std::string id = std::to_string(t) + "_" + std::to_string(i);
        map.remember(kept.output, kept.turn, std::vector<std::string>{id});
        Message message = sent_back(kept.output, id);
        map.restore(message);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(map.bytes(), 20000u);
  EXPECT_GT(map.size(), 0u);
}

}  // namespace
}  // namespace lockstep
