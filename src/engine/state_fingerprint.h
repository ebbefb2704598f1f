// What a sequence's state depends on besides its tokens, as one number: a state kept on disk is used only by whoever
// has the same. Weights are known by all of their bytes: another file of the same size and shapes is another model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "engine/engine.h"

namespace lockstep {

/// A hash of the bytes of the model's files (so of its tokenizer too), the meaning of every matrix's format, the mode,
/// and the golden hashes of this program's numerics. Reading all of a large file takes a while, so what was found is
/// kept in `directory`, under the file's path, size, times and number, and not read again while those are the same;
/// a directory that cannot be written is no error. `note` is told of a long read, and of what is damaged there. Throws
/// Error::io if the model's files cannot be read.
std::uint64_t state_fingerprint(const Engine& engine, const std::filesystem::path& directory,
                                const std::function<void(const std::string&)>& note = {});

}  // namespace lockstep
