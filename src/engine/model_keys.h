// A model's sizes and its vocabulary as the metadata keys of a GGUF file. What read_config and vocabulary_of read is
// written here.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "model/config.h"
#include "tensor/gguf_writer.h"
#include "text/vocabulary.h"

namespace lockstep {

/// The keys PREFIX.block_count and so on. `ratios` may be longer than the layers: one entry a layer of a drafter
/// follows those of the trunk.
void set_model_keys(GgufWriter& writer, std::string_view prefix, const Config& config, int hash_layers,
                    std::span<const std::int32_t> ratios);

/// The keys tokenizer.*, among them the chat template if there is one.
void set_tokenizer_keys(GgufWriter& writer, const Vocabulary& vocabulary);

/// The number that general.file_type has for a file with so many bytes of each format: that of the format with the
/// most. Readers show it and decide by the tensors. 1024 ("guessed") for formats that have none.
std::uint32_t file_type_of(std::span<const std::uint64_t, kDTypeCount> bytes);

}  // namespace lockstep
