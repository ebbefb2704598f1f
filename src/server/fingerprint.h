// What an answer depends on besides the request: told as system_fingerprint, so that two answers can be told apart by
// more than their words.
#pragma once

#include <string>

#include "ops/cache_view.h"
#include "tensor/gguf.h"

namespace lockstep {

/// "fp_NUMERICS_WEIGHTS_MODE": a hash of the golden hashes of all functions and dots; a hash of the file's metadata,
/// its tensors' names and shapes, and samples of every tensor's bytes (a few kilobytes each, so that no file is read
/// whole); and the model's mode.
std::string system_fingerprint(const Gguf& file, Mode mode);

}  // namespace lockstep
