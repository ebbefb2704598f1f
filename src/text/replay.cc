#include "text/replay.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.h"
#include "text/dsml.h"
#include "text/python_json.h"

namespace lockstep {
namespace {

constexpr std::size_t kEntryBytes = 512;  // what an entry takes beside its texts, about
constexpr int kVersion = 2, kVersionWithoutTokens = 1;

bool is_equal(const Json& a, const Json& b) {
  if (a.is_array() && b.is_array()) return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), is_equal);
  if (!a.is_object() || !b.is_object()) return a == b;
  if (a.size() != b.size()) return false;
  // Sorted once: looking each key up would be quadratic.
  const auto sorted = [](const Json& object) {
    std::vector<std::pair<std::string_view, const Json*>> members;
    for (const auto& [key, value] : object.get_ref<const Json::object_t&>()) members.emplace_back(key, &value);
    std::sort(members.begin(), members.end());
    return members;
  };
  const auto of_a = sorted(a), of_b = sorted(b);
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), [](const auto& left, const auto& right) {
    return left.first == right.first && is_equal(*left.second, *right.second);
  });
}

Json to_json(const Prompt& prompt) {
  Json out = Json::array();
  for (const Span& span : prompt.spans) {
    Json entry = Json::array();
    entry.push_back(span.trust == Trust::trusted);
    entry.push_back(span.text);
    if (!span.tokens.empty()) entry.push_back(span.tokens);
    out.push_back(std::move(entry));
  }
  return out;
}

[[noreturn]] void fail(std::string_view found) {
  throw Error(Error::Kind::bad_file, std::string(found) + ", expected a turn as ReplayMap::save writes it");
}

const Json& member(const Json& object, const char* key) {
  if (!object.is_object()) fail("not an object");
  const auto found = object.find(key);
  if (found == object.end()) fail(std::string(key) + " is missing");
  return *found;
}

const Json::array_t& array_of(const Json& value) {
  if (!value.is_array()) fail("not an array");
  return value.get_ref<const Json::array_t&>();
}

const std::string& string_of(const Json& value) {
  if (!value.is_string()) fail("not a string");
  return value.get_ref<const std::string&>();
}

bool bool_of(const Json& value) {
  if (!value.is_boolean()) fail("neither true nor false");
  return value.get<bool>();
}

std::vector<std::string> strings_of(const Json& value) {
  std::vector<std::string> out;
  for (const Json& item : array_of(value)) out.push_back(string_of(item));
  return out;
}

std::vector<Token> tokens_of(const Json& value) {
  std::vector<Token> out;
  for (const Json& item : array_of(value)) {
    if (!item.is_number_integer() || item < 0 || item > std::numeric_limits<Token>::max()) fail("not a token");
    out.push_back(item.get<Token>());
  }
  return out;
}

std::size_t place_of(const Json& value, std::size_t most) {
  if (!value.is_number_unsigned() || value > most) fail("not a number up to " + std::to_string(most));
  return value.get<std::size_t>();
}

Prompt prompt_of(const Json& value) {
  Prompt out;
  for (const Json& span : array_of(value)) {
    const std::size_t parts = array_of(span).size();
    if (parts != 2 && parts != 3) fail("a span of other than two or three parts");
    const Trust trust = bool_of(span[0]) ? Trust::trusted : Trust::untrusted;
    out.append({string_of(span[1]), trust, parts == 3 ? tokens_of(span[2]) : std::vector<Token>()});
  }
  return out;
}

/// Whether the client's message still says what the turn said.
bool is_unchanged(const ParsedOutput& output, const std::vector<std::string>& call_ids, const Message& message) {
  if (message.tool_calls.size() != output.tool_calls.size()) return false;
  for (std::size_t i = 0; i < call_ids.size(); ++i) {
    const ToolCall& call = message.tool_calls[i];
    if (call.id != call_ids[i] || call.name != output.tool_calls[i].name) return false;
    if (!is_json_equal(call.arguments, output.tool_calls[i].arguments)) return false;
  }
  const bool is_dropped = message.content.empty() && !message.tool_calls.empty();
  return is_dropped || trimmed(message.content) == trimmed(output.content);
}

}  // namespace

bool is_json_equal(std::string_view a, std::string_view b) {
  if (a == b) return true;
  try {
    return is_equal(parse_json(a, "a"), parse_json(b, "b"));
  } catch (const Error&) {  // what is no JSON equals only itself
    return false;
  }
}

ReplayMap::ReplayMap(std::size_t budget_bytes) : budget_(budget_bytes) {}

void ReplayMap::remember(const ParsedOutput& output, SampledTurn turn, std::span<const std::string> call_ids,
                         std::span<const std::string> other_keys) {
  LOCKSTEP_CHECK(call_ids.size() == output.tool_calls.size());
  LOCKSTEP_CHECK(!call_ids.empty() || !other_keys.empty());
  auto entry = std::make_shared<Entry>();
  entry->call_ids.assign(call_ids.begin(), call_ids.end());
  entry->other_keys.assign(other_keys.begin(), other_keys.end());
  entry->output = output;
  entry->turn = std::move(turn);
  entry->bytes = size_of(*entry);
  const std::lock_guard lock(mutex_);
  insert(std::move(entry));
  ++remembered_;
}

bool ReplayMap::restore(Message& message, std::string_view key) {
  if (message.role != Role::assistant) return false;
  const std::lock_guard lock(mutex_);
  const auto find = [&](const std::string& name) {
    const auto found = by_key_.find(name);
    if (found == by_key_.end()) return entries_.end();
    const Entry& entry = **found->second;
    return is_unchanged(entry.output, entry.call_ids, message) ? found->second : entries_.end();
  };
  Entries::iterator found = key.empty() ? entries_.end() : find(std::string(key));
  // A turn that was continued may carry the key of its first part, and the calls of the whole.
  if (found == entries_.end() && !message.tool_calls.empty()) found = find(message.tool_calls[0].id);
  if (found == entries_.end()) return false;
  const std::shared_ptr<const Entry> entry = *found;
  entries_.splice(entries_.end(), entries_, found);
  message.sampled = entry->turn;
  if (message.reasoning.empty()) {
    message.reasoning = entry->output.reasoning;
  } else if (message.reasoning != entry->output.reasoning) {
    Prompt whole;
    whole.append(message.reasoning, Trust::untrusted);
    whole.append(kThinkEnd, Trust::trusted);
    const std::size_t answer_begin = whole.text().size();
    for (const Span& span : message.sampled->whole.from(message.sampled->answer_begin).spans) whole.append(span);
    message.sampled = SampledTurn{Phase::reasoning, std::move(whole), answer_begin};
  }
  return true;
}

std::string ReplayMap::save() const {
  std::vector<std::shared_ptr<const Entry>> entries;
  {
    const std::lock_guard lock(mutex_);
    entries.assign(entries_.begin(), entries_.end());
  }
  std::string out;
  for (const auto& kept : entries) {
    const Entry& entry = *kept;
    Json calls = Json::array();
    for (std::size_t i = 0; i < entry.call_ids.size(); ++i) {
      Json call = Json::array();
      call.push_back(entry.call_ids[i]);
      call.push_back(entry.output.tool_calls[i].name);
      call.push_back(entry.output.tool_calls[i].arguments);
      calls.push_back(std::move(call));
    }
    Json line;
    line["version"] = kVersion;
    line["calls"] = std::move(calls);
    line["keys"] = entry.other_keys;
    line["reasoning"] = entry.output.reasoning;
    line["content"] = entry.output.content;
    line["thinking"] = entry.turn.opening == Phase::reasoning;
    line["turn"] = to_json(entry.turn.whole);
    line["answer_begin"] = entry.turn.answer_begin;
    out += dump_python(line);
    out += '\n';
  }
  return out;
}

void ReplayMap::load(std::string_view saved) {
  std::vector<std::shared_ptr<const Entry>> loaded;
  std::size_t number = 0;
  while (!saved.empty()) {
    const std::size_t end = std::min(saved.find('\n'), saved.size());
    const std::string_view text = saved.substr(0, end);
    saved.remove_prefix(std::min(end + 1, saved.size()));
    ++number;
    try {
      const Json line = parse_json(text, "turn");
      const bool has_tokens = member(line, "version") == kVersion;
      if (!has_tokens && member(line, "version") != kVersionWithoutTokens)
        fail("version " + dump_python(member(line, "version")));
      Entry entry;
      for (const Json& call : array_of(member(line, "calls"))) {
        if (array_of(call).size() != 3) fail("a call of other than three parts");
        entry.call_ids.push_back(string_of(call[0]));
        entry.output.tool_calls.push_back({string_of(call[1]), string_of(call[2])});
      }
      entry.other_keys = strings_of(member(line, "keys"));
      entry.output.reasoning = string_of(member(line, "reasoning"));
      entry.output.content = string_of(member(line, "content"));
      entry.turn.opening = bool_of(member(line, "thinking")) ? Phase::reasoning : Phase::content;
      Prompt& whole = entry.turn.whole;
      if (has_tokens) {
        whole = prompt_of(member(line, "turn"));
        entry.turn.answer_begin = place_of(member(line, "answer_begin"), whole.text().size());
      } else {
        whole = prompt_of(member(line, "thought"));
        entry.turn.answer_begin = whole.text().size();
        for (const Span& span : prompt_of(member(line, "answer")).spans) whole.append(span);
      }
      if (entry.call_ids.empty() && entry.other_keys.empty()) fail("neither calls nor keys");
      entry.bytes = size_of(entry);
      loaded.push_back(std::make_shared<const Entry>(std::move(entry)));
    } catch (const Error& error) {
      throw Error(Error::Kind::bad_file, "replay map: line " + std::to_string(number) + ": " + error.what());
    }
  }
  const std::lock_guard lock(mutex_);
  for (auto& entry : loaded) insert(std::move(entry));
}

std::size_t ReplayMap::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::size_t ReplayMap::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

std::uint64_t ReplayMap::remembered() const {
  const std::lock_guard lock(mutex_);
  return remembered_;
}

std::size_t ReplayMap::size_of(const Entry& entry) {
  std::size_t size = kEntryBytes + entry.output.reasoning.size() + entry.output.content.size();
  for (const std::string& id : entry.call_ids) size += 2 * id.size();  // here and in by_key_
  for (const std::string& key : entry.other_keys) size += 2 * key.size();
  for (const ParsedCall& call : entry.output.tool_calls) size += call.name.size() + call.arguments.size();
  for (const Span& span : entry.turn.whole.spans)
    size += sizeof(Span) + span.text.size() + sizeof(Token) * span.tokens.size();
  return size;
}

/// The lock is held.
void ReplayMap::insert(std::shared_ptr<const Entry> entry) {
  if (entry->bytes > budget_) return;
  for (const auto* keys : {&entry->call_ids, &entry->other_keys})
    for (const std::string& key : *keys)
      if (const auto old = by_key_.find(key); old != by_key_.end()) erase(old->second);
  while (bytes_ + entry->bytes > budget_) erase(entries_.begin());
  bytes_ += entry->bytes;
  entries_.push_back(std::move(entry));
  const Entries::iterator place = std::prev(entries_.end());
  for (const auto* keys : {&(*place)->call_ids, &(*place)->other_keys})
    for (const std::string& key : *keys) by_key_[key] = place;
}

void ReplayMap::erase(Entries::iterator entry) {
  for (const auto* keys : {&(*entry)->call_ids, &(*entry)->other_keys})
    for (const std::string& key : *keys)
      if (const auto found = by_key_.find(key); found != by_key_.end() && found->second == entry) by_key_.erase(found);
  bytes_ -= (*entry)->bytes;
  entries_.erase(entry);
}

}  // namespace lockstep
