// The shipped demo model gives the answers that the README shows, to the letter: greedy, without thinking.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "cpu/cpu_ops.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace lockstep {
namespace {

/// The rows of the README's table of answers: | prompt | answer |.
std::vector<std::pair<std::string, std::string>> readme_answers() {
  std::vector<std::pair<std::string, std::string>> rows;
  std::ifstream readme(LOCKSTEP_README);
  bool is_inside = false;
  for (std::string line; std::getline(readme, line);) {
    if (line == "| prompt | answer |") {
      is_inside = true;
      std::getline(readme, line);  // the rule below it
      continue;
    }
    if (!is_inside) continue;
    if (!line.starts_with("| ")) break;
    const std::size_t middle = line.find(" | ", 2);
    rows.emplace_back(line.substr(2, middle - 2), line.substr(middle + 3, line.rfind(" |") - middle - 3));
  }
  return rows;
}

TEST(DemoModel, GivesTheAnswersOfTheReadme) {
  const auto rows = readme_answers();
  ASSERT_EQ(rows.size(), 12u);
  EngineOptions options;
  options.model = LOCKSTEP_DEMO_MODEL;
  Engine engine(options, cpu::make_cpu_ops({2, "auto"}));
  Generator generator(engine);
  const Tokenizer& tokenizer = engine.tokenizer();
  for (const auto& [prompt, answer] : rows) {
    ChatRequest chat;
    chat.thinking = false;
    Message& message = chat.messages.emplace_back();
    message.role = Role::user;
    message.content = prompt;
    GenerateRequest request;
    request.prompt = tokenizer.encode(render_chat(chat));
    request.stop_tokens = stop_tokens_of(tokenizer);
    request.sampling.temperature = 0;
    request.limit = 64;
    const Generated out = generator.generate(request);
    EXPECT_EQ(out.text, answer) << prompt;
    EXPECT_EQ(out.finish, Finish::stop_token) << prompt;
  }
}

}  // namespace
}  // namespace lockstep
