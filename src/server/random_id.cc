#include "server/random_id.h"

#include <openssl/rand.h>

#include <array>

#include "base/error.h"

namespace lockstep {
namespace {

void fill(unsigned char* bytes, int count) {
  if (RAND_bytes(bytes, count) != 1) throw Error(Error::Kind::io, "the system's random generator gives no bytes");
}

}  // namespace

std::string random_id(std::string_view prefix, int digits) {
  constexpr std::string_view kDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::string out(prefix);
  std::array<unsigned char, 64> bytes{};
  std::size_t at = bytes.size();
  while (out.size() < prefix.size() + static_cast<std::size_t>(digits)) {
    if (at == bytes.size()) {
      fill(bytes.data(), static_cast<int>(bytes.size()));
      at = 0;
    }
    // Of 256 values the last 8 are thrown away, so that every digit is as likely.
    if (const unsigned char byte = bytes[at++]; byte < 4 * kDigits.size()) out += kDigits[byte % kDigits.size()];
  }
  return out;
}

std::uint64_t random_seed() {
  std::array<unsigned char, 8> bytes{};
  fill(bytes.data(), 8);
  std::uint64_t seed = 0;
  for (const unsigned char byte : bytes) seed = seed << 8 | byte;
  return seed >> 1;  // clients may send it back as a signed number
}

}  // namespace lockstep
