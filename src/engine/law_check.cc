#include "engine/law_check.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "engine/law_golden.h"
#include "engine/synth.h"
#include "numerics/guard.h"
#include "numerics/random.h"
#include "tensor/dequantize.h"

namespace lockstep {
namespace {

/// Rows of a format that an encoder could have written: random bytes, drawn again where a scale would be invalid.
std::vector<std::byte> random_rows(const DTypeInfo& info, int width, int rows, std::uint64_t seed) {
  std::vector<std::byte> bytes(row_bytes(info.dtype, width) * static_cast<std::size_t>(rows));
  if (info.block_values == 1) {
    for (std::size_t i = 0; i < bytes.size() / static_cast<std::size_t>(info.block_bytes); ++i) {
      const float x = random_normal(seed, i);
      const std::uint16_t half = info.dtype == DType::f16 ? f32_to_f16(x) : f32_to_bf16(x);
      if (info.dtype == DType::f32)
        std::memcpy(&bytes[4 * i], &x, 4);
      else
        std::memcpy(&bytes[2 * i], &half, 2);
    }
    return bytes;
  }
  const std::size_t block_bytes = static_cast<std::size_t>(info.block_bytes);
  std::uint64_t draws = 0;
  for (std::size_t at = 0; at < bytes.size(); at += block_bytes) {
    const std::span block(&bytes[at], block_bytes);
    do {
      for (std::size_t i = 0; i < block_bytes; ++i) block[i] = static_cast<std::byte>(random_u64(seed, draws++));
      // Scales of 8 exponent bits would overflow the sums, and which NaN comes of that is not defined.
      if (info.dtype == DType::mxfp4 || info.dtype == DType::f8_e4m3_b128)
        block[0] = std::byte{112} | (block[0] & std::byte{15});
      if (info.dtype == DType::f8_e4m3_b128)
        for (std::size_t i = 1; i < block_bytes; ++i)
          if ((block[i] & std::byte{0x7f}) == std::byte{0x7f}) block[i] ^= std::byte{1};
    } while (find_invalid_block(info.dtype, block).has_value());
  }
  return bytes;
}

bool has_dot(const DTypeInfo& info) {
  return info.dtype != DType::i32 && info.dtype != DType::rocmfp3_mix && info.dtype != DType::rocmfp2_mix;
}

std::uint64_t dot_hash(Ops& ops, const DTypeInfo& info) {
  constexpr int kRows = 37;
  Hasher hasher;
  for (const int width : {256, 512, 1024, 2048, 2304, 4096, 8448}) {
    std::vector<std::byte> bytes = random_rows(info, width, kRows, static_cast<std::uint64_t>(width));
    Weight weight;
    weight.dtype = info.dtype;
    weight.width = width;
    weight.rows = kRows;
    weight.data = bytes.data();
    weight.row_bytes = row_bytes(info.dtype, width);
    weight = ops.prepare(weight);
    for (const int tokens : {1, 2, 9}) {
      std::vector<float> host(static_cast<std::size_t>(tokens) * width);
      for (std::size_t i = 0; i < host.size(); ++i)
        host[i] = random_normal(static_cast<std::uint64_t>(width + tokens), i, 7);
      Arena plan;
      plan.rows(tokens, width);
      plan.rounded(tokens, width);
      plan.rows(tokens, kRows);
      const Buffer memory(ops, plan.used());
      Arena arena(memory);
      Input x;
      const Rows values = arena.rows(tokens, width);
      ops.upload(values.data, host.data(), host.size() * sizeof(float));
      x.values = values;
      x.rounded = arena.rounded(tokens, width);
      ops.round(x.rounded, values);
      const Rows out = arena.rows(tokens, kRows);
      ops.matmul(out, weight, x);
      std::vector<float> result(static_cast<std::size_t>(tokens) * kRows);
      ops.download(result.data(), out.data, result.size() * sizeof(float));
      hasher.add_values(std::span<const float>(result));
    }
  }
  return hasher.value();
}

}  // namespace

std::vector<LawLine> function_lines() {
  std::vector<LawLine> lines;
  std::vector<std::uint32_t> results(kGuardPoints);
  for (int f = 0; f < kGuardedCount; ++f) {
    for (std::uint32_t i = 0; i < kGuardPoints; ++i) results[i] = guard_result(static_cast<Guarded>(f), i);
    lines.push_back({std::string("function ") + kGuardedNames[f], guard_hash(results.data(), results.size())});
  }
  return lines;
}

std::vector<LawLine> dot_lines(Ops& ops) {
  std::vector<LawLine> lines;
  for (const DTypeInfo& info : all_dtypes())
    if (has_dot(info)) lines.push_back({"dot " + std::string(info.name), dot_hash(ops, info)});
  return lines;
}

std::uint64_t model_hash(Engine& engine, std::span<const std::vector<Token>> sequences, const Schedule& schedule) {
  const std::size_t vocabulary = static_cast<std::size_t>(engine.config().vocabulary);
  std::vector<std::vector<float>> logits;
  for (const auto& sequence : sequences) logits.emplace_back(sequence.size() * vocabulary);
  const auto caches =
      run_schedule(engine, sequences, schedule, [&](std::size_t s, Position position, std::span<const float> row) {
        std::copy(row.begin(), row.end(), logits[s].begin() + position * static_cast<std::ptrdiff_t>(vocabulary));
      });
  Hasher hasher;
  for (const auto& rows : logits) hasher.add_values(std::span<const float>(rows));
  for (const SequenceCache& cache : caches) {
    const std::vector<std::byte> bytes = cache.contents();
    hasher.add(bytes);
  }
  return hasher.value();
}

std::vector<std::string> law_models() {
  return {"nano-q2", "nano-q4", "nano-mxfp4", "nano-rocmfp2", "nano-rocmfp4", "nano-f16"};
}

std::shared_ptr<const SynthPlan> law_model_plan(const std::string& name) {
  SynthOptions options;
  options.preset = "nano";
  options.types = name.substr(name.find('-') + 1);
  options.seed = 1;
  return std::make_shared<const SynthPlan>(plan_synth(options));
}

void write_law_model(const std::string& name, const std::filesystem::path& path) {
  write_synth(*law_model_plan(name), path);
}

std::vector<std::vector<Token>> law_tokens(int vocabulary) {
  std::vector<std::vector<Token>> sequences;
  for (const int length : {kLawTokens, 5}) {
    std::vector<Token>& tokens = sequences.emplace_back();
    for (int i = 0; i < length; ++i)
      tokens.push_back(
          static_cast<Token>(random_u64(static_cast<std::uint64_t>(length), static_cast<std::uint64_t>(i)) %
                             static_cast<std::uint64_t>(vocabulary)));
  }
  return sequences;
}

std::vector<LawLine> golden_lines() {
  std::vector<LawLine> lines;
  std::string_view text = kLawGolden;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty() || line.front() == '#') continue;
    const std::size_t space = line.rfind(' ');
    LawLine entry{std::string(line.substr(0, space)), 0};
    const std::string_view digits = space == std::string_view::npos ? line : line.substr(space + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), entry.hash, 16);
    if (space == std::string_view::npos || error != std::errc() || end != digits.data() + digits.size())
      throw Error(Error::Kind::bad_file, "golden hashes: cannot read the line \"" + std::string(line) + "\"");
    lines.push_back(std::move(entry));
  }
  return lines;
}

std::optional<std::uint64_t> find_line(std::span<const LawLine> lines, std::string_view name) {
  for (const LawLine& line : lines)
    if (line.name == name) return line.hash;
  return std::nullopt;
}

}  // namespace lockstep
