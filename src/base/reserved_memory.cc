#include "base/reserved_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"

namespace lockstep {

ReservedMemory::ReservedMemory(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED)
    throw Error(Error::Kind::no_memory,
                "cannot reserve " + std::to_string(bytes) + " bytes of addresses: " + std::strerror(errno));
  data_ = static_cast<std::byte*>(data);
  static_cast<void>(::madvise(data, bytes, MADV_HUGEPAGE));  // fewer faults, where the system has large pages
}

ReservedMemory::~ReservedMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void ReservedMemory::drop(std::size_t begin, std::size_t bytes) {
  LOCKSTEP_CHECK(begin <= size_ && bytes <= size_ - begin);
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t first = (begin + page - 1) / page * page, last = (begin + bytes) / page * page;
  if (first < last) LOCKSTEP_CHECK(::madvise(data_ + first, last - first, MADV_DONTNEED) == 0);
}

}  // namespace lockstep
