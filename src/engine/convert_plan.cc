// Which tensors of a checkpoint become which tensors of a GGUF file: the name map, shapes and formats.
//
// Everything that the configuration makes necessary is asked for by name, and what nobody asked for is refused, so a
// checkpoint of another model cannot pass for this one.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <set>
#include <span>

#include "base/error.h"
#include "engine/convert.h"
#include "engine/convert_rows.h"

namespace lockstep {
namespace {

constexpr std::string_view kDrafterPrefix = "mtp.";
constexpr int kMostStages = 64;                         // of a drafter; a number above is no stage
constexpr std::string_view kOptionalPrefix = "model.";  // that some copies have before every name

/// What decides a matrix's format.
enum class Role {
  expert,
  dense,  // published in FP8
  rest,   // published in BF16: embedding, head, compressors, head weights of the indexer, Markov matrices
  keep,   // likewise, and too small and delicate for blocks: router, confidence
  exact,  // f32: vectors, hyper-connections, position tables
};

std::string_view bare(std::string_view name) {
  return name.starts_with(kOptionalPrefix) ? name.substr(kOptionalPrefix.size()) : name;
}

bool is_of_drafter(std::string_view name) { return bare(name).starts_with(kDrafterPrefix); }

/// Parts of checkpoints that also see pictures; text does not need them.
bool is_of_vision(std::string_view name) {
  return name.starts_with("vision.") || name.starts_with("aligner.") || name.starts_with("image_") ||
         name.ends_with(".ffn.gate.bias_vl");
}

bool is_of_successor(std::string_view name) {
  for (const std::string_view part :
       {"engram", "indexer.k_norm", "indexer.attn_k", "markov_head.embed", "markov_head.head"})
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}

DType format_named(std::string_view option, const std::string& name) {
  const auto dtype = dtype_named(name);
  if (dtype && can_quantise(*dtype)) return *dtype;
  std::string names;
  for (const DType known : quantisable_dtypes())
    names += (names.empty() ? "" : ", ") + std::string(info_of(known).name);
  throw Error(Error::Kind::bad_argument, fmt::format("{} {}: expected one of {}", option, name, names));
}

/// A format as it is published, and nothing for codes with scales.
std::optional<DType> published(const StoredTensor& weight) {
  switch (weight.type) {
    case StoredType::f32:
      return DType::f32;
    case StoredType::f16:
      return DType::f16;
    case StoredType::bf16:
      return DType::bf16;
    default:
      return std::nullopt;
  }
}

/// Tensors that fare alike.
struct Rounding {
  std::string what;
  std::int64_t tensors, values;
  std::int64_t inexact;  // of the values; 0 where it was not counted
};

class Planner {
 public:
  explicit Planner(ConvertPlan& plan)
      : plan_(plan),
        c_(plan.config.model),
        experts_(format_named("--experts", plan.options.experts)),
        dense_(format_named("--dense", plan.options.dense)) {
    if (plan.options.rest != "source") rest_ = format_named("--rest", plan.options.rest);
    for (const StoredTensor& tensor : plan.checkpoint->tensors())
      if (is_of_successor(tensor.name))
        throw Error(Error::Kind::unsupported,
                    fmt::format("{}: tensor {} belongs to DeepSeek V4.1, a model that this engine does not run; "
                                "expected V4 Flash",
                                plan.options.checkpoint.string(), lockstep::quoted(tensor.name)));
  }

  void trunk() {
    plan_.kind = ConvertKind::trunk;
    plan_.model = c_;
    plan_.ratios = plan_.config.ratios;
    const std::string folder = plan_.options.checkpoint.string();
    if (std::all_of(all().begin(), all().end(), [](const StoredTensor& t) { return is_of_drafter(t.name); }))
      throw Error(Error::Kind::bad_file, folder +
                                             ": no tensor of a model is there, expected embed.weight and others; "
                                             "those of a drafter (mtp.*) are converted with --drafter");
    if (find("hc_head_fn") == nullptr && find("embed.weight") != nullptr)
      throw Error(Error::Kind::unsupported,
                  folder + ": no tensor hc_head_fn, expected V4 Flash (V4.1 has none), and all of it");
    matrix("embed.weight", "token_embd.weight", Role::rest, c_.vocabulary, c_.width);
    matrix("head.weight", "output.weight", Role::rest, c_.vocabulary, c_.width);
    vector("norm.weight", "output_norm.weight", c_.width);
    hyper_head("", "output_hc");
    for (std::size_t l = 0; l < c_.layers.size(); ++l)
      block(fmt::format("layers.{}.", l), fmt::format("blk.{}.", l), c_.layers[l]);
  }

  /// Which one it is, any tensor tells that only that kind has: so a missing one is named, whichever it is.
  void drafter() {
    if (has_tensor_with({".main_proj.", ".main_norm.", ".markov_head.", ".confidence_head."})) return dspark();
    if (has_tensor_with({"mtp.0.e_proj.", "mtp.0.h_proj.", "mtp.0.enorm.", "mtp.0.hnorm."})) return mtp();
    throw Error(Error::Kind::bad_file, plan_.options.checkpoint.string() +
                                           ": no drafter: neither mtp.0.main_proj.weight (DSpark) nor "
                                           "mtp.0.e_proj.weight (MTP) is there, expected one of them");
  }

  /// Refuses what nobody asked for.
  void finish() {
    std::string names;
    std::size_t unknown = 0, of_drafter = 0, of_vision = 0;
    for (const StoredTensor& tensor : plan_.checkpoint->tensors()) {
      if (used_.contains(&tensor)) continue;
      const bool is_drafter = is_of_drafter(tensor.name);
      if (plan_.kind == ConvertKind::trunk ? is_drafter : !is_drafter) {
        of_drafter += is_drafter;
        continue;
      }
      if (is_of_vision(bare(tensor.name)) || is_unused_bias(bare(tensor.name))) {
        ++of_vision;
        continue;
      }
      if (++unknown <= 5) names += (names.empty() ? "" : ", ") + lockstep::quoted(tensor.name);
    }
    if (unknown > 0)
      throw Error(Error::Kind::unsupported,
                  fmt::format("{}: {} tensors not known to this program: {}{}{}", plan_.options.checkpoint.string(),
                              unknown, names, unknown > 5 ? ", ..." : "",
                              names.find("self_attn") != std::string::npos
                                  ? "; a checkpoint saved again by transformers? Give the published one"
                                  : ""));
    if (!plan_.config.assumed.empty())
      plan_.notes.push_back(
          fmt::format("config.json does not say, assumed: {}", fmt::join(plan_.config.assumed, ", ")));
    if (of_drafter > 0)
      plan_.notes.push_back(fmt::format("{} tensors of a drafter are left out; --drafter writes them", of_drafter));
    if (of_vision > 0) plan_.notes.push_back(fmt::format("{} tensors for pictures are left out", of_vision));
    for (const Rounding& r : roundings_)
      plan_.notes.push_back(
          r.inexact == 0 ? fmt::format("{} ({} tensors)", r.what, r.tensors)
                         : fmt::format("{} ({} tensors, {} of {} values)", r.what, r.tensors, r.inexact, r.values));
  }

 private:
  void dspark() {
    plan_.kind = ConvertKind::dspark;
    if (!plan_.config.dspark)
      throw Error(Error::Kind::bad_file,
                  plan_.options.checkpoint.string() +
                      ": tensors of a DSpark drafter, expected dspark_block_size in config.json");
    const DsparkConfig& d = *plan_.config.dspark;
    const int stages = count_stages();
    own_layers(stages);
    const auto targets = static_cast<std::int64_t>(d.target_layers.size());
    matrix("mtp.0.main_proj.weight", "fc.weight", Role::dense, c_.width, targets * c_.width);
    vector("mtp.0.main_norm.weight", "enc.output_norm.weight", c_.width);
    for (int n = 0; n < stages; ++n)
      block(fmt::format("mtp.{}.", n), fmt::format("blk.{}.", n), plan_.model.layers[static_cast<std::size_t>(n)]);
    const std::string last = fmt::format("mtp.{}.", stages - 1);
    vector(last + "norm.weight", "output_norm.weight", c_.width);
    hyper_head(last, "output_hc");
    matrix(last + "markov_head.markov_w1.weight", "markov_w1.weight", Role::rest, c_.vocabulary, d.markov_rank);
    matrix(last + "markov_head.markov_w2.weight", "markov_w2.weight", Role::rest, c_.vocabulary, d.markov_rank);
    const std::string confidence = last + "confidence_head.proj.weight";
    if (find(confidence) != nullptr) matrix(confidence, "conf_proj.weight", Role::keep, 1, c_.width + d.markov_rank);
  }

  /// One past the last stage of which anything is there.
  int count_stages() const {
    int stages = 1;
    for (const StoredTensor& tensor : all()) {
      const std::string_view name = bare(tensor.name);
      if (!name.starts_with(kDrafterPrefix)) continue;
      int stage = 0;
      const char* end = name.data() + name.size();
      const auto [rest, error] = std::from_chars(name.data() + kDrafterPrefix.size(), end, stage);
      if (error == std::errc() && rest != end && *rest == '.' && stage < kMostStages)
        stages = std::max(stages, stage + 1);
    }
    return stages;
  }

  void mtp() {
    plan_.kind = ConvertKind::mtp;
    own_layers(1);
    block("mtp.0.", "mtp.0.", plan_.model.layers[0]);
    for (const char* name : {"e_proj", "h_proj"})
      matrix(fmt::format("mtp.0.{}.weight", name), fmt::format("mtp.0.{}.weight", name), Role::dense, c_.width,
             c_.width);
    for (const char* name : {"enorm", "hnorm", "norm"})
      vector(fmt::format("mtp.0.{}.weight", name), fmt::format("mtp.0.{}.weight", name), c_.width);
    hyper_head("mtp.0.", "mtp.0.hc_head");
  }

  /// A drafter's layers: no compression, experts chosen by score.
  void own_layers(int count) {
    plan_.model = c_;
    const LayerConfig& trunk = c_.layers.back();
    plan_.model.layers.assign(static_cast<std::size_t>(count), {0, false, trunk.clamp, trunk.shared_clamp});
    plan_.ratios.assign(static_cast<std::size_t>(count), 0);
  }

  void block(const std::string& from, const std::string& to, const LayerConfig& layer) {
    const std::int64_t group_width = c_.heads / c_.output_groups * c_.head_width;
    const std::int64_t low_width = static_cast<std::int64_t>(c_.output_groups) * c_.output_rank;
    vector(from + "attn_norm.weight", to + "attn_norm.weight", c_.width);
    matrix(from + "attn.wq_a.weight", to + "attn_q_a.weight", Role::dense, c_.query_rank, c_.width);
    vector(from + "attn.q_norm.weight", to + "attn_q_a_norm.weight", c_.query_rank);
    matrix(from + "attn.wq_b.weight", to + "attn_q_b.weight", Role::dense,
           static_cast<std::int64_t>(c_.heads) * c_.head_width, c_.query_rank);
    matrix(from + "attn.wkv.weight", to + "attn_kv.weight", Role::dense, c_.head_width, c_.width);
    vector(from + "attn.kv_norm.weight", to + "attn_kv_a_norm.weight", c_.head_width);
    vector(from + "attn.attn_sink", to + "attn_sinks.weight", c_.heads);
    matrix(from + "attn.wo_a.weight", to + "attn_output_a.weight", Role::dense, low_width, group_width);
    matrix(from + "attn.wo_b.weight", to + "attn_output_b.weight", Role::dense, c_.width, low_width);
    if (layer.ratio != 0) compressor(from + "attn.compressor.", to + "attn_compressor_", layer.ratio, c_.head_width);
    if (layer.ratio == 4) {
      matrix(from + "attn.indexer.wq_b.weight", to + "indexer.attn_q_b.weight", Role::dense,
             static_cast<std::int64_t>(c_.index_heads) * c_.index_width, c_.query_rank);
      matrix(from + "attn.indexer.weights_proj.weight", to + "indexer.proj.weight", Role::rest, c_.index_heads,
             c_.width);
      compressor(from + "attn.indexer.compressor.", to + "indexer_compressor_", layer.ratio, c_.index_width);
    }
    hyper(from + "hc_attn_", to + "hc_attn_", c_.hyper_coefficients(), 3);
    hyper(from + "hc_ffn_", to + "hc_ffn_", c_.hyper_coefficients(), 3);
    vector(from + "ffn_norm.weight", to + "ffn_norm.weight", c_.width);
    matrix(from + "ffn.gate.weight", to + "ffn_gate_inp.weight", Role::keep, c_.experts, c_.width);
    if (layer.hash_routed) {
      table(from + "ffn.gate.tid2eid", to + "ffn_gate_tid2eid.weight", c_.vocabulary, c_.experts_used, c_.experts);
    } else {
      vector(from + "ffn.gate.bias", to + "exp_probs_b.bias", c_.experts);
    }
    constexpr struct {
      std::string_view from, to;
      bool is_down;
    } kParts[] = {{"w1", "gate", false}, {"w3", "up", false}, {"w2", "down", true}};
    for (const auto& part : kParts) {
      const std::int64_t rows = part.is_down ? c_.width : c_.expert_width;
      const std::int64_t width = part.is_down ? c_.expert_width : c_.width;
      stack(from + "ffn.experts.", fmt::format(".{}.weight", part.from),
            fmt::format("{}ffn_{}_exps.weight", to, part.to), rows, width);
      matrix(fmt::format("{}ffn.shared_experts.{}.weight", from, part.from),
             fmt::format("{}ffn_{}_shexp.weight", to, part.to), Role::dense, rows, width);
    }
  }

  void compressor(const std::string& from, const std::string& to, int ratio, std::int64_t row_width) {
    const std::int64_t width = ratio == 4 ? 2 * row_width : row_width;
    matrix(from + "wkv.weight", to + "kv.weight", Role::rest, width, c_.width);
    matrix(from + "wgate.weight", to + "gate.weight", Role::rest, width, c_.width);
    matrix(from + "ape", to + "ape.weight", Role::exact, ratio, width);
    vector(from + "norm.weight", to + "norm.weight", row_width);
  }

  void hyper(const std::string& from, const std::string& to, std::int64_t coefficients, std::int64_t scales) {
    matrix(from + "fn", to + "fn.weight", Role::exact, coefficients, static_cast<std::int64_t>(c_.streams) * c_.width);
    vector(from + "base", to + "base.weight", coefficients);
    vector(from + "scale", to + "scale.weight", scales);
  }
  void hyper_head(const std::string& from, const std::string& to) { hyper(from + "hc_head_", to + "_", c_.streams, 1); }

  void vector(const std::string& from, const std::string& to, std::int64_t width) {
    add(to, DType::f32, {width}).planes = {source(from, {width})};
  }

  void matrix(const std::string& from, const std::string& to, Role role, std::int64_t rows, std::int64_t width) {
    const ConvertSource found = source(from, {rows, width});
    ConvertTensor& tensor = add(to, format_of(role, *found.weight), {width, rows});
    tensor.planes = {found};
    check_blocks(tensor, from);
    note(role, tensor);
  }

  /// The experts of a projection, in ascending order.
  void stack(const std::string& from, const std::string& part, const std::string& to, std::int64_t rows,
             std::int64_t width) {
    ConvertTensor& tensor = add(to, experts_, {width, rows, c_.experts});
    for (int e = 0; e < c_.experts; ++e)
      tensor.planes.push_back(source(fmt::format("{}{}{}", from, e, part), {rows, width}));
    check_blocks(tensor, fmt::format("{}0{}", from, part));
    note(Role::expert, tensor);
  }

  void table(const std::string& from, const std::string& to, std::int64_t rows, std::int64_t width, std::int64_t ids) {
    const StoredTensor& found = take(from, {rows, width});
    if (found.type != StoredType::i64 && found.type != StoredType::i32) throw wrong_type(found, "I64 or I32");
    ConvertTensor& tensor = add(to, DType::i32, {width, rows});
    tensor.planes = {{&found, nullptr}};
    tensor.ids = ids;
  }

  DType format_of(Role role, const StoredTensor& weight) const {
    switch (role) {
      case Role::expert:
        return experts_;
      case Role::dense:
        return dense_;
      case Role::exact:
        return DType::f32;
      case Role::rest:
        if (rest_) return *rest_;
        break;
      case Role::keep:
        if (rest_ && info_of(*rest_).block_values == 1) return *rest_;
        break;
    }
    return published(weight).value_or(DType::bf16);
  }

  /// A tensor of floats with its scales, checked. FP8 takes one scale a tile, packed FP4 one a block.
  ConvertSource source(const std::string& name, const std::vector<std::int64_t>& shape) {
    ConvertSource out;
    const StoredTensor& weight = *(out.weight = &take(name, {}));
    std::vector<std::int64_t> expected = shape, scales;
    if (is_packed_fp4(weight) && shape.size() == 2 && shape[1] % kPackedBlock == 0) {
      expected[1] /= 2;
      scales = {shape[0], shape[1] / kPackedBlock};
    } else if (weight.type == StoredType::f8_e4m3 && shape.size() == 2) {
      scales = {(shape[0] + kFp8Tile - 1) / kFp8Tile, (shape[1] + kFp8Tile - 1) / kFp8Tile};
    } else if (weight.type != StoredType::f32 && weight.type != StoredType::f16 && weight.type != StoredType::bf16) {
      throw wrong_type(weight, shape.size() == 2 ? "F32, F16, BF16, F8_E4M3 or packed FP4 (I8)" : "F32, F16 or BF16");
    }
    check_shape(weight, expected);
    if (scales.empty()) return out;
    std::string scale_name = name;
    if (!scale_name.ends_with(".weight")) throw wrong_type(weight, "F32, F16 or BF16");
    scale_name.replace(scale_name.size() - 6, 6, "scale");
    out.scale = &take(scale_name, scales);
    // Some writers had no name for E8M0 and stored the same bytes as U8.
    if (out.scale->type != StoredType::f8_e8m0 && out.scale->type != StoredType::u8)
      throw wrong_type(*out.scale, "F8_E8M0");
    return out;
  }

  std::span<const StoredTensor> all() const { return plan_.checkpoint->tensors(); }

  bool has_tensor_with(std::initializer_list<std::string_view> parts) const {
    return std::any_of(all().begin(), all().end(), [&](const StoredTensor& tensor) {
      return is_of_drafter(tensor.name) && std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
               return tensor.name.find(part) != std::string::npos;
             });
    });
  }

  const StoredTensor* find(const std::string& name) const {
    const StoredTensor* found = plan_.checkpoint->find(name);
    return found != nullptr ? found : plan_.checkpoint->find(std::string(kOptionalPrefix) + name);
  }

  /// Marks the tensor as used; `shape` is checked unless it is empty.
  const StoredTensor& take(const std::string& name, const std::vector<std::int64_t>& shape) {
    const StoredTensor* found = find(name);
    if (found == nullptr)
      throw Error(Error::Kind::bad_file,
                  fmt::format("{}: tensor {} is missing, expected every tensor of the published checkpoint",
                              plan_.options.checkpoint.string(), name));
    if (!shape.empty()) check_shape(*found, shape);
    used_.insert(found);
    return *found;
  }

  void check_shape(const StoredTensor& tensor, const std::vector<std::int64_t>& shape) const {
    if (tensor.shape != shape)
      throw Error(Error::Kind::bad_file,
                  fmt::format("{}: tensor {} is {} {}, expected {}", plan_.options.checkpoint.string(),
                              lockstep::quoted(tensor.name), name_of(tensor.type), shape_text(tensor.shape),
                              shape_text(shape)));
  }
  Error wrong_type(const StoredTensor& tensor, std::string_view expected) const {
    return Error(Error::Kind::bad_file,
                 fmt::format("{}: tensor {} is {} {}, expected {}", plan_.options.checkpoint.string(),
                             lockstep::quoted(tensor.name), name_of(tensor.type), shape_text(tensor.shape), expected));
  }

  ConvertTensor& add(const std::string& name, DType dtype, std::vector<std::int64_t> ne) {
    ConvertTensor& tensor = plan_.tensors.emplace_back();
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.ne = std::move(ne);
    return tensor;
  }

  void check_blocks(const ConvertTensor& tensor, const std::string& from) const {
    const DTypeInfo& info = info_of(tensor.dtype);
    if (tensor.ne[0] % info.block_values != 0)
      throw Error(Error::Kind::bad_argument,
                  fmt::format("{}: tensor {}: rows of {} values, {} needs a multiple of {}; expected another format",
                              plan_.options.checkpoint.string(), from, tensor.ne[0], info.name, info.block_values));
  }

  /// Counts what is rounded on the way, and what is not, for the reader. In formats of blocks a value may come out the
  /// same by chance of its neighbours; only codes and scales that are copied are called the same.
  void note(Role role, const ConvertTensor& tensor) {
    constexpr std::string_view kRoles[] = {"experts", "dense", "rest", "rest"};
    if (role == Role::exact) return;
    const StoredTensor& weight = *tensor.planes.front().weight;
    const std::string_view type = is_packed_fp4(weight) ? "FP4" : name_of(weight.type);
    if (role != Role::expert && role != Role::dense && tensor.dtype == published(weight)) return;
    std::int64_t inexact = 0;
    const bool is_blocks = info_of(tensor.dtype).block_values > 1;
    if (!is_blocks)
      for (const ConvertSource& plane : tensor.planes) {
        if (published(*plane.weight) == tensor.dtype) continue;
        inexact += inexact_values(plane, tensor.rows(), tensor.ne[0], tensor.dtype);
        plan_.checkpoint->release(*plane.weight);
      }
    const auto is_copied = [&](const ConvertSource& plane) { return is_repacked(*plane.weight, tensor.dtype); };
    const bool is_exact = is_blocks ? std::all_of(tensor.planes.begin(), tensor.planes.end(), is_copied) : inexact == 0;
    const std::string what = fmt::format("{}, {} to {}, {}", kRoles[static_cast<std::size_t>(role)], type,
                                         info_of(tensor.dtype).name, is_exact ? "the same values" : "rounded");
    auto found = std::find_if(roundings_.begin(), roundings_.end(), [&](const Rounding& r) { return r.what == what; });
    if (found == roundings_.end()) found = roundings_.insert(found, {what, 0, 0, 0});
    ++found->tensors;
    found->inexact += inexact;
    found->values += tensor.rows() * tensor.ne[0] * std::ssize(tensor.planes);
  }

  /// Layers that choose experts by token have no use for a bias; checkpoints that also see pictures may hold one.
  bool is_unused_bias(std::string_view name) const {
    for (int l = 0; l < plan_.config.hash_layers; ++l)
      if (name == fmt::format("layers.{}.ffn.gate.bias", l)) return true;
    return false;
  }

  ConvertPlan& plan_;
  const Config& c_;
  DType experts_, dense_;
  std::optional<DType> rest_;
  std::set<const StoredTensor*> used_;
  std::vector<Rounding> roundings_;
};

}  // namespace

ConvertPlan plan_conversion(const ConvertOptions& options) {
  ConvertPlan plan;
  plan.options = options;
  plan.config = read_checkpoint_config(options.checkpoint, options.ignored_keys);
  plan.checkpoint = std::make_unique<const Checkpoint>(
      options.checkpoint, [&](std::string_view name) { return is_of_drafter(name) == options.drafter; });
  Planner planner(plan);
  options.drafter ? planner.drafter() : planner.trunk();
  planner.finish();
  if (plan.kind != ConvertKind::mtp) {
    plan.vocabulary = read_checkpoint_vocabulary(options.checkpoint, plan.config.model.vocabulary);
    plan.sampling = read_sampling_hints(options.checkpoint);
  }
  return plan;
}

}  // namespace lockstep
