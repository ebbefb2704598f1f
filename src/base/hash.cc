#include "base/hash.h"

#include <xxhash.h>

#include "base/error.h"

namespace lockstep {

std::uint64_t hash_bytes(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

struct Hasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Hasher::Hasher() : state_(std::make_unique<State>()) {
  LOCKSTEP_CHECK(state_->xxh != nullptr);
  XXH3_64bits_reset(state_->xxh);
}
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

void Hasher::add(std::span<const std::byte> bytes) { XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size()); }
std::uint64_t Hasher::value() const { return XXH3_64bits_digest(state_->xxh); }

}  // namespace lockstep
