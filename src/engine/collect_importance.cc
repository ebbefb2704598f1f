#include "engine/collect_importance.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "engine/recording_ops.h"

namespace lockstep {
namespace {

constexpr int kLogitRows = 32;

/// Every matrix that is multiplied with, by the name of its tensor.
void record_all(RecordingOps& ops, const Weights& weights, const Config& config) {
  const auto record = [&](const Weight& weight, const std::string& name, std::int64_t planes = 1) {
    if (weight.present()) ops.record(weight, name + ".weight", planes);
  };
  record(weights.head, "output");
  record(weights.head_hyper.fn, "output_hc_fn");
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    const LayerWeights& w = weights.layers[i];
    const std::string blk = fmt::format("blk.{}.", i);
    record(w.query_a, blk + "attn_q_a");
    record(w.query_b, blk + "attn_q_b");
    record(w.kv, blk + "attn_kv");
    record(w.output_a, blk + "attn_output_a", config.output_groups);
    record(w.output_b, blk + "attn_output_b");
    record(w.compressor.values, blk + "attn_compressor_kv");
    record(w.compressor.gates, blk + "attn_compressor_gate");
    record(w.key_compressor.values, blk + "indexer_compressor_kv");
    record(w.key_compressor.gates, blk + "indexer_compressor_gate");
    record(w.index_query, blk + "indexer.attn_q_b");
    record(w.index_heads, blk + "indexer.proj");
    record(w.attention_hyper.fn, blk + "hc_attn_fn");
    record(w.ffn_hyper.fn, blk + "hc_ffn_fn");
    record(w.router, blk + "ffn_gate_inp");
    record(w.experts.gate, blk + "ffn_gate_exps", config.experts);
    record(w.experts.up, blk + "ffn_up_exps", config.experts);
    record(w.experts.down, blk + "ffn_down_exps", config.experts);
    record(w.shared.gate, blk + "ffn_gate_shexp");
    record(w.shared.up, blk + "ffn_up_shexp");
    record(w.shared.down, blk + "ffn_down_shexp");
  }
}

}  // namespace

Importance collect_importance(Engine& engine, std::span<const std::vector<Token>> prompts,
                              const CollectProgress& progress) {
  RecordingOps ops(engine.ops());
  record_all(ops, engine.weights(), engine.config());
  const int most_rows = engine.forward().max_rows();
  Forward forward(engine.config(), engine.weights(), engine.mode(), ops, most_rows);
  const int vocabulary = engine.config().vocabulary;
  const Buffer logits(engine.ops(), sizeof(float) * kLogitRows * static_cast<std::size_t>(vocabulary));

  std::int64_t total = 0, done = 0;
  for (const std::vector<Token>& prompt : prompts) total += static_cast<std::int64_t>(prompt.size());
  Importance importance;
  const auto is_cancelled = [&] { return progress.cancelled && progress.cancelled(); };
  for (const std::vector<Token>& prompt : prompts) {
    SequenceCache cache = engine.new_sequence();
    for (std::size_t begin = 0; begin < prompt.size() && !is_cancelled();
         begin += static_cast<std::size_t>(most_rows)) {
      const auto tokens =
          std::span(prompt).subspan(begin, std::min(prompt.size() - begin, static_cast<std::size_t>(most_rows)));
      const int rows = static_cast<int>(tokens.size());
      const BatchItem item{&cache, tokens, rows};
      forward.step({&item, 1});
      for (int row = 0; row < rows; row += kLogitRows)  // for the head's input
        forward.logits(row, {logits.floats(), std::min(kLogitRows, rows - row), vocabulary, vocabulary});
      done += rows;
      if (progress.show) progress.show(done, total);
    }
    if (is_cancelled()) break;
    ++importance.chunks;
    importance.chunk_tokens = std::max(importance.chunk_tokens, static_cast<std::int64_t>(prompt.size()));
  }
  for (const auto& [data, named] : ops.entries()) importance.entries.emplace(named.first, named.second);
  return importance;
}

std::vector<std::vector<Token>> cut_prompt(std::span<const Token> prompt, std::int64_t context) {
  LOCKSTEP_CHECK(context >= 2);
  std::vector<std::vector<Token>> pieces;
  const auto most = static_cast<std::size_t>(context);
  for (std::size_t begin = 0; begin < prompt.size();) {
    std::vector<Token>& piece = pieces.emplace_back();
    if (begin > 0) piece.push_back(prompt[0]);
    const std::size_t end = std::min(prompt.size(), begin + most - piece.size());
    piece.insert(piece.end(), prompt.begin() + static_cast<std::ptrdiff_t>(begin),
                 prompt.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
  return pieces;
}

}  // namespace lockstep
