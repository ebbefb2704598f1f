#include "cli/migration.h"

namespace lockstep {
namespace {

constexpr std::string_view kExpertsOnCpu = "no option in this version: experts are read from the mapped file";
constexpr std::string_view kNoDraft = "no option in this version: nothing is drafted, a token is computed at a time";

constexpr Migration kTable[] = {
    {"DFLASH_DS4_CHUNKED_PREFILL", "none needed: a prompt is always read in chunks, with the same bytes for any chunk"},
    {"DFLASH_DS4_FUSED_DECODE", "none needed: fused steps are always on, with the same bytes"},
    {"DFLASH_DS4_FUSED_STABLE_GRAPH", "none needed: fused steps are always on, with the same bytes"},
    {"DFLASH_DS4_FUSED_DEBUG", "`lockstep check`: compares the bytes of all schedules, levels and thread counts"},
    {"DFLASH_DS4_FFN_RAW_MMID", "none needed: expert sums are always fast and have one order"},
    {"DFLASH_DS4_FFN_FUSED_COMBINE", "none needed: expert sums are always fast and have one order"},
    {"DFLASH_DS4_ROCMFPX_HC_GPU", "none needed: hyper-connections run where the layers run"},
    {"DFLASH_DS4_TIMING", "none needed: `complete` and `chat` say their rates on stderr; `lockstep bench` measures"},
    {"DFLASH_DS4_TOPK", "no option in this version: all routed experts of the model are used"},
    {"DFLASH_EXPERT_BUDGET_MB", kExpertsOnCpu},
    {"DFLASH_DS4_SPEC", kNoDraft},
    {"DFLASH_DS4_DRAFT", kNoDraft},
    {"DFLASH_DS4_SPEC_Q", kNoDraft},
    {"DFLASH_DS4_FUSED_VERIFY", kNoDraft},
    {"DFLASH_DS4_SEQ_VERIFY", kNoDraft},
    {"DFLASH_DS4_FULL_SNAP", kNoDraft},
    {"DFLASH_DS4_CUDA_LAYERS", "no option in this version: all layers run on the one back end of --backend"},
    {"LUCE_MMVQ_MAX_NCOLS", "none needed: kernels may differ by shape, their sums may not"},
    {"DFLASH_MMID_*", "none needed: kernels may differ by shape, their sums may not"},
    {"DFLASH_*",
     "not known here; Lockstep reads no environment variables, `lockstep COMMAND --help` lists its options"},
};

bool is_meant(const Migration& migration, std::string_view variable) {
  if (migration.variable.ends_with('*'))
    return variable.starts_with(migration.variable.substr(0, migration.variable.size() - 1));
  return variable == migration.variable;
}

}  // namespace

std::span<const Migration> migration_table() { return kTable; }

std::vector<std::string> migration_notes(std::span<const std::string> variables) {
  std::vector<std::string> notes;
  for (const std::string& variable : variables) {
    for (const Migration& migration : kTable) {
      if (!is_meant(migration, variable)) continue;
      notes.push_back(variable + " is set and not read; instead: " + std::string(migration.instead));
      break;
    }
  }
  return notes;
}

}  // namespace lockstep
