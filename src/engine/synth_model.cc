#include "engine/synth_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "tensor/gguf_writer.h"

namespace lockstep {
namespace {

std::string header_of(const SynthPlan& plan) {
  GgufWriter writer("synth.gguf");
  declare_synth(writer, plan);
  return writer.header();
}

std::size_t padded_bytes(const SynthPlan& plan) {
  std::uint64_t sum = 0;
  for (const SynthTensor& tensor : plan.tensors) sum += align_up(tensor.bytes(), kGgufAlignment);
  return static_cast<std::size_t>(sum);
}

}  // namespace

SynthModel::SynthModel(const SynthPlan& plan, int threads)
    : plan_(plan), header_(header_of(plan)), memory_(header_.size() + padded_bytes(plan)), pool_(threads) {
  std::memcpy(memory_.bytes().data(), header_.data(), header_.size());
}

std::string SynthModel::name() const {
  return fmt::format("synth {} {}, {} layers, {} experts, seed {}", plan_.options.preset, plan_.options.types,
                     plan_.config.layers.size(), plan_.config.experts, plan_.options.seed);
}

void SynthModel::need(const GgufTensor& tensor) {
  const auto planned = std::find_if(plan_.tensors.begin(), plan_.tensors.end(),
                                    [&](const SynthTensor& other) { return other.name == tensor.name; });
  LOCKSTEP_CHECK(planned != plan_.tensors.end() && planned->bytes() == tensor.bytes.size());
  const auto begin = static_cast<std::size_t>(tensor.bytes.data() - memory_.bytes().data());
  fill_synth_tensor(plan_, *planned, pool_, memory_.bytes().subspan(begin, tensor.bytes.size()));
}

void SynthModel::taken(const GgufTensor& tensor, bool is_kept) {
  if (is_kept) return;
  memory_.drop(static_cast<std::size_t>(tensor.bytes.data() - memory_.bytes().data()), tensor.bytes.size());
}

}  // namespace lockstep
