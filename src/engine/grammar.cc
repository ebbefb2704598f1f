#include "engine/grammar.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "engine/grammar_schema.h"
#include "text/tokenizer.h"

namespace lockstep {
namespace {

constexpr std::size_t kLargeBytes = std::size_t{64} << 20;
/// Sets values[i] to -infinity where bit i is 0. Without a branch, and eight at a time: half a vocabulary's bits are a
/// coin toss for a branch predictor.
inline void keep_bits(float* values, unsigned bits) {
  constexpr std::uint32_t kNever = 0xff800000u;
  std::uint32_t words[8];
  std::memcpy(words, values, sizeof words);
  for (unsigned i = 0; i < 8; ++i) {
    const std::uint32_t keep = 0u - (bits >> i & 1u);
    words[i] = (words[i] & keep) | (kNever & ~keep);
  }
  std::memcpy(values, words, sizeof words);
}

constexpr std::size_t kMostFrames = 1 << 14;  // of one state: beyond, the grammar is too ambiguous to follow

}  // namespace

// ---- TokenTrie ----

TokenTrie::TokenTrie(const Tokenizer& tokenizer) : vocabulary_(tokenizer.size()) {
  std::vector<Token> ordinary;
  for (std::size_t i = 0; i < vocabulary_; ++i) {
    const auto token = static_cast<Token>(i);
    if (tokenizer.is_added(token)) {
      added_.emplace_back(std::string(tokenizer.bytes_of(token)), token);
    } else if (!tokenizer.bytes_of(token).empty()) {
      ordinary.push_back(token);
    }
  }
  std::sort(ordinary.begin(), ordinary.end(), [&](Token a, Token b) {
    const std::string_view x = tokenizer.bytes_of(a), y = tokenizer.bytes_of(b);
    return x != y ? x < y : a < b;
  });
  std::vector<std::uint32_t> path;  // the nodes of the last token's bytes
  std::string_view last;
  const auto leave = [&](std::size_t depth) {
    for (; path.size() > depth; path.pop_back()) nodes_[path.back()].skip = static_cast<std::uint32_t>(nodes_.size());
  };
  for (const Token token : ordinary) {
    const std::string_view bytes = tokenizer.bytes_of(token);
    const auto common = static_cast<std::size_t>(
        std::mismatch(last.begin(), last.begin() + static_cast<std::ptrdiff_t>(std::min(last.size(), bytes.size())),
                      bytes.begin())
            .first -
        last.begin());
    leave(common);
    for (std::size_t depth = common; depth < bytes.size(); ++depth) {
      path.push_back(static_cast<std::uint32_t>(nodes_.size()));
      Node node;
      node.depth = static_cast<std::uint16_t>(depth + 1);
      node.byte = static_cast<unsigned char>(bytes[depth]);
      node.first_token = static_cast<std::uint32_t>(tokens_.size());
      nodes_.push_back(node);
    }
    ++nodes_[path.back()].token_count;  // its tokens follow each other: equal bytes stand side by side
    tokens_.push_back(token);
    last = bytes;
  }
  leave(0);
}

// ---- Grammar ----

std::size_t Grammar::StateHash::operator()(const std::vector<std::uint32_t>& frames) const {
  std::uint64_t hash = frames.size();
  for (const std::uint32_t f : frames) hash = (hash ^ f) * 0x9e3779b97f4a7c15u + (hash >> 29);
  return hash;
}

Grammar::Grammar(GrammarProgram program) : program_(std::move(program)) {
  std::vector<std::uint32_t> frames;
  bool is_complete = false;
  visited_.clear();
  close(program_.start, kNone, frames, is_complete);
  start_ = intern(std::move(frames), is_complete);
}

std::shared_ptr<Grammar> Grammar::json_object() {
  GrammarBuilder builder;
  const GrammarBuilder::Rule object = builder.json_object();
  return std::make_shared<Grammar>(
      builder.finish([&](GrammarBuilder::Node next) { return builder.call(object, next); }, "json_object"));
}

std::shared_ptr<Grammar> Grammar::json_schema(const OrderedJson& schema, bool strict,
                                              std::vector<std::string>* left_out) {
  GrammarBuilder builder;
  SchemaCompiler compiler(builder, schema, strict);
  auto grammar = std::make_shared<Grammar>(
      builder.finish([&](GrammarBuilder::Node next) { return compiler.value(schema, "", next); }, "schema"));
  if (left_out != nullptr) *left_out = compiler.left_out();
  return grammar;
}

bool Grammar::is_large() const {
  const std::lock_guard lock(mutex_);
  return bytes_ > kLargeBytes;
}

std::uint32_t Grammar::frame(std::uint32_t node, std::uint32_t parent) {
  const auto [found, is_new] = frame_ids_.emplace(Frame{node, parent}, static_cast<std::uint32_t>(frames_.size()));
  if (is_new) {
    frames_.push_back({node, parent});
    bytes_ += 64;
  }
  return found->second;
}

/// Adds the frames of all nodes that consume something and can be reached from `node` without consuming.
void Grammar::close(std::uint32_t node, std::uint32_t parent, std::vector<std::uint32_t>& frames, bool& is_complete) {
  std::vector<Frame> open = {{node, parent}};
  while (!open.empty()) {
    const Frame at = open.back();
    open.pop_back();
    if (std::find(visited_.begin(), visited_.end(), std::pair(at.node, at.parent)) != visited_.end()) continue;
    const GrammarNode& n = program_.nodes[at.node];
    switch (n.kind) {
      case GrammarNode::Kind::bytes:
      case GrammarNode::Kind::symbol:
        frames.push_back(frame(at.node, at.parent));
        continue;
      case GrammarNode::Kind::ret:
        if (at.parent == kNone) {
          is_complete = true;
        } else {
          open.push_back(frames_[at.parent]);
        }
        continue;
      case GrammarNode::Kind::call: {
        visited_.emplace_back(at.node, at.parent);
        // A call that is the last thing of its rule leaves nothing to come back to.
        const bool is_tail = program_.nodes[n.next].kind == GrammarNode::Kind::ret;
        open.push_back({program_.rules[n.what], is_tail ? at.parent : frame(n.next, at.parent)});
        continue;
      }
      case GrammarNode::Kind::split:
        visited_.emplace_back(at.node, at.parent);
        for (std::uint32_t i = 0; i < n.next; ++i) open.push_back({program_.alternatives[n.what + i], at.parent});
        continue;
    }
  }
}

std::int32_t Grammar::intern(std::vector<std::uint32_t> frames, bool is_complete) {
  std::sort(frames.begin(), frames.end());
  frames.erase(std::unique(frames.begin(), frames.end()), frames.end());
  if ((frames.empty() && !is_complete) || frames.size() > kMostFrames) return kDead;
  frames.push_back(is_complete ? 1 : 0);  // part of what tells states apart
  const auto [found, is_new] = state_ids_.emplace(frames, static_cast<std::int32_t>(states_.size()));
  if (!is_new) return found->second;
  frames.pop_back();
  bytes_ += 256 + 8 * frames.size();
  states_.push_back({std::move(frames), is_complete, nullptr, {}});
  return found->second;
}

std::int32_t Grammar::step(std::int32_t state, unsigned char byte) {
  if (states_[static_cast<std::size_t>(state)].next == nullptr) {
    auto next = std::make_unique<std::int32_t[]>(256);
    std::fill_n(next.get(), 256, kUnknown);
    states_[static_cast<std::size_t>(state)].next = std::move(next);
    bytes_ += 1024;
  }
  std::int32_t& known = states_[static_cast<std::size_t>(state)].next[byte];
  if (known != kUnknown) return known;
  std::vector<std::uint32_t> frames;
  bool is_complete = false;
  visited_.clear();
  for (const std::uint32_t id : states_[static_cast<std::size_t>(state)].frames) {
    const Frame at = frames_[id];
    const GrammarNode& node = program_.nodes[at.node];
    if (node.kind == GrammarNode::Kind::bytes && program_.sets[node.what].test(byte))
      close(node.next, at.parent, frames, is_complete);
  }
  const std::int32_t next = intern(std::move(frames), is_complete);
  return states_[static_cast<std::size_t>(state)].next[byte] = next;
}

std::int32_t Grammar::step_symbol(std::int32_t state, std::uint32_t symbol) {
  std::vector<std::uint32_t> frames;
  bool is_complete = false;
  visited_.clear();
  const std::vector<std::uint32_t> from = states_[static_cast<std::size_t>(state)].frames;
  for (const std::uint32_t id : from) {
    const Frame at = frames_[id];
    const GrammarNode& node = program_.nodes[at.node];
    if (node.kind == GrammarNode::Kind::symbol && node.what == symbol) close(node.next, at.parent, frames, is_complete);
  }
  return intern(std::move(frames), is_complete);
}

const std::vector<std::uint64_t>& Grammar::mask_of(std::int32_t state, const TokenTrie& trie) {
  if (!states_[static_cast<std::size_t>(state)].mask.empty()) return states_[static_cast<std::size_t>(state)].mask;
  std::vector<std::uint64_t> mask((trie.vocabulary() + 63) / 64, 0);
  const std::span<const TokenTrie::Node> nodes = trie.nodes();
  std::vector<std::int32_t> path(std::size_t{1} << 16);  // the state after the bytes of depth d
  path[0] = state;
  for (std::size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const std::int32_t next = step(path[node.depth - 1u], node.byte);
    if (next == kDead) {
      i = node.skip;
      continue;
    }
    path[node.depth] = next;
    for (std::uint32_t t = 0; t < node.token_count; ++t) {
      const auto token = static_cast<std::size_t>(trie.tokens()[node.first_token + t]);
      mask[token / 64] |= std::uint64_t{1} << token % 64;
    }
    ++i;
  }
  bytes_ += 8 * mask.size();
  return states_[static_cast<std::size_t>(state)].mask = std::move(mask);
}

// ---- GrammarState ----

GrammarState::GrammarState(std::shared_ptr<Grammar> grammar, std::shared_ptr<const TokenTrie> trie)
    : grammar_(std::move(grammar)), trie_(std::move(trie)), state_(grammar_->start_) {}

void GrammarState::mask(std::span<float> logits, std::span<const Token> ends) const {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  const std::lock_guard lock(grammar_->mutex_);
  // Added tokens keep their logits if the grammar has them next.
  std::vector<std::pair<Token, float>> kept;
  const std::vector<std::string>& symbols = grammar_->program_.symbols;
  for (std::uint32_t s = 0; s < symbols.size(); ++s) {
    if (grammar_->step_symbol(state_, s) == Grammar::kDead) continue;
    for (const auto& [text, token] : trie_->added())
      if (text == symbols[s]) kept.emplace_back(token, logits[static_cast<std::size_t>(token)]);
  }
  if (grammar_->states_[static_cast<std::size_t>(state_)].is_complete)
    for (const Token token : ends) kept.emplace_back(token, logits[static_cast<std::size_t>(token)]);
  // Last, because a step may make a new state, and then what refers to the states is not valid any more.
  const std::vector<std::uint64_t>& mask = grammar_->mask_of(state_, *trie_);
  for (std::size_t word = 0; word < mask.size(); ++word) {
    if (mask[word] == ~std::uint64_t{0}) continue;
    const std::size_t begin = 64 * word, end = std::min(begin + 64, logits.size());
    if (end - begin < 64) {
      for (std::size_t i = begin; i < end; ++i)
        if ((mask[word] >> i % 64 & 1u) == 0) logits[i] = kNever;
      continue;
    }
    for (std::size_t byte = 0; byte < 8; ++byte)
      keep_bits(&logits[begin + 8 * byte], static_cast<unsigned>(mask[word] >> 8 * byte & 0xff));
  }
  for (std::size_t i = 64 * mask.size(); i < logits.size(); ++i) logits[i] = kNever;  // rows that are no token
  for (const auto& [token, logit] : kept) logits[static_cast<std::size_t>(token)] = logit;
}

bool GrammarState::accept_bytes(std::string_view bytes) {
  const std::lock_guard lock(grammar_->mutex_);
  std::int32_t state = state_;
  for (const char c : bytes) {
    state = grammar_->step(state, static_cast<unsigned char>(c));
    if (state == Grammar::kDead) return false;
  }
  state_ = state;
  return true;
}

bool GrammarState::accept_added(std::string_view text) {
  const std::lock_guard lock(grammar_->mutex_);
  const std::vector<std::string>& symbols = grammar_->program_.symbols;
  const auto found = std::find(symbols.begin(), symbols.end(), text);
  if (found == symbols.end()) return false;
  const std::int32_t state = grammar_->step_symbol(state_, static_cast<std::uint32_t>(found - symbols.begin()));
  if (state == Grammar::kDead) return false;
  state_ = state;
  return true;
}

bool GrammarState::is_complete() const {
  const std::lock_guard lock(grammar_->mutex_);
  return grammar_->states_[static_cast<std::size_t>(state_)].is_complete;
}

bool GrammarState::is_finished() const {
  const std::lock_guard lock(grammar_->mutex_);
  const Grammar::State& state = grammar_->states_[static_cast<std::size_t>(state_)];
  return state.is_complete && state.frames.empty();
}

}  // namespace lockstep
