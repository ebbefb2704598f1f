#include "engine/compare_paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"

namespace lockstep {
namespace {

constexpr int kLogitRows = 32;  // at a time: of the real vocabulary, 16 MB

struct Trace {
  std::vector<TraceOps::Place> places;
  std::vector<std::vector<std::uint64_t>> hashes;
  std::vector<std::byte> captured;
};

Trace trace(EngineOptions options, const TracedPath& path, std::span<const Token> tokens,
            std::optional<std::pair<Position, std::size_t>> wanted = std::nullopt) {
  options.max_rows = path.chunk;
  options.timing = Timing::off;
  auto ops = std::make_unique<TraceOps>(path.make_ops());
  TraceOps& seen = *ops;
  if (wanted) seen.capture(wanted->first, wanted->second);
  Engine engine(options, std::move(ops));
  SequenceCache cache = engine.new_sequence();
  const int vocabulary = engine.config().vocabulary;
  const Buffer logits(engine.ops(), sizeof(float) * kLogitRows * static_cast<std::size_t>(vocabulary));
  for (std::size_t done = 0; done < tokens.size();) {
    const int rows = static_cast<int>(std::min(tokens.size() - done, static_cast<std::size_t>(path.chunk)));
    const BatchItem item{&cache, tokens.subspan(done, static_cast<std::size_t>(rows)), rows};
    const auto first = static_cast<Position>(done);
    seen.begin_step(first, rows);
    engine.forward().step({&item, 1});
    for (int from = 0; from < rows; from += kLogitRows) {
      const int n = std::min(kLogitRows, rows - from);
      seen.begin_logits(first + from, n);
      engine.forward().logits(from, {logits.floats(), n, vocabulary, vocabulary});
    }
    done += static_cast<std::size_t>(rows);
  }
  return {seen.places(), seen.hashes(), seen.captured()};
}

template <class T>
std::string text_at(std::span<const std::byte> row, std::size_t i) {
  if ((i + 1) * sizeof(T) > row.size()) return "missing";
  const T value = load_as<T>(row.data() + i * sizeof(T));
  if constexpr (std::is_same_v<T, float>)
    return fmt::format("{:.9g} ({:08x})", value, load_as<std::uint32_t>(row.data() + i * sizeof(T)));
  else
    return fmt::format("{}", static_cast<int>(value));
}

std::string element_text(OpOutput::Element element, std::span<const std::byte> row, std::size_t i) {
  switch (element) {
    case OpOutput::Element::f32:
      return text_at<float>(row, i);
    case OpOutput::Element::i8:
      return text_at<std::int8_t>(row, i);
    case OpOutput::Element::i16:
      return text_at<std::int16_t>(row, i);
    case OpOutput::Element::i32:
      return text_at<std::int32_t>(row, i);
    case OpOutput::Element::bytes:
      break;
  }
  return text_at<std::uint8_t>(row, i);
}

std::size_t element_bytes(OpOutput::Element element) {
  switch (element) {
    case OpOutput::Element::f32:
    case OpOutput::Element::i32:
      return 4;
    case OpOutput::Element::i16:
      return 2;
    case OpOutput::Element::i8:
    case OpOutput::Element::bytes:
      break;
  }
  return 1;
}

std::uint64_t hash_at(const std::vector<std::vector<std::uint64_t>>& hashes, std::size_t position, std::size_t place) {
  if (position >= hashes.size() || place >= hashes[position].size()) return TraceOps::kNone;
  return hashes[position][place];
}

}  // namespace

PathComparison compare_paths(EngineOptions model, const TracedPath& a, const TracedPath& b,
                             std::span<const Token> tokens) {
  const Trace first = trace(model, a, tokens), second = trace(model, b, tokens);
  LOCKSTEP_CHECK(first.places.size() == second.places.size());
  PathComparison comparison;
  for (std::size_t place = 0; place < first.places.size(); ++place) {
    std::optional<std::size_t> where;
    std::size_t differing = 0;
    for (std::size_t position = 0; position < tokens.size(); ++position) {
      const std::uint64_t x = hash_at(first.hashes, position, place), y = hash_at(second.hashes, position, place);
      if (x == TraceOps::kNone || y == TraceOps::kNone) continue;
      ++comparison.rows;
      if (x == y) continue;
      if (!where) where = position;
      ++differing;
    }
    if (!where || comparison.first) continue;
    PathDifference& difference = comparison.first.emplace();
    difference.place = first.places[place];
    difference.position = static_cast<Position>(*where);
    difference.tokens = differing;
    const std::pair<Position, std::size_t> wanted{difference.position, place};
    const std::vector<std::byte> x = trace(model, a, tokens, wanted).captured;
    const std::vector<std::byte> y = trace(model, b, tokens, wanted).captured;
    const OpOutput::Element element = difference.place.element;
    const std::size_t bytes = element_bytes(element);
    difference.elements = std::max(x.size(), y.size()) / bytes;
    for (std::size_t i = 0; i < difference.elements; ++i) {
      const auto part = [&](const std::vector<std::byte>& row) {
        return std::span(row).subspan(std::min(row.size(), i * bytes),
                                      std::min(bytes, row.size() - std::min(row.size(), i * bytes)));
      };
      if (std::ranges::equal(part(x), part(y))) continue;
      if (difference.differing++ > 0) continue;
      difference.element = i;
      difference.a = element_text(element, x, i);
      difference.b = element_text(element, y, i);
    }
  }
  return comparison;
}

}  // namespace lockstep
