#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pre_tokenizer.h"

#include <pcre2.h>

#include <cstdint>
#include <string>

#include "base/error.h"
#include "text/unicode_additions.h"

namespace lockstep {
namespace {

// White_Space, written out: PCRE2's own \s adds U+180E, which has not been white space since Unicode 6.3.
constexpr char kSpace[] =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr char kHanKana[] = R"(\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff})";
constexpr char kAsciiPunctuation[] = R"(!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~)";

std::array<std::string, 3> patterns() {
  const std::string letter = std::string(R"(\p{L})") + kNewLetters;
  const std::string mark = std::string(R"(\p{M})") + kNewMarks;
  const std::string sign = std::string(R"(\p{P}\p{S})") + kNewPunctuation + kNewSymbols;
  const std::string space = kSpace;
  return {
      std::string(R"([\p{N})") + kNewNumbers + "]{1,3}",
      "[" + std::string(kHanKana) + "]+",
      "[" + std::string(kAsciiPunctuation) +
          "][A-Za-z]+"  // .foo 't
          "|[^\\r\\n" +
          letter + sign + "]?[" + letter + mark +
          "]+"  // a word with what stands before it
          "| ?[" +
          sign +
          "]+[\\r\\n]*"  // ?!\n
          "|[" +
          space +
          "]*[\\r\\n]+"  // to the last line break
          "|[" +
          space + "]+(?![^" + space +
          "])"  // all but the space before a word
          "|[" +
          space + "]+",
  };
}

}  // namespace

struct PreTokenizer::Regex {
  explicit Regex(const std::string& pattern) {
    int error = 0;
    PCRE2_SIZE where = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP, &error,
                         &where, nullptr);
    LOCKSTEP_CHECK(code != nullptr);
    // Where the kernel forbids executable memory this fails, and the interpreter takes over: slower, the same matches.
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  }
  ~Regex() { pcre2_code_free(code); }
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  pcre2_code* code = nullptr;
};

/// The scratch of one split; the compiled patterns themselves are shared between threads.
struct PreTokenizer::Search {
  Search() : match(pcre2_match_data_create(1, nullptr)), context(pcre2_match_context_create(nullptr)) {
    if (match == nullptr || context == nullptr)
      throw Error(Error::Kind::no_memory, "pre-tokenizer: no memory for a match");
    // The limits guard against patterns that backtrack without end. Ours cannot, but one run of white space may be as
    // long as the text, and each character that it gives back counts.
    pcre2_set_match_limit(context, UINT32_MAX);
    pcre2_set_depth_limit(context, UINT32_MAX);
  }
  ~Search() {
    pcre2_match_data_free(match);
    pcre2_match_context_free(context);
  }
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;

  /// Finds the first match at or after `from`.
  bool find(const Regex& regex, std::string_view text, std::size_t from, std::size_t& begin, std::size_t& end) {
    const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    // The text is known to be valid; checking it again for every piece would be quadratic.
    std::uint32_t options = PCRE2_NO_UTF_CHECK;
    int count = pcre2_match(regex.code, subject, text.size(), from, options, match, context);
    if (count == PCRE2_ERROR_JIT_STACKLIMIT)
      count = pcre2_match(regex.code, subject, text.size(), from, options | PCRE2_NO_JIT, match, context);
    if (count == PCRE2_ERROR_NOMATCH) return false;
    if (count == PCRE2_ERROR_NOMEMORY) throw Error(Error::Kind::no_memory, "pre-tokenizer: no memory for a match");
    LOCKSTEP_CHECK(count >= 0);
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match);
    begin = range[0];
    end = range[1];
    return true;
  }

  pcre2_match_data* match;
  pcre2_match_context* context;
};

PreTokenizer::PreTokenizer() {
  const auto sources = patterns();
  for (std::size_t i = 0; i < regexes_.size(); ++i) regexes_[i] = std::make_unique<Regex>(sources[i]);
}

PreTokenizer::~PreTokenizer() = default;

void PreTokenizer::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  Search search;
  isolate(0, text, search, pieces);
}

void PreTokenizer::isolate(std::size_t level, std::string_view text, Search& search,
                           std::vector<std::string_view>& pieces) const {
  if (text.empty()) return;
  if (level == regexes_.size()) {
    pieces.push_back(text);
    return;
  }
  std::size_t done = 0, begin = 0, end = 0;
  while (done < text.size() && search.find(*regexes_[level], text, done, begin, end)) {
    LOCKSTEP_CHECK(begin >= done && end > begin);
    isolate(level + 1, text.substr(done, begin - done), search, pieces);
    // Numbers hold nothing that the later splits match.
    isolate(level == 0 ? regexes_.size() : level + 1, text.substr(begin, end - begin), search, pieces);
    done = end;
  }
  isolate(level + 1, text.substr(done), search, pieces);
}

}  // namespace lockstep
