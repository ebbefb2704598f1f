#include "text/vocabulary.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "text/python_json.h"

namespace lockstep {
namespace {

// Three names of one thing: the three splits of pre_tokenizer.h.
constexpr std::array<std::string_view, 3> kKnownPre = {"joyai-llm", "deepseek-v3", "deepseek-v4"};

// How a tokenizer.json of this family spells the three splits; anything else is another pre-tokenizer.
constexpr std::array<std::string_view, 3> kSplits = {
    R"(\p{N}{1,3})",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
};

[[noreturn]] void fail(Error::Kind kind, const std::string& message) { throw Error(kind, message); }

void check_end_token(const Vocabulary& vocabulary, std::optional<Token> token, std::string_view key,
                     std::string_view text) {
  if (!token) return;
  const std::string name = "tokenizer." + std::string(key);
  if (*token < 0 || static_cast<std::size_t>(*token) >= vocabulary.tokens.size())
    fail(Error::Kind::bad_file, name + ": " + std::to_string(*token) + " is not a token, expected less than " +
                                    std::to_string(vocabulary.tokens.size()));
  const std::string& found = vocabulary.tokens[static_cast<std::size_t>(*token)];
  if (found != text)
    fail(Error::Kind::bad_file,
         name + ": token " + std::to_string(*token) + " is '" + found + "', expected '" + std::string(text) + "'");
}

const Json& member(const Json& object, const char* key, std::string_view name) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end())
    fail(Error::Kind::bad_file, std::string(name) + ": no '" + key + "', expected a tokenizer.json");
  return *found;
}

/// The text of a JSON string; anything else names what was expected.
const std::string& text_of(const Json& value, std::string_view name, const char* what) {
  if (!value.is_string()) fail(Error::Kind::bad_file, std::string(name) + ": " + what + " is not a string");
  return value.get_ref<const std::string&>();
}

void check_splits(const Json& pre_tokenizer, std::string_view name) {
  const auto refuse = [&](const std::string& found) {
    fail(Error::Kind::unsupported, std::string(name) + ": pre-tokenizer " + found +
                                       ", expected the three splits of deepseek-v3 and a plain ByteLevel");
  };
  if (!pre_tokenizer.is_object() || pre_tokenizer.value("type", "") != "Sequence") refuse(dump_python(pre_tokenizer));
  const Json& steps = member(pre_tokenizer, "pretokenizers", name);
  if (!steps.is_array() || steps.size() != kSplits.size() + 1) refuse(dump_python(pre_tokenizer));
  for (std::size_t i = 0; i < kSplits.size(); ++i) {
    const Json& step = steps[i];
    const bool is_known = step.is_object() && step.contains("pattern") && step["pattern"].is_object() &&
                          step["pattern"].value("Regex", "") == kSplits[i] &&
                          step.value("behavior", "") == "Isolated" && !step.value("invert", false);
    if (!is_known) refuse("step " + std::to_string(i) + " is " + dump_python(step));
  }
  const Json& last = steps[kSplits.size()];
  if (!last.is_object() || last.value("type", "") != "ByteLevel" || last.value("use_regex", true) ||
      last.value("add_prefix_space", true))
    refuse("step 3 is " + dump_python(last));
}

/// A normaliser that does nothing: null, or an empty sequence.
bool is_no_normaliser(const Json& value) {
  return value.is_null() ||
         (value.is_object() && value.value("type", "") == "Sequence" && value.contains("normalizers") &&
          value["normalizers"].is_array() && value["normalizers"].empty());
}

void put_token(Vocabulary& vocabulary, const Json& id, const std::string& text, TokenType type, std::string_view name) {
  if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= (1u << 20))
    fail(Error::Kind::bad_file, std::string(name) + ": the id of token '" + text + "' is " + dump_python(id) +
                                    ", expected a whole number below 2^20");
  const auto at = id.get<std::size_t>();
  if (at >= vocabulary.tokens.size()) {
    vocabulary.tokens.resize(at + 1);
    vocabulary.types.resize(at + 1, 0);
  }
  vocabulary.tokens[at] = text;
  vocabulary.types[at] = static_cast<std::int32_t>(type);
}

Vocabulary read_tokenizer_json(const Json& file, std::string_view name) {
  if (const auto found = file.find("normalizer"); found != file.end() && !is_no_normaliser(*found))
    fail(Error::Kind::unsupported, std::string(name) + ": normalizer " + dump_python(*found) + ", expected none");
  check_splits(member(file, "pre_tokenizer", name), name);
  const Json& model = member(file, "model", name);
  if (model.value("type", "") != "BPE" || model.value("ignore_merges", false))
    fail(Error::Kind::unsupported, std::string(name) + ": model type is not plain BPE");

  Vocabulary vocabulary;
  vocabulary.pre = "deepseek-v3";
  for (const auto& [text, id] : member(model, "vocab", name).items())
    put_token(vocabulary, id, text, TokenType::normal, name);
  for (const Json& added : member(file, "added_tokens", name)) {
    const std::string& text = text_of(member(added, "content", name), name, "the content of an added token");
    for (const char* flag : {"lstrip", "rstrip", "single_word"})
      if (added.value(flag, false))
        fail(Error::Kind::unsupported,
             std::string(name) + ": added token '" + text + "' has " + flag + ", expected none");
    const TokenType type = added.value("special", false) ? TokenType::control : TokenType::user_defined;
    put_token(vocabulary, member(added, "id", name), text, type, name);
    const auto id = member(added, "id", name).get<Token>();
    if (text == kBosText) vocabulary.bos = id;
    if (text == kEosText) vocabulary.eos = id;
  }
  const auto gap = std::find(vocabulary.types.begin(), vocabulary.types.end(), 0);
  if (gap != vocabulary.types.end())
    fail(Error::Kind::bad_file,
         std::string(name) + ": no token has id " + std::to_string(gap - vocabulary.types.begin()));

  const Json& merges = member(model, "merges", name);
  vocabulary.merges.reserve(merges.size());
  for (const Json& merge : merges) {  // "left right", in newer files ["left", "right"]
    if (merge.is_array() && merge.size() == 2) {
      vocabulary.merges.push_back(text_of(merge[0], name, "a merge") + " " + text_of(merge[1], name, "a merge"));
    } else {
      vocabulary.merges.push_back(text_of(merge, name, "a merge"));
    }
  }
  return vocabulary;
}

}  // namespace

TokenType Vocabulary::type_of(Token token) const {
  if (types.empty()) return token <= 2 || token >= 128000 ? TokenType::control : TokenType::normal;
  return static_cast<TokenType>(types[static_cast<std::size_t>(token)]);
}

bool Vocabulary::is_added(Token token) const {
  const TokenType type = type_of(token);
  return type == TokenType::control || type == TokenType::user_defined;
}

void check_vocabulary(const Vocabulary& vocabulary, std::optional<std::int64_t> embedding_rows) {
  if (vocabulary.model != "gpt2")
    fail(Error::Kind::unsupported,
         "tokenizer.ggml.model: '" + vocabulary.model + "', expected 'gpt2' (byte-level BPE)");
  if (std::find(kKnownPre.begin(), kKnownPre.end(), vocabulary.pre) == kKnownPre.end())
    fail(Error::Kind::unsupported,
         "tokenizer.ggml.pre: '" + vocabulary.pre + "', expected joyai-llm, deepseek-v3 or deepseek-v4");
  const std::size_t count = vocabulary.tokens.size();
  if (embedding_rows && *embedding_rows != static_cast<std::int64_t>(count))
    fail(Error::Kind::bad_file, "tokenizer.ggml.tokens: " + std::to_string(count) + " tokens, expected " +
                                    std::to_string(*embedding_rows) + ", the rows of the embedding");
  if (!vocabulary.types.empty() && vocabulary.types.size() != count)
    fail(Error::Kind::bad_file, "tokenizer.ggml.token_type: " + std::to_string(vocabulary.types.size()) +
                                    " entries, expected " + std::to_string(count) + ", one a token");
  for (std::size_t i = 0; i < vocabulary.types.size(); ++i) {
    const std::int32_t type = vocabulary.types[i];
    if (type < 1 || type > 5)
      fail(Error::Kind::bad_file, "tokenizer.ggml.token_type: token " + std::to_string(i) + " has type " +
                                      std::to_string(type) + ", expected 1 to 5 (a byte-level BPE has no byte tokens)");
  }
  check_end_token(vocabulary, vocabulary.bos, "ggml.bos_token_id", kBosText);
  check_end_token(vocabulary, vocabulary.eos, "ggml.eos_token_id", kEosText);
}

Vocabulary vocabulary_from_tokenizer_json(std::string_view text, std::string_view name) {
  try {
    return read_tokenizer_json(parse_json(text, name), name);
  } catch (const Json::exception& error) {  // a member of another type than expected
    fail(Error::Kind::bad_file, std::string(name) + ": not a tokenizer.json: " + error.what());
  }
}

}  // namespace lockstep
