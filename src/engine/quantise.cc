#include "engine/quantise.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/bytes.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "engine/gguf_sink.h"
#include "tensor/dequantize.h"
#include "tensor/gguf_writer.h"
#include "tensor/quantise.h"

namespace lockstep {
namespace {

constexpr std::int64_t kPieceValues = 1 << 14;   // of a thread at a time, in whole rows
constexpr std::int64_t kBufferValues = 1 << 22;  // of a buffer; the slowest formats take a second or two for them
constexpr std::int64_t kCopyBytes = 16 << 20;
constexpr std::int64_t kMeasuredRows = 8;  // one of so many

/// Sums over the rows that were measured.
struct Errors {
  double error = 0, size = 0;
};

/// Makes one tensor's bytes in order, a buffer at a time.
class TensorQuantiser {
 public:
  TensorQuantiser(const QuantisePlan& plan, ThreadPool& pool, GgufSink& sink)
      : plan_(plan), pool_(pool), sink_(sink), scratch_(static_cast<std::size_t>(pool.threads())) {}

  Errors make(const QuantiseTensor& tensor) {
    if (!tensor.is_copied()) return quantise(tensor);
    const std::span<const std::byte> bytes = tensor.source->bytes;
    for (std::size_t at = 0; at < bytes.size(); at += kCopyBytes) {
      const auto piece = bytes.subspan(at, std::min<std::size_t>(kCopyBytes, bytes.size() - at));
      sink_.buffer().assign(piece.begin(), piece.end());
      sink_.take();
    }
    return {};
  }

 private:
  struct Scratch {
    std::vector<float> row, back;
  };

  Errors quantise(const QuantiseTensor& tensor) {
    const Quantiser quantiser(tensor.to);
    const std::vector<float> importance =
        tensor.importance == nullptr ? std::vector<float>() : tensor.importance->mean_squares();
    const std::int64_t width = tensor.source->ne[0], rows = tensor.source->rows();
    const std::int64_t rows_of_plane = tensor.importance == nullptr ? rows : rows / tensor.importance->planes();
    const std::int64_t piece = std::max<std::int64_t>(1, kPieceValues / width);
    const std::int64_t buffered = std::max<std::int64_t>(piece, kBufferValues / width);
    const std::size_t from_bytes = row_bytes(tensor.from, width), to_bytes = row_bytes(tensor.to, width);
    for (Scratch& scratch : scratch_) {
      scratch.row.resize(static_cast<std::size_t>(width));
      scratch.back.resize(static_cast<std::size_t>(width));
    }
    const auto weights_of = [&](std::int64_t row) -> std::span<const float> {
      if (importance.empty()) return {};
      return std::span(importance)
          .subspan(static_cast<std::size_t>(row / rows_of_plane * width), static_cast<std::size_t>(width));
    };
    Errors errors;
    std::vector<Errors> measured;
    for (std::int64_t first = 0; first < rows; first += buffered) {
      const std::int64_t last = std::min(rows, first + buffered);
      std::vector<std::byte>& buffer = sink_.buffer();
      buffer.resize(static_cast<std::size_t>(last - first) * to_bytes);
      measured.assign(static_cast<std::size_t>(last - first), {});
      std::atomic<std::int64_t> bad_row{rows};  // the first one
      pool_.parallel_for(static_cast<int>((last - first + piece - 1) / piece), [&](int i, int thread) {
        Scratch& scratch = scratch_[static_cast<std::size_t>(thread)];
        const std::int64_t end = std::min(last, first + (i + 1) * piece);
        for (std::int64_t row = first + i * piece; row < end; ++row) {
          dequantize_row(tensor.from, tensor.source->bytes.data() + static_cast<std::size_t>(row) * from_bytes, width,
                         scratch.row.data());
          std::byte* out = buffer.data() + static_cast<std::size_t>(row - first) * to_bytes;
          quantiser.quantise_row(scratch.row, weights_of(row), out);
          if (first_unheld(quantiser, scratch.row, weights_of(row), out)) {
            std::int64_t known = bad_row;
            while (row < known && !bad_row.compare_exchange_weak(known, row)) {
            }
            return;
          }
          if (row % kMeasuredRows != 0) continue;
          dequantize_row(tensor.to, out, width, scratch.back.data());
          measured[static_cast<std::size_t>(row - first)] = error_of(scratch.row, scratch.back, weights_of(row));
        }
      });
      if (bad_row < rows)
        throw bad_value(tensor, bad_row, quantiser, weights_of(bad_row),
                        buffer.data() + static_cast<std::size_t>(bad_row - first) * to_bytes);
      for (const Errors& row : measured) {  // in the order of the rows
        errors.error += row.error;
        errors.size += row.size;
      }
      sink_.take();
    }
    return errors;
  }

  static Errors error_of(std::span<const float> row, std::span<const float> back, std::span<const float> weights) {
    Errors errors;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const double w = weights.empty() ? 1.0 : static_cast<double>(weights[i]);
      const double x = static_cast<double>(row[i]), off = x - static_cast<double>(back[i]);
      errors.error += w * off * off;
      errors.size += w * x * x;
    }
    return errors;
  }

  Error bad_value(const QuantiseTensor& tensor, std::int64_t row, const Quantiser& quantiser,
                  std::span<const float> weights, const std::byte* made) const {
    const GgufTensor& source = *tensor.source;
    std::vector<float> values(static_cast<std::size_t>(source.ne[0]));
    dequantize_row(tensor.from,
                   source.bytes.data() + static_cast<std::size_t>(row) * row_bytes(tensor.from, source.ne[0]),
                   source.ne[0], values.data());
    const std::size_t column = first_unheld(quantiser, values, weights, made).value();
    return Error(
        Error::Kind::bad_file,
        fmt::format("{}: tensor {}, row {}, column {} is {}, expected a number that {} holds", plan_.file->name(),
                    quoted(source.name), row, column, values[column], info_of(tensor.to).name));
  }

  const QuantisePlan& plan_;
  ThreadPool& pool_;
  GgufSink& sink_;
  std::vector<Scratch> scratch_;  // by thread
};

void set_keys(GgufWriter& writer, const QuantisePlan& plan) {
  writer.set_all(*plan.file);
  writer.set("general.file_type", plan.file_type);
  writer.set("general.quantization_version", std::uint32_t{2});
  if (plan.options.importance.empty()) return;
  writer.set("quantize.imatrix.file", plan.options.importance.filename().string());
  writer.set("quantize.imatrix.dataset", plan.importance.source);
  writer.set("quantize.imatrix.entries_count", static_cast<std::uint32_t>(plan.importance.entries.size()));
  writer.set("quantize.imatrix.chunks_count", static_cast<std::uint32_t>(plan.importance.chunks));
}

}  // namespace

QuantiseResult write_quantised(const QuantisePlan& plan, const std::filesystem::path& out, const QuantiseRun& run) {
  GgufWriterOptions options;
  options.inputs = plan.file->inputs({plan.options.importance});
  refuse_input(replaced_file(out), options.inputs);
  check_room(out, plan.bytes());
  options.part_bytes = run.part_bytes;
  options.progress = run.progress;
  GgufWriter writer(out, options);
  set_keys(writer, plan);
  for (const QuantiseTensor& tensor : plan.tensors)
    writer.add_tensor(tensor.source->name, tensor.to,
                      std::span(tensor.source->ne).first(static_cast<std::size_t>(tensor.source->dims)));
  writer.begin();
  ThreadPool pool(run.threads);
  QuantisedFormat formats[kDTypeCount];
  Errors errors[kDTypeCount];
  {
    GgufSink sink(writer, out, run.cancelled);
    TensorQuantiser quantiser(plan, pool, sink);
    for (const QuantiseTensor& tensor : plan.tensors) {
      const Errors made = quantiser.make(tensor);
      const auto at = static_cast<std::size_t>(tensor.to);
      ++formats[at].tensors;
      formats[at].bytes += tensor.bytes();
      formats[at].is_measured = formats[at].is_measured || !tensor.is_copied();
      errors[at].error += made.error;
      errors[at].size += made.size;
    }
    sink.finish();
  }
  QuantiseResult result;
  result.files = writer.finish();
  for (std::size_t i = 0; i < kDTypeCount; ++i) {
    if (formats[i].tensors == 0) continue;
    formats[i].dtype = static_cast<DType>(i);
    if (errors[i].size > 0) formats[i].error = std::sqrt(errors[i].error / errors[i].size);
    result.formats.push_back(formats[i]);
  }
  return result;
}

}  // namespace lockstep
