#include "engine/quantise_rules.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include "base/error.h"
#include "tensor/quantise.h"

namespace lockstep {
namespace {

constexpr std::string_view kRecipeNames[] = {"antirez-q2", "antirez-q4", "rocmfp2-strix", "rocmfp4", "mxfp4-native"};

using Rules = std::vector<TypeRule>;

Rules joined(std::initializer_list<Rules> parts) {
  Rules all;
  for (const Rules& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// Rules for a block's matrices begin with "*." because a drafter's blocks are called mtp.0.* or blk.0.*, as files go.

Rules experts(DType gate_up, DType down) {
  return {{"*.ffn_gate_exps.weight", gate_up}, {"*.ffn_up_exps.weight", gate_up}, {"*.ffn_down_exps.weight", down}};
}

/// Attention projections, the shared expert and what a drafter joins its inputs with: what is published in FP8. The
/// indexer's query projection is named like one of attention's.
Rules dense(DType dtype, DType index_query) {
  return {{"*.attn_q_[ab].weight", dtype}, {"*.attn_kv.weight", dtype}, {"*.attn_output_[ab].weight", dtype},
          {"*.ffn_*_shexp.weight", dtype}, {"*fc.weight", dtype},       {"*main_proj.weight", dtype},
          {"*.[eh]_proj.weight", dtype},   {"*.eh_proj.weight", dtype}, {"*.indexer.attn_q_b.weight", index_query}};
}

/// As the ds4 loader insists on them: what is not an expert, Q8_0 or a vector is F16.
Rules antirez(DType gate_up, DType down) {
  return joined(
      {{{"*", DType::f16}, {"output.weight", DType::q8_0}}, dense(DType::q8_0, DType::f16), experts(gate_up, down)});
}

/// The small matrices of the ROCmFP recipes keep the range that a UE4M3 scale would take from them.
Rules rocm_small() {
  return {{"*", DType::f16},
          {"*_ape.weight", DType::f32},
          {"output.weight", DType::q6_k},
          {"token_embd.weight", DType::q6_k}};
}

}  // namespace

std::span<const std::string_view> recipe_names() { return kRecipeNames; }

Recipe recipe_named(std::string_view name) {
  if (name == "antirez-q2")
    return {name, "experts IQ2_XXS and Q2_K, dense Q8_0, the rest F16", antirez(DType::iq2_xxs, DType::q2_k), 19};
  if (name == "antirez-q4")
    return {name, "experts Q4_K, dense Q8_0, the rest F16", antirez(DType::q4_k, DType::q4_k), 15};
  if (name == "rocmfp2-strix")
    return {name, "experts ROCmFP2 (fixed) and ROCmFP3, dense ROCmFP4 FAST, embedding and head Q6_K, the rest F16",
            joined({rocm_small(),
                    dense(DType::rocmfp4_fast, DType::f16),
                    {{"*.attn_kv.weight", DType::rocmfp4}},
                    experts(DType::rocmfp2, DType::rocmfp3)}),
            119};
  if (name == "rocmfp4")
    return {name, "experts MXFP4, dense ROCmFP4, embedding and head Q6_K, the rest F16",
            joined({rocm_small(), dense(DType::rocmfp4, DType::f16), experts(DType::mxfp4, DType::mxfp4)}), 106};
  if (name == "mxfp4-native")
    return {name, "experts MXFP4, dense Q8_0, the rest as in the input",
            joined({dense(DType::q8_0, DType::q8_0), experts(DType::mxfp4, DType::mxfp4)}), 38};
  throw Error(Error::Kind::bad_argument,
              fmt::format("--recipe {}: expected one of {}", name, fmt::join(kRecipeNames, ", ")));
}

TypeRule parse_type_rule(std::string_view text) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0)
    throw Error(Error::Kind::bad_argument, fmt::format("--type {}: expected PATTERN=TYPE", text));
  const std::string_view type = text.substr(equals + 1);
  TypeRule rule{std::string(text.substr(0, equals)), std::nullopt};
  if (type == "source") return rule;
  rule.dtype = dtype_named(type);
  if (!rule.dtype || !can_quantise(*rule.dtype)) {
    std::string names;
    for (const DType made : quantisable_dtypes()) names += fmt::format("{}, ", info_of(made).name);
    throw Error(Error::Kind::bad_argument, fmt::format("--type {}: \"{}\" {}, expected one of {}source", text, type,
                                                       rule.dtype ? "is read but not made" : "is no type", names));
  }
  return rule;
}

bool matches(const TypeRule& rule, std::string_view tensor) {
  return ::fnmatch(rule.pattern.c_str(), std::string(tensor).c_str(), 0) == 0;
}

DType fitting(DType wanted, std::int64_t width) {
  const auto fits = [&](DType dtype) { return width % info_of(dtype).block_values == 0; };
  if (fits(wanted)) return wanted;
  const DTypeInfo& info = info_of(wanted);
  const DType near = 2 * info.block_bytes * 8 <= 9 * info.block_values ? DType::q4_0 : DType::q8_0;
  return fits(near) ? near : DType::f16;
}

}  // namespace lockstep
