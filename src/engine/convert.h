// From the published checkpoint of DeepSeek V4 Flash to a GGUF file that this engine and llama.cpp read.
//
// A plan says for every tensor of the file which tensors of the checkpoint it is made of, after everything was checked:
// names, shapes, element types, and that nothing is left over. Then the data goes by once, a few megabytes at a time,
// on all threads; the file does not depend on how many there are. Names and keys: docs/formats.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/checkpoint_config.h"
#include "tensor/dtype.h"
#include "tensor/safetensors.h"

namespace lockstep {

struct ConvertOptions {
  std::filesystem::path checkpoint;       // a folder
  bool drafter = false;                   // the tensors mtp.*, in a file of their own; without it, all others
  std::string experts = "mxfp4";          // format of the routed experts
  std::string dense = "q8_0";             // of attention, shared experts and other matrices that are published in FP8
  std::string rest = "source";            // of the other matrices; "source": as published
  std::string name;                       // general.name; empty: the checkpoint's
  std::vector<std::string> ignored_keys;  // of config.json
};

/// A matrix, or one plane of a stack, as the checkpoint has it.
struct ConvertSource {
  const StoredTensor* weight = nullptr;
  const StoredTensor* scale = nullptr;  // with FP8 and packed FP4
};

/// One tensor of the file to be.
struct ConvertTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> ne;       // as in the file: fastest first
  std::vector<ConvertSource> planes;  // each [rows, ne[0]]; one but for stacked experts
  std::int64_t ids = 0;               // of a table of experts (i32): every entry is below this

  std::int64_t rows() const;  // of one plane
  std::uint64_t bytes() const;
};

enum class ConvertKind { trunk, dspark, mtp };

struct ConvertPlan {
  ConvertOptions options;
  std::unique_ptr<const Checkpoint> checkpoint;  // `tensors` point into it
  CheckpointConfig config;
  ConvertKind kind = ConvertKind::trunk;
  Config model;  // what the file's keys say: config.model, with the drafter's own layers for one
  std::vector<std::int32_t> ratios;
  Vocabulary vocabulary;  // not for an MTP layer, which uses its trunk's
  SamplingHints sampling;
  std::vector<ConvertTensor> tensors;  // in file order
  std::vector<std::string> notes;      // what a reader should know: what is rounded, what is left out

  std::uint64_t bytes() const;  // of tensor data
};

/// Reads headers and small files only. Throws what Checkpoint and the readers of checkpoint_config.h throw;
/// Error::bad_file naming a tensor that is missing or has the wrong shape or type, Error::unsupported naming tensors
/// that nobody knows or that belong to another model, Error::bad_argument for options.
ConvertPlan plan_conversion(const ConvertOptions& options);

struct ConvertRun {
  int threads = 0;               // 0: one for each CPU
  std::uint64_t part_bytes = 0;  // greatest size of one file; 0: one file
  std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)> progress;  // may be empty
  std::function<bool()> cancelled;                                                    // asked every few megabytes
};

/// Writes the file, or its parts, under temporary names that are renamed when all is whole. Returns the files.
/// Throws Error::io, at once when the disk has too little room, Error::bad_file naming tensor, row and column of a
/// value that is not a number, does not fit its format, or is no expert's id, and Error::cancelled; then nothing is
/// left of it.
std::vector<std::filesystem::path> write_conversion(const ConvertPlan& plan, const std::filesystem::path& out,
                                                    const ConvertRun& run = {});

}  // namespace lockstep
