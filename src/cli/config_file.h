// Files of settings: names and values, from TOML or INI. It knows no option: what a name means is whose file it is.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct ConfigSetting {
  enum class Kind {
    text,   // a string, a number or a date, as it would stand on a command line
    truth,  // "true" or "false"
    list,
    words,  // INI: what it is depends on who reads it
  };
  std::string section;  // empty: before the first one
  std::string name;
  Kind kind = Kind::text;
  std::vector<std::string> values;  // one, but for lists
  int line = 0;                     // from 1
};

/// A file whose name ends in .ini or .conf is INI: `name = value` lines, the value to the end of the line or in double
/// quotes with JSON's escapes, [sections], and lines that begin with ; or #. Every other file is TOML 1.0, whose arrays
/// hold plain values and whose tables are not nested. Throws Error::bad_argument naming file and line.
std::vector<ConfigSetting> read_config_file(const std::string& path);

}  // namespace lockstep
