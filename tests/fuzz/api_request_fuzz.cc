// Any body, in any of the protocols, is read into a prompt or refused with an error of ours: nothing else is thrown,
// and nothing crashes. The first byte of the input picks the protocol. Seeds: tests/fuzz/corpus/api_request.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "engine/synth_vocabulary.h"
#include "server/api.h"
#include "server/ask.h"
#include "server/normalise.h"
#include "text/utf8.h"

namespace {

using namespace lockstep;

class NoSource : public TokenSource {
 public:
  std::optional<Scheduler::Refusal> submit(Job) override { return Scheduler::Refusal::stopping; }
};

/// All that outlives one input.
struct World {
  Tokenizer tokenizer{synth_vocabulary(1024)};
  ServerSettings settings;
  NoSource source;
  ReplayMap replay{1 << 20};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static World world;  // a fuzzer has no main of its own to own it
  if (size < 1) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  ApiSources sources{.settings = world.settings, .tokenizer = world.tokenizer, .source = world.source};
  sources.replaces_unsupported = (data[0] & 4) != 0;
  try {
    const Json body = parse_json(text, "body");
    Ask ask;
    switch (data[0] & 3) {
      case 0:
        ask = read_chat_ask(body, sources, world.replay);
        break;
      case 1:
        ask = read_anthropic_ask(body, sources, world.replay);
        break;
      default:
        ask = read_response_ask(body, response_input(Fields(body)), sources, world.replay);
        break;
    }
    const Prompt prompt = render_chat(ask.chat);
    if (!is_valid_utf8(prompt.text())) {
      std::fprintf(stderr, "a prompt that is not UTF-8\n");
      std::abort();
    }
  } catch (const Error&) {
  }
  return 0;
}
