#include "cli/input_file.h"

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "base/error.h"

namespace lockstep {

std::ifstream open_input(const std::string& path, const std::string& option, const std::string& expected) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::error_code ignored;
  // A folder can be opened, and only reading it fails.
  const int reason = !in ? errno : std::filesystem::is_directory(path, ignored) ? EISDIR : 0;
  if (in && reason == 0) return in;
  const std::string name = option.empty() ? path + ":" : option + ": " + path;
  throw Error(Error::Kind::io,
              name + " cannot be read (" + std::generic_category().message(reason) + "), expected " + expected);
}

std::string read_input(const std::string& path, const std::string& option, const std::string& expected) {
  std::ifstream in = open_input(path, option, expected);
  return read_all(in, path);
}

std::string read_all(std::istream& in, const std::string& name) {
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (in.bad()) throw Error(Error::Kind::io, name + ": cannot be read");
  return text;
}

}  // namespace lockstep
