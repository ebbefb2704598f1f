// A synthetic model that is loaded without being written: a file that exists in address space alone.
//
// Its header lies in memory, and each tensor is made when it is loaded, with the bytes that write_synth would give it.
// A back end that copies weights leaves nothing behind here; for one that reads them in place they stay.
#pragma once

#include <span>
#include <string>

#include "base/reserved_memory.h"
#include "base/thread_pool.h"
#include "engine/synth.h"
#include "model/weights.h"
#include "tensor/gguf.h"

namespace lockstep {

class SynthModel final : public TensorProvider {
 public:
  /// Throws Error::no_memory if not even the addresses can be had.
  explicit SynthModel(const SynthPlan& plan, int threads = 0);

  /// The whole file to be; zeros where tensors have not been made. As long as this lives.
  std::span<const std::byte> bytes() const { return memory_.bytes(); }
  std::string name() const;

  void need(const GgufTensor& tensor) override;
  void taken(const GgufTensor& tensor, bool is_kept) override;

 private:
  SynthPlan plan_;
  std::string header_;
  ReservedMemory memory_;
  ThreadPool pool_;
};

}  // namespace lockstep
