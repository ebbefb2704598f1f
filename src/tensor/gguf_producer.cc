// What the names and types of a file tell about who made it and how deep its model is. Facts, not metadata: keys are
// often missing, copied from a template, or count the drafter's block.
#include <charconv>
#include <set>

#include "tensor/gguf.h"

namespace lockstep {
namespace {

struct BlockName {
  int block;
  std::string_view rest;
};

/// "blk.12.attn_norm.weight" -> {12, "attn_norm.weight"}.
std::optional<BlockName> parse_block_name(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const char* begin = name.data() + kPrefix.size();
  const char* end = name.data() + name.size();
  int block = 0;
  const auto [at, error] = std::from_chars(begin, end, block);
  if (error != std::errc() || block < 0 || at == end || *at != '.') return std::nullopt;
  return BlockName{block, {at + 1, static_cast<std::size_t>(end - at - 1)}};
}

bool is_expert(std::string_view name) {
  return name.ends_with(".ffn_gate_exps.weight") || name.ends_with(".ffn_up_exps.weight") ||
         name.ends_with(".ffn_down_exps.weight");
}

}  // namespace

int Gguf::trunk_layers() const {
  std::set<int> trunk;
  std::set<int> drafter;
  for (const GgufTensor& tensor : tensors_) {
    const auto name = parse_block_name(tensor.name);
    if (!name) continue;
    trunk.insert(name->block);
    if (name->rest.starts_with("nextn.")) drafter.insert(name->block);
  }
  return static_cast<int>(trunk.size() - drafter.size());
}

std::string_view Gguf::producer() const {
  const auto has_key = [&](std::string_view key) { return find(key) != nullptr; };
  const auto type_is = [&](std::string_view name, std::initializer_list<DType> dtypes) {
    const GgufTensor* tensor = find_tensor(name);
    if (tensor == nullptr) return false;
    for (const DType dtype : dtypes)
      if (tensor->dtype == dtype) return true;
    return false;
  };
  bool has_mxfp4_experts = false;
  bool has_ds4_experts = false;
  bool has_fp8 = false;
  for (const GgufTensor& tensor : tensors_) {
    if (tensor.file_id >= 100 && tensor.file_id <= 107) return "lucebox";
    if (tensor.file_id == 42) has_fp8 = true;
    if (!is_expert(tensor.name)) continue;
    if (tensor.dtype == DType::mxfp4) has_mxfp4_experts = true;
    if (tensor.dtype == DType::iq2_xxs || tensor.dtype == DType::q2_k || tensor.dtype == DType::q4_k)
      has_ds4_experts = true;
  }
  if (const GgufValue* architecture = find("general.architecture"))
    if (architecture->to_string() == "deepseek4_mtp_support") return "ds4 sidecar";
  const bool has_shared_clamp = has_key("deepseek4.swiglu_clamp_shexp");
  if (has_shared_clamp || has_key("general.quantized_by") || has_key("split.count") ||
      (has_mxfp4_experts && type_is("token_embd.weight", {DType::bf16, DType::f32})))
    return "llama.cpp";
  if (has_key("deepseek4.vocab_size") && has_ds4_experts && type_is("output_hc_fn.weight", {DType::f16})) return "ds4";
  if (has_fp8) return "fp8 fork";
  return "unknown";
}

}  // namespace lockstep
