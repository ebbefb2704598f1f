#include "text/call_block.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "text/python_json.h"
#include "text/symbols.h"

namespace lockstep {
namespace {

/// The text as the inside of a JSON string. Pieces of whole characters join to the whole.
std::string escaped(std::string_view text) {
  const std::string quoted = quote_python(text);
  return quoted.substr(1, quoted.size() - 2);
}

std::optional<Json> parsed(std::string_view text) {
  try {
    return parse_json(text, "value");
  } catch (const Error&) {  // the model wrote it, so it may be anything
    return std::nullopt;
  }
}

/// A value of string="false" as JSON: as it stands, or, if it is no JSON, as a string.
std::string json_value(const std::string& text) {
  const std::string_view inner = trimmed(text);
  const std::optional<Json> value = parsed(inner);
  if (!value) return quote_python(text);
  // Lone surrogate escapes are read but are not for others to read.
  return Json::accept(inner) ? std::string(inner) : dump_python(*value);
}

/// The longest end of `text` that may be the beginning of `wanted`.
std::size_t held_size(std::string_view text, std::string_view wanted) {
  for (std::size_t n = std::min(wanted.size() - 1, text.size()); n > 0; --n)
    if (text.ends_with(wanted.substr(0, n))) return n;
  return 0;
}

}  // namespace

CallBlock::CallBlock(const ToolSchemas& schemas, const Settings& settings)
    : schemas_(schemas),
      settings_(settings),
      block_open_(tag_text("<", settings.marker, "tool_calls>")),
      block_end_(tag_text("</", settings.marker, "tool_calls>")),
      invoke_open_(tag_text("<", settings.marker, "invoke")),
      invoke_end_(tag_text("</", settings.marker, "invoke>")),
      parameter_open_(tag_text("<", settings.marker, "parameter")),
      parameter_end_(tag_text("</", settings.marker, "parameter>")) {}

std::size_t CallBlock::push(std::string_view text, Events& out) {
  std::size_t used = 0;
  while (state_ == State::open && used < text.size()) {
    const std::string_view rest = text.substr(used);
    const InBlock before = place_;
    const std::size_t taken = place_ == InBlock::between  ? step_between(rest)
                              : place_ == InBlock::invoke ? step_invoke(rest, out)
                                                          : step_value(rest, out);
    used += taken;
    if (taken == 0 && place_ == before) break;
  }
  return used;
}

std::size_t CallBlock::step_between(std::string_view text) {
  const auto take = [&](std::size_t size) {
    if (calls_ == 0) text_end_ += size;
    return size;
  };
  std::size_t space = 0;
  while (space < text.size() && is_space(text[space])) ++space;
  if (space > 0) return take(space);
  if (text[0] == '<') {
    const Found end = begins_with(text, block_end_);
    if (end == Found::yes) {
      state_ = State::closed;
      return block_end_.size();
    }
    const Found again = begins_with(text, block_open_);
    if (again == Found::yes) {
      if (!settings_.is_strict && (calls_ > 0 || !has_text_)) return take(block_open_.size());
      state_ = settings_.is_strict ? State::failed : State::reopened;
      return 0;
    }
    const Tag tag = parse_tag(text, invoke_open_);
    if (tag.found == Found::yes) {
      begin_invoke(tag);
      return tag.size;
    }
    // In a block of a variant that held no call so far: it was only mentioned, and this is the real one.
    Found native = Found::no;
    if (calls_ == 0 && !settings_.is_strict && settings_.marker != Marker::native)
      native = begins_with(text, tag_text("<", Marker::native, "tool_calls>"));
    if (native == Found::yes) {
      state_ = State::reopened;
      return 0;
    }
    for (const Found found : {end, again, tag.found, native})
      if (found == Found::maybe) return 0;
  }
  if (settings_.is_orphan && calls_ > 0) {
    state_ = State::closed;
    return 0;
  }
  if (settings_.is_strict) {
    state_ = State::failed;
    return 0;
  }
  if (calls_ == 0 && !has_text_) {
    has_text_ = true;
    text_begin_ = text_end_;
  }
  return take(std::min(text.find('<', 1), text.size()));
}

std::size_t CallBlock::step_invoke(std::string_view text, Events& out) {
  std::size_t space = 0;
  while (space < text.size() && is_space(text[space])) ++space;
  if (space > 0) return space;
  const Found end = begins_with(text, invoke_end_);
  if (end == Found::yes) {
    end_invoke(out);
    return invoke_end_.size();
  }
  const Tag parameter = parse_tag(text, parameter_open_);
  if (parameter.found == Found::yes) {
    begin_parameter(parameter, out);
    return parameter.size;
  }
  // A forgotten end tag: what comes next says that the call is over.
  const Tag next = parse_tag(text, invoke_open_);
  const Found block_end = begins_with(text, block_end_);
  if (next.found == Found::yes || block_end == Found::yes) {
    end_invoke(out);
    return 0;
  }
  const auto is_maybe = [](Found found) { return found == Found::maybe; };
  if (is_maybe(end) || is_maybe(parameter.found) || is_maybe(next.found) || is_maybe(block_end)) return 0;
  state_ = State::failed;
  return 0;
}

std::size_t CallBlock::step_value(std::string_view text, Events& out) {
  const std::size_t end = text.find(parameter_end_);
  if (end != std::string_view::npos) {
    take_value(text.substr(0, end), out);
    end_parameter(out);
    return end + parameter_end_.size();
  }
  const std::size_t size = text.size() - held_size(text, parameter_end_);
  take_value(text.substr(0, size), out);
  return size;
}

void CallBlock::begin_invoke(const Tag& tag) {
  place_ = InBlock::invoke;
  name_ = tag.name;
  all_known_ = all_known_ && schemas_.knows(name_);
  parameters_ = emitted_ = 0;
  is_announced_ = is_due_ = may_be_wrapped_ = false;
  members_.clear();
}

void CallBlock::begin_parameter(const Tag& tag, Events& out) {
  may_be_wrapped_ = parameters_ == 0 && (tag.name == "arguments" || tag.name == "input") && schemas_.knows(name_) &&
                    !schemas_.has_property(name_, tag.name);
  announce_if_due(out);  // a second parameter, so the first one wraps nothing
  ++parameters_;
  key_ = tag.name;
  is_string_ = tag.is_string.value_or(!schemas_.is_never_string(name_, key_));
  value_.clear();
  place_ = InBlock::value;
  if (is_announced_ && is_string_) emit_arguments((emitted_++ > 0 ? ", " : "{") + quote_python(key_) + ": \"", out);
}

void CallBlock::take_value(std::string_view text, Events& out) {
  if (text.empty()) return;
  value_ += spell(text, Place::value);
  if (!is_string_) return;
  if (value_.size() >= kStreamedBytes) is_due_ = true;
  announce_if_due(out);
  if (!is_announced_) return;
  emit_arguments(escaped(value_), out);
  value_.clear();
}

void CallBlock::end_parameter(Events& out) {
  place_ = InBlock::invoke;
  if (is_announced_ && is_string_) {
    emit_arguments("\"", out);
  } else if (is_announced_) {
    emit_arguments((emitted_++ > 0 ? ", " : "{") + quote_python(key_) + ": " + json_value(value_), out);
  } else {
    hold_member(is_string_ ? quote_python(value_) : json_value(value_));
  }
}

/// Of a key that comes twice the last value wins, in the first one's place, as JSON readers have it.
void CallBlock::hold_member(std::string value) {
  for (auto& [key, held] : members_) {
    if (key != key_) continue;
    held = std::move(value);
    return;
  }
  members_.emplace_back(key_, std::move(value));
}

void CallBlock::announce_if_due(Events& out) {
  if (is_announced_ || !is_due_ || may_be_wrapped_) return;
  is_announced_ = true;
  out.push_back({.kind = ParserEvent::Kind::call_begin, .call = calls_, .name = name_});
  // Only here can the value of an earlier parameter of the same name still be dropped.
  if (place_ == InBlock::value) std::erase_if(members_, [&](const auto& member) { return member.first == key_; });
  std::string text;
  for (const auto& [key, value] : members_) text += (emitted_++ > 0 ? ", " : "{") + quote_python(key) + ": " + value;
  if (place_ == InBlock::value) text += (emitted_++ > 0 ? ", " : "{") + quote_python(key_) + ": \"";
  members_.clear();
  emit_arguments(std::move(text), out);
}

/// What the call holds, before it is announced. If its only parameter holds all of them, that.
std::string CallBlock::arguments() const {
  if (may_be_wrapped_ && members_.size() == 1) {
    std::optional<Json> value = parsed(members_[0].second);
    std::string text = members_[0].second;
    if (value && value->is_string()) {
      text = std::string(trimmed(value->get_ref<const std::string&>()));
      value = parsed(text);
    }
    if (value && value->is_object()) {
      const auto& object = value->get_ref<const Json::object_t&>();
      const bool fits = std::all_of(object.begin(), object.end(),
                                    [&](const auto& member) { return schemas_.has_property(name_, member.first); });
      if (fits) return json_value(text);
    }
  }
  std::string text = "{";
  for (const auto& [key, value] : members_) text += (text.size() > 1 ? ", " : "") + quote_python(key) + ": " + value;
  return text + "}";
}

void CallBlock::end_invoke(Events& out) {
  if (is_announced_) {
    emit_arguments("}", out);
  } else {
    out.push_back({.kind = ParserEvent::Kind::call_begin, .call = calls_, .name = name_});
    emit_arguments(arguments(), out);
  }
  out.push_back({.kind = ParserEvent::Kind::call_end, .call = calls_});
  ++calls_;
  is_announced_ = false;
  place_ = InBlock::between;
  if (!settings_.parallel_tool_calls) state_ = State::closed;
}

void CallBlock::break_off(bool closes, std::string markup, Events& out) {
  LOCKSTEP_CHECK(is_announced_);
  ParserEvent event{.kind = ParserEvent::Kind::call_end, .call = calls_};
  event.is_complete = false;
  if (closes) event.closing = place_ == InBlock::value && is_string_ ? "\"}" : "}";
  event.markup = std::move(markup);
  out.push_back(std::move(event));
  is_announced_ = false;
}

void CallBlock::emit_arguments(std::string text, Events& out) {
  if (text.empty()) return;
  out.push_back({.kind = ParserEvent::Kind::arguments, .text = std::move(text), .call = calls_});
}

CallBlock::Ending CallBlock::finish(std::string_view rest, GenerationEnd why, Events& out) {
  rest = trimmed(rest);
  const auto unless_text = [&](Ending ending) { return calls_ > 0 || is_announced_ ? ending : Ending::text; };
  if (place_ == InBlock::invoke && why == GenerationEnd::stop &&
      (begins_with(invoke_end_, rest) == Found::yes || begins_with(block_end_, rest) == Found::yes)) {
    end_invoke(out);
    return Ending::calls;
  }
  if (place_ != InBlock::between) return why == GenerationEnd::length ? Ending::cut : unless_text(Ending::broken);
  if (calls_ > 0) return rest.empty() || why == GenerationEnd::stop ? Ending::calls : Ending::cut;
  if (has_text_) return why == GenerationEnd::length ? Ending::prose : Ending::text;
  if (rest.empty()) return Ending::nothing;
  return why == GenerationEnd::length ? Ending::cut : Ending::text;
}

}  // namespace lockstep
