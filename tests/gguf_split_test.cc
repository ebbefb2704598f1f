// Split files: any part opens all of them, and parts that do not belong together are refused.
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "gguf_build.h"
#include "tensor/gguf.h"

namespace lockstep {
namespace {

using test::raw;
using test::raw_key;
using test::raw_tensor;
using test::raw_text;
using test::RawGguf;
using test::TempFolder;
using test::write_file;

enum : std::uint32_t { kU16 = 2, kU32 = 4, kI32 = 5, kString = 8, kI64 = 11 };

std::string name_of_part(int number, int count) { return split_path("model", number, count).string(); }

/// Three parts with one tensor in the first and two in each other one. Each part's data is filled with its number.
std::vector<RawGguf> three_parts() {
  std::vector<RawGguf> parts(3);
  for (std::size_t i = 0; i < 3; ++i) {
    RawGguf& part = parts[i];
    if (i == 0) part.keys.push_back(raw_key("general.name", kString, raw_text("whole")));
    part.keys.push_back(raw_key("split.no", kU16, raw(static_cast<std::uint16_t>(i))));
    part.keys.push_back(raw_key("split.count", kU16, raw<std::uint16_t>(3)));
    part.keys.push_back(raw_key("split.tensors.count", kI32, raw<std::int32_t>(5)));
    part.tensors.push_back(raw_tensor("t" + std::to_string(i) + ".a", {8}, 0, 0));
    if (i > 0) part.tensors.push_back(raw_tensor("t" + std::to_string(i) + ".b", {8}, 0, 32));
    part.data.assign(64, static_cast<char>('0' + i));
  }
  return parts;
}

void write_parts(const TempFolder& folder, const std::vector<RawGguf>& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i)
    write_file(folder / name_of_part(static_cast<int>(i) + 1, static_cast<int>(parts.size())), parts[i].bytes());
}

std::string refusal(const std::filesystem::path& path, Error::Kind* kind = nullptr) {
  try {
    const Gguf file(path);
  } catch (const Error& error) {
    if (kind != nullptr) *kind = error.kind();
    return error.what();
  }
  ADD_FAILURE() << "opened";
  return "";
}

TEST(GgufSplit, any_part_opens_all_in_order) {
  const TempFolder folder;
  write_parts(folder, three_parts());
  for (int number = 1; number <= 3; ++number) {
    SCOPED_TRACE(number);
    const Gguf file(folder / name_of_part(number, 3));
    EXPECT_EQ(file.part_count(), 3u);
    EXPECT_EQ(file.string_of("general.name"), "whole");
    ASSERT_EQ(file.tensors().size(), 5u);
    const char* names[] = {"t0.a", "t1.a", "t1.b", "t2.a", "t2.b"};
    for (std::size_t i = 0; i < 5; ++i) {
      const GgufTensor& tensor = file.tensors()[i];
      EXPECT_EQ(tensor.name, names[i]);
      EXPECT_EQ(tensor.part, names[i][1] - '0');
      EXPECT_EQ(static_cast<char>(tensor.bytes[0]), names[i][1]);
      EXPECT_EQ(&file.tensor(names[i]), &tensor);
    }
  }
}

TEST(GgufSplit, the_first_part_may_hold_no_tensors_and_parts_may_differ_in_alignment) {
  const TempFolder folder;
  std::vector<RawGguf> parts = three_parts();
  parts[0].tensors.clear();
  parts[0].data.clear();
  parts[0].keys[3] = raw_key("split.tensors.count", kI64, raw<std::int64_t>(4));
  parts[1].keys[2] = raw_key("split.tensors.count", kU32, raw<std::uint32_t>(4));
  parts[1].keys.push_back(raw_key("general.alignment", kU32, raw<std::uint32_t>(256)));
  parts[1].alignment = 256;
  parts[1].tensors[1] = raw_tensor("t1.b", {8}, 0, 256);
  parts[1].data.assign(256 + 32, '1');
  parts[2].keys.pop_back();  // the total may be said once
  write_parts(folder, parts);
  const Gguf file(folder / name_of_part(2, 3));
  EXPECT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.tensor("t1.b").offset % 256, 0u);
}

TEST(GgufSplit, a_count_of_none_or_one_is_a_whole_file) {
  const TempFolder folder;
  for (const std::uint16_t count : {std::uint16_t{0}, std::uint16_t{1}}) {
    RawGguf whole;
    whole.keys = {raw_key("split.count", kU16, raw(count))};
    write_file(folder / "whole.gguf", whole.bytes());
    EXPECT_EQ(Gguf(folder / "whole.gguf").part_count(), 1u);
  }
}

TEST(GgufSplit, names) {
  const auto split = parse_split_name("/models/deep-00002-of-00005.gguf");
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->prefix, "/models/deep");
  EXPECT_EQ(split->number, 2);
  EXPECT_EQ(split->count, 5);
  EXPECT_EQ(split_path(split->prefix, 5, 5), "/models/deep-00005-of-00005.gguf");
  for (const char* other : {"deep.gguf", "deep-00002-of-00005.bin", "deep-2-of-5.gguf", "deep-00006-of-00005.gguf",
                            "deep-00000-of-00005.gguf", "deep-0000x-of-00005.gguf", "deep_00002-of-00005.gguf", ""})
    EXPECT_FALSE(parse_split_name(other).has_value()) << other;
  EXPECT_TRUE(parse_split_name("-00001-of-00001.gguf").has_value());
}

TEST(GgufSplit, parts_that_do_not_belong_together_are_refused) {
  using Parts = std::vector<RawGguf>;
  const struct {
    const char* name;
    std::function<void(Parts&, const TempFolder&)> damage;
    const char* message;
  } cases[] = {
      {"a part is missing",
       [](Parts&, const TempFolder& folder) { std::filesystem::remove(folder / name_of_part(3, 3)); },
       "part 3 of 3 is missing, expected "},
      {"a part has another's number",
       [](Parts& parts, const TempFolder&) { parts[2].keys[0] = raw_key("split.no", kU16, raw<std::uint16_t>(1)); },
       "00003-of-00003.gguf: split.no is 1, expected 2"},
      {"a part has no number", [](Parts& parts, const TempFolder&) { parts[1].keys.erase(parts[1].keys.begin()); },
       "00002-of-00003.gguf: has no key split.no, expected it to be 1"},
      {"a part is of another split",
       [](Parts& parts, const TempFolder&) { parts[2].keys[1] = raw_key("split.count", kU16, raw<std::uint16_t>(4)); },
       "00003-of-00003.gguf: split.count is 4, expected 3"},
      {"the total is wrong",
       [](Parts& parts, const TempFolder&) {
         parts[0].keys[3] = raw_key("split.tensors.count", kI32, raw<std::int32_t>(6));
       },
       "split.tensors.count is 6, expected 5"},
      {"a number is text",
       [](Parts& parts, const TempFolder&) { parts[1].keys[0] = raw_key("split.no", kString, raw_text("1")); },
       "split.no is of type string, expected an integer"},
      {"a tensor is in two parts",
       [](Parts& parts, const TempFolder&) { parts[2].tensors[1] = raw_tensor("t1.a", {8}, 0, 32); },
       "00003-of-00003.gguf: tensor 't1.a' is there twice, also in "},
      {"a part is damaged", [](Parts& parts, const TempFolder&) { parts[1].data.resize(40); },
       "00002-of-00003.gguf: at byte "},
      {"a part is no GGUF", [](Parts& parts, const TempFolder&) { parts[1].magic = "GGXX"; },
       "00002-of-00003.gguf: at byte 0: not a GGUF file"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const TempFolder folder;
    std::vector<RawGguf> parts = three_parts();
    write_parts(folder, parts);
    c.damage(parts, folder);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto path = folder / name_of_part(static_cast<int>(i) + 1, 3);
      if (std::filesystem::exists(path)) write_file(path, parts[i].bytes());
    }
    Error::Kind kind{};
    const std::string message = refusal(folder / name_of_part(1, 3), &kind);
    EXPECT_NE(message.find(c.message), std::string::npos) << message;
    EXPECT_EQ(kind, Error::Kind::bad_file);
  }
}

TEST(GgufSplit, a_part_that_was_renamed_is_refused_with_the_name_it_should_have) {
  const TempFolder folder;
  const std::vector<RawGguf> parts = three_parts();
  write_file(folder / "model.gguf", parts[0].bytes());
  EXPECT_NE(refusal(folder / "model.gguf")
                .find("split.count is 3, which does not fit the file's name, expected "
                      "NAME-00001-of-00003.gguf"),
            std::string::npos);
  write_file(folder / name_of_part(1, 4), parts[0].bytes());
  EXPECT_NE(refusal(folder / name_of_part(1, 4)).find("does not fit the file's name"), std::string::npos);
  RawGguf negative;
  negative.keys = {raw_key("split.count", kI32, raw<std::int32_t>(-2))};
  write_file(folder / name_of_part(1, 2), negative.bytes());
  EXPECT_NE(refusal(folder / name_of_part(1, 2)).find("split.count is -2"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
