#include "model/weights.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/mapped_file.h"
#include "numerics/rope.h"
#include "tensor/dequantize.h"

namespace lockstep {

/// Finds, checks and takes in the tensors of one file.
class WeightLoader {
 public:
  WeightLoader(const Gguf& file, Ops& ops, Weights& out, std::optional<DType> meaning_of_107, const LoadHooks& hooks)
      : file_(file), ops_(ops), out_(out), meaning_of_107_(meaning_of_107), hooks_(hooks) {
    for (const GgufTensor& tensor : file.tensors()) total_bytes_ += tensor.bytes.size();
  }

  Weight matrix(const std::string& name, int width, int rows, int planes = 1) {
    const GgufTensor& tensor = checked(name, width, rows, planes);
    if (tensor.dtype == DType::i32) throw bad(name, "is i32, expected a float or quantised format");
    Weight weight;
    if (is_mix(tensor.dtype)) weight.books = out_.mix_.find(name)->books.data();
    weight.dtype = tensor.dtype == DType::rocmfp2 ? meaning_of_107_.value_or(DType::rocmfp2) : tensor.dtype;
    weight.width = width;
    weight.rows = rows;
    weight.planes = planes;
    weight.data = tensor.bytes.data();
    weight.row_bytes = row_bytes(tensor.dtype, width);
    need(tensor);
    check_blocks(tensor, weight.dtype);
    out_.file_bytes += tensor.bytes.size();
    const Weight prepared = ops_.prepare(weight);
    taken(tensor, prepared.data == weight.data);
    return prepared;
  }

  /// A small tensor widened to f32: [rows, width].
  const float* floats(const std::string& name, int width, int rows = 1) {
    const GgufTensor& tensor = checked(name, width, rows, 1);
    if (tensor.dtype == DType::i32) throw bad(name, "is i32, expected a float format");
    need(tensor);
    std::vector<float> values(static_cast<std::size_t>(width) * rows);
    const std::size_t bytes = row_bytes(tensor.dtype, width);
    for (int r = 0; r < rows; ++r)
      dequantize_row(tensor.dtype, tensor.bytes.data() + r * bytes, width,
                     values.data() + static_cast<std::ptrdiff_t>(r) * width);
    taken(tensor, false);
    return static_cast<const float*>(keep(values.data(), values.size() * sizeof(float)));
  }

  /// The expert table of a hash-routed layer, every id checked.
  const std::int32_t* table(const std::string& name, int width, int rows, int experts) {
    const GgufTensor& tensor = checked(name, width, rows, 1);
    if (tensor.dtype != DType::i32) throw bad(name, "is " + std::string(info_of(tensor.dtype).name) + ", expected i32");
    need(tensor);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(width) * rows);
    std::memcpy(ids.data(), tensor.bytes.data(), ids.size() * sizeof(std::int32_t));
    taken(tensor, false);
    for (std::int32_t id : ids)
      if (id < 0 || id >= experts)
        throw bad(name, "holds expert " + std::to_string(id) + " of " + std::to_string(experts));
    return static_cast<const std::int32_t*>(keep(ids.data(), ids.size() * sizeof(std::int32_t)));
  }

  /// Reads the side tables of a file that has tensors of the MIX formats: in its metadata, or in files beside it.
  void read_mix_tables() {
    std::vector<MixShape> shapes;
    for (const GgufTensor& tensor : file_.tensors())
      if (is_mix(tensor.dtype))
        shapes.push_back({std::string(tensor.name), tensor.dtype, tensor.ne[0], tensor.ne[1], tensor.ne[2]});
    if (shapes.empty()) return;
    for (const MixKindInfo& info : mix_kinds()) {
      if (file_.find(info.key) != nullptr) {
        out_.mix_.add(info.kind, file_.bytes_of(info.key), file_.name() + ": key " + std::string(info.key));
      } else if (const std::string beside = file_.part_name(0) + std::string(info.suffix);
                 std::filesystem::exists(beside)) {
        out_.mix_.add(info.kind, MappedFile(beside).bytes(), beside);
      }
    }
    out_.mix_.check_covers(shapes);
  }

  const void* keep(const void* from, std::size_t bytes) {
    void* memory = ops_.allocate(bytes);
    out_.owned_.emplace_back(memory, [ops = &ops_](void* m) { ops->release(m); });
    ops_.upload(memory, from, bytes);
    return memory;
  }

 private:
  static bool is_mix(DType dtype) { return dtype == DType::rocmfp3_mix || dtype == DType::rocmfp2_mix; }

  void need(const GgufTensor& tensor) const {
    if (hooks_.provider != nullptr) hooks_.provider->need(tensor);
  }
  void taken(const GgufTensor& tensor, bool is_kept) {
    if (hooks_.provider != nullptr) hooks_.provider->taken(tensor, is_kept);
    done_bytes_ += tensor.bytes.size();
    if (hooks_.progress) hooks_.progress(done_bytes_, total_bytes_);
  }

  /// Looks for scales that no encoder writes, in a few places of the tensor: all of it would be a read of the whole
  /// file.
  void check_blocks(const GgufTensor& tensor, DType dtype) const {
    constexpr std::size_t kPlaces = 4, kBlocks = 64;
    const std::size_t block = static_cast<std::size_t>(info_of(dtype).block_bytes),
                      blocks = tensor.bytes.size() / block;
    for (std::size_t place = 0; place < kPlaces; ++place) {
      const std::size_t first = blocks <= kBlocks ? 0 : place * (blocks - kBlocks) / (kPlaces - 1);
      const auto problem =
          find_invalid_block(dtype, tensor.bytes.subspan(first * block, std::min(kBlocks, blocks - first) * block));
      if (problem)
        throw bad(std::string(tensor.name),
                  "has damaged data: from block " + std::to_string(first) + " on, " + *problem);
    }
  }

  Error bad(const std::string& name, const std::string& what) const {
    return Error(Error::Kind::bad_file, file_.name() + ": tensor " + name + " " + what);
  }

  const GgufTensor& checked(const std::string& name, int width, int rows, int planes) const {
    const GgufTensor& tensor = file_.tensor(name);
    const std::int64_t expected[4] = {width, rows, planes, 1};
    for (int axis = 0; axis < 4; ++axis) {
      if (tensor.ne[axis] == expected[axis]) continue;
      const auto shape = [](const auto& ne) {
        return "[" + std::to_string(ne[0]) + ", " + std::to_string(ne[1]) + ", " + std::to_string(ne[2]) + ", " +
               std::to_string(ne[3]) + "]";
      };
      throw bad(name, "is " + shape(tensor.ne) + ", expected " + shape(expected));
    }
    // Activations are rounded in blocks of 32, so a quantised row of another length has no meaning here.
    if (info_of(tensor.dtype).quantised && width % 32 != 0)
      throw bad(name, "is quantised and its rows are not a multiple of 32");
    return tensor;
  }

  const Gguf& file_;
  Ops& ops_;
  Weights& out_;
  std::optional<DType> meaning_of_107_;
  const LoadHooks& hooks_;
  std::uint64_t done_bytes_ = 0, total_bytes_ = 0;
};

namespace {

HyperWeights load_hyper(WeightLoader& load, const std::string& name, const Config& c, int coefficients, int scales) {
  return {load.matrix(name + "_fn.weight", c.streams * c.width, coefficients),
          load.floats(name + "_scale.weight", scales), load.floats(name + "_base.weight", coefficients)};
}

CompressorWeights load_compressor(WeightLoader& load, const std::string& name, const Config& c, int ratio,
                                  int row_width) {
  const int width = ratio == 4 ? 2 * row_width : row_width;
  CompressorWeights w;
  w.values = load.matrix(name + "_kv.weight", c.width, width);
  w.gates = load.matrix(name + "_gate.weight", c.width, width);
  w.positions = ConstRows(load.floats(name + "_ape.weight", width, ratio), ratio, width, width);
  w.norm = load.floats(name + "_norm.weight", row_width);
  return w;
}

LayerWeights load_layer(WeightLoader& load, const Config& c, int index) {
  const LayerConfig& layer = c.layers[index];
  const std::string prefix = "blk." + std::to_string(index) + ".";
  LayerWeights w;
  w.attention_norm = load.floats(prefix + "attn_norm.weight", c.width);
  w.query_a = load.matrix(prefix + "attn_q_a.weight", c.width, c.query_rank);
  w.query_norm = load.floats(prefix + "attn_q_a_norm.weight", c.query_rank);
  w.query_b = load.matrix(prefix + "attn_q_b.weight", c.query_rank, c.heads * c.head_width);
  w.kv = load.matrix(prefix + "attn_kv.weight", c.width, c.head_width);
  w.kv_norm = load.floats(prefix + "attn_kv_a_norm.weight", c.head_width);
  w.sinks = load.floats(prefix + "attn_sinks.weight", c.heads);
  w.output_a = load.matrix(prefix + "attn_output_a.weight", c.heads / c.output_groups * c.head_width,
                           c.output_groups * c.output_rank);
  w.output_b = load.matrix(prefix + "attn_output_b.weight", c.output_groups * c.output_rank, c.width);
  if (layer.ratio != 0) w.compressor = load_compressor(load, prefix + "attn_compressor", c, layer.ratio, c.head_width);
  if (layer.ratio == 4) {
    w.key_compressor = load_compressor(load, prefix + "indexer_compressor", c, layer.ratio, c.index_width);
    w.index_query = load.matrix(prefix + "indexer.attn_q_b.weight", c.query_rank, c.index_heads * c.index_width);
    w.index_heads = load.matrix(prefix + "indexer.proj.weight", c.width, c.index_heads);
  }
  w.attention_hyper = load_hyper(load, prefix + "hc_attn", c, c.hyper_coefficients(), 3);
  w.ffn_hyper = load_hyper(load, prefix + "hc_ffn", c, c.hyper_coefficients(), 3);
  w.ffn_norm = load.floats(prefix + "ffn_norm.weight", c.width);
  w.router = load.matrix(prefix + "ffn_gate_inp.weight", c.width, c.experts);
  if (layer.hash_routed)
    w.router_table = load.table(prefix + "ffn_gate_tid2eid.weight", c.experts_used, c.vocabulary, c.experts);
  else
    w.router_bias = load.floats(prefix + "exp_probs_b.bias", c.experts);
  w.experts = {load.matrix(prefix + "ffn_gate_exps.weight", c.width, c.expert_width, c.experts),
               load.matrix(prefix + "ffn_up_exps.weight", c.width, c.expert_width, c.experts),
               load.matrix(prefix + "ffn_down_exps.weight", c.expert_width, c.width, c.experts)};
  w.shared = {load.matrix(prefix + "ffn_gate_shexp.weight", c.width, c.expert_width),
              load.matrix(prefix + "ffn_up_shexp.weight", c.width, c.expert_width),
              load.matrix(prefix + "ffn_down_shexp.weight", c.expert_width, c.width)};
  return w;
}

}  // namespace

Weights::Weights(const Gguf& file, const Config& c, Ops& ops, std::optional<DType> meaning_of_107,
                 const LoadHooks& hooks) {
  WeightLoader load(file, ops, *this, meaning_of_107, hooks);
  load.read_mix_tables();
  embedding = load.matrix("token_embd.weight", c.width, c.vocabulary);
  head = load.matrix("output.weight", c.width, c.vocabulary);
  final_norm = load.floats("output_norm.weight", c.width);
  head_hyper = load_hyper(load, "output_hc", c, c.streams, 1);
  for (int index = 0; index < static_cast<int>(c.layers.size()); ++index) layers.push_back(load_layer(load, c, index));

  const auto keep = [&](const std::vector<float>& table) {
    return static_cast<const float*>(load.keep(table.data(), table.size() * sizeof(float)));
  };
  frequencies = keep(rope_frequencies(c.rope_base, c.rotary, std::nullopt));
  compressed_frequencies =
      keep(rope_frequencies(c.compressed_rope_base, c.rotary,
                            YarnScaling{c.yarn_factor, c.yarn_original, c.yarn_beta_fast, c.yarn_beta_slow}));
}

}  // namespace lockstep
