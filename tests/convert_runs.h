// What tests of conversion have in common.
#pragma once

#include <filesystem>
#include <string>

#include "checkpoint_build.h"
#include "engine/convert.h"

namespace lockstep::test {

inline ConvertOptions options_of(const std::filesystem::path& folder, const std::string& experts,
                                 const std::string& dense, const std::string& rest = "source") {
  ConvertOptions options;
  options.checkpoint = folder;
  options.experts = experts;
  options.dense = dense;
  options.rest = rest;
  return options;
}

inline void convert(const ConvertOptions& options, const std::filesystem::path& out, const ConvertRun& run = {}) {
  write_conversion(plan_conversion(options), out, run);
}

/// The only byte or value of a tensor that is wrong.
inline void set_byte(CheckpointBuild& build, const std::string& tensor, std::size_t at, int value) {
  build.tensors.at(tensor).bytes.at(at) = static_cast<std::byte>(value);
}

}  // namespace lockstep::test
