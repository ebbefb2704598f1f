#include "engine/synth.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <memory>
#include <system_error>

#include "base/bytes.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "engine/synth_blocks.h"
#include "engine/synth_vocabulary.h"
#include "numerics/random.h"
#include "tensor/gguf_writer.h"

namespace lockstep {
namespace {

constexpr std::size_t kPieceBytes = 1 << 20;     // made by a thread at a time
constexpr std::size_t kPieces = 32;              // and written together
constexpr std::uint64_t kSpareBytes = 64 << 20;  // left on the disk, and room for the header

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

void set_model_keys(GgufWriter& writer, const SynthPlan& plan) {
  const Config& c = plan.config;
  const auto number = [&](std::string_view key, std::int64_t value) {
    writer.set(fmt::format("deepseek4.{}", key), static_cast<std::uint32_t>(value));
  };
  const auto real = [&](std::string_view key, double value) {
    writer.set(fmt::format("deepseek4.{}", key), static_cast<float>(value));
  };
  const auto layers = static_cast<std::int64_t>(c.layers.size());
  writer.set("general.architecture", std::string_view("deepseek4"));
  writer.set("general.type", std::string_view("model"));
  writer.set("general.name",
             fmt::format("synth-{}-{}-seed{}", plan.options.preset, plan.options.types, plan.options.seed));
  writer.set("general.quantization_version", std::uint32_t{2});
  number("block_count", layers);
  number("context_length", c.context_length);
  number("embedding_length", c.width);
  number("vocab_size", c.vocabulary);
  number("attention.head_count", c.heads);
  number("attention.head_count_kv", 1);
  number("attention.key_length", c.head_width);
  number("attention.value_length", c.head_width);
  number("rope.dimension_count", c.rotary);
  real("attention.layer_norm_rms_epsilon", c.norm_epsilon);
  number("attention.q_lora_rank", c.query_rank);
  number("attention.output_lora_rank", c.output_rank);
  number("attention.output_group_count", c.output_groups);
  number("attention.sliding_window", c.window);
  std::vector<std::int32_t> ratios;
  for (const LayerConfig& layer : c.layers) ratios.push_back(layer.ratio);
  ratios.push_back(0);  // the drafter's, which the file does not hold
  writer.set_array<std::int32_t>("deepseek4.attention.compress_ratios", ratios);
  real("attention.compress_rope_freq_base", c.compressed_rope_base);
  number("attention.indexer.head_count", c.index_heads);
  number("attention.indexer.key_length", c.index_width);
  number("attention.indexer.top_k", c.index_top_k);
  real("rope.freq_base", c.rope_base);
  writer.set("deepseek4.rope.scaling.type", std::string_view("yarn"));
  real("rope.scaling.factor", c.yarn_factor);
  number("rope.scaling.original_context_length", static_cast<std::int64_t>(c.yarn_original));
  real("rope.scaling.yarn_beta_fast", c.yarn_beta_fast);
  real("rope.scaling.yarn_beta_slow", c.yarn_beta_slow);
  number("expert_count", c.experts);
  number("expert_used_count", c.experts_used);
  number("expert_shared_count", 1);
  number("expert_feed_forward_length", c.expert_width);
  real("expert_weights_scale", c.route_scale);
  writer.set("deepseek4.expert_weights_norm", true);
  number("expert_gating_func", 4);
  number("hash_layer_count", plan.hash_layers);
  std::vector<float> clamps, shared_clamps;
  for (const LayerConfig& layer : c.layers) {
    clamps.push_back(layer.clamp);
    shared_clamps.push_back(layer.shared_clamp);
  }
  writer.set_array<float>("deepseek4.swiglu_clamp_exp", clamps);
  writer.set_array<float>("deepseek4.swiglu_clamp_shexp", shared_clamps);
  number("hyper_connection.count", c.streams);
  number("hyper_connection.sinkhorn_iterations", c.sinkhorn_iterations);
  real("hyper_connection.epsilon", c.hyper_epsilon);
}

void set_tokenizer_keys(GgufWriter& writer, const Vocabulary& vocabulary) {
  const auto views = [](const std::vector<std::string>& texts) {
    return std::vector<std::string_view>(texts.begin(), texts.end());
  };
  writer.set("tokenizer.ggml.model", vocabulary.model);
  writer.set("tokenizer.ggml.pre", vocabulary.pre);
  writer.set_array("tokenizer.ggml.tokens", views(vocabulary.tokens));
  writer.set_array<std::int32_t>("tokenizer.ggml.token_type", vocabulary.types);
  writer.set_array("tokenizer.ggml.merges", views(vocabulary.merges));
  writer.set("tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(vocabulary.bos.value()));
  writer.set("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(vocabulary.eos.value()));
  writer.set("tokenizer.ggml.padding_token_id", static_cast<std::uint32_t>(vocabulary.pad.value()));
  writer.set("tokenizer.ggml.add_bos_token", false);
  writer.set("tokenizer.ggml.add_eos_token", false);
}

void check_room(const std::filesystem::path& out, std::uint64_t bytes) {
  std::filesystem::path folder = std::filesystem::absolute(out).parent_path();
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error) throw Error(Error::Kind::io, folder.string() + ": " + error.message());
  if (space.available < bytes + kSpareBytes)
    throw Error(Error::Kind::io, fmt::format("{}: {:.2f} GB are needed, {} has {:.2f} GB free", out.string(),
                                             static_cast<double>(bytes + kSpareBytes) / 1e9, folder.string(),
                                             static_cast<double>(space.available) / 1e9));
}

/// Makes the bytes of a tensor in order, a buffer at a time, on all threads, and hands each full buffer to `sink`,
/// which lends the buffer too.
template <class Sink>
void make_tensor(const SynthTensor& tensor, std::uint64_t seed, ThreadPool& pool, Sink&& sink) {
  const TensorSource source(tensor, seed);
  const std::size_t run = source.run_bytes();
  const std::size_t piece = std::max<std::size_t>(1, kPieceBytes / run) * run;
  const std::uint64_t total = tensor.bytes();
  for (std::uint64_t done = 0; done < total;) {
    const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(total - done, kPieces * piece));
    std::vector<std::byte>& buffer = sink.buffer();
    buffer.resize(bytes);
    const auto first_run = static_cast<std::int64_t>(done / run);
    pool.parallel_for(static_cast<int>((bytes + piece - 1) / piece), [&](int i, int) {
      const std::size_t at = static_cast<std::size_t>(i) * piece;
      source.fill(first_run + static_cast<std::int64_t>(at / run),
                  std::span(buffer).subspan(at, std::min(piece, bytes - at)));
    });
    sink.take();
    done += bytes;
  }
}

/// Writes one buffer while the next one is made: copying into the page cache takes as long as making the bytes.
class WriterSink {
 public:
  WriterSink(GgufWriter& writer, const std::filesystem::path& out, const SynthRun& run)
      : writer_(writer), out_(out), run_(run) {}
  ~WriterSink() {
    if (writing_.valid()) writing_.wait();
  }
  WriterSink(const WriterSink&) = delete;
  WriterSink& operator=(const WriterSink&) = delete;

  std::vector<std::byte>& buffer() { return buffers_[current_]; }
  void take() {
    finish();
    if (run_.cancelled && run_.cancelled())
      throw Error(Error::Kind::cancelled, out_.string() + ": interrupted, nothing is left of it");
    writing_ = std::async(std::launch::async, [this, &full = buffers_[current_]] { writer_.append(full); });
    current_ = 1 - current_;
  }
  /// Waits for the last buffer. Throws what the writer threw.
  void finish() {
    if (writing_.valid()) writing_.get();
  }

 private:
  GgufWriter& writer_;
  const std::filesystem::path& out_;
  const SynthRun& run_;
  std::vector<std::byte> buffers_[2];
  int current_ = 0;
  std::future<void> writing_;
};

/// Collects the bytes of one tensor.
class MemorySink {
 public:
  std::vector<std::byte>& buffer() { return buffer_; }
  void take() { bytes.insert(bytes.end(), buffer_.begin(), buffer_.end()); }
  std::vector<std::byte> bytes;

 private:
  std::vector<std::byte> buffer_;
};

}  // namespace

void write_synth(const SynthPlan& plan, const std::filesystem::path& out, const SynthRun& run) {
  check_room(out, plan.bytes());
  GgufWriterOptions options;
  options.progress = run.progress;
  GgufWriter writer(out, options);
  set_model_keys(writer, plan);
  set_tokenizer_keys(writer, synth_vocabulary(plan.config.vocabulary));
  for (const SynthTensor& tensor : plan.tensors) writer.add_tensor(tensor.name, tensor.dtype, tensor.ne);
  writer.begin();
  ThreadPool pool(run.threads);
  {
    WriterSink sink(writer, out, run);
    for (const SynthTensor& tensor : plan.tensors) make_tensor(tensor, plan.options.seed, pool, sink);
    sink.finish();
  }
  writer.finish();
}

std::vector<std::byte> synth_tensor_bytes(const SynthPlan& plan, const SynthTensor& tensor) {
  ThreadPool pool(1);
  MemorySink sink;
  make_tensor(tensor, plan.options.seed, pool, sink);
  return std::move(sink.bytes);
}

}  // namespace lockstep
