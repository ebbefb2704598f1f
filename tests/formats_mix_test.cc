// Side tables of the MIX formats: what a sound one gives, and that no damaged one gets through.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "numerics/round.h"
#include "tensor/mix.h"

namespace lockstep {
namespace {

constexpr const char* kDown = "blk.3.ffn_down_exps.weight";
constexpr const char* kUp = "blk.3.ffn_up_exps.weight";
constexpr const char* kQb = "blk.5.attn_q_b.weight";

class TableBytes {
 public:
  explicit TableBytes(const char (&magic)[9]) { text_.assign(magic, 8); }
  TableBytes& u32(std::uint32_t value) {
    text_.append(reinterpret_cast<const char*>(&value), 4);
    return *this;
  }
  TableBytes& bytes(std::initializer_list<int> values) {
    for (const int value : values) text_ += static_cast<char>(value);
    return *this;
  }
  /// `count` BF16 levels: first, first + 1, ...
  TableBytes& levels(int count, int first) {
    for (int i = 0; i < count; ++i) level(f32_to_bf16(static_cast<float>(first + i)));
    return *this;
  }
  TableBytes& level(std::uint16_t bits) {
    text_.append(reinterpret_cast<const char*>(&bits), 2);
    return *this;
  }
  std::vector<std::byte> done() const {
    std::vector<std::byte> bytes(text_.size());
    std::memcpy(bytes.data(), text_.data(), text_.size());
    return bytes;
  }

 private:
  std::string text_;
};

// Byte offsets of fields in the tables below, for damage.
constexpr std::size_t kCountAt = 8, kEntryAt = 16;

/// Layer 3, three experts of [64, 48]; modes 1, 0, 1.
std::vector<std::byte> down_table() {
  TableBytes table("P4MIXv1\0");
  table.u32(1).u32(0).u32(3).u32(3).u32(48).u32(64).u32(2).u32(8).bytes({1, 0, 1}).bytes({0, 0, 0});
  return table.levels(16, 1).levels(16, 17).levels(16, 33).done();
}

/// Layer 3, surface up, two experts of [32, 16]; modes 0, 1.
std::vector<std::byte> experts_table() {
  TableBytes table("GUMIXs1\0");
  table.u32(1).u32(0).u32(3).u32(1).u32(2).u32(16).u32(32).u32(2).u32(4).bytes({0, 1});
  return table.levels(8, 1).levels(8, 9).done();
}

/// Layer 5, attn_q_b as 105, and layer 5, attn_kv as 106 in mode 0.
std::vector<std::byte> dense_table() {
  TableBytes table("DMIXs1\0\0");
  table.u32(2).u32(0);
  table.u32(5).u32(1).u32(105).u32(1).u32(2).u32(8).bytes({1, 0, 0, 0}).levels(16, 1);
  table.u32(5).u32(2).u32(106).u32(1).u32(2).u32(4).bytes({0, 0, 0, 0}).levels(8, 1);
  return table.done();
}

void expect_bad(const std::function<void()>& act, const std::string& says, const std::string& name) {
  try {
    act();
    ADD_FAILURE() << name << ": accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::bad_file) << name;
    EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << name << ": " << error.what();
  }
}

TEST(MixTables, GiveEveryExpertItsModeAndBooks) {
  MixTables tables;
  tables.add(MixKind::down_experts, down_table(), "p4");
  ASSERT_EQ(tables.size(), 1u);
  const MixTensor* tensor = tables.find(kDown);
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->dtype, DType::rocmfp3_mix);
  EXPECT_EQ(tensor->in, 64);
  EXPECT_EQ(tensor->out, 48);
  ASSERT_EQ(tensor->books.size(), 3u);
  EXPECT_TRUE(tensor->books[0].books);
  EXPECT_FALSE(tensor->books[1].books);
  EXPECT_TRUE(tensor->books[2].books);
  EXPECT_EQ(tensor->books[0].level[0][0], 1);
  EXPECT_EQ(tensor->books[0].level[1][7], 16);
  EXPECT_EQ(tensor->books[2].level[1][0], 41);
  EXPECT_EQ(tables.find("blk.3.ffn_down_exps"), nullptr);
}

TEST(MixTables, OfAllKindsLieSideBySide) {
  MixTables tables;
  tables.add(MixKind::down_experts, down_table(), "p4");
  tables.add(MixKind::experts, experts_table(), "gu");
  tables.add(MixKind::dense, dense_table(), "d");
  ASSERT_EQ(tables.size(), 4u);
  const MixTensor* up = tables.find(kUp);
  ASSERT_NE(up, nullptr);
  EXPECT_EQ(up->dtype, DType::rocmfp2_mix);
  ASSERT_EQ(up->books.size(), 2u);
  EXPECT_EQ(up->books[1].level[0][0], 9);
  EXPECT_EQ(up->books[1].level[1][3], 16);
  const MixTensor* dense = tables.find(kQb);
  ASSERT_NE(dense, nullptr);
  EXPECT_EQ(dense->dtype, DType::rocmfp3_mix);
  ASSERT_EQ(dense->books.size(), 1u);
  EXPECT_TRUE(dense->books[0].books);
  EXPECT_EQ(tables.find("blk.5.attn_kv.weight")->dtype, DType::rocmfp2_mix);
  EXPECT_FALSE(tables.find("blk.5.attn_kv.weight")->books[0].books);
}

TEST(MixTables, AnEmptyTableIsATable) {
  MixTables tables;
  tables.add(MixKind::dense, TableBytes("DMIXs1\0\0").u32(0).u32(0).done(), "d");
  EXPECT_EQ(tables.size(), 0u);
}

TEST(MixTables, CutAtAnyLengthAreRefusedAndAddNothing) {
  const struct {
    const char* name;
    MixKind kind;
    std::vector<std::byte> bytes;
  } kTables[] = {{"down", MixKind::down_experts, down_table()},
                 {"experts", MixKind::experts, experts_table()},
                 {"dense", MixKind::dense, dense_table()}};
  for (const auto& table : kTables) {
    for (std::size_t length = 0; length < table.bytes.size(); ++length) {
      MixTables tables;
      const auto cut = std::span(table.bytes).first(length);
      expect_bad([&] { tables.add(table.kind, cut, "cut"); }, "cut: truncated", table.name + std::to_string(length));
      EXPECT_EQ(tables.size(), 0u) << table.name << length;
    }
    auto longer = table.bytes;
    longer.push_back(std::byte{0});
    MixTables tables;
    expect_bad([&] { tables.add(table.kind, longer, "long"); }, "1 bytes after the last", table.name);
    EXPECT_EQ(tables.size(), 0u);
  }
}

TEST(MixTables, DamagedFieldsAreNamed) {
  const struct {
    const char* name;
    MixKind kind;
    std::vector<std::byte> bytes;
    std::size_t at;
    std::uint32_t value;
    const char* says;
  } kCases[] = {
      {"magic", MixKind::down_experts, down_table(), 0, 0, "does not begin with P4MIXv1"},
      {"kind", MixKind::experts, down_table(), kCountAt, 1, "does not begin with GUMIXs1"},
      {"more entries than bytes", MixKind::down_experts, down_table(), kCountAt, 0xffffffffu, "truncated: layer"},
      {"fewer entries", MixKind::dense, dense_table(), kCountAt, 1, "after the last of 1"},
      {"layer", MixKind::down_experts, down_table(), kEntryAt, 4096, "layer is 4096, expected 0 to 4095"},
      {"no experts", MixKind::down_experts, down_table(), kEntryAt + 4, 0, "number of experts is 0"},
      {"too many experts", MixKind::down_experts, down_table(), kEntryAt + 4, 0xffffffffu, "number of experts is"},
      {"experts beyond the end", MixKind::down_experts, down_table(), kEntryAt + 4, 1u << 20, "truncated: modes"},
      {"output width", MixKind::down_experts, down_table(), kEntryAt + 8, 0, "output width is 0"},
      {"input width", MixKind::down_experts, down_table(), kEntryAt + 12, 33, "input width is 33, expected a multiple"},
      {"books", MixKind::down_experts, down_table(), kEntryAt + 16, 3, "number of books is 3, expected 2"},
      {"levels of 105", MixKind::down_experts, down_table(), kEntryAt + 20, 4, "levels a book is 4, expected 8"},
      {"mode", MixKind::down_experts, down_table(), kEntryAt + 24, 0x00000201, "mode 2"},
      {"rotation", MixKind::down_experts, down_table(), kEntryAt + 27, 1, "rotated"},
      {"surface", MixKind::experts, experts_table(), kEntryAt + 4, 3, "surface is 3, expected 0 to 2"},
      {"levels of 106", MixKind::experts, experts_table(), kEntryAt + 24, 8, "levels a book is 8, expected 4"},
      {"class", MixKind::dense, dense_table(), kEntryAt + 4, 5, "class is 5, expected 0 to 4"},
      {"type id", MixKind::dense, dense_table(), kEntryAt + 8, 107, "type id is 107, expected 105 to 106"},
      {"type id against levels", MixKind::dense, dense_table(), kEntryAt + 8, 106, "levels a book is 8, expected 4"},
      {"slices", MixKind::dense, dense_table(), kEntryAt + 12, 0, "slices is 0"},
      {"a level that is infinite", MixKind::dense, dense_table(), kEntryAt + 28, 0x00007f80, "not finite"},
  };
  for (const auto& c : kCases) {
    auto bytes = c.bytes;
    store_as(bytes.data() + c.at, c.value);
    MixTables tables;
    expect_bad([&] { tables.add(c.kind, bytes, "table"); }, c.says, c.name);
    EXPECT_EQ(tables.size(), 0u) << c.name;
  }
}

TEST(MixTables, BooksThatModeZeroDoesNotUseMayHoldAnything) {
  auto bytes = dense_table();
  store_as<std::uint16_t>(bytes.data() + bytes.size() - 2, 0x7fc0);  // the last level of the entry in mode 0
  MixTables tables;
  tables.add(MixKind::dense, bytes, "d");
  EXPECT_EQ(tables.size(), 2u);
}

TEST(MixTables, ATensorDescribedTwiceIsRefused) {
  MixTables tables;
  tables.add(MixKind::down_experts, down_table(), "p4");
  expect_bad([&] { tables.add(MixKind::down_experts, down_table(), "again"); }, "described twice", "same table");

  // The down experts of a layer may also lie in the other kind of table, but not in both.
  auto down_as_106 = experts_table();
  store_as<std::uint32_t>(down_as_106.data() + kEntryAt + 4, 2);
  expect_bad([&] { tables.add(MixKind::experts, down_as_106, "gu"); }, "described twice", "other kind");

  auto twice = dense_table();
  store_as<std::uint32_t>(twice.data() + kEntryAt + 28 + 32 + 4, 1);  // the second entry's class
  MixTables fresh;
  expect_bad([&] { fresh.add(MixKind::dense, twice, "d"); }, "described twice", "one table");
  EXPECT_EQ(fresh.size(), 0u);
}

TEST(MixTables, MustDescribeExactlyTheTensorsOfTheFile) {
  MixTables tables;
  tables.add(MixKind::down_experts, down_table(), "p4");
  tables.add(MixKind::dense, dense_table(), "d");
  const MixShape down{kDown, DType::rocmfp3_mix, 64, 48, 3};
  const MixShape qb{kQb, DType::rocmfp3_mix, 1024, 32768, 1};
  const MixShape kv{"blk.5.attn_kv.weight", DType::rocmfp2_mix, 4096, 512, 1};
  const MixShape all[] = {down, qb, kv};
  EXPECT_NO_THROW(tables.check_covers(all));

  const auto changed = [](MixShape shape, const std::function<void(MixShape&)>& change) {
    change(shape);
    return shape;
  };
  const struct {
    const char* name;
    std::vector<MixShape> tensors;
    const char* says;
  } kCases[] = {
      {"none", {down, qb, kv, {kUp, DType::rocmfp2_mix, 32, 16, 2}}, "needs a MIX side table"},
      {"format", {changed(down, [](MixShape& s) { s.dtype = DType::rocmfp2_mix; }), qb, kv}, "format q3_1_rocmfp3_mix"},
      {"input width", {changed(down, [](MixShape& s) { s.in = 96; }), qb, kv}, "input width 64, expected 96"},
      {"output width", {changed(down, [](MixShape& s) { s.out = 47; }), qb, kv}, "output width 48, expected 47"},
      {"experts", {changed(down, [](MixShape& s) { s.experts = 4; }), qb, kv}, "number of experts 3, expected 4"},
      {"a table too many", {down, qb}, "the file has no such MIX tensor"},
  };
  for (const auto& c : kCases) expect_bad([&] { tables.check_covers(c.tensors); }, c.says, c.name);
}

TEST(MixTables, KindsHaveTheKeysOfTheFiles) {
  ASSERT_EQ(mix_kinds().size(), 3u);
  EXPECT_EQ(mix_kinds()[0].key, "deepseek4.p4mix.sidecar");
  EXPECT_EQ(mix_kinds()[1].suffix, ".gumix.bin");
  EXPECT_EQ(mix_kinds()[2].kind, MixKind::dense);
}

}  // namespace
}  // namespace lockstep
