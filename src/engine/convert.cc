#include "engine/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "base/thread_pool.h"
#include "engine/convert_rows.h"
#include "engine/gguf_sink.h"
#include "engine/model_keys.h"
#include "tensor/gguf_writer.h"

namespace lockstep {
namespace {

constexpr std::int64_t kPieceBytes = 1 << 20;  // made by a thread at a time, in whole rows
constexpr std::int64_t kPieces = 32;           // and written together

/// The worst row of a buffer, kept as the first one in the tensor: which thread found it first does not matter.
class FirstProblem {
 public:
  void report(std::int64_t row, std::string what) {
    const std::lock_guard lock(mutex_);
    if (row_ >= 0 && row_ <= row) return;
    row_ = row;
    what_ = std::move(what);
  }
  std::int64_t row() const { return row_; }  // -1: none
  const std::string& what() const { return what_; }

 private:
  std::mutex mutex_;
  std::int64_t row_ = -1;
  std::string what_;
};

Error bad_row(const Checkpoint& checkpoint, const ConvertTensor& tensor, std::int64_t row, const std::string& what) {
  const StoredTensor& weight = *tensor.planes[static_cast<std::size_t>(row / tensor.rows())].weight;
  return Error(Error::Kind::bad_file, fmt::format("{}: tensor {}, row {}, {}", checkpoint.folder().string(),
                                                  lockstep::quoted(weight.name), row % tensor.rows(), what));
}

/// Makes a tensor's bytes in order, a buffer at a time.
class TensorMaker {
 public:
  TensorMaker(const Checkpoint& checkpoint, ThreadPool& pool, GgufSink& sink)
      : checkpoint_(checkpoint), pool_(pool), sink_(sink), scratch_(static_cast<std::size_t>(pool.threads())) {}

  void make(const ConvertTensor& tensor) {
    const RowConverter converter(tensor);
    const std::int64_t width = tensor.ne[0], rows = tensor.rows();
    const std::int64_t all_rows = rows * static_cast<std::int64_t>(tensor.planes.size());
    const auto bytes = static_cast<std::int64_t>(row_bytes(tensor.dtype, width));
    const std::int64_t piece = std::max<std::int64_t>(1, kPieceBytes / bytes);
    for (std::vector<float>& scratch : scratch_) scratch.resize(static_cast<std::size_t>(width));
    std::int64_t released = 0;
    for (std::int64_t first = 0; first < all_rows;) {
      const std::int64_t last = std::min(all_rows, first + kPieces * piece);
      std::vector<std::byte>& buffer = sink_.buffer();
      buffer.resize(static_cast<std::size_t>((last - first) * bytes));
      FirstProblem problem;
      pool_.parallel_for(static_cast<int>((last - first + piece - 1) / piece), [&](int i, int thread) {
        float* scratch = scratch_[static_cast<std::size_t>(thread)].data();
        const std::int64_t end = std::min(last, first + (i + 1) * piece);
        for (std::int64_t row = first + i * piece; row < end; ++row) {
          auto what = converter.convert(row / rows, row % rows, scratch, buffer.data() + (row - first) * bytes);
          if (what) return problem.report(row, std::move(*what));
        }
      });
      if (problem.row() >= 0) throw bad_row(checkpoint_, tensor, problem.row(), problem.what());
      sink_.take();
      first = last;
      for (; released < first / rows; ++released) release(tensor.planes[static_cast<std::size_t>(released)]);
    }
  }

 private:
  void release(const ConvertSource& source) const {
    checkpoint_.release(*source.weight);
    if (source.scale != nullptr) checkpoint_.release(*source.scale);
  }

  const Checkpoint& checkpoint_;
  ThreadPool& pool_;
  GgufSink& sink_;
  std::vector<std::vector<float>> scratch_;  // by thread
};

std::uint32_t common_file_type(const ConvertPlan& plan) {
  std::uint64_t bytes[kDTypeCount] = {};
  for (const ConvertTensor& tensor : plan.tensors) bytes[static_cast<std::size_t>(tensor.dtype)] += tensor.bytes();
  return file_type_of(bytes);
}

void set_sampling_keys(GgufWriter& writer, const SamplingHints& hints) {
  if (hints.top_k) writer.set("general.sampling.top_k", static_cast<std::int32_t>(*hints.top_k));
  if (hints.top_p) writer.set("general.sampling.top_p", *hints.top_p);
  if (hints.min_p) writer.set("general.sampling.min_p", *hints.min_p);
  if (hints.temperature) writer.set("general.sampling.temp", *hints.temperature);
  if (hints.repetition_penalty) writer.set("general.sampling.penalty_repeat", *hints.repetition_penalty);
}

void set_keys(GgufWriter& writer, const ConvertPlan& plan) {
  constexpr std::string_view kArchitectures[] = {"deepseek4", "dflash", "deepseek4_mtp_support"};
  const std::string_view architecture = kArchitectures[static_cast<std::size_t>(plan.kind)];
  const std::string prefix(plan.kind == ConvertKind::dspark ? "dflash" : "deepseek4");
  writer.set("general.architecture", architecture);
  writer.set("general.type", std::string_view("model"));
  writer.set("general.name", plan.options.name.empty() ? plan.config.name : plan.options.name);
  set_sampling_keys(writer, plan.sampling);
  writer.set("general.file_type", common_file_type(plan));
  writer.set("general.quantization_version", std::uint32_t{2});
  const int hash_layers = plan.kind == ConvertKind::trunk ? plan.config.hash_layers : 0;
  set_model_keys(writer, prefix, plan.model, hash_layers, plan.ratios);
  if (plan.kind == ConvertKind::trunk)
    writer.set("deepseek4.embedding_length_out", static_cast<std::uint32_t>(plan.model.width * plan.model.streams));
  if (plan.kind == ConvertKind::mtp) {
    writer.set("deepseek4.mtp_layer_count", std::uint32_t{1});
    writer.set("deepseek4.nextn_predict_layers", std::uint32_t{1});
    return;
  }
  set_tokenizer_keys(writer, plan.vocabulary);
  if (plan.kind == ConvertKind::trunk) return;
  const DsparkConfig& dspark = *plan.config.dspark;
  std::vector<std::int32_t> inputs;  // the layers whose inputs are read: one past those whose outputs are
  for (const int layer : dspark.target_layers) inputs.push_back(layer + 1);
  writer.set("dflash.block_size", static_cast<std::uint32_t>(dspark.block_size));
  writer.set_array<std::int32_t>("dflash.target_layers", inputs);
  writer.set("tokenizer.ggml.mask_token_id", static_cast<std::uint32_t>(dspark.mask_token));
}

/// Everything in the checkpoint's folder: what is not read today is no place for the output either.
std::vector<std::filesystem::path> inputs_of(const ConvertPlan& plan) {
  std::vector<std::filesystem::path> inputs;
  for (const auto& entry : std::filesystem::directory_iterator(plan.checkpoint->folder()))
    if (entry.is_regular_file()) inputs.push_back(entry.path());
  return inputs;
}

}  // namespace

std::int64_t ConvertTensor::rows() const { return ne.size() > 1 ? ne[1] : 1; }

std::uint64_t ConvertTensor::bytes() const {
  return static_cast<std::uint64_t>(rows()) * planes.size() * row_bytes(dtype, ne[0]);
}

std::uint64_t ConvertPlan::bytes() const {
  std::uint64_t sum = 0;
  for (const ConvertTensor& tensor : tensors) sum += tensor.bytes();
  return sum;
}

std::vector<std::filesystem::path> write_conversion(const ConvertPlan& plan, const std::filesystem::path& out,
                                                    const ConvertRun& run) {
  GgufWriterOptions options;
  options.inputs = inputs_of(plan);
  refuse_input(replaced_file(out), options.inputs);
  check_room(out, plan.bytes());
  options.part_bytes = run.part_bytes;
  options.progress = run.progress;
  GgufWriter writer(out, options);
  set_keys(writer, plan);
  for (const ConvertTensor& tensor : plan.tensors) writer.add_tensor(tensor.name, tensor.dtype, tensor.ne);
  writer.begin();
  ThreadPool pool(run.threads);
  {
    GgufSink sink(writer, out, run.cancelled);
    TensorMaker maker(*plan.checkpoint, pool, sink);
    for (const ConvertTensor& tensor : plan.tensors) maker.make(tensor);
    sink.finish();
  }
  return writer.finish();
}

}  // namespace lockstep
