#include "engine/schedule.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "base/error.h"
#include "numerics/random.h"

namespace lockstep {
namespace {

constexpr int kLogitRows = 32;  // rows of logits at a time: of the real vocabulary, 16 MB

template <class T>
T number(std::string_view text, std::string_view whole) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range)
    throw Error(Error::Kind::bad_argument, "schedule " + std::string(whole) + ": the number is too large");
  if (error != std::errc() || end != text.data() + text.size())
    throw Error(Error::Kind::bad_argument,
                "schedule " + std::string(whole) + ": expected tokenwise, chunk:N or mixed:SEED");
  return value;
}

/// Hands the logits of a step to the sink, a few rows at a time.
class LogitReader {
 public:
  LogitReader(Engine& engine, const LogitSink& sink)
      : engine_(engine),
        sink_(sink),
        vocabulary_(engine.config().vocabulary),
        device_(engine.ops(), sizeof(float) * kLogitRows * static_cast<std::size_t>(vocabulary_)),
        host_(static_cast<std::size_t>(kLogitRows) * vocabulary_) {}

  struct Row {
    std::size_t sequence;
    Position position;
  };

  void read(const std::vector<Row>& rows) {
    for (int first = 0; first < static_cast<int>(rows.size()); first += kLogitRows) {
      const int n = std::min(kLogitRows, static_cast<int>(rows.size()) - first);
      engine_.forward().logits(first, {device_.floats(), n, vocabulary_, vocabulary_});
      engine_.ops().download(host_.data(), device_.floats(), sizeof(float) * static_cast<std::size_t>(n) * vocabulary_);
      for (int i = 0; i < n; ++i)
        sink_(rows[first + i].sequence, rows[first + i].position,
              std::span(host_).subspan(static_cast<std::size_t>(i) * vocabulary_, vocabulary_));
    }
  }

 private:
  Engine& engine_;
  const LogitSink& sink_;
  int vocabulary_;
  Buffer device_;
  std::vector<float> host_;
};

}  // namespace

Schedule parse_schedule(std::string_view text) {
  if (text == "tokenwise") return {Schedule::Kind::tokenwise, 1, 0};
  if (text.starts_with("chunk:")) {
    const int chunk = number<int>(text.substr(6), text);
    if (chunk < 1)
      throw Error(Error::Kind::bad_argument, "schedule " + std::string(text) + ": a chunk has at least one token");
    return {Schedule::Kind::chunk, chunk, 0};
  }
  if (text.starts_with("mixed:")) return {Schedule::Kind::mixed, 0, number<std::uint64_t>(text.substr(6), text)};
  throw Error(Error::Kind::bad_argument,
              "schedule " + std::string(text) + ": expected tokenwise, chunk:N or mixed:SEED");
}

std::vector<SequenceCache> run_schedule(Engine& engine, std::span<const std::vector<Token>> sequences,
                                        const Schedule& schedule, const LogitSink& sink) {
  const int max_rows = engine.forward().max_rows();
  LogitReader reader(engine, sink);
  std::vector<SequenceCache> caches;
  for (std::size_t s = 0; s < sequences.size(); ++s) caches.push_back(engine.new_sequence());

  const auto left = [&](std::size_t s) {
    return static_cast<int>(static_cast<Position>(sequences[s].size()) - caches[s].length());
  };
  std::vector<LogitReader::Row> rows;
  std::vector<BatchItem> items;
  const auto add = [&](std::size_t s, int count) {
    const Position begin = caches[s].length();
    items.push_back({&caches[s],
                     std::span(sequences[s]).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
                     count});
    for (int i = 0; i < count; ++i) rows.push_back({s, begin + i});
  };
  const auto run = [&] {
    engine.forward().step(items);
    reader.read(rows);
    items.clear();
    rows.clear();
  };

  if (schedule.kind != Schedule::Kind::mixed) {
    const int chunk = std::clamp(schedule.chunk == 0 ? max_rows : schedule.chunk, 1, max_rows);
    for (std::size_t s = 0; s < sequences.size(); ++s)
      while (left(s) > 0) {
        add(s, std::min(chunk, left(s)));
        run();
      }
    return caches;
  }

  // Every step takes some of the unfinished sequences, in random order, each with one token or a random chunk.
  std::uint64_t draws = 0;
  const auto draw = [&](int below) {
    return static_cast<int>(random_u64(schedule.seed, draws++) % static_cast<std::uint64_t>(below));
  };
  for (;;) {
    std::vector<std::size_t> open;
    for (std::size_t s = 0; s < sequences.size(); ++s)
      if (left(s) > 0) open.push_back(s);
    if (open.empty()) return caches;
    for (std::size_t i = open.size() - 1; i > 0; --i)
      std::swap(open[i], open[static_cast<std::size_t>(draw(static_cast<int>(i) + 1))]);
    int room = max_rows;
    for (const std::size_t s : open) {
      if (room == 0) break;
      if (!items.empty() && draw(3) == 0) continue;
      const int longest = std::min({left(s), room, 1 + draw(300)});
      const int count = draw(2) == 0 ? 1 : 1 + draw(longest);
      add(s, count);
      room -= count;
    }
    run();
  }
}

std::vector<std::vector<Token>> parse_token_lines(std::string_view text, std::string_view name, int vocabulary) {
  std::vector<std::vector<Token>> sequences;
  std::size_t line_number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++line_number;
    std::vector<Token> sequence;
    std::size_t at = 0;
    while ((at = line.find_first_not_of(" \t\r,", at)) != std::string_view::npos) {
      const std::string_view word = line.substr(at, line.find_first_of(" \t\r,", at) - at);
      Token token = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), token);
      if (error != std::errc() || end != word.data() + word.size() || token < 0 || token >= vocabulary)
        throw Error(Error::Kind::bad_argument, std::string(name) + ": line " + std::to_string(line_number) + ": \"" +
                                                   std::string(word) + "\" is not a token id from 0 to " +
                                                   std::to_string(vocabulary - 1));
      sequence.push_back(token);
      at += word.size();
    }
    if (!sequence.empty()) sequences.push_back(std::move(sequence));
  }
  return sequences;
}

}  // namespace lockstep
