#include "cli/eval_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/memory_plan.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

double percent(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string model_line(const char* what, const EvalModel& model) {
  return fmt::format("{:10} {}, {}, {}\n", what, model.file, human_bytes(model.bytes), model.mode);
}

std::string skills_text(const SuiteResult& suite) {
  const EvalReport& report = suite.report;
  std::size_t width = 12;
  for (const SkillScore& score : report.skills) width = std::max(width, score.skill.size());
  std::string text = fmt::format("\n{}\n", suite.file);
  text += fmt::format("{:{}}  {:>6}  {:>6}  {:>7}  {:>9}\n", "skill", width, "cases", "passed", "", "stopped");
  const auto line = [&](const SkillScore& score) {
    text += fmt::format("{:{}}  {:>6}  {:>6}  {:>5.1f} %  {:>7.1f} %\n", score.skill, width, score.cases, score.passed,
                        percent(score.passed, score.cases), percent(score.stopped, score.cases));
  };
  for (const SkillScore& score : report.skills) line(score);
  line(report.all);
  return text;
}

std::string likelihood_line(const std::string& what, const Likelihood& likelihood) {
  return fmt::format("{:28}  {:>8}  {:>9.5f}  {:>10.4f}  {:>8.2f} %\n", what, likelihood.tokens, likelihood.mean(),
                     likelihood.perplexity(), percent(likelihood.likeliest, likelihood.tokens));
}

std::string divergence_line(const std::string& what, const Divergence& divergence) {
  return fmt::format("{:28}  {:>8}  {:>10.3e}  {:>10.3e}  {:>7.2f} %\n", what, divergence.kl.size(), divergence.mean(),
                     percentile(divergence.kl, 99), 100 * divergence.agreement());
}

std::string failures_text(const SuiteResult& suite, std::size_t most) {
  const EvalReport& report = suite.report;
  const std::size_t shown = std::min(most, report.failures.size());
  if (shown == 0) return {};
  std::string text = fmt::format("\n{}: {} of {} failing cases\n", suite.file, shown, report.failures.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const EvalFailure& failure = report.failures[i];
    text += fmt::format("  {}: {}\n    expected  {}\n    got       {}\n", failure.name, failure.why, failure.expected,
                        failure.got);
  }
  return text;
}

Json model_json(const EvalModel& model) { return {{"file", model.file}, {"bytes", model.bytes}, {"mode", model.mode}}; }

Json score_json(const SkillScore& score) {
  return {{"skill", score.skill}, {"cases", score.cases}, {"passed", score.passed}, {"stopped", score.stopped}};
}

Json suite_json(const SuiteResult& suite) {
  Json out;
  out["file"] = suite.file;
  out["skills"] = Json::array();
  for (const SkillScore& score : suite.report.skills) out["skills"].push_back(score_json(score));
  out["all"] = score_json(suite.report.all);
  out["generated_tokens"] = suite.report.generated;
  out["failures"] = Json::array();
  for (const EvalFailure& failure : suite.report.failures)
    out["failures"].push_back({{"name", failure.name},
                               {"skill", failure.skill},
                               {"why", failure.why},
                               {"expected", failure.expected},
                               {"got", failure.got}});
  return out;
}

Json likelihood_json(const Likelihood& likelihood) {
  return {{"tokens", likelihood.tokens},
          {"mean_surprise", likelihood.mean()},
          {"perplexity", likelihood.perplexity()},
          {"likeliest", likelihood.likeliest}};
}

Json divergence_json(const Divergence& divergence) {
  return {{"rows", divergence.kl.size()},
          {"mean_kl", divergence.mean()},
          {"kl_99", percentile(divergence.kl, 99)},
          {"same_best", divergence.same_best}};
}

}  // namespace

std::string eval_text(const EvalResults& results, std::size_t failures) {
  std::string text = model_line("model", results.model) + fmt::format("{:10} {}\n", "back end", results.back_end);
  if (results.reference) text += model_line("reference", *results.reference);
  for (const SuiteResult& suite : results.suites) text += skills_text(suite);

  text += fmt::format("\n{:28}  {:>8}  {:>9}  {:>10}  {:>10}\n", "expected tokens", "tokens", "nats each", "perplexity",
                      "likeliest");
  const auto lines = [&](const std::string& what, const Measurement& measurement) {
    text += likelihood_line(what, measurement.model);
    if (results.reference) text += likelihood_line(what + ", reference", measurement.reference);
  };
  if (results.suite) lines("answers", *results.suite);
  if (results.text) lines("text", *results.text);

  if (results.reference) {
    text += fmt::format("\n{:28}  {:>8}  {:>10}  {:>10}  {:>9}\n", "KL(reference || model)", "rows", "mean", "99 %",
                        "same best");
    if (results.suite) {
      text += divergence_line("prompts and answers", results.suite->compared);
      text += divergence_line("answers", results.suite->scored);
    }
    if (results.text) text += divergence_line("text", results.text->scored);
  }
  for (const SuiteResult& suite : results.suites) text += failures_text(suite, failures);
  return text;
}

std::string eval_json(const EvalResults& results) {
  Json root;
  root["model"] = model_json(results.model);
  root["backend"] = results.back_end;
  if (results.reference) root["reference"] = model_json(*results.reference);
  root["suites"] = Json::array();
  for (const SuiteResult& suite : results.suites) root["suites"].push_back(suite_json(suite));
  const auto add = [&](const char* name, const Measurement& measurement) {
    root[name]["model"] = likelihood_json(measurement.model);
    if (!results.reference) return;
    root[name]["reference"] = likelihood_json(measurement.reference);
    root[name]["divergence"] = divergence_json(measurement.scored);
  };
  if (results.suite) {
    add("answers", *results.suite);
    if (results.reference) root["prompts_and_answers"]["divergence"] = divergence_json(results.suite->compared);
  }
  if (results.text) {
    add("text", *results.text);
    root["text"]["file"] = results.text_file;
  }
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
