// What the writer writes, the reader reads back; and no name ever stands for half a file.
#include "tensor/gguf_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>

#include "base/error.h"
#include "gguf_build.h"

namespace lockstep {
namespace {

using test::TempFolder;

std::vector<std::byte> pattern(std::size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((i * 131 + seed * 29 + (i >> 8)) & 0xff);
  return bytes;
}

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> files_in(const TempFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string numbered(std::size_t i) { return std::string("t").append(std::to_string(i)); }

void add(GgufWriter& writer, std::string_view name, DType dtype, std::initializer_list<std::int64_t> ne) {
  writer.add_tensor(name, dtype, std::vector<std::int64_t>(ne));
}

void set_one_of_each(GgufWriter& writer) {
  writer.set("u8", std::uint8_t{255});
  writer.set("i8", std::int8_t{-128});
  writer.set("u16", std::uint16_t{65535});
  writer.set("i16", std::int16_t{-32768});
  writer.set("u32", std::uint32_t{4294967295u});
  writer.set("i32", std::int32_t{-2147483647});
  writer.set("u64", std::uint64_t{1} << 40);
  writer.set("i64", -(std::int64_t{1} << 40));
  writer.set("f32", 1e-6f);
  writer.set("f64", 0.1);
  writer.set("bool", true);
  writer.set("string", "tea");
  const std::int32_t ratios[] = {4, 128, 0};
  writer.set_array<std::int32_t>("i32s", ratios);
  const float clamps[] = {10.0f, 0.5f};
  writer.set_array<float>("f32s", clamps);
  const bool truths[] = {true, false};
  writer.set_array<bool>("bools", truths);
  const std::string_view tokens[] = {"a", "", "bc"};
  writer.set_array("strings", tokens);
  writer.set_array<std::uint8_t>("none", {});
}

void expect_one_of_each(const Gguf& file) {
  const struct {
    const char* key;
    GgufType type;
    std::int64_t value;
  } integers[] = {
      {"u8", GgufType::u8, 255},
      {"i8", GgufType::i8, -128},
      {"u16", GgufType::u16, 65535},
      {"i16", GgufType::i16, -32768},
      {"u32", GgufType::u32, 4294967295},
      {"i32", GgufType::i32, -2147483647},
      {"u64", GgufType::u64, std::int64_t{1} << 40},
      {"i64", GgufType::i64, -(std::int64_t{1} << 40)},
  };
  for (const auto& c : integers) {
    EXPECT_EQ(file.int_of(c.key), c.value) << c.key;
    EXPECT_EQ(file.find(c.key)->type(), c.type) << c.key;
  }
  EXPECT_EQ(file.float_of("f32"), 1e-6f);
  EXPECT_EQ(file.find("f64")->to_number(), 0.1);
  EXPECT_TRUE(file.bool_of("bool"));
  EXPECT_EQ(file.string_of("string"), "tea");
  EXPECT_EQ(file.ints_of("i32s"), (std::vector<std::int64_t>{4, 128, 0}));
  EXPECT_EQ(file.floats_of("f32s"), (std::vector<float>{10.0f, 0.5f}));
  EXPECT_EQ(file.find("bools")->to_bool(1), false);
  EXPECT_EQ(file.strings_of("strings"), (std::vector<std::string_view>{"a", "", "bc"}));
  EXPECT_EQ(file.find("none")->describe(), "array of 0 u8");
}

TEST(GgufWriter, every_value_type_comes_back) {
  const TempFolder folder;
  GgufWriter writer(folder / "m.gguf");
  set_one_of_each(writer);
  writer.begin();
  EXPECT_EQ(writer.finish(), std::vector<std::filesystem::path>{folder / "m.gguf"});
  const Gguf file(folder / "m.gguf");
  expect_one_of_each(file);
  EXPECT_EQ(file.version(), 3u);

  GgufWriter copy(folder / "copy.gguf");
  copy.set_all(file);
  copy.begin();
  copy.finish();
  EXPECT_EQ(contents(folder / "copy.gguf"), contents(folder / "m.gguf"));
}

TEST(GgufWriter, the_layout_is_the_one_of_the_specification) {
  const TempFolder folder;
  GgufWriter writer(folder / "m.gguf");
  writer.set("key", std::uint32_t{7});
  add(writer, "t", DType::f32, {3, 2});
  add(writer, "u", DType::f16, {1});
  writer.begin();
  writer.append(pattern(24, 1));
  writer.append(pattern(2, 2));
  writer.finish();
  test::RawGguf expected;
  expected.keys = {test::raw_key("key", 4, test::raw<std::uint32_t>(7))};
  expected.tensors = {test::raw_tensor("t", {3, 2}, 0, 0), test::raw_tensor("u", {1}, 1, 32)};
  expected.data.assign(64, '\0');
  std::memcpy(expected.data.data(), pattern(24, 1).data(), 24);
  std::memcpy(expected.data.data() + 32, pattern(2, 2).data(), 2);
  EXPECT_EQ(contents(folder / "m.gguf"), expected.bytes());
}

TEST(GgufWriter, every_dtype_comes_back_in_pieces_of_any_size) {
  for (const std::uint64_t alignment : {8u, 32u, 4096u}) {
    const TempFolder folder;
    std::uint64_t last_done = 0;
    std::uint64_t last_total = 0;
    GgufWriterOptions options;
    options.alignment = alignment;
    options.progress = [&](std::uint64_t done, std::uint64_t total) { last_done = done, last_total = total; };
    GgufWriter writer(folder / "m.gguf", options);
    for (const DTypeInfo& info : all_dtypes()) add(writer, info.name, info.dtype, {info.block_values * 3, 2, 1, 2});
    writer.begin();
    for (const DTypeInfo& info : all_dtypes()) {
      const auto index = static_cast<unsigned>(info.dtype);
      EXPECT_EQ(writer.current(), index);
      const auto bytes = pattern(static_cast<std::size_t>(info.block_bytes) * 12, index);
      for (std::size_t at = 0, piece = 1; at < bytes.size(); at += piece, piece = piece * 3 + 1)
        writer.append(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
    }
    EXPECT_EQ(writer.current(), all_dtypes().size());
    writer.finish();
    EXPECT_EQ(last_done, last_total);
    EXPECT_EQ(last_total, writer.total_bytes());

    const Gguf file(folder / "m.gguf", {.meaning_of_108 = DType::rocmi4});
    ASSERT_EQ(file.tensors().size(), all_dtypes().size());
    for (const DTypeInfo& info : all_dtypes()) {
      SCOPED_TRACE(info.name);
      const GgufTensor& tensor = file.tensor(info.name);
      EXPECT_EQ(tensor.file_id, info.file_id);
      EXPECT_EQ(tensor.dtype, info.file_id == 107 ? DType::rocmfp2 : info.dtype);
      EXPECT_EQ(tensor.ne, (std::array<std::int64_t, 4>{info.block_values * 3, 2, 1, 2}));
      EXPECT_EQ(tensor.offset % alignment, 0u);
      EXPECT_TRUE(same(tensor.bytes,
                       pattern(static_cast<std::size_t>(info.block_bytes) * 12, static_cast<unsigned>(info.dtype))));
    }
  }
}

TEST(GgufWriter, a_split_output_keeps_to_its_size_and_opens_by_any_part) {
  const TempFolder folder;
  GgufWriterOptions options;
  options.part_bytes = 2000;
  GgufWriter writer(folder / "m.gguf", options);
  set_one_of_each(writer);
  const std::int64_t widths[] = {100, 100, 1000, 100, 50, 60, 70, 80, 1};  // the third is larger than a part
  for (std::size_t i = 0; i < std::size(widths); ++i) add(writer, numbered(i), DType::f32, {widths[i]});
  writer.begin();
  for (std::size_t i = 0; i < std::size(widths); ++i)
    writer.append(pattern(static_cast<std::size_t>(widths[i]) * 4, static_cast<unsigned>(i)));
  const auto paths = writer.finish();
  ASSERT_GE(paths.size(), 3u);
  EXPECT_EQ(files_in(folder).size(), paths.size());
  for (const auto& path : paths) {
    const Gguf file(path);
    EXPECT_EQ(file.part_count(), paths.size());
    expect_one_of_each(file);
    ASSERT_EQ(file.tensors().size(), std::size(widths));
    std::vector<std::uint64_t> tensors_in(paths.size(), 0);
    for (std::size_t i = 0; i < std::size(widths); ++i) {
      const GgufTensor& tensor = file.tensor(numbered(i));
      EXPECT_TRUE(same(tensor.bytes, pattern(static_cast<std::size_t>(widths[i]) * 4, static_cast<unsigned>(i))));
      ++tensors_in[static_cast<std::size_t>(tensor.part)];
    }
    for (std::size_t part = 0; part < paths.size(); ++part) {
      EXPECT_GE(tensors_in[part], 1u);
      if (tensors_in[part] > 1) {
        EXPECT_LE(std::filesystem::file_size(paths[part]), 2000u);
      }
    }
  }
  // What fits in one file is one file, under the plain name.
  options.part_bytes = 1 << 20;
  GgufWriter whole(folder / "whole.gguf", options);
  add(whole, "t", DType::f32, {8});
  whole.begin();
  whole.append(pattern(32, 0));
  EXPECT_EQ(whole.finish(), std::vector<std::filesystem::path>{folder / "whole.gguf"});
}

TEST(GgufWriter, keys_are_replaced_in_place_and_split_keys_of_the_source_do_not_travel) {
  const TempFolder folder;
  GgufWriterOptions options;
  options.part_bytes = 400;
  options.alignment = 64;
  GgufWriter split(folder / "a.gguf", options);
  split.set("first", 1.0f);
  split.set("second", "b");
  add(split, "t", DType::f32, {64});
  add(split, "u", DType::f32, {64});
  split.begin();
  split.append(pattern(256, 0));
  split.append(pattern(256, 1));
  const auto parts = split.finish();
  ASSERT_EQ(parts.size(), 2u);
  const Gguf source(parts[1]);
  EXPECT_EQ(source.int_of("split.count"), 2);
  EXPECT_EQ(source.int_of("general.alignment"), 64);

  GgufWriter joined(folder / "b.gguf");
  joined.set_all(source);
  joined.set("first", std::uint32_t{2});
  joined.begin();
  joined.finish();
  const Gguf file(folder / "b.gguf");
  ASSERT_EQ(file.keys().size(), 2u);
  EXPECT_EQ(file.keys()[0].name, "first");
  EXPECT_EQ(file.int_of("first"), 2);
  EXPECT_EQ(file.string_of("second"), "b");
}

TEST(GgufWriter, an_unfinished_file_never_has_the_final_name) {
  const TempFolder folder;
  test::write_file(folder / "m.gguf", "what was there before");
  {
    GgufWriter writer(folder / "m.gguf");
    add(writer, "t", DType::f32, {64});
    writer.begin();
    writer.append(pattern(100, 0));
    for (const std::string& name : files_in(folder))
      EXPECT_TRUE(name == "m.gguf" || name.starts_with("m.gguf.part-")) << name;
    EXPECT_EQ(contents(folder / "m.gguf"), "what was there before");
  }
  EXPECT_EQ(files_in(folder), std::vector<std::string>{"m.gguf"});
  EXPECT_EQ(contents(folder / "m.gguf"), "what was there before");
  { GgufWriter never_begun(folder / "n.gguf"); }
  EXPECT_EQ(files_in(folder), std::vector<std::string>{"m.gguf"});
}

TEST(GgufWriter, what_cannot_be_written_is_refused) {
  const TempFolder folder;
  GgufWriter writer(folder / "m.gguf");
  add(writer, "t", DType::f32, {4});
  const auto refusal = [&](const std::function<void()>& act) -> std::string {
    try {
      act();
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  const struct {
    const char* name;
    std::function<void()> act;
    const char* message;
  } cases[] = {
      {"a name twice", [&] { add(writer, "t", DType::f32, {4}); }, "tensor 't': declared twice"},
      {"no name", [&] { add(writer, "", DType::f32, {4}); }, "its name has 0 bytes, expected 1 to 65535"},
      {"half a block", [&] { add(writer, "u", DType::q4_k, {128}); },
       "rows of 128 values, expected a multiple of 256 for q4_K"},
      {"no dimensions", [&] { add(writer, "u", DType::f32, {}); }, "0 dimensions, expected 1 to 4"},
      {"five dimensions",
       [&] {
         add(writer, "u", DType::f32, {1, 1, 1, 1, 1});
       },
       "5 dimensions, expected 1 to 4"},
      {"an empty dimension",
       [&] {
         add(writer, "u", DType::f32, {4, 0});
       },
       "an extent of 0"},
      {"2^64 values",
       [&] {
         add(writer, "u", DType::f32, {INT64_MAX, 3});
       },
       "fewer than 2^63 values"},
      {"2^63 bytes", [&] { add(writer, "u", DType::f32, {INT64_MAX / 2}); }, "more than 2^63 bytes"},
      {"the writer's alignment", [&] { writer.set("general.alignment", std::uint32_t{64}); }, "'general.alignment'"},
      {"the writer's split", [&] { writer.set("split.count", std::uint16_t{2}); }, "'split.count'"},
      {"a key without a name", [&] { writer.set("", std::uint16_t{2}); }, "key ''"},
      {"an odd alignment",
       [&] {
         GgufWriterOptions odd;
         odd.alignment = 24;
         const GgufWriter refused(folder / "x.gguf", odd);
       },
       "alignment: 24 is not a power of two"},
      {"a folder that is not there",
       [&] {
         GgufWriter lost(folder / "nowhere/m.gguf");
         lost.begin();
       },
       "nowhere does not exist"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const std::string message = refusal(c.act);
    EXPECT_NE(message.find(c.message), std::string::npos) << message;
  }
  writer.begin();  // what was refused left no trace
  writer.append(pattern(16, 0));
  writer.finish();
  EXPECT_EQ(Gguf(folder / "m.gguf").tensors().size(), 1u);
  EXPECT_EQ(Gguf(folder / "m.gguf").keys().size(), 0u);
}

TEST(GgufWriter, a_disk_that_takes_no_more_is_reported_and_leaves_nothing) {
  const TempFolder folder;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1 << 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string message;
  {
    GgufWriter writer(folder / "m.gguf");
    add(writer, "t", DType::f32, {1 << 20});
    try {
      writer.begin();
      writer.append(pattern(4 << 20, 0));
      writer.finish();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::io);
      message = error.what();
    }
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find("m.gguf: cannot write: File too large"), std::string::npos) << message;
  EXPECT_TRUE(files_in(folder).empty());
}

TEST(GgufWriter, two_writers_of_one_name_do_not_meet) {
  const TempFolder folder;
  GgufWriter first(folder / "m.gguf"), second(folder / "m.gguf");
  add(first, "first", DType::f32, {64});
  add(second, "second", DType::f32, {32});
  first.begin();
  second.begin();
  first.append(pattern(100, 0));
  second.append(pattern(128, 1));
  second.finish();
  EXPECT_EQ(Gguf(folder / "m.gguf").tensors()[0].name, "second");
  first.append(pattern(156, 2));
  first.finish();
  EXPECT_EQ(Gguf(folder / "m.gguf").tensors()[0].name, "first");
  EXPECT_EQ(files_in(folder), std::vector<std::string>{"m.gguf"});
}

TEST(GgufWriter, a_file_of_the_user_is_never_taken_for_its_own) {
  const TempFolder folder;
  test::write_file(folder / "m.gguf.part", "the user's");
  GgufWriter writer(folder / "m.gguf");
  add(writer, "t", DType::f32, {64});
  writer.begin();
  writer.append(pattern(256, 0));
  writer.finish();
  EXPECT_EQ(contents(folder / "m.gguf.part"), "the user's");
  EXPECT_EQ(files_in(folder), (std::vector<std::string>{"m.gguf", "m.gguf.part"}));
}

TEST(GgufWriter, no_output_replaces_an_input) {
  const TempFolder folder;
  const struct {
    const char* name;
    const char* input;
    const char* out;
    std::uint64_t part_bytes;
    bool is_refused;
  } cases[] = {
      {"the file itself", "m.gguf", "m.gguf", 0, true},
      {"by a symbolic link", "m.gguf", "link.gguf", 0, true},
      {"by a hard link", "m.gguf", "hard.gguf", 0, true},
      {"a part", "m-00002-of-00002.gguf", "m.gguf", 512, true},
      {"the whole, when parts are written", "m.gguf", "m.gguf", 512, false},
      {"a neighbour", "m.gguf", "n.gguf", 0, false},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    for (const std::string& name : files_in(folder)) std::filesystem::remove(folder / name);
    test::write_file(folder / c.input, "input");
    if (!std::filesystem::exists(folder / "link.gguf"))
      std::filesystem::create_symlink(folder / c.input, folder / "link.gguf");
    std::filesystem::create_hard_link(folder / c.input, folder / "hard.gguf");
    GgufWriterOptions options;
    options.part_bytes = c.part_bytes;
    options.inputs = {folder / "other.gguf", folder / c.input};
    GgufWriter writer(folder / c.out, options);
    for (const char* tensor : {"a", "b"}) add(writer, tensor, DType::f32, {64});
    std::string message;
    try {
      writer.begin();
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_EQ(message.find("is an input") != std::string::npos, c.is_refused) << message;
    EXPECT_EQ(contents(folder / c.input), "input");
  }
}

TEST(GgufWriterDeathTest, misuse_aborts) {
  const TempFolder folder;
  GgufWriter writer(folder / "m.gguf");
  add(writer, "t", DType::f32, {4});
  add(writer, "u", DType::f32, {4});
  writer.begin();
  EXPECT_DEATH(writer.append(pattern(17, 0)), "broken invariant");  // reaches into the next tensor
  EXPECT_DEATH(writer.finish(), "broken invariant");                // data is missing
  EXPECT_DEATH(add(writer, "v", DType::f32, {4}), "broken invariant");
}

}  // namespace
}  // namespace lockstep
