// Device memory in pieces: small ones are cut from slabs and come back to lists, large ones go straight to the runtime.
//
// A context of a million tokens is tens of thousands of pages of a few ten kilobytes, and an allocation of the runtime
// takes as long as several kernels. All work is on one stream, in order, so memory given back may be handed out at
// once.
#pragma once

#include <cstddef>
#include <map>
#include <unordered_map>
#include <vector>

#include "gpu/runtime.h"

namespace lockstep::gpu {

class MemoryPool {
 public:
  explicit MemoryPool(Runtime& runtime) : runtime_(runtime) {}
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// Aligned to 256 bytes. Throws Error::no_memory.
  void* allocate(std::size_t bytes);
  /// Null does nothing.
  void release(void* memory);

 private:
  Runtime& runtime_;
  std::vector<void*> slabs_;
  char* slab_ = nullptr;  // the newest: what is left of it
  std::size_t slab_left_ = 0;
  std::map<std::size_t, std::vector<void*>> free_;  // by size
  std::unordered_map<void*, std::size_t> small_;    // size of every piece in use
};

}  // namespace lockstep::gpu
