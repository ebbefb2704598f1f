// The parts of a message's content, which most protocols write alike.
#pragma once

#include <string>
#include <string_view>

#include "server/fields.h"
#include "server/normalise.h"

namespace lockstep {

/// "[Unsupported TYPE]" if the options say so, else ApiError 400 naming the part.
std::string unsupported_part(const Fields& part, const std::string& type, const ReaderOptions& options);

/// A message's text: a string, null, or an array of text parts, which are joined as they are.
std::string content_text(const Fields& message, const char* key, const ReaderOptions& options);

/// A tool's result: a string, null, or an array whose text parts are joined by empty lines; others are named in their
/// place, whatever the options say.
std::string result_text(const Fields& message, const char* key);

/// The `text` of a text part, which must be there.
std::string text_of(const Fields& part);

/// Whether a part of this type has text, as `text`.
bool is_text_part(std::string_view type);

}  // namespace lockstep
