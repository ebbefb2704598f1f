// Reading one GGUF file. Expected values are written by hand from the layout in docs/formats.md.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/error.h"
#include "gguf_build.h"
#include "tensor/gguf.h"

namespace lockstep {
namespace {

using test::as_bytes;
using test::raw;
using test::raw_array;
using test::raw_key;
using test::raw_tensor;
using test::raw_text;
using test::RawGguf;

enum : std::uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

RawGguf with_key(const std::string& key) {
  RawGguf file;
  file.keys = {key};
  return file;
}

RawGguf with_tensor(const std::string& tensor, std::size_t data_bytes = 64) {
  RawGguf file;
  file.tensors = {tensor};
  file.data.assign(data_bytes, 'd');
  return file;
}

/// The message of the Error that opening `bytes` throws; "" and a failure if it opens.
std::string refusal(const std::string& bytes, Error::Kind* kind = nullptr, const GgufOptions& options = {}) {
  try {
    const Gguf file(as_bytes(bytes), "model.gguf", options);
  } catch (const Error& error) {
    if (kind != nullptr) *kind = error.kind();
    return error.what();
  }
  ADD_FAILURE() << "opened";
  return "";
}

template <class Read>
std::string refusal_of(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "read";
  return "";
}

TEST(GgufRead, every_integer_width_is_an_integer) {
  const struct {
    const char* name;
    std::uint32_t type;
    std::string payload;
    std::int64_t expected;
  } cases[] = {
      {"u8", kU8, raw<std::uint8_t>(200), 200},
      {"i8", kI8, raw<std::int8_t>(-100), -100},
      {"u16", kU16, raw<std::uint16_t>(60000), 60000},
      {"i16", kI16, raw<std::int16_t>(-30000), -30000},
      {"u32", kU32, raw<std::uint32_t>(4000000000u), 4000000000},
      {"i32", kI32, raw<std::int32_t>(-2000000000), -2000000000},
      {"u64", kU64, raw<std::uint64_t>(std::uint64_t{1} << 62), std::int64_t{1} << 62},
      {"i64", kI64, raw<std::int64_t>(-(std::int64_t{1} << 62)), -(std::int64_t{1} << 62)},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const std::string bytes = with_key(raw_key("key", c.type, c.payload)).bytes();
    const Gguf file(as_bytes(bytes), "model.gguf");
    EXPECT_EQ(file.int_of("key"), c.expected);
    EXPECT_EQ(file.int_or("key", 7), c.expected);
    EXPECT_EQ(file.float_of("key"), static_cast<float>(c.expected));
    EXPECT_EQ(file.ints_of("key"), std::vector<std::int64_t>{c.expected});
    EXPECT_EQ(file.find("key")->describe(), c.name);
  }
}

TEST(GgufRead, floats_of_both_widths_give_the_same_f32) {
  for (const auto& [type, payload] : {std::pair(kF32, raw(1e-6f)), std::pair(kF64, raw(1e-6))}) {
    const std::string bytes = with_key(raw_key("epsilon", type, payload)).bytes();
    const Gguf file(as_bytes(bytes), "model.gguf");
    EXPECT_EQ(file.float_of("epsilon"), 1e-6f);
    EXPECT_EQ(file.floats_of("epsilon"), std::vector<float>{1e-6f});
  }
}

TEST(GgufRead, bools_and_strings) {
  RawGguf raw_file;
  raw_file.keys = {raw_key("yes", kBool, raw<std::uint8_t>(1)),       raw_key("no", kBool, raw<std::uint8_t>(0)),
                   raw_key("one", kU32, raw<std::uint32_t>(1)),       raw_key("two", kU32, raw<std::uint32_t>(2)),
                   raw_key("text", kString, raw_text("caf\xc3\xa9")), raw_key("empty", kString, raw_text(""))};
  const std::string bytes = raw_file.bytes();
  const Gguf file(as_bytes(bytes), "model.gguf");
  EXPECT_TRUE(file.bool_of("yes"));
  EXPECT_FALSE(file.bool_of("no"));
  EXPECT_TRUE(file.bool_of("one"));
  EXPECT_TRUE(file.bool_or("absent", true));
  EXPECT_EQ(file.string_of("text"), "caf\xc3\xa9");
  EXPECT_EQ(file.string_of("empty"), "");
  EXPECT_EQ(file.string_or("absent", "else"), "else");
  EXPECT_EQ(refusal_of([&] { file.bool_of("two"); }), "model.gguf: key two is of type u32, expected a bool, or 0 or 1");
  EXPECT_EQ(refusal_of([&] { file.string_of("yes"); }), "model.gguf: key yes is of type bool, expected a string");
}

TEST(GgufRead, arrays_of_every_type) {
  RawGguf raw_file;
  raw_file.keys = {
      raw_key("u8", kArray, raw_array(kU8, 3, "\x01\x02\xff")),
      raw_key("i16", kArray, raw_array(kI16, 2, raw<std::int16_t>(-5) + raw<std::int16_t>(6))),
      raw_key("u64", kArray, raw_array(kU64, 1, raw<std::uint64_t>(9))),
      raw_key("f32", kArray, raw_array(kF32, 2, raw(10.0f) + raw(0.5f))),
      raw_key("f64", kArray, raw_array(kF64, 1, raw(0.1))),
      raw_key("bool", kArray, raw_array(kBool, 2, std::string("\x01\x00", 2))),
      raw_key("string", kArray, raw_array(kString, 3, raw_text("a") + raw_text("") + raw_text("bc"))),
      raw_key("none", kArray, raw_array(kI32, 0, "")),
      raw_key("nested", kArray, raw_array(kArray, 2, raw_array(kU8, 2, "ab") + raw_array(kString, 1, raw_text("c")))),
      raw_key("last", kU8, "\x05"),
  };
  const std::string bytes = raw_file.bytes();
  const Gguf file(as_bytes(bytes), "model.gguf");
  EXPECT_EQ(file.ints_of("u8"), (std::vector<std::int64_t>{1, 2, 255}));
  EXPECT_EQ(file.bytes_of("u8").size(), 3u);
  EXPECT_EQ(file.ints_of("i16"), (std::vector<std::int64_t>{-5, 6}));
  EXPECT_EQ(file.ints_of("u64"), (std::vector<std::int64_t>{9}));
  EXPECT_EQ(file.floats_of("f32"), (std::vector<float>{10.0f, 0.5f}));
  EXPECT_EQ(file.floats_of("f64"), (std::vector<float>{0.1f}));
  EXPECT_EQ(file.floats_of("i16"), (std::vector<float>{-5.0f, 6.0f}));
  EXPECT_EQ(file.find("bool")->to_bool(0), true);
  EXPECT_EQ(file.find("bool")->to_bool(1), false);
  EXPECT_EQ(file.find("bool")->to_bool(2), std::nullopt);
  EXPECT_EQ(file.strings_of("string"), (std::vector<std::string_view>{"a", "", "bc"}));
  EXPECT_TRUE(file.ints_of("none").empty());
  EXPECT_EQ(file.find("nested")->describe(), "array of 2 array");
  EXPECT_EQ(file.int_of("last"), 5);  // an array of arrays is stepped over
  EXPECT_EQ(refusal_of([&] { file.ints_of("nested"); }),
            "model.gguf: key nested is of type array of 2 array, expected integers");
  EXPECT_EQ(refusal_of([&] { file.int_of("u64"); }),
            "model.gguf: key u64 is of type array of 1 u64, expected an integer below 2^63");
  EXPECT_EQ(refusal_of([&] { file.strings_of("f32"); }),
            "model.gguf: key f32 is of type array of 2 f32, expected strings");
  EXPECT_EQ(refusal_of([&] { file.bytes_of("f32"); }),
            "model.gguf: key f32 is of type array of 2 f32, expected an array of u8");
}

TEST(GgufRead, an_absent_key_is_named_with_its_file) {
  const std::string bytes = RawGguf().bytes();
  const Gguf file(as_bytes(bytes), "model.gguf");
  EXPECT_EQ(file.find("deepseek4.block_count"), nullptr);
  EXPECT_EQ(refusal_of([&] { file.int_of("deepseek4.block_count"); }), "model.gguf: has no key deepseek4.block_count");
  EXPECT_EQ(refusal_of([&] { file.tensor("output.weight"); }), "model.gguf: has no tensor output.weight");
}

TEST(GgufRead, a_u64_beyond_int64_is_a_number_but_no_integer) {
  const std::string bytes = with_key(raw_key("big", kU64, raw(std::numeric_limits<std::uint64_t>::max()))).bytes();
  const Gguf file(as_bytes(bytes), "model.gguf");
  EXPECT_EQ(refusal_of([&] { file.int_of("big"); }),
            "model.gguf: key big is of type u64, expected an integer below 2^63");
  EXPECT_EQ(file.float_of("big"), 18446744073709551616.0f);
}

TEST(GgufRead, of_two_equal_keys_the_first_wins) {
  RawGguf raw_file;
  raw_file.keys = {raw_key("key", kU8, "\x01"), raw_key("key", kU8, "\x02")};
  const std::string bytes = raw_file.bytes();
  const Gguf file(as_bytes(bytes), "model.gguf");
  EXPECT_EQ(file.int_of("key"), 1);
  EXPECT_EQ(file.keys().size(), 1u);
}

TEST(GgufRead, versions_2_and_3_have_one_layout) {
  for (const std::uint32_t version : {2u, 3u}) {
    RawGguf raw_file = with_tensor(raw_tensor("t", {4, 2, 2}, 0, 0));
    raw_file.version = version;
    const std::string bytes = raw_file.bytes();
    const Gguf file(as_bytes(bytes), "model.gguf");
    EXPECT_EQ(file.version(), version);
    EXPECT_EQ(file.tensor("t").bytes.size(), 64u);
  }
}

TEST(GgufRead, a_tensor_is_a_view_of_the_file) {
  RawGguf raw_file;
  raw_file.keys = {raw_key("general.alignment", kU32, raw<std::uint32_t>(64))};
  raw_file.tensors = {raw_tensor("second", {32, 3}, 8, 64), raw_tensor("first", {5}, 1, 0)};
  raw_file.alignment = 64;
  raw_file.data.assign(64 + 102, 'd');
  const std::string bytes = raw_file.bytes();
  Gguf opened(as_bytes(bytes), "model.gguf");
  const Gguf file = std::move(opened);  // views survive a move
  ASSERT_EQ(file.tensors().size(), 2u);
  const GgufTensor& second = file.tensor("second");
  EXPECT_EQ(second.dtype, DType::q8_0);
  EXPECT_EQ(second.file_id, 8u);
  EXPECT_EQ(second.dims, 2);
  EXPECT_EQ(second.ne, (std::array<std::int64_t, 4>{32, 3, 1, 1}));
  EXPECT_EQ(second.rows(), 3);
  EXPECT_EQ(second.bytes.size(), 102u);
  EXPECT_EQ(second.offset % 64, 0u);
  EXPECT_EQ(second.bytes.data(), as_bytes(bytes).data() + second.offset);
  EXPECT_EQ(second.bytes.data() + 102, as_bytes(bytes).data() + bytes.size());
  EXPECT_EQ(file.tensor("first").bytes.size(), 10u);
  EXPECT_EQ(file.find_tensor("third"), nullptr);
}

TEST(GgufRead, every_dtype_has_its_size) {
  for (const DTypeInfo& info : all_dtypes()) {
    SCOPED_TRACE(info.name);
    const auto width = static_cast<std::uint64_t>(info.block_values) * 2;
    const auto size = static_cast<std::size_t>(info.block_bytes) * 2 * 3;
    const std::string bytes = with_tensor(raw_tensor("t", {width, 3}, info.file_id, 0), size).bytes();
    GgufOptions options;
    if (info.file_id == 108) options.meaning_of_108 = DType::rocmi4;
    const Gguf file(as_bytes(bytes), "model.gguf", options);
    const GgufTensor& tensor = file.tensor("t");
    EXPECT_EQ(tensor.bytes.size(), size);
    EXPECT_EQ(tensor.file_id, info.file_id);
    EXPECT_EQ(tensor.dtype, info.file_id == 107 ? DType::rocmfp2 : info.dtype);
  }
}

TEST(GgufRead, type_108_needs_to_be_told_its_meaning) {
  const std::string bytes = with_tensor(raw_tensor("t", {32}, 108, 0), 17).bytes();
  Error::Kind kind{};
  EXPECT_EQ(refusal(bytes, &kind),
            "model.gguf: at byte 45: tensor 't' has type 108, which means q4_0_rocmi4 (ROCmFPX main tree), "
            "q2_0_rocmfpx_s40 (ciru-ai tree) or q2_0_rocmfp2_affine (one other tree); nothing in the file says which: "
            "give the meaning to open it");
  EXPECT_EQ(kind, Error::Kind::unsupported);
  for (const DType meaning : {DType::rocmi4, DType::rocmfp2_s40, DType::rocmfp2_affine}) {
    const Gguf file(as_bytes(bytes), "model.gguf", {.meaning_of_108 = meaning});
    EXPECT_EQ(file.tensor("t").dtype, meaning);
    EXPECT_EQ(file.tensor("t").file_id, 108u);
  }
  EXPECT_NE(refusal(bytes, &kind, {.meaning_of_108 = DType::q8_0}).find("meaning of tensor type 108 is q8_0"),
            std::string::npos);
  EXPECT_EQ(kind, Error::Kind::bad_argument);
}

TEST(GgufRead, type_42_is_accepted_only_where_the_room_fits_f8) {
  RawGguf raw_file;
  raw_file.tensors = {raw_tensor("a", {128}, 42, 0), raw_tensor("b", {128}, 42, 160)};  // 129 bytes, padded to 160
  raw_file.data.assign(160 + 129, 'd');
  std::string bytes = raw_file.bytes();
  EXPECT_EQ(Gguf(as_bytes(bytes), "model.gguf").tensor("b").dtype, DType::f8_e4m3_b128);
  raw_file.data.append(31, '\0');  // padding of the last tensor
  bytes = raw_file.bytes();
  EXPECT_EQ(Gguf(as_bytes(bytes), "model.gguf").tensor("b").dtype, DType::f8_e4m3_b128);
  raw_file.tensors[1] = raw_tensor("b", {128}, 42, 192);
  raw_file.data.append(32, '\0');
  Error::Kind kind{};
  EXPECT_NE(refusal(raw_file.bytes(), &kind).find("tensor 'a' has type 42 and room for 192 bytes"), std::string::npos);
  EXPECT_EQ(kind, Error::Kind::unsupported);
}

TEST(GgufRead, type_107_with_the_room_of_a_seven_bit_format_is_refused) {
  RawGguf raw_file = with_tensor(raw_tensor("t", {256, 4}, 107, 0), 240 * 4);
  Error::Kind kind{};
  EXPECT_NE(refusal(raw_file.bytes(), &kind).find("Q7_0_ROCMFPX"), std::string::npos);
  EXPECT_EQ(kind, Error::Kind::unsupported);
  raw_file.data.resize(80 * 4);
  const std::string bytes = raw_file.bytes();
  EXPECT_EQ(Gguf(as_bytes(bytes), "model.gguf").tensor("t").dtype, DType::rocmfp2);
}

TEST(GgufRead, types_that_are_not_read_are_refused_by_name) {
  const struct {
    std::uint32_t id;
    const char* name;
  } cases[] = {
      {4, "retired"},  {9, "Q8_1"},           {15, "Q8_K"},
      {24, "I8"},      {28, "F64"},           {34, "TQ1_0"},
      {36, "retired"}, {41, "Q1_0"},          {43, "not a type that we know"},
      {47, "ROCmFP4"}, {109, "Q5_0_ROCMFPX"}, {4000000000u, "not a type that we know"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.id);
    Error::Kind kind{};
    const std::string message = refusal(with_tensor(raw_tensor("blk.0.x", {256}, c.id, 0)).bytes(), &kind);
    EXPECT_EQ(kind, Error::Kind::unsupported);
    EXPECT_NE(message.find("tensor 'blk.0.x' has type " + std::to_string(c.id)), std::string::npos) << message;
    EXPECT_NE(message.find(c.name), std::string::npos) << message;
    EXPECT_NE(message.find("at byte 51"), std::string::npos) << message;
  }
}

TEST(GgufRead, wrong_files_are_refused_with_the_place_and_what_was_expected) {
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 61;
  const auto two = [](const std::string& a, const std::string& b) {
    RawGguf file = with_tensor(a, 256);
    file.tensors.push_back(b);
    return file;
  };
  const auto magic = [](const char* text) {
    RawGguf file;
    file.magic = text;
    return file.bytes();
  };
  const auto version = [](std::uint32_t number) {
    RawGguf file;
    file.version = number;
    return file.bytes();
  };
  const auto counts = [](std::uint64_t tensors, std::uint64_t keys) {
    return "GGUF" + raw<std::uint32_t>(3) + raw(tensors) + raw(keys) + std::string(100, '\0');
  };
  const struct {
    const char* name;
    std::string bytes;
    Error::Kind kind;
    const char* message;
  } cases[] = {
      {"nothing", "", Error::Kind::bad_file, "at byte 0: the magic needs 4 bytes, the file has 0 more"},
      {"another format", magic("GGML"), Error::Kind::bad_file, "begins with 'GGML', expected 'GGUF'"},
      {"no text at all", magic("\x7f\x45\x4c\x01"), Error::Kind::bad_file, "begins with '\\x7fEL\\x01'"},
      {"version 1", version(1), Error::Kind::unsupported, "at byte 4: GGUF version 1, expected 3 (or 2)"},
      {"version 4", version(4), Error::Kind::unsupported, "GGUF version 4, expected 3"},
      {"big-endian", version(0x03000000), Error::Kind::unsupported, "a big-endian file"},
      {"more tensors than fit", counts(1000, 0), Error::Kind::bad_file,
       "at byte 8: the number of tensors is 1000, expected at most 3 in a file of this size"},
      {"2^64-1 tensors", counts(UINT64_MAX, 0), Error::Kind::bad_file, "the number of tensors is 18446744073709551615"},
      {"more keys than fit", counts(0, 1000), Error::Kind::bad_file, "at byte 16: the number of keys is 1000"},
      {"a key without a name", with_key(raw_key("", kU8, "\x01")).bytes() + "x", Error::Kind::bad_file,
       "at byte 24: a key has 0 bytes, expected 1 to 65535"},
      {"a key longer than the file", with_key(raw<std::uint64_t>(kHuge) + std::string(40, 'k')).bytes(),
       Error::Kind::bad_file, "a key needs 2305843009213693952 bytes, the file has 40 more"},
      {"a value of type 13", with_key(raw_key("key", 13, "\x01")).bytes(), Error::Kind::bad_file,
       "at byte 35: key 'key' has value type 13, expected 0 to 12"},
      {"a string longer than the file", with_key(raw_key("key", kString, raw(kHuge))).bytes(), Error::Kind::bad_file,
       "a string value needs"},
      {"an array longer than the file", with_key(raw_key("key", kArray, raw_array(kF64, kHuge, ""))).bytes(),
       Error::Kind::bad_file, "claims 2305843009213693952 elements of type f64, the file has 0 more bytes"},
      {"an array whose product overflows",
       with_key(raw_key("key", kArray, raw_array(kF64, kHuge * 4 + 1, "12345678"))).bytes(), Error::Kind::bad_file,
       "claims 9223372036854775809 elements"},
      {"a string array longer than the file",
       with_key(raw_key("key", kArray, raw_array(kString, 2, raw_text("12345678")))).bytes(), Error::Kind::bad_file,
       "a string of an array needs 8 bytes, the file has 0 more"},
      {"an array of type 13", with_key(raw_key("key", kArray, raw_array(13, 1, "\x01"))).bytes(), Error::Kind::bad_file,
       "value type 13"},
      {"arrays five deep",
       with_key(raw_key("key", kArray,
                        raw_array(kArray, 1,
                                  raw_array(kArray, 1,
                                            raw_array(kArray, 1, raw_array(kArray, 1, raw_array(kU8, 1, "\x01")))))))
           .bytes(),
       Error::Kind::bad_file, "nests arrays deeper than 4"},
      {"a bool of 2", with_key(raw_key("key", kBool, "\x02")).bytes(), Error::Kind::bad_file,
       "at byte 39: key 'key' holds 2 as a bool, expected 0 or 1"},
      {"a bool of 3 in an array", with_key(raw_key("key", kArray, raw_array(kBool, 2, "\x01\x03"))).bytes(),
       Error::Kind::bad_file, "at byte 52: key 'key' holds 3 as a bool"},
      {"an alignment of 48", with_key(raw_key("general.alignment", kU32, raw<std::uint32_t>(48))).bytes(),
       Error::Kind::bad_file, "general.alignment is 48, expected a power of two from 8 to 2^30"},
      {"an alignment of 4", with_key(raw_key("general.alignment", kU32, raw<std::uint32_t>(4))).bytes(),
       Error::Kind::bad_file, "general.alignment is 4, expected"},
      {"an alignment of 2^31", with_key(raw_key("general.alignment", kU32, raw<std::uint32_t>(1u << 31))).bytes(),
       Error::Kind::bad_file, "general.alignment is 2147483648, expected"},
      {"an alignment of -8", with_key(raw_key("general.alignment", kI32, raw<std::int32_t>(-8))).bytes(),
       Error::Kind::bad_file, "general.alignment is -8, expected"},
      {"an alignment that is text", with_key(raw_key("general.alignment", kString, raw_text("32"))).bytes(),
       Error::Kind::bad_file, "general.alignment is of type string, expected"},
      {"a tensor without a name", with_tensor(raw_tensor("", {4}, 0, 0)).bytes(), Error::Kind::bad_file,
       "a tensor name has 0 bytes, expected 1 to 65535"},
      {"a tensor of no dimensions", with_tensor(raw_tensor("t", {}, 0, 0)).bytes(), Error::Kind::bad_file,
       "at byte 33: tensor 't' has 0 dimensions, expected 1 to 4"},
      {"a tensor of five", with_tensor(raw_tensor("t", {1, 1, 1, 1, 1}, 0, 0)).bytes(), Error::Kind::bad_file,
       "tensor 't' has 5 dimensions, expected 1 to 4"},
      {"an empty dimension", with_tensor(raw_tensor("t", {4, 0}, 0, 0)).bytes(), Error::Kind::bad_file,
       "at byte 45: tensor 't' has ne[1] = 0, expected at least 1"},
      {"a negative dimension", with_tensor(raw_tensor("t", {UINT64_MAX}, 0, 0)).bytes(), Error::Kind::bad_file,
       "has ne[0] = 18446744073709551615, expected"},
      {"2^64 values", with_tensor(raw_tensor("t", {std::uint64_t{1} << 32, std::uint64_t{1} << 32}, 0, 0)).bytes(),
       Error::Kind::bad_file, "fewer than 2^63 values in all"},
      {"2^64 bytes", with_tensor(raw_tensor("t", {std::uint64_t{1} << 62}, 0, 0)).bytes(), Error::Kind::bad_file,
       "would take more than 2^64 bytes"},
      {"a row of half a block", with_tensor(raw_tensor("t", {48}, 8, 0)).bytes(), Error::Kind::bad_file,
       "has rows of 48 values, expected a multiple of 32 for q8_0"},
      {"an offset between", with_tensor(raw_tensor("t", {4}, 0, 8)).bytes(), Error::Kind::bad_file,
       "at byte 24: tensor 't' has offset 8, expected a multiple of 32"},
      {"data behind the end", with_tensor(raw_tensor("t", {17}, 0, 0)).bytes(), Error::Kind::bad_file,
       "tensor 't' has 68 bytes at offset 0, the data section has 64 (cut short or damaged)"},
      {"an offset behind the end", with_tensor(raw_tensor("t", {4}, 0, 96)).bytes(), Error::Kind::bad_file,
       "at offset 96, the data section has 64"},
      {"an offset that wraps", with_tensor(raw_tensor("t", {16}, 0, UINT64_MAX - 31)).bytes(), Error::Kind::bad_file,
       "at offset 18446744073709551584"},
      {"one tensor over another", two(raw_tensor("a", {16}, 0, 0), raw_tensor("b", {16}, 0, 32)).bytes(),
       Error::Kind::bad_file, "tensor 'a' has 64 bytes and 'b' begins 32 bytes behind it: they overlap"},
      {"two tensors in one place", two(raw_tensor("a", {8}, 0, 32), raw_tensor("b", {8}, 0, 32)).bytes(),
       Error::Kind::bad_file, "they overlap"},
      {"two tensors of one name", two(raw_tensor("a", {8}, 0, 0), raw_tensor("a", {8}, 0, 32)).bytes(),
       Error::Kind::bad_file, "tensor 'a' is there twice, expected every name once"},
      {"a part of a split file", with_key(raw_key("split.count", kU16, raw<std::uint16_t>(2))).bytes(),
       Error::Kind::unsupported, "one part of a split file"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    Error::Kind kind{};
    const std::string message = refusal(c.bytes, &kind);
    EXPECT_TRUE(message.starts_with("model.gguf: ")) << message;
    EXPECT_NE(message.find(c.message), std::string::npos) << message;
    EXPECT_EQ(kind, c.kind);
  }
}

TEST(GgufRead, names_in_messages_are_safe_to_print) {
  EXPECT_EQ(quoted("plain"), "'plain'");
  EXPECT_EQ(quoted("caf\xc3\xa9 \xef\xbd\x9c"), "'caf\xc3\xa9 \xef\xbd\x9c'");
  EXPECT_EQ(quoted("a\x1b[2Jb\n"), "'a\\x1b[2Jb\\x0a'");
  EXPECT_EQ(quoted("\xc2\x9b"
                   "1m"),
            "'\\xc2\\x9b1m'");
  EXPECT_EQ(quoted("\xc3"), "'\\xc3'");
  EXPECT_EQ(quoted("\xed\xa0\x80"), "'\\xed\\xa0\\x80'");
  EXPECT_EQ(quoted(std::string(100, 'x'), 10), "'xxxxxxxxxx'...");
}

TEST(GgufRead, the_producer_is_told_by_facts_in_order) {
  const std::string sidecar = raw_key("general.architecture", kString, raw_text("deepseek4_mtp_support"));
  const std::string quantised_by = raw_key("general.quantized_by", kString, raw_text("someone"));
  const std::string shared_clamp = raw_key("deepseek4.swiglu_clamp_shexp", kF32, raw(10.0f));
  const std::string vocabulary = raw_key("deepseek4.vocab_size", kU32, raw<std::uint32_t>(129280));
  const std::string rocm = raw_tensor("blk.0.ffn_up_exps.weight", {32}, 100, 0);
  const std::string mxfp4 = raw_tensor("blk.0.ffn_up_exps.weight", {32}, 39, 0);
  const std::string q2_k = raw_tensor("blk.0.ffn_down_exps.weight", {256}, 10, 0);  // 84 bytes
  const std::string embedding = raw_tensor("token_embd.weight", {8}, 30, 96);
  const std::string head = raw_tensor("output_hc_fn.weight", {8}, 1, 96);
  const std::string fp8 = raw_tensor("blk.0.attn_kv.weight", {128}, 42, 0);
  const struct {
    const char* name;
    std::vector<std::string> keys, tensors;
    const char* expected;
  } cases[] = {
      {"a private type", {sidecar}, {rocm}, "lucebox"},
      {"the sidecar architecture", {sidecar, quantised_by}, {q2_k}, "ds4 sidecar"},
      {"a clamp for shared experts", {shared_clamp, vocabulary}, {q2_k, head}, "llama.cpp"},
      {"quantized_by", {quantised_by, vocabulary}, {q2_k, head}, "llama.cpp"},
      {"mxfp4 experts and a bf16 embedding", {}, {mxfp4, embedding}, "llama.cpp"},
      {"f16 head streams and k-quant experts", {vocabulary}, {q2_k, head}, "ds4"},
      {"fp8 with 128-blocks", {}, {fp8}, "fp8 fork"},
      {"nothing to go by", {vocabulary}, {q2_k}, "unknown"},
      {"an empty file", {}, {}, "unknown"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    RawGguf raw_file;
    raw_file.keys = c.keys;
    raw_file.tensors = c.tensors;
    raw_file.data.assign(129, 'd');
    const std::string bytes = raw_file.bytes();
    EXPECT_EQ(Gguf(as_bytes(bytes), "model.gguf").producer(), c.expected);
  }
}

TEST(GgufRead, the_trunk_is_the_blocks_without_a_drafter) {
  const struct {
    const char* name;
    std::vector<std::string> tensors;
    int expected;
  } cases[] = {
      {"two blocks", {"blk.0.a", "blk.1.a", "blk.1.b", "output.weight"}, 2},
      {"a drafter behind them", {"blk.0.a", "blk.1.a", "blk.2.a", "blk.2.nextn.enorm.weight"}, 2},
      {"a drafter alone", {"blk.43.a", "blk.43.nextn.enorm.weight"}, 0},
      {"names that only look alike", {"blk.", "blk.1", "blk.-1.a", "blk.x.a", "blk.99999999999.a", "mtp.0.a"}, 0},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    RawGguf raw_file;
    for (std::size_t i = 0; i < c.tensors.size(); ++i)
      raw_file.tensors.push_back(raw_tensor(c.tensors[i], {8}, 0, 32 * i));
    raw_file.data.assign(32 * c.tensors.size(), 'd');
    const std::string bytes = raw_file.bytes();
    EXPECT_EQ(Gguf(as_bytes(bytes), "model.gguf").trunk_layers(), c.expected);
  }
}

TEST(GgufRead, the_golden_model_opens) {
  const Gguf file(std::filesystem::path(LOCKSTEP_TEST_DATA "/golden/nano-a.gguf"));
  EXPECT_EQ(file.tensors().size(), 178u);
  EXPECT_EQ(file.keys().size(), 53u);
  EXPECT_EQ(file.string_of("general.architecture"), "deepseek4");
  EXPECT_EQ(file.producer(), "llama.cpp");
  EXPECT_EQ(file.trunk_layers(), file.int_of("deepseek4.block_count"));
  EXPECT_EQ(static_cast<std::int64_t>(file.strings_of("tokenizer.ggml.tokens").size()),
            file.tensor("token_embd.weight").ne[1]);
}

}  // namespace
}  // namespace lockstep
