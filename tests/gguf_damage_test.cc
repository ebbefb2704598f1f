// A damaged file opens or throws Error: it never crashes, hangs or takes memory that its own size does not account for.
// Run under -fsanitize=address to see that nothing is read outside the bytes either.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <new>

#include "base/error.h"
#include "gguf_build.h"
#include "tensor/gguf.h"

namespace {

// Counted by the operators below: this program measures what opening a file allocates. Single-threaded.
std::size_t allocated_bytes = 0;  // since the last reset; what was given back still counts

}  // namespace

// Not inlined: the compiler would see one half of a pair and warn of a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
  allocated_bytes += size;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace lockstep {
namespace {

using test::raw;
using test::raw_array;
using test::raw_key;
using test::raw_tensor;
using test::raw_text;
using test::RawGguf;
using test::TempFolder;

constexpr std::size_t kMostBytes = 1 << 20;  // all allocations of one opening, of a file of about 1.5 kB
constexpr auto kMostTime = std::chrono::seconds(1);

/// A small file with a value of every type and tensors of plain, blocked and ambiguous types.
RawGguf small_file() {
  RawGguf file;
  file.keys = {
      raw_key("general.architecture", 8, raw_text("deepseek4")),
      raw_key("general.alignment", 4, raw<std::uint32_t>(32)),
      raw_key("u8", 0, raw<std::uint8_t>(1)),
      raw_key("i8", 1, raw<std::int8_t>(-1)),
      raw_key("u16", 2, raw<std::uint16_t>(2)),
      raw_key("i16", 3, raw<std::int16_t>(-2)),
      raw_key("i32", 5, raw<std::int32_t>(-3)),
      raw_key("f32", 6, raw(1.5f)),
      raw_key("bool", 7, raw<std::uint8_t>(1)),
      raw_key("u64", 10, raw<std::uint64_t>(4)),
      raw_key("i64", 11, raw<std::int64_t>(-4)),
      raw_key("f64", 12, raw(2.5)),
      raw_key("tokens", 9, raw_array(8, 3, raw_text("a") + raw_text("") + raw_text("long token"))),
      raw_key("ratios", 9, raw_array(5, 3, raw<std::int32_t>(0) + raw<std::int32_t>(4) + raw<std::int32_t>(128))),
      raw_key("nested", 9, raw_array(9, 2, raw_array(0, 2, "ab") + raw_array(8, 1, raw_text("c")))),
      raw_key("split.count", 2, raw<std::uint16_t>(1)),
  };
  const struct {
    const char* name;
    std::vector<std::uint64_t> ne;
    std::uint32_t type;
    std::size_t size;
  } tensors[] = {
      {"token_embd.weight", {8, 4}, 1, 64},      {"blk.0.attn_norm.weight", {8}, 0, 32},
      {"blk.0.attn_q_a.weight", {32, 2}, 8, 68}, {"blk.0.ffn_up_exps.weight", {256, 1, 2}, 10, 168},
      {"blk.1.nextn.enorm.weight", {8}, 0, 32},  {"blk.1.ffn_gate_tid2eid.weight", {6, 2}, 26, 48},
      {"blk.1.fp8.weight", {128}, 42, 129},      {"blk.1.two_bit.weight", {32, 2, 1, 1}, 107, 20},
  };
  for (const auto& tensor : tensors) {
    file.tensors.push_back(raw_tensor(tensor.name, tensor.ne, tensor.type, file.data.size()));
    file.data.append(tensor.size, 'd');
    file.data.resize((file.data.size() + 31) / 32 * 32, '\0');
  }
  return file;
}

std::size_t header_bytes(const RawGguf& file) { return file.bytes().size() - file.data.size(); }

/// Reads all that is there, so that a view that points outside is noticed.
unsigned read_everything(const Gguf& file) {
  unsigned sum = 0;
  for (const GgufKey& key : file.keys()) {
    for (std::uint64_t i = 0; i < key.value.count(); ++i) {
      sum += static_cast<unsigned>(key.value.to_int(i).value_or(0));
      sum += key.value.to_number(i).has_value() ? 1 : 0;
    }
    for (const std::string_view text : key.value.to_strings())
      for (const char c : text) sum += static_cast<unsigned>(c);
    sum += static_cast<unsigned>(key.value.describe().size());
  }
  for (const GgufTensor& tensor : file.tensors())
    for (const std::byte byte : tensor.bytes) sum += std::to_integer<unsigned>(byte);
  return sum + static_cast<unsigned>(file.producer().size()) + static_cast<unsigned>(file.trunk_layers());
}

struct Outcome {
  int opened = 0;
  int refused = 0;
  unsigned sum = 0;  // of all that was read, so that it is read
};

/// Opens with `open` and counts what became of it; anything but Error, and too much memory or time, is a failure.
template <class Open>
void try_open(const Open& open, Outcome& outcome) {
  allocated_bytes = 0;
  const auto begin = std::chrono::steady_clock::now();
  try {
    const Gguf file = open();
    outcome.sum += read_everything(file);
    ++outcome.opened;
  } catch (const Error& error) {
    EXPECT_NE(std::string_view(error.what()), "");
    ++outcome.refused;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kMostTime);
  EXPECT_LT(allocated_bytes, kMostBytes);
}

TEST(GgufDamage, the_file_is_whole_to_begin_with) {
  const std::string bytes = small_file().bytes();
  const Gguf file(test::as_bytes(bytes), "small.gguf");
  EXPECT_EQ(file.keys().size(), 16u);
  EXPECT_EQ(file.tensors().size(), 8u);
  EXPECT_EQ(file.tensor("blk.1.fp8.weight").dtype, DType::f8_e4m3_b128);
}

TEST(GgufDamage, any_byte_of_the_header_may_be_anything) {
  const RawGguf whole = small_file();
  const std::string bytes = whole.bytes();
  const std::size_t header = header_bytes(whole);
  Outcome outcome;
  for (std::size_t at = 0; at < header; ++at) {
    const auto byte = static_cast<unsigned char>(bytes[at]);
    for (const int damaged : {0x00, 0xff, byte ^ 0x01, byte ^ 0x80, 0x7f, 13}) {
      SCOPED_TRACE("byte " + std::to_string(at) + " = " + std::to_string(damaged));
      // A copy of exactly this size, so that an address sanitizer sees the first byte too far.
      std::vector<std::byte> copy(test::as_bytes(bytes).begin(), test::as_bytes(bytes).end());
      copy[at] = static_cast<std::byte>(damaged);
      try_open([&] { return Gguf(copy, "damaged.gguf"); }, outcome);
    }
  }
  EXPECT_EQ(outcome.opened + outcome.refused, static_cast<int>(header) * 6);
  EXPECT_GT(outcome.refused, static_cast<int>(header));
}

TEST(GgufDamage, any_eight_bytes_of_the_header_may_be_a_huge_number) {
  const RawGguf whole = small_file();
  const std::string bytes = whole.bytes();
  const std::size_t header = header_bytes(whole);
  Outcome outcome;
  for (std::size_t at = 0; at + 8 <= header; ++at) {
    for (const std::uint64_t number : {UINT64_MAX, UINT64_MAX - 31, std::uint64_t{1} << 63, std::uint64_t{1} << 61,
                                       std::uint64_t{1} << 32, std::uint64_t{65536}}) {
      SCOPED_TRACE("bytes from " + std::to_string(at) + " = " + std::to_string(number));
      std::vector<std::byte> copy(test::as_bytes(bytes).begin(), test::as_bytes(bytes).end());
      std::memcpy(copy.data() + at, &number, sizeof number);
      try_open([&] { return Gguf(copy, "damaged.gguf"); }, outcome);
    }
  }
  EXPECT_GT(outcome.refused, outcome.opened);
}

TEST(GgufDamage, a_file_cut_anywhere_is_refused) {
  const RawGguf whole = small_file();
  const std::string bytes = whole.bytes();
  const std::size_t needed = bytes.size() - (32 - 20);  // the padding behind the last tensor may be missing
  const TempFolder folder;
  test::write_file(folder / "cut.gguf", bytes);
  Outcome in_memory;
  Outcome on_disk;
  for (std::size_t size = bytes.size(); size-- > 0;) {
    SCOPED_TRACE("cut to " + std::to_string(size));
    const std::vector<std::byte> copy(test::as_bytes(bytes).begin(),
                                      test::as_bytes(bytes).begin() + static_cast<std::ptrdiff_t>(size));
    try_open([&] { return Gguf(copy, "cut.gguf"); }, in_memory);
    std::filesystem::resize_file(folder / "cut.gguf", size);
    try_open([&] { return Gguf(folder / "cut.gguf"); }, on_disk);
  }
  EXPECT_EQ(in_memory.refused, static_cast<int>(needed));
  EXPECT_EQ(on_disk.refused, static_cast<int>(needed));
}

TEST(GgufDamage, counts_that_the_file_could_hold_take_memory_only_as_entries_are_read) {
  // 64 MB of which a damaged count claims that nearly all is tables; the first entry that is not one ends it.
  std::string bytes = "GGUF" + raw<std::uint32_t>(3) + raw<std::uint64_t>(1 << 20) + raw<std::uint64_t>(1 << 16);
  bytes.resize(64 << 20, '\0');
  Outcome outcome;
  try_open([&] { return Gguf(test::as_bytes(bytes), "zeros.gguf"); }, outcome);
  EXPECT_EQ(outcome.refused, 1);
}

}  // namespace
}  // namespace lockstep
