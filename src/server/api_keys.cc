#include "server/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <fstream>

#include "base/ascii.h"
#include "base/error.h"

namespace lockstep {
ApiKeys::ApiKeys(const std::filesystem::path& path) {
  std::ifstream in(path);
  if (!in)
    throw Error(Error::Kind::bad_argument,
                "API key file " + path.string() + ": cannot be opened, expected a text file");
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (number == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    const std::string_view key = trimmed(line);
    if (key.empty() || key.front() == '#') continue;
    if (!std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < '\x7f'; }))
      throw Error(Error::Kind::bad_argument,
                  "API key file " + path.string() + ", line " + std::to_string(number) +
                      ": a blank or a character that a header cannot carry, expected a key alone, and "
                      "comments on lines of their own");
    digests_.push_back(digest_of(key));
  }
  if (in.bad())
    throw Error(Error::Kind::bad_argument, "API key file " + path.string() + ": cannot be read, expected a text file");
  if (digests_.empty())
    throw Error(Error::Kind::bad_argument, "API key file " + path.string() + ": holds no key, expected one a line");
}

ApiKeys ApiKeys::of(const std::vector<std::string>& keys) {
  ApiKeys out;
  for (const std::string& key : keys) out.digests_.push_back(digest_of(key));
  return out;
}

bool ApiKeys::admit(const HttpHeaders& headers) const {
  if (is_empty()) return true;
  if (const std::string* key = headers.find("x-api-key"); key != nullptr && is_known(*key)) return true;
  const std::string* authorization = headers.find("authorization");
  if (authorization == nullptr) return false;
  const std::string_view text = trimmed(*authorization);
  const std::size_t space = text.find(' ');
  if (space != 6) return false;
  std::string scheme(text.substr(0, space));
  for (char& c : scheme) c = static_cast<char>(c | 0x20);  // letters to lower case
  return scheme == "bearer" && is_known(trimmed(text.substr(space)));
}

ApiKeys::Digest ApiKeys::digest_of(std::string_view key) {
  Digest digest{};
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

bool ApiKeys::is_known(std::string_view key) const {
  const Digest digest = digest_of(key);
  int found = 0;
  for (const Digest& known : digests_) found |= CRYPTO_memcmp(digest.data(), known.data(), digest.size()) == 0 ? 1 : 0;
  return found != 0;
}

}  // namespace lockstep
