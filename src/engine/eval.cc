#include "engine/eval.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/generate.h"
#include "text/output_parser.h"
#include "text/thought.h"

namespace lockstep {
namespace {

Profile profile_of(Engine& engine) {
  const std::string name = std::string(engine.file().string_or("general.name", "")) + " " + engine.file().name();
  return detect_profile(engine.tokenizer().chat_template(), name);
}

Prompt render(ChatRequest request, Profile profile) {
  request.profile = profile;
  return render_chat(request);
}

SkillScore& score_of(std::vector<SkillScore>& skills, const std::string& skill) {
  const auto found = std::find_if(skills.begin(), skills.end(), [&](const SkillScore& s) { return s.skill == skill; });
  if (found != skills.end()) return *found;
  skills.push_back({skill, 0, 0, 0});
  return skills.back();
}

EvalAnswer parse_answer(const Tokenizer& tokenizer, const EvalCase& c, const Prompt& prompt,
                        const Generated& generated) {
  ParserOptions options;
  options.opening = phase_after(prompt);
  options.tools = c.chat.tools;
  OutputParser parser(std::move(options));
  ParsedOutput output;
  const auto take = [&](const std::vector<ParserEvent>& events) {
    for (const ParserEvent& event : events) append(output, event);
  };
  for (const Token token : generated.tokens) {
    if (parser.is_done()) break;
    take(parser.feed_token(tokenizer.bytes_of(token), tokenizer.is_added(token)));
  }
  const bool has_stopped = generated.finish == Finish::stop_token;
  take(parser.finish(has_stopped ? GenerationEnd::stop : GenerationEnd::length));
  EvalAnswer answer{std::move(output.content), std::move(output.reasoning), {}, has_stopped};
  for (ParsedCall& call : output.tool_calls)
    answer.calls.push_back({"", std::move(call.name), std::move(call.arguments)});
  return answer;
}

/// One case; the reason why there is no answer, if it could not be asked.
struct Asked {
  EvalAnswer answer;
  std::int64_t generated = 0;
  std::string refused;
};

Asked ask(Engine& engine, Generator& generator, const EvalCase& c, Profile profile) {
  GenerateRequest request;
  const Prompt prompt = render(c.chat, profile);
  request.prompt = engine.tokenizer().encode(prompt);
  const auto room = engine.config().context_length - static_cast<std::int64_t>(request.prompt.size());
  request.limit = room > 0 ? std::min(c.limit, room) : c.limit;  // without room the generator says what is wrong
  request.sampling.temperature = 0;
  // Only EOS: an answer that opens another turn instead has not stopped by itself.
  request.stop_tokens = {engine.tokenizer().require_added(kEosText)};
  Asked asked;
  try {
    const Generated generated = generator.generate(request);
    asked.generated = generated.stats.generated;
    asked.answer = parse_answer(engine.tokenizer(), c, prompt, generated);
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::bad_argument) throw;
    asked.refused = error.what();
  }
  return asked;
}

}  // namespace

EvalReport run_suite(Engine& engine, std::span<const EvalCase> cases,
                     const std::function<void(std::int64_t done, std::int64_t total)>& progress) {
  check_chat_vocabulary(engine.tokenizer());
  const Profile profile = profile_of(engine);
  Generator generator(engine);
  EvalReport report;
  report.all.skill = "all";
  const auto total = static_cast<std::int64_t>(cases.size());
  for (const EvalCase& c : cases) {
    if (progress) progress(report.all.cases, total);
    const Asked asked = ask(engine, generator, c, profile);
    const std::string why = asked.refused.empty() ? why_wrong(c, asked.answer) : "not asked";
    const std::string got = asked.refused.empty() ? answer_text(asked.answer) : asked.refused;
    report.generated += asked.generated;
    for (SkillScore* score : {&score_of(report.skills, c.skill), &report.all}) {
      ++score->cases;
      if (why.empty()) ++score->passed;
      if (asked.answer.has_stopped) ++score->stopped;
    }
    if (!why.empty()) report.failures.push_back({c.name, c.skill, why, expected_text(c), got});
  }
  if (progress) progress(total, total);
  return report;
}

std::vector<Passage> suite_passages(Engine& engine, std::span<const EvalCase> cases) {
  check_chat_vocabulary(engine.tokenizer());
  const Profile profile = profile_of(engine);
  const Tokenizer& tokenizer = engine.tokenizer();
  std::vector<Passage> passages;
  for (const EvalCase& c : cases) {
    Passage passage;
    passage.tokens = tokenizer.encode(render(c.chat, profile));
    passage.first_scored = passage.tokens.size();
    if (std::optional<ChatRequest> whole = answered(c)) {
      std::vector<Token> tokens = tokenizer.encode(render(std::move(*whole), profile));
      // A prompt ends in a control token, where no token can reach across, so the answer only adds to it.
      LOCKSTEP_CHECK(tokens.size() > passage.tokens.size() &&
                     std::equal(passage.tokens.begin(), passage.tokens.end(), tokens.begin()));
      passage.tokens = std::move(tokens);
    }
    if (static_cast<std::int64_t>(passage.tokens.size()) > engine.config().context_length) continue;
    passages.push_back(std::move(passage));
  }
  return passages;
}

}  // namespace lockstep
