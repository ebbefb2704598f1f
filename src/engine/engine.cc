#include "engine/engine.h"

#include "base/error.h"
#include "engine/synth_model.h"
#include "tensor/rocmfp2.h"

namespace lockstep {
namespace {

GgufOptions gguf_options(const EngineOptions& options) { return {options.meaning_of_108}; }

}  // namespace

Engine::Engine(const EngineOptions& options, std::unique_ptr<Ops> ops,
               const std::function<void(const std::string&)>& note)
    : options_(options),
      synth_(options.synth == nullptr ? nullptr : std::make_unique<SynthModel>(*options.synth)),
      file_(synth_ == nullptr ? Gguf(options.model, gguf_options(options)) : Gguf(synth_->bytes(), synth_->name())),
      config_(read_config(file_)),
      ops_(std::move(ops)) {
  if (options.timing != Timing::off) {
    auto timed = std::make_unique<TimedOps>(std::move(ops_));
    timed->set_timing(options.timing);
    timer_ = timed.get();
    ops_ = std::move(timed);
  }
  const std::optional<DType> type_107 =
      synth_ != nullptr ? std::nullopt : meaning_of_107(file_, options.rocmfp2, note);  // made as type 107 says
  weights_ = std::make_unique<Weights>(file_, config_, *ops_, type_107, LoadHooks{synth_.get(), options.progress});
  forward_ = std::make_unique<Forward>(config_, *weights_, options.mode, *ops_, options.max_rows);
}

Engine::~Engine() = default;

// Every tensor of type 107 in a file is of one variant, so the first one decides.
std::optional<DType> meaning_of_107(const Gguf& file, std::optional<DType> forced,
                                    const std::function<void(const std::string&)>& note) {
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.dtype != DType::rocmfp2) continue;
    std::optional<Rocmfp2Variant> variant;
    if (forced == DType::rocmfp2) variant = Rocmfp2Variant::fixed;
    if (forced == DType::rocmfp2_affine) variant = Rocmfp2Variant::affine;
    if (forced == DType::rocmfp2_s40) variant = Rocmfp2Variant::s40;
    const Rocmfp2Decision decision = detect_rocmfp2(tensor.bytes, tensor.name, variant);
    if (note) note(decision.reason);
    return dtype_of(decision.variant);
  }
  return std::nullopt;
}

Vocabulary vocabulary_of(const Gguf& file) {
  Vocabulary v;
  v.model = file.string_of("tokenizer.ggml.model");
  v.pre = file.string_of("tokenizer.ggml.pre");
  for (const std::string_view token : file.strings_of("tokenizer.ggml.tokens")) v.tokens.emplace_back(token);
  for (const std::string_view merge : file.strings_of("tokenizer.ggml.merges")) v.merges.emplace_back(merge);
  if (file.find("tokenizer.ggml.token_type") != nullptr)
    for (const std::int64_t type : file.ints_of("tokenizer.ggml.token_type"))
      v.types.push_back(static_cast<std::int32_t>(type));
  const auto id = [&](const char* key) -> std::optional<Token> {
    if (file.find(key) == nullptr) return std::nullopt;
    return static_cast<Token>(file.int_of(key));
  };
  v.bos = id("tokenizer.ggml.bos_token_id");
  v.eos = id("tokenizer.ggml.eos_token_id");
  v.pad = id("tokenizer.ggml.padding_token_id");
  v.chat_template = file.string_or("tokenizer.chat_template", "");
  return v;
}

const Tokenizer& Engine::tokenizer() {
  if (tokenizer_ == nullptr) {
    const Vocabulary vocabulary = vocabulary_of(file_);
    check_vocabulary(vocabulary, config_.vocabulary);
    tokenizer_ = std::make_unique<Tokenizer>(vocabulary);
  }
  return *tokenizer_;
}

namespace {

MemoryPlan plan_of(std::uint64_t weights, const Config& config, Mode mode, std::int64_t context, int max_rows) {
  MemoryPlan plan;
  plan.context = context;
  plan.weights = weights;
  plan.sequence = SequenceCache::plan_bytes(config, mode, context);
  plan.workspace = Forward::workspace_bytes(config, max_rows) + SequenceCache::plan_bytes(config, mode, 0);
  return plan;
}

}  // namespace

MemoryPlan plan_memory(const Gguf& file, const Config& config, Mode mode, std::int64_t context, int max_rows) {
  return plan_of(file.file_bytes(), config, mode, context, max_rows);
}

MemoryPlan plan_memory(const SynthPlan& plan, Mode mode, std::int64_t context, int max_rows) {
  return plan_of(plan.bytes(), plan.config, mode, context, max_rows);
}

}  // namespace lockstep
