// JSON Lines through a function: one bad line is reported by its number and does not stop the others.
#pragma once

#include <istream>
#include <ostream>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/python_json.h"
#include "text/utf8.h"

namespace lockstep {

/// Calls answer(const Json&) -> std::string for each line that is not blank and writes what it returns as a line. Bytes
/// that are not UTF-8 are read as U+FFFD. An Error becomes "line N: message" on `errors`.
/// Returns 0, or 2 if there was an error. Throws Error::io if `out` cannot be written.
template <class Answer>
int for_each_json_line(std::istream& in, std::ostream& out, std::ostream& errors, Answer&& answer) {
  int status = 0;
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      if (!is_valid_utf8(line)) line = to_valid_utf8(line);
      const Json value = parse_json(line, "JSON");
      if (!value.is_object()) throw Error(Error::Kind::bad_argument, "not a JSON object, expected one a line");
      out << answer(value) << '\n';
    } catch (const Error& error) {
      errors << "line " << number << ": " << error.what() << '\n';
      status = 2;
    }
    if (!out) throw Error(Error::Kind::io, "output: cannot be written");
  }
  return status;
}

}  // namespace lockstep
