#include "cli/tokenize.h"

#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/json_lines.h"
#include "text/tokenizer.h"

namespace lockstep {

int run_tokenize(std::istream& in, std::ostream& out, std::ostream& errors, const Tokenizer& tokenizer, Trust trust) {
  return for_each_json_line(in, out, errors, [&](const Json& line) {
    const auto text = line.find("text");
    if (text == line.end() || !text->is_string())
      throw Error(Error::Kind::bad_argument, "text: missing or not a string, expected {\"text\": \"...\"}");
    std::string ids;
    for (const Token token : tokenizer.encode(text->get_ref<const std::string&>(), trust))
      ids += (ids.empty() ? "" : ", ") + std::to_string(token);
    return "{\"ids\": [" + ids + "]}";
  });
}

int run_detokenize(std::istream& in, std::ostream& out, std::ostream& errors, const Tokenizer& tokenizer) {
  return for_each_json_line(in, out, errors, [&](const Json& line) {
    const auto ids = line.find("ids");
    if (ids == line.end() || !ids->is_array())
      throw Error(Error::Kind::bad_argument, "ids: missing or not an array, expected {\"ids\": [...]}");
    std::vector<Token> tokens;
    for (const Json& id : *ids) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() > std::numeric_limits<Token>::max())
        throw Error(Error::Kind::bad_argument, "ids: " + dump_python(id) + ", expected a token");
      tokens.push_back(id.get<Token>());
    }
    return "{\"text\": " + quote_python(to_valid_utf8(tokenizer.decode(tokens))) + "}";
  });
}

}  // namespace lockstep
