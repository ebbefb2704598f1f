#include "gpu/memory_pool.h"

namespace lockstep::gpu {
namespace {

constexpr std::size_t kStep = 256, kMostSmall = std::size_t{1} << 20, kSlab = std::size_t{32} << 20;

}  // namespace

MemoryPool::~MemoryPool() {
  for (void* slab : slabs_) runtime_.release(slab);
}

void* MemoryPool::allocate(std::size_t bytes) {
  const std::size_t size = (bytes + kStep - 1) / kStep * kStep;
  if (size > kMostSmall) return runtime_.allocate(size);
  std::vector<void*>& same = free_[size == 0 ? kStep : size];
  const std::size_t piece = size == 0 ? kStep : size;
  void* memory = nullptr;
  if (!same.empty()) {
    memory = same.back();
    same.pop_back();
  } else {
    if (slab_left_ < piece) {
      slabs_.push_back(nullptr);
      try {
        slabs_.back() = runtime_.allocate(kSlab);
      } catch (...) {
        slabs_.pop_back();
        throw;
      }
      slab_ = static_cast<char*>(slabs_.back());
      slab_left_ = kSlab;
    }
    memory = slab_;
    slab_ += piece;
    slab_left_ -= piece;
  }
  small_[memory] = piece;
  return memory;
}

void MemoryPool::release(void* memory) {
  if (memory == nullptr) return;
  const auto found = small_.find(memory);
  if (found == small_.end()) {
    runtime_.release(memory);
    return;
  }
  free_[found->second].push_back(memory);
  small_.erase(found);
}

}  // namespace lockstep::gpu
