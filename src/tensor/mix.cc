#include "tensor/mix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "base/error.h"
#include "numerics/round.h"

namespace lockstep {
namespace {

constexpr std::size_t kMagicBytes = 8;
constexpr int kBooks = 2;                    // books an expert: one for each value of a scale byte's bit 7
constexpr std::uint32_t kMostLayers = 4096;  // far above any model; keeps names and sums small

constexpr MixKindInfo kKinds[] = {
    {MixKind::down_experts, "deepseek4.p4mix.sidecar", ".p4mix.bin"},
    {MixKind::experts, "deepseek4.gumix.sidecar", ".gumix.bin"},
    {MixKind::dense, "deepseek4.dmix.sidecar", ".dmix.bin"},
};

std::string_view magic_of(MixKind kind) {
  switch (kind) {
    case MixKind::down_experts:
      return {"P4MIXv1\0", kMagicBytes};
    case MixKind::experts:
      return {"GUMIXs1\0", kMagicBytes};
    case MixKind::dense:
      break;
  }
  return {"DMIXs1\0\0", kMagicBytes};
}

constexpr std::string_view kExpertSurfaces[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
constexpr std::string_view kDenseClasses[] = {"attn_q_a", "attn_q_b", "attn_kv", "attn_output_a", "attn_output_b"};

int levels_of(DType dtype) { return dtype == DType::rocmfp3_mix ? 8 : 4; }

/// Reads a table front to back. Every take is checked against what is left.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, std::string_view source) : bytes_(bytes), source_(source) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(Error::Kind::bad_file, fmt::format("{}: {} (at byte {} of {})", source_, what, at_, bytes_.size()));
  }

  std::size_t left() const { return bytes_.size() - at_; }

  std::span<const std::byte> take(std::uint64_t count, std::string_view what) {
    if (count > left()) fail(fmt::format("truncated: {} needs {} bytes, {} are left", what, count, left()));
    const auto taken = bytes_.subspan(at_, static_cast<std::size_t>(count));
    at_ += taken.size();
    return taken;
  }

  std::uint32_t take_u32(std::string_view what) { return load_as<std::uint32_t>(take(4, what).data()); }

  /// A u32 in [low, high].
  std::uint32_t take_u32(std::string_view what, std::uint32_t low, std::uint32_t high) {
    const std::uint32_t value = take_u32(what);
    if (value < low || value > high) fail(fmt::format("{} is {}, expected {}", what, value, expected(low, high)));
    return value;
  }

 private:
  static std::string expected(std::uint32_t low, std::uint32_t high) {
    return low == high ? fmt::format("{}", low) : fmt::format("{} to {}", low, high);
  }

  std::span<const std::byte> bytes_;
  std::string_view source_;
  std::size_t at_ = 0;
};

void set_mode(const Reader& reader, MixBooks& books, std::byte mode) {
  const int value = std::to_integer<int>(mode);
  if (value > 1) reader.fail(fmt::format("mode {} of a codebook, expected 0 or 1", value));
  books.books = value == 1;
}

/// Two books of `levels` BF16 values. Those that mode 1 uses must be finite; mode 0 leaves anything there.
void set_levels(const Reader& reader, MixBooks& books, std::span<const std::byte> words, int levels) {
  for (int i = 0; i < kBooks * levels; ++i) {
    const float level = bf16_to_f32(load_as<std::uint16_t>(words.data() + 2 * i));
    if (books.books && !std::isfinite(level)) reader.fail("a codebook level that is not finite");
    books.level[i / levels][i % levels] = level;
  }
}

MixTensor take_experts(Reader& reader, MixKind kind) {
  MixTensor tensor;
  const bool down = kind == MixKind::down_experts;
  tensor.dtype = down ? DType::rocmfp3_mix : DType::rocmfp2_mix;
  const int levels = levels_of(tensor.dtype);
  const std::uint32_t layer = reader.take_u32("layer", 0, kMostLayers - 1);
  const std::string_view surface = kExpertSurfaces[down ? 2 : reader.take_u32("surface", 0, 2)];
  tensor.name = fmt::format("blk.{}.{}.weight", layer, surface);
  const std::uint32_t experts = reader.take_u32("number of experts", 1, 1u << 20);
  tensor.out = reader.take_u32("output width", 1, 1u << 30);
  tensor.in = reader.take_u32("input width", 1, 1u << 30);
  if (tensor.in % 32 != 0) reader.fail(fmt::format("input width is {}, expected a multiple of 32", tensor.in));
  reader.take_u32("number of books", kBooks, kBooks);
  reader.take_u32("levels a book", static_cast<std::uint32_t>(levels), static_cast<std::uint32_t>(levels));
  const auto modes = reader.take(experts, "modes");
  if (down) {
    const auto rotations = reader.take(experts, "rotations");
    if (std::any_of(rotations.begin(), rotations.end(), [](std::byte b) { return b != std::byte{0}; })) {
      reader.fail(tensor.name + " has a rotated expert, expected 0 for all");
    }
  }
  const std::size_t book_bytes = static_cast<std::size_t>(2 * kBooks * levels);
  const auto words = reader.take(std::uint64_t{experts} * book_bytes, "codebooks");
  tensor.books.resize(experts);
  for (std::size_t e = 0; e < experts; ++e) {
    set_mode(reader, tensor.books[e], modes[e]);
    set_levels(reader, tensor.books[e], words.subspan(e * book_bytes, book_bytes), levels);
  }
  return tensor;
}

MixTensor take_dense(Reader& reader) {
  MixTensor tensor;
  const std::uint32_t layer = reader.take_u32("layer", 0, kMostLayers - 1);
  const std::string_view name = kDenseClasses[reader.take_u32("class", 0, 4)];
  tensor.name = fmt::format("blk.{}.{}.weight", layer, name);
  tensor.dtype = reader.take_u32("type id", 105, 106) == 105 ? DType::rocmfp3_mix : DType::rocmfp2_mix;
  reader.take_u32("slices", 1, 1u << 20);
  reader.take_u32("number of books", kBooks, kBooks);
  const int levels = levels_of(tensor.dtype);
  reader.take_u32("levels a book", static_cast<std::uint32_t>(levels), static_cast<std::uint32_t>(levels));
  const auto mode = reader.take(4, "mode");  // and three bytes of padding
  const auto words = reader.take(static_cast<std::uint64_t>(2 * kBooks * levels), "codebooks");
  tensor.books.resize(1);
  set_mode(reader, tensor.books[0], mode[0]);
  set_levels(reader, tensor.books[0], words, levels);
  return tensor;
}

void check_agrees(const MixTensor& table, const MixShape& tensor) {
  const auto fail = [&](std::string_view what, auto has, auto expected) {
    throw Error(Error::Kind::bad_file, fmt::format("{}: its MIX side table has {} {}, expected {} as in the tensor",
                                                   tensor.name, what, has, expected));
  };
  if (table.dtype != tensor.dtype) fail("format", info_of(table.dtype).name, info_of(tensor.dtype).name);
  if (table.in != 0 && table.in != tensor.in) fail("input width", table.in, tensor.in);
  if (table.out != 0 && table.out != tensor.out) fail("output width", table.out, tensor.out);
  const auto experts = static_cast<std::int64_t>(table.books.size());
  if (experts != tensor.experts) fail("number of experts", experts, tensor.experts);
}

}  // namespace

std::span<const MixKindInfo> mix_kinds() { return kKinds; }

void MixTables::add(MixKind kind, std::span<const std::byte> bytes, std::string_view source) {
  Reader reader(bytes, source);
  const auto magic = reader.take(kMagicBytes, "magic");
  if (!std::equal(magic.begin(), magic.end(), magic_of(kind).begin(),
                  [](std::byte b, char c) { return b == static_cast<std::byte>(c); })) {
    reader.fail(fmt::format("not a MIX side table, does not begin with {}", magic_of(kind).data()));
  }
  const std::uint32_t count = reader.take_u32("number of entries");
  reader.take_u32("reserved word");
  std::map<std::string, MixTensor, std::less<>> added;
  for (std::uint32_t i = 0; i < count; ++i) {
    MixTensor tensor = kind == MixKind::dense ? take_dense(reader) : take_experts(reader, kind);
    std::string name = tensor.name;
    if (find(name) != nullptr || !added.emplace(name, std::move(tensor)).second) {
      reader.fail(name + " is described twice, expected once");
    }
  }
  if (reader.left() != 0) reader.fail(fmt::format("{} bytes after the last of {} entries", reader.left(), count));
  tensors_.merge(added);
}

void MixTables::check_covers(std::span<const MixShape> tensors) const {
  for (const MixShape& tensor : tensors) {
    const MixTensor* table = find(tensor.name);
    if (table == nullptr) {
      throw Error(Error::Kind::bad_file,
                  fmt::format("{}: {} needs a MIX side table and none describes it; expected the key "
                              "{}, {} or {}, or a file beside the model",
                              tensor.name, info_of(tensor.dtype).name, kKinds[0].key, kKinds[1].key, kKinds[2].key));
    }
    check_agrees(*table, tensor);
  }
  for (const auto& [name, table] : tensors_) {
    if (std::none_of(tensors.begin(), tensors.end(), [&](const MixShape& t) { return t.name == name; })) {
      throw Error(Error::Kind::bad_file,
                  fmt::format("{}: a MIX side table describes it, but the file has no such MIX tensor", name));
    }
  }
}

const MixTensor* MixTables::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

}  // namespace lockstep
