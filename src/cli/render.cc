#include "cli/render.h"

#include <string>

#include "cli/json_lines.h"
#include "text/chat.h"
#include "text/chat_request.h"

namespace lockstep {

int run_render(std::istream& in, std::ostream& out, std::ostream& errors) {
  return for_each_json_line(in, out, errors, [](const Json& line) {
    return "{\"prompt\": " + quote_python(render_chat(chat_request_from_json(line)).text()) + "}";
  });
}

}  // namespace lockstep
