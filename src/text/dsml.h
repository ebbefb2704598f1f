// The markup of tool calls: its tags, the variants in which models misspell it, and the Markdown fences in which it is
// only shown. Text is in the alphabet of symbols.h. Everything here looks at the front of a text and says yes, no, or
// that it takes more text to know.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/ascii.h"
#include "text/tool_schemas.h"

namespace lockstep {

enum class Found { no, maybe, yes };

/// How the tags begin: <｜DSML｜tool_calls>, <DSML｜tool_calls>, <|DSML|tool_calls>, <tool_calls>. One block uses one.
enum class Marker { native, without_first_bar, ascii_bars, plain };

/// "<" or "</", the marker, and the tag's name with what follows it.
std::string tag_text(std::string_view open, Marker marker, std::string_view name);

/// Whether `text` begins with `wanted`, or may do so when there is more of it.
Found begins_with(std::string_view text, std::string_view wanted);

/// Whether `text` begins as a tag of calls with a whole marker in it, which nothing else does: "<｜DSML｜tool_ca". The
/// beginning of a plain tag may be anything.
bool is_begun_tag(std::string_view text);

struct Tag {
  Found found = Found::no;
  std::size_t size = 0;           // with its '>'
  std::string name;               // never empty
  std::optional<bool> is_string;  // attribute `string`, if it is there and "true" or "false"
};

/// Reads a tag with a `name` attribute. `open` is what tag_text gives, without '>'. Attributes come in any order, in
/// double, single or no quotes; a quote ends a value only before whitespace or '>', because names are written raw.
Tag parse_tag(std::string_view text, std::string_view open);

/// Text that looks like markup and is not: its calls are not ours, until its end tag.
enum class Quote { none, function_calls, tool_calls };

struct Opening {
  enum class Kind { block, invoke, quote_begin, quote_end };
  Found found = Found::no;
  Kind kind = Kind::block;
  Marker marker = Marker::native;
  std::size_t size = 0;  // of the tag
};

struct OpeningRules {
  bool is_line_start = false;
  bool is_in_fence = false;
  bool only_blocks = false;  // no invoke without a block around it
  Quote quote = Quote::none;
};

/// What the '<' at the front of `text` opens.
Opening find_opening(std::string_view text, const OpeningRules& rules, const ToolSchemas& tools);

/// Follows the lines of a Markdown text: is the next line inside a code fence?
class Fence {
 public:
  void push(std::string_view text);
  bool is_inside() const { return inside_length_ > 0; }

 private:
  enum class Part { indent, run, tail, text };
  Part part_ = Part::indent;
  int indent_ = 0;
  char mark_ = 0;  // ` or ~, of this line
  int length_ = 0;
  bool has_tail_ = false, has_backtick_ = false;
  char inside_mark_ = 0;
  int inside_length_ = 0;
};

}  // namespace lockstep
