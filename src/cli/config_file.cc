#include "cli/config_file.h"

#include <fmt/core.h>
#include <toml++/toml.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/ascii.h"
#include "base/error.h"
#include "text/utf8.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse_line(const std::string& path, int line, const std::string& words) {
  throw Error(Error::Kind::bad_argument, fmt::format("{}:{}: {}", path, line, words));
}

std::string text_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (!in || in.bad()) throw Error(Error::Kind::bad_argument, path + ": cannot be read, expected a file of settings");
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

/// No character goes past the end of its line, so lines can be looked at one by one.
void check_utf8(const std::string& path, std::string_view text) {
  for (int line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (!is_valid_utf8(text.substr(0, end))) refuse_line(path, line, "bytes that are no UTF-8, expected text");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// --- TOML

/// A plain value as it would stand on a command line.
std::optional<std::string> plain_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  return std::nullopt;
}

void add_toml(std::vector<ConfigSetting>& out, const std::string& path, const std::string& section,
              const toml::table& table) {
  for (const auto& [key, node] : table) {
    const int line = static_cast<int>(node.source().begin.line);
    ConfigSetting setting{.section = section, .name = std::string(key.str()), .values = {}, .line = line};
    const std::string name = section.empty() ? setting.name : section + "." + setting.name;
    if (const auto* inner = node.as_table()) {
      if (!section.empty()) refuse_line(path, line, name + " is a table in a table, expected settings");
      add_toml(out, path, setting.name, *inner);
      continue;
    }
    if (const auto* list = node.as_array()) {
      setting.kind = ConfigSetting::Kind::list;
      for (const toml::node& element : *list) {
        const std::optional<std::string> text = plain_text(element);
        if (!text) refuse_line(path, line, name + " holds more than plain values, expected strings or numbers");
        setting.values.push_back(*text);
      }
    } else if (const std::optional<std::string> text = plain_text(node)) {
      if (node.is_boolean()) setting.kind = ConfigSetting::Kind::truth;
      setting.values = {*text};
    } else {
      refuse_line(path, line, name + " is a date or a time, expected a string, a number, true or false");
    }
    out.push_back(std::move(setting));
  }
}

std::vector<ConfigSetting> read_toml(const std::string& path, const std::string& text) {
  std::vector<ConfigSetting> out;
  try {
    add_toml(out, path, {}, toml::parse(std::string_view(text), std::string_view(path)));
  } catch (const toml::parse_error& error) {
    refuse_line(path, static_cast<int>(error.source().begin.line), std::string(error.description()));
  }
  return out;
}

// --- INI

void add_ini_line(std::vector<ConfigSetting>& out, const std::string& path, std::string& section, std::string_view line,
                  int number) {
  line = trimmed(line);
  if (line.empty() || line.front() == ';' || line.front() == '#') return;
  if (line.front() == '[') {
    if (line.back() != ']') refuse_line(path, number, "a section without an end, expected [serve]");
    section = trimmed(line.substr(1, line.size() - 2));
    return;
  }
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos) refuse_line(path, number, "no setting, expected name = value");
  ConfigSetting setting{
      .section = section, .name = std::string(trimmed(line.substr(0, equals))), .values = {}, .line = number};
  const std::string_view value = trimmed(line.substr(equals + 1));
  if (value.starts_with('"')) {
    const auto text = nlohmann::json::parse(value, nullptr, false);
    if (!text.is_string()) refuse_line(path, number, setting.name + " has quotes that do not fit, expected \"text\"");
    setting.values = {text.get<std::string>()};
  } else if (value.starts_with('[')) {
    refuse_line(path, number, setting.name + " is an array, expected words, or a file whose name ends in .toml");
  } else if (value.empty()) {
    refuse_line(path, number, setting.name + " has no value, expected name = value");
  } else {
    setting.kind = ConfigSetting::Kind::words;
    setting.values = {std::string(value)};
  }
  out.push_back(std::move(setting));
}

std::vector<ConfigSetting> read_ini(const std::string& path, std::string_view text) {
  std::vector<ConfigSetting> out;
  std::string section;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    add_ini_line(out, path, section, text.substr(0, end), number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace

std::vector<ConfigSetting> read_config_file(const std::string& path) {
  const std::string text = text_of_file(path);
  check_utf8(path, text);
  const bool is_ini = path.ends_with(".ini") || path.ends_with(".conf");
  return is_ini ? read_ini(path, text) : read_toml(path, text);
}

}  // namespace lockstep
