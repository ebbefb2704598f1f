// The keys that clients must show. Only their digests are kept, and none is ever printed.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"

namespace lockstep {

class ApiKeys {
 public:
  /// No keys: everyone is let in.
  ApiKeys() = default;
  /// One key a line; empty lines and lines that begin with # are left out. Throws Error::bad_argument for a file that
  /// cannot be read, holds no key, or holds a key that no header could carry.
  explicit ApiKeys(const std::filesystem::path& path);
  static ApiKeys of(const std::vector<std::string>& keys);

  bool is_empty() const { return digests_.empty(); }
  /// Whether `Authorization: Bearer KEY` or `x-api-key: KEY` holds one of the keys. The time it takes tells nothing
  /// about them but their number.
  bool admit(const HttpHeaders& headers) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  static Digest digest_of(std::string_view key);
  bool is_known(std::string_view key) const;

  std::vector<Digest> digests_;
};

}  // namespace lockstep
