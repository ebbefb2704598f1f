// A vocabulary as plain data: what a model file says about its tokens, before anything is built from it.
//
// Filled from GGUF metadata by whoever reads the file, or from a tokenizer.json here. It knows nothing of either
// format's container.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

using Token = std::int32_t;

enum class TokenType : std::int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct Vocabulary {
  std::string model = "gpt2";       // tokenizer.ggml.model
  std::string pre;                  // tokenizer.ggml.pre
  std::vector<std::string> tokens;  // normal ones byte-mapped ("Ġhello"), all others in plain UTF-8
  std::vector<std::int32_t> types;  // TokenType by token; empty: ids 0..2 and from 128000 on are added tokens
  std::vector<std::string> merges;  // "left right", the rank is the index
  std::optional<Token> bos, eos, pad;
  std::string chat_template;  // never executed; names the profile

  TokenType type_of(Token token) const;
  /// Control and user-defined tokens: matched as literal text before anything else.
  bool is_added(Token token) const;
};

inline constexpr std::string_view kBosText = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEosText = "<｜end▁of▁sentence｜>";

/// Refuses a vocabulary that this tokenizer would get wrong: another model or pre-tokenizer (by name), arrays of
/// different lengths, BOS or EOS with another text or out of range, tokens of the byte type. `embedding_rows` is
/// compared with the number of tokens when given. Merges and the byte alphabet are checked where they are used, in Bpe.
/// Throws Error::unsupported or Error::bad_file.
void check_vocabulary(const Vocabulary& vocabulary, std::optional<std::int64_t> embedding_rows = std::nullopt);

/// Reads a tokenizer.json of the DeepSeek V3 and V4 family. `name` stands in error messages. Refuses another
/// pre-tokenizer, normaliser or model type. Throws Error::bad_file or Error::unsupported.
Vocabulary vocabulary_from_tokenizer_json(std::string_view text, std::string_view name);

}  // namespace lockstep
