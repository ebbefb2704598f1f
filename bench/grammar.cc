// Cost of a mask over a vocabulary, for a few schemas.
//
//   bench_grammar MODEL.gguf|tokenizer.json [TOKENS]
//
// Walks random answers under the mask and times every mask: the first of a state builds it, later ones look it up.
// Reported in microseconds: the mean, the 99th percentile and the worst, over all masks and over those looked up.
#include "engine/grammar.h"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "text/tokenizer.h"

namespace lockstep {
namespace {

const std::pair<const char*, const char*> kSchemas[] = {
    {"any object", R"({"type":"object"})"},
    {"form",
     R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},
        "kind":{"enum":["a","b","c"]},"tags":{"type":"array","items":{"type":"string"},"maxItems":5}},
        "required":["name","age","kind","tags"]})"},
    {"tree", R"({"$defs":{"node":{"type":"object","properties":{"label":{"type":"string"},
        "kids":{"type":"array","items":{"$ref":"#/$defs/node"}}},"required":["label","kids"]}},"$ref":"#/$defs/node"})"},
    {"pattern", R"({"type":"string","pattern":"^[a-z]{3,20}-\\d{4}$"})"},
};

/// Of this thread's own time: other programs' turns do not count.
double microseconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

Vocabulary vocabulary_at(const std::string& path) {
  if (!path.ends_with(".json")) return vocabulary_of(Gguf(path));
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return vocabulary_from_tokenizer_json(text.str(), path);
}

void report(const char* name, std::vector<double> times) {
  if (times.empty()) return;
  std::sort(times.begin(), times.end());
  double sum = 0;
  for (const double t : times) sum += t;
  std::printf("  %-10s %6zu masks  mean %8.1f  p99 %8.1f  worst %8.1f us\n", name, times.size(),
              sum / static_cast<double>(times.size()), times[times.size() * 99 / 100], times.back());
}

void measure(const Tokenizer& tokenizer, const std::shared_ptr<const TokenTrie>& trie, const char* name,
             const char* schema, int tokens) {
  std::mt19937 random(1);
  std::vector<double> all, later;
  std::vector<float> logits(tokenizer.size());
  const std::vector<Token> ends = {*tokenizer.eos()};
  const auto grammar = Grammar::json_schema(OrderedJson::parse(schema), true);
  GrammarState state(grammar, trie);
  for (int i = 0; i < tokens; ++i) {
    if (state.is_finished() || (state.is_complete() && random() % 2 == 0)) state = GrammarState(grammar, trie);
    std::fill(logits.begin(), logits.end(), 0.0f);
    double start = microseconds();
    state.mask(logits, ends);
    all.push_back(microseconds() - start);
    std::fill(logits.begin(), logits.end(), 0.0f);
    start = microseconds();
    state.mask(logits, ends);
    later.push_back(microseconds() - start);
    std::vector<Token> may;
    for (std::size_t t = 0; t < logits.size(); ++t)
      if (logits[t] == 0.0f && static_cast<Token>(t) != ends[0]) may.push_back(static_cast<Token>(t));
    if (may.empty()) break;
    const Token token = may[random() % may.size()];
    const std::string_view bytes = tokenizer.bytes_of(token);
    if (!(tokenizer.is_added(token) ? state.accept_added(bytes) : state.accept_bytes(bytes))) std::abort();
  }
  std::printf("%s\n", name);
  report("as met", std::move(all));
  report("looked up", std::move(later));
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_grammar MODEL.gguf|tokenizer.json [TOKENS]\n");
    return 2;
  }
  const Tokenizer tokenizer(vocabulary_at(argv[1]));
  const double start = microseconds();
  const auto trie = std::make_shared<const TokenTrie>(tokenizer);
  std::printf("%zu tokens, tree of %zu nodes in %.1f ms\n", tokenizer.size(), trie->nodes().size(),
              (microseconds() - start) * 1e-3);
  for (const auto& [name, schema] : kSchemas)
    measure(tokenizer, trie, name, schema, argc > 2 ? std::atoi(argv[2]) : 300);
}
