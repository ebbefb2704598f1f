#include "engine/synth.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/bytes.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "engine/gguf_sink.h"
#include "engine/model_keys.h"
#include "engine/synth_blocks.h"
#include "engine/synth_vocabulary.h"
#include "numerics/random.h"
#include "tensor/gguf_writer.h"

namespace lockstep {
namespace {

constexpr std::size_t kPieceBytes = 1 << 20;  // made by a thread at a time
constexpr std::size_t kPieces = 32;           // and written together

/// A tensor's own key: FNV-1a of its name, stirred with the seed.
std::uint64_t key_of(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return random_u64(seed, hash);
}

/// Makes any stretch of one tensor's bytes that begins at a whole run.
class TensorSource {
 public:
  TensorSource(const SynthTensor& tensor, std::uint64_t seed) : tensor_(tensor), key_(key_of(seed, tensor.name)) {
    if (tensor.content == SynthTensor::Content::matrix)
      blocks_ = std::make_unique<RandomBlocks>(tensor.dtype, tensor.spread, key_);
  }

  std::size_t run_bytes() const {
    switch (tensor_.content) {
      case SynthTensor::Content::matrix:
        return blocks_->run_bytes();
      case SynthTensor::Content::vector:
        return sizeof(float);
      case SynthTensor::Content::table:
        break;
    }
    return sizeof(std::int32_t) * static_cast<std::size_t>(tensor_.ne[0]);
  }

  void fill(std::int64_t first_run, std::span<std::byte> out) const {
    if (tensor_.content == SynthTensor::Content::matrix) return blocks_->fill(first_run, out);
    const std::size_t run = run_bytes();
    for (std::size_t at = 0; at < out.size(); at += run, ++first_run) {
      if (tensor_.content == SynthTensor::Content::vector) {
        const auto i = static_cast<std::uint64_t>(first_run);
        store_as(out.data() + at, tensor_.means[i % tensor_.means.size()] + tensor_.spread * random_normal(key_, i));
      } else {
        fill_ids(first_run, out.subspan(at, run));
      }
    }
  }

 private:
  /// Different ids, each drawn until it is a new one.
  void fill_ids(std::int64_t row, std::span<std::byte> out) const {
    std::uint32_t draws = 0;
    const int count = static_cast<int>(tensor_.ne[0]);
    for (int i = 0; i < count; ++i) {
      for (bool is_new = false; !is_new; ++draws) {
        const auto id = static_cast<std::int32_t>(random_u64(key_, static_cast<std::uint64_t>(row), draws) %
                                                  static_cast<std::uint64_t>(tensor_.ids));
        is_new = true;
        for (int before = 0; before < i; ++before)
          is_new = is_new && load_as<std::int32_t>(out.data() + 4 * before) != id;
        store_as(out.data() + 4 * i, id);
      }
    }
  }

  const SynthTensor& tensor_;
  std::uint64_t key_;
  std::unique_ptr<RandomBlocks> blocks_;
};

/// Makes bytes [begin, begin + out.size()) of the tensor, on all threads; both ends lie between two runs.
void fill(const TensorSource& source, std::uint64_t begin, std::span<std::byte> out, ThreadPool& pool) {
  const std::size_t run = source.run_bytes(), piece = std::max<std::size_t>(1, kPieceBytes / run) * run;
  const auto first_run = static_cast<std::int64_t>(begin / run);
  pool.parallel_for(static_cast<int>((out.size() + piece - 1) / piece), [&](int i, int) {
    const std::size_t at = static_cast<std::size_t>(i) * piece;
    source.fill(first_run + static_cast<std::int64_t>(at / run), out.subspan(at, std::min(piece, out.size() - at)));
  });
}

/// Makes the bytes of a tensor in order, a buffer at a time, and hands each full buffer to `sink`, which lends the
/// buffer too.
void write_tensor(const SynthTensor& tensor, std::uint64_t seed, ThreadPool& pool, GgufSink& sink) {
  const TensorSource source(tensor, seed);
  const std::size_t run = source.run_bytes(), most = kPieces * (std::max<std::size_t>(1, kPieceBytes / run) * run);
  const std::uint64_t total = tensor.bytes();
  for (std::uint64_t done = 0; done < total;) {
    const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(total - done, most));
    std::vector<std::byte>& buffer = sink.buffer();
    buffer.resize(bytes);
    fill(source, done, buffer, pool);
    sink.take();
    done += bytes;
  }
}

}  // namespace

void declare_synth(GgufWriter& writer, const SynthPlan& plan) {
  writer.set("general.architecture", std::string_view("deepseek4"));
  writer.set("general.type", std::string_view("model"));
  writer.set("general.name",
             fmt::format("synth-{}-{}-seed{}", plan.options.preset, plan.options.types, plan.options.seed));
  writer.set("general.quantization_version", std::uint32_t{2});
  std::vector<std::int32_t> ratios;
  for (const LayerConfig& layer : plan.config.layers) ratios.push_back(layer.ratio);
  ratios.push_back(0);  // the drafter's, which the file does not hold
  set_model_keys(writer, "deepseek4", plan.config, plan.hash_layers, ratios);
  set_tokenizer_keys(writer, synth_vocabulary(plan.config.vocabulary));
  for (const SynthTensor& tensor : plan.tensors) writer.add_tensor(tensor.name, tensor.dtype, tensor.ne);
}

void write_synth(const SynthPlan& plan, const std::filesystem::path& out, const SynthRun& run) {
  check_room(out, plan.bytes());
  GgufWriterOptions options;
  options.progress = run.progress;
  GgufWriter writer(out, options);
  declare_synth(writer, plan);
  writer.begin();
  ThreadPool pool(run.threads);
  {
    GgufSink sink(writer, out, run.cancelled);
    for (const SynthTensor& tensor : plan.tensors) write_tensor(tensor, plan.options.seed, pool, sink);
    sink.finish();
  }
  writer.finish();
}

void fill_synth_tensor(const SynthPlan& plan, const SynthTensor& tensor, ThreadPool& pool, std::span<std::byte> out) {
  LOCKSTEP_CHECK(out.size() == tensor.bytes());
  fill(TensorSource(tensor, plan.options.seed), 0, out, pool);
}

std::vector<std::byte> synth_tensor_bytes(const SynthPlan& plan, const SynthTensor& tensor) {
  ThreadPool pool(1);
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes()));
  fill_synth_tensor(plan, tensor, pool, bytes);
  return bytes;
}

}  // namespace lockstep
