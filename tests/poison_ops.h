// A back end whose memory holds NaNs and wild numbers when it is handed out, so that reading what nobody wrote shows.
#pragma once

#include <memory>
#include <vector>

#include "ops/forwarding_ops.h"

namespace lockstep::testing {

class PoisonOps final : public ForwardingOps {
 public:
  explicit PoisonOps(std::unique_ptr<Ops> ops) : ForwardingOps(*ops), owned_(std::move(ops)) {}
  void* allocate(std::size_t bytes) override {
    void* memory = ForwardingOps::allocate(bytes);
    const std::vector<std::byte> poison(bytes, std::byte{0xff});
    upload(memory, poison.data(), bytes);
    return memory;
  }

 private:
  std::unique_ptr<Ops> owned_;
};

}  // namespace lockstep::testing
