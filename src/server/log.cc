#include "server/log.h"

#include <fmt/core.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "base/error.h"
#include "text/utf8.h"

namespace lockstep {
namespace {

constexpr struct {
  LogLevel level;
  const char* name;
} kLevels[] = {{LogLevel::debug, "debug"},
               {LogLevel::info, "info"},
               {LogLevel::warning, "warning"},
               {LogLevel::error, "error"},
               {LogLevel::off, "off"}};

const char* name_of(LogLevel level) {
  for (const auto& known : kLevels)
    if (known.level == level) return known.name;
  return "off";
}

/// UTC, to the millisecond: "2026-01-31T12:00:00.000Z"
std::string time_text() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  const std::size_t n = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03d}Z", std::string_view(text, n), ms);
}

/// What clients send may be as long as they like; a line of the log is not.
constexpr std::size_t kMostLogged = 300;  // bytes of a value

std::string cut(std::string text) {
  if (text.size() <= kMostLogged) return text;
  const std::string size = std::to_string(text.size());
  text.resize(kMostLogged);
  return text + "... (" + size + " bytes)";
}

nlohmann::ordered_json cut_values(nlohmann::ordered_json value) {
  if (value.is_string()) value = cut(std::move(value.get_ref<std::string&>()));
  if (value.is_structured())
    for (auto& element : value) element = cut_values(std::move(element));
  return value;
}

/// A value in a line for people: words as they are, anything else quoted, so that no value can look like another field
/// or another line.
std::string field_text(const nlohmann::ordered_json& value) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    bool is_plain = !text.empty();
    for (const char c : text) is_plain = is_plain && c > ' ' && c < '\x7f' && c != '"' && c != '=' && c != '\\';
    if (is_plain) return text;
  }
  if (value.is_number_float()) return fmt::format("{:.4g}", value.get<double>());
  return value.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

/// Characters that end a line, move a terminal's cursor, or turn the order of what stands beside them.
bool is_hidden(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || (c >= 0x202a && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x2069) || c == 0x200e || c == 0x200f || c == 0xfeff;
}

/// A whole line: what must not go to a terminal as it is stands there as \u001b, a byte that is no character as \x9b.
/// Messages quote what clients sent, and whoever reads the log must be able to trust its lines.
std::string visible(std::string_view line) {
  std::string out;
  out.reserve(line.size());
  while (!line.empty()) {
    const Utf8Step step = utf8_step(line);
    const std::string_view bytes = line.substr(0, static_cast<std::size_t>(step.length));
    line.remove_prefix(bytes.size());
    if (step.state != Utf8Step::State::complete) {
      for (const char c : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
      continue;
    }
    char32_t c = static_cast<unsigned char>(bytes[0]);
    if (bytes.size() > 1) c &= 0x7fu >> bytes.size();
    for (const char more : bytes.substr(1)) c = c << 6 | (static_cast<unsigned char>(more) & 0x3fu);
    if (is_hidden(c)) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += bytes;
    }
  }
  return out;
}

/// Members of objects are fields of their own: lockstep.queue_ms=1.5
void add_fields(std::string& line, const std::string& prefix, const nlohmann::ordered_json& fields) {
  for (const auto& [key, value] : fields.items()) {
    if (value.is_object()) {
      add_fields(line, prefix + key + ".", value);
    } else {
      line.append(" ").append(prefix).append(key).append("=").append(field_text(value));
    }
  }
}

}  // namespace

LogLevel log_level_named(std::string_view name) {
  for (const auto& known : kLevels)
    if (known.name == name) return known.level;
  throw Error(Error::Kind::bad_argument,
              "log level " + std::string(name) + ": unknown, expected debug, info, warning, error or off");
}

Log::Log(LogLevel level, bool is_json, std::function<void(std::string_view)> write)
    : level_(level), is_json_(is_json), write_(std::move(write)) {
  if (!write_)
    write_ = [](std::string_view line) {
      std::fwrite(line.data(), 1, line.size(), stderr);
      std::fputc('\n', stderr);
    };
}

void Log::request(const RequestRecord& record) {
  Fields fields = {{"id", record.id},
                   {"client", record.address},
                   {"method", record.method},
                   {"path", record.path},
                   {"status", record.status},
                   {"seconds", std::round(record.seconds * 1e4) / 1e4},
                   {"bytes_in", record.bytes_in},
                   {"bytes_out", record.bytes_out}};
  if (record.end != "done") fields["end"] = record.end;
  if (record.notes.is_object())
    for (const auto& [key, value] : record.notes.items()) fields[key] = value;
  // A red health is an answer like others: whoever asks every second while the model is loaded fills no log.
  const bool is_health = record.path == "/health" || record.path == "/v1/health";
  const bool is_polled = record.method != "POST" && (record.status < 400 || is_health);
  add(is_polled ? LogLevel::debug : record.status >= 500 ? LogLevel::warning : LogLevel::info, "request", fields);
}

void Log::add(LogLevel level, std::string_view message, const Fields& all_fields) {
  if (level < level_ || level_ == LogLevel::off) return;
  const Fields fields = cut_values(all_fields);
  std::string line;
  if (is_json_) {
    Fields all = {{"time", time_text()}, {"level", name_of(level)}, {"event", message}};
    if (fields.is_object())
      for (const auto& [key, value] : fields.items()) all[key] = value;
    line = json_text(all);
  } else {
    line = fmt::format("{} {:<7} {}", time_text(), name_of(level), message);
    if (fields.is_object()) add_fields(line, {}, fields);
  }
  line = visible(line);  // in JSON such characters stand in strings only, where \u009b is an escape like others
  const std::lock_guard lock(mutex_);
  write_(line);
}

}  // namespace lockstep
