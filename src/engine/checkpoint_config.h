// The files beside a checkpoint's tensors: config.json, generation_config.json and the tokenizer's, read and checked.
//
// Every key of config.json is either read, known not to matter, or refused by name: a key that we do not know may
// change what the model computes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "text/vocabulary.h"

namespace lockstep {

/// What a DSpark drafter adds to its trunk's sizes.
struct DsparkConfig {
  int block_size = 0;              // draft slots
  std::vector<int> target_layers;  // trunk layers whose outputs it reads, ascending, from 0
  Token mask_token = 0;            // stands in the slots after the first
  int markov_rank = 0;
};

struct CheckpointConfig {
  Config model;  // layers: those of the trunk
  int hash_layers = 0;
  std::vector<std::int32_t> ratios;  // as written: those of the trunk, then one a layer of a drafter
  std::optional<DsparkConfig> dspark;
  std::string name;                  // of the model: "_name_or_path", else the folder
  std::vector<std::string> assumed;  // keys that the file lacks, with the published model's values
};

/// Reads FOLDER/config.json. `ignored_keys` are keys that the caller takes the responsibility for.
/// Throws Error::io; Error::bad_file naming the key that is missing or wrong; Error::unsupported for another model, a
/// setting that this engine does not do, and keys that nobody knows; Error::bad_argument for an ignored key that is not
/// there or that is read.
CheckpointConfig read_checkpoint_config(const std::filesystem::path& folder,
                                        const std::vector<std::string>& ignored_keys = {});

/// Reads FOLDER/tokenizer.json and, if they are there, tokenizer_config.json and chat_template.jinja, and makes of them
/// what the usual converter writes: added tokens that look like <|...|> are control tokens whatever their flag, ids
/// past the last token are unused ones, the pre-tokenizer is called joyai-llm. The vocabulary has been built into a
/// tokenizer once, so it works. Throws as above.
Vocabulary read_checkpoint_vocabulary(const std::filesystem::path& folder, int size);

/// Sampling settings that generation_config.json recommends; empty where the file or the key is not there.
struct SamplingHints {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k;
};
SamplingHints read_sampling_hints(const std::filesystem::path& folder);

}  // namespace lockstep
