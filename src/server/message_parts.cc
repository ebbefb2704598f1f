#include "server/message_parts.h"

#include "server/http_error.h"

namespace lockstep {

bool is_text_part(std::string_view type) {
  return type == "text" || type == "input_text" || type == "output_text" || type == "summary_text" ||
         type == "reasoning_text";
}

std::string text_of(const Fields& part) {
  if (!part.has("text")) part.refuse("text", "a string");
  return part.text("text");
}

std::string unsupported_part(const Fields& part, const std::string& type, const ReaderOptions& options) {
  if (!options.replaces_unsupported) part.refuse("type", "text: this model reads nothing else");
  return "[Unsupported " + type + "]";
}

std::string content_text(const Fields& message, const char* key, const ReaderOptions& options) {
  const Json* content = message.find(key);
  if (content == nullptr) return {};
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) message.refuse(key, "a string or an array of parts");
  std::string text;
  for (std::size_t i = 0; i < content->size(); ++i) {
    if ((*content)[i].is_string()) {
      text += (*content)[i].get<std::string>();
      continue;
    }
    const Fields part((*content)[i], indexed_name(message.name_of(key), i));
    const std::string type = part.text("type");
    if (is_text_part(type)) {
      text += text_of(part);
    } else if (type == "refusal") {
      text += part.text("refusal");
    } else {
      text += unsupported_part(part, type, options);
    }
  }
  return text;
}

std::string result_text(const Fields& message, const char* key) {
  const Json* content = message.find(key);
  if (content == nullptr) return {};
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) message.refuse(key, "a string or an array of parts");
  std::string text;
  for (std::size_t i = 0; i < content->size(); ++i) {
    if (i > 0) text += "\n\n";
    const Fields part((*content)[i], indexed_name(message.name_of(key), i));
    const std::string type = part.text("type");
    text += is_text_part(type) ? text_of(part) : "[Unsupported " + type + "]";
  }
  return text;
}

}  // namespace lockstep
