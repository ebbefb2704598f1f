// Files of text that a user names; pipes too.
#pragma once

#include <fstream>
#include <istream>
#include <string>

namespace lockstep {

/// `option` is what it was named by, "--text", or empty; `expected` what it should be, "a text file". Throws Error::io
/// naming all of these if there is no such file, or if it is a folder or may not be read.
std::ifstream open_input(const std::string& path, const std::string& option, const std::string& expected);
/// All of it, from its beginning. Throws what open_input throws.
std::string read_input(const std::string& path, const std::string& option, const std::string& expected);

/// All of a stream. Throws Error::io naming `name`.
std::string read_all(std::istream& in, const std::string& name);

}  // namespace lockstep
