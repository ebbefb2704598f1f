// The plan of a quantisation: every decision and every check, before a byte is written.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/model_keys.h"
#include "engine/quantise.h"
#include "tensor/quantise.h"

namespace lockstep {
namespace {

bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16; }
bool is_mix(DType dtype) { return dtype == DType::rocmfp3_mix || dtype == DType::rocmfp2_mix; }

/// What a rule may change: vectors are small and every reader wants them in F32; tables hold ids.
bool is_matrix(const GgufTensor& tensor) { return tensor.rows() > 1 && tensor.dtype != DType::i32; }

/// Position tables are added, not multiplied, and readers widen them as they load: rounding them gains nothing.
bool is_position_table(std::string_view name) { return name.ends_with("_ape.weight"); }

/// Notes of the same kind become one line.
class Counts {
 public:
  void add(const std::string& what) { ++counts_[what]; }
  void say(std::vector<std::string>& notes) const {
    for (const auto& [what, count] : counts_)
      notes.push_back(fmt::format("{} {} {}", count, count == 1 ? "matrix" : "matrices", what));
  }

 private:
  std::map<std::string, int> counts_;
};

const ImportanceEntry* importance_of(const QuantisePlan& plan, const GgufTensor& tensor) {
  const ImportanceEntry* entry = plan.importance.find(tensor.name);
  if (entry == nullptr) return nullptr;
  if (entry->width != tensor.ne[0] || tensor.rows() % entry->planes() != 0)
    throw Error(Error::Kind::bad_file,
                fmt::format("{}: {} has {} planes of {} columns, the matrix has {} rows of {}: expected importances of "
                            "this model",
                            plan.options.importance.string(), quoted(tensor.name), entry->planes(), entry->width,
                            tensor.rows(), tensor.ne[0]));
  return entry;
}

/// A drafter's blocks have the names and shapes of a model's first ones, but see other inputs.
void refuse_importance_of_drafter(const QuantisePlan& plan) {
  const std::string_view architecture = plan.file->string_or("general.architecture", "deepseek4");
  if (architecture == "deepseek4") return;
  throw Error(Error::Kind::bad_argument,
              fmt::format("--imatrix {}: {} is a file of architecture {}, and importances are recorded for models, not "
                          "for drafters: expected deepseek4, or no --imatrix",
                          plan.options.importance.string(), plan.file->name(), quoted(architecture)));
}

/// A rule as it was written.
std::string rule_text(const TypeRule& rule) {
  return fmt::format("--type {}={}", rule.pattern, rule.dtype ? info_of(*rule.dtype).name : "source");
}

Error unmatched(const TypeRule& rule, const Gguf& file) {
  for (const GgufTensor& tensor : file.tensors())
    if (matches(rule, tensor.name))
      return Error(
          Error::Kind::bad_argument,
          fmt::format("{}: {} of {} is a {}, which stays as it is; expected the name of a matrix", rule_text(rule),
                      quoted(tensor.name), file.name(), tensor.dtype == DType::i32 ? "table of ids" : "vector"));
  return Error(Error::Kind::bad_argument,
               fmt::format("{}: no matrix of {} has such a name, expected one that lockstep inspect shows",
                           rule_text(rule), file.name()));
}

std::uint32_t common_file_type(const QuantisePlan& plan) {
  std::uint64_t bytes[kDTypeCount] = {};
  for (const QuantiseTensor& tensor : plan.tensors) bytes[static_cast<std::size_t>(tensor.to)] += tensor.bytes();
  return file_type_of(bytes);
}

}  // namespace

std::uint64_t QuantiseTensor::bytes() const {
  return static_cast<std::uint64_t>(source->rows()) * row_bytes(to, source->ne[0]);
}

std::uint64_t QuantisePlan::bytes() const {
  std::uint64_t sum = 0;
  for (const QuantiseTensor& tensor : tensors) sum += tensor.bytes();
  return sum;
}

QuantisePlan plan_quantisation(const QuantiseOptions& options) {
  QuantisePlan plan;
  plan.options = options;
  std::vector<TypeRule> rules;
  std::optional<std::uint32_t> file_type;
  std::size_t own_rules = 0;  // those of the recipe, which may match nothing: a drafter has no head
  if (!options.recipe.empty()) {
    Recipe recipe = recipe_named(options.recipe);
    rules = std::move(recipe.rules);
    file_type = recipe.file_type;
    own_rules = rules.size();
  }
  rules.insert(rules.end(), options.rules.begin(), options.rules.end());
  if (rules.empty())
    throw Error(Error::Kind::bad_argument, "--recipe or --type: neither is given, expected to be told what to make");

  plan.file = std::make_unique<const Gguf>(options.in, GgufOptions{options.meaning_of_108});
  if (!options.importance.empty()) {
    refuse_importance_of_drafter(plan);
    plan.importance = read_importance(options.importance);
  }
  const std::optional<DType> type_107 =
      meaning_of_107(*plan.file, options.rocmfp2, [&](const std::string& note) { plan.notes.push_back(note); });

  if (plan.file->tensors().empty())
    throw Error(Error::Kind::bad_file, plan.file->name() + ": no tensors, expected those of a model or a drafter");
  std::vector<bool> has_matched(rules.size());
  Counts fallbacks, kept, rounded_before, without_importance;
  std::size_t with_importance = 0;
  for (const GgufTensor& source : plan.file->tensors()) {
    QuantiseTensor& tensor = plan.tensors.emplace_back();
    tensor.source = &source;
    tensor.from = tensor.to = source.dtype == DType::rocmfp2 ? type_107.value_or(DType::rocmfp2) : source.dtype;
    if (!is_matrix(source)) continue;
    std::optional<DType> wanted;
    for (std::size_t i = 0; i < rules.size(); ++i) {
      if (!matches(rules[i], source.name)) continue;
      has_matched[i] = true;
      wanted = rules[i].dtype;
    }
    if (!wanted || *wanted == tensor.from) continue;
    if (is_position_table(source.name) && !is_float(*wanted)) {
      kept.add(fmt::format("of positions left in {}: {} would gain nothing", info_of(tensor.from).name,
                           info_of(*wanted).name));
      continue;
    }
    tensor.to = fitting(*wanted, source.ne[0]);
    if (tensor.to != *wanted)
      fallbacks.add(fmt::format("made {} instead of {}: rows of {} values are no multiple of {}",
                                info_of(tensor.to).name, info_of(*wanted).name, source.ne[0],
                                info_of(*wanted).block_values));
    if (tensor.is_copied()) continue;
    if (is_mix(tensor.from))
      throw Error(Error::Kind::unsupported,
                  fmt::format("{}: tensor {} is {}, which is not made into other formats; leave it with --type "
                              "'{}=source'",
                              plan.file->name(), quoted(source.name), info_of(tensor.from).name, source.name));
    if (info_of(tensor.from).quantised)
      rounded_before.add(fmt::format("rounded a second time: {} in the input", info_of(tensor.from).name));
    if (!info_of(tensor.to).quantised) continue;
    tensor.importance = importance_of(plan, source);
    if (tensor.importance != nullptr) {
      ++with_importance;
    } else if (!options.importance.empty()) {
      without_importance.add(fmt::format("without importances made {}", info_of(tensor.to).name));
    }
  }
  for (std::size_t i = own_rules; i < rules.size(); ++i)
    if (!has_matched[i]) throw unmatched(rules[i], *plan.file);
  if (!options.importance.empty() && with_importance == 0)
    throw Error(Error::Kind::bad_file, fmt::format("{}: none of its {} matrices is one that is quantised here, "
                                                   "expected importances of this model",
                                                   options.importance.string(), plan.importance.entries.size()));
  plan.file_type = file_type.value_or(common_file_type(plan));

  fallbacks.say(plan.notes);
  kept.say(plan.notes);
  rounded_before.say(plan.notes);
  without_importance.say(plan.notes);
  std::int64_t unused = 0;
  for (const QuantiseTensor& tensor : plan.tensors)
    if (tensor.importance != nullptr) unused += tensor.importance->unused_planes();
  if (unused > 0)
    plan.notes.push_back(
        fmt::format("{} expert matrices that no prompt used have the importances of the others", unused));
  const auto needs_importance = [](const QuantiseTensor& tensor) {
    return !tensor.is_copied() && (tensor.to == DType::iq2_xxs || tensor.to == DType::iq3_xxs);
  };
  if (options.importance.empty() && std::any_of(plan.tensors.begin(), plan.tensors.end(), needs_importance))
    plan.notes.push_back("no importances (--imatrix): at two and three bits they matter most; all columns count alike");
  return plan;
}

}  // namespace lockstep
