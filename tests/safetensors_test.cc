// Reading checkpoints' files: the format as written by hand here, damage at every byte, and folders with an index.
#include "tensor/safetensors.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "gguf_build.h"

namespace lockstep {
namespace {

using test::as_bytes;
using test::raw;
using test::TempFolder;
using test::write_file;

std::string file_of(const std::string& header, const std::string& data) {
  return raw<std::uint64_t>(header.size()) + header + data;
}

/// What a refused file says, or nothing.
std::string refusal(const std::string& file) {
  try {
    parse_safetensors(as_bytes(file), "F");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Safetensors, ReadsNamesTypesShapesAndBytesInTheOrderOfTheData) {
  const std::string header = R"({"__metadata__":{"format":"pt"},"b":{"shape":[2],"dtype":"BF16","data_offsets":[4,8]},)"
                             R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                             R"("none":{"dtype":"I64","shape":[0,3],"data_offsets":[8,8]}}  )";
  const std::string file = file_of(header, "12345678");
  const std::vector<StoredTensor> tensors = parse_safetensors(as_bytes(file), "F");
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].type, StoredType::f32);
  EXPECT_TRUE(tensors[0].shape.empty());
  EXPECT_EQ(std::memcmp(tensors[0].bytes.data(), "1234", 4), 0);
  EXPECT_EQ(tensors[1].name, "b");
  EXPECT_EQ(tensors[1].type, StoredType::bf16);
  EXPECT_EQ(tensors[1].shape, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(std::memcmp(tensors[1].bytes.data(), "5678", 4), 0);
  EXPECT_EQ(tensors[2].bytes.size(), 0u);
}

TEST(Safetensors, EveryTypeOfACheckpointHasItsSize) {
  constexpr struct {
    const char* name;
    std::size_t bytes;
  } kTypes[] = {{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1}, {"F8_E8M0", 1},
                {"I8", 1},  {"U8", 1},  {"I32", 4},  {"I64", 8}};
  for (const auto& type : kTypes) {
    const auto found = stored_type_named(type.name);
    ASSERT_TRUE(found) << type.name;
    EXPECT_EQ(size_of(*found), type.bytes) << type.name;
    EXPECT_EQ(name_of(*found), type.name);
  }
  EXPECT_FALSE(stored_type_named("F64"));
}

TEST(Safetensors, RefusesWhatIsNotTheFormat) {
  const std::string good = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const struct {
    const char* name;
    std::string header, data, says;
  } cases[] = {
      {"not JSON", R"({"a":)", "", "not JSON"},
      {"a list", "[]", "", "does not start with {"},
      {"text after it", "{} x", "", "not JSON"},
      {"a tensor that is a number", R"({"a":1})", "", "a number where none belongs"},
      {"a tensor that is a list", R"({"a":[]})", "", "an array where none belongs"},
      {"deep nesting", R"({"a":)" + std::string(10000, '['), "", "an array where none belongs"},
      {"an unknown member", R"({"a":{"dtype":"F32","x":1}})", "", "a member 'x'"},
      {"a member twice", R"({"a":{"dtype":"F32","dtype":"F32"}})", "", "dtype twice"},
      {"no shape", R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", "1234", "without one of"},
      {"one offset", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4]}})", "1234", "without one of"},
      {"three offsets", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", "1234", "more than two"},
      {"an unknown type", R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", "12345678", "dtype 'F64'"},
      {"a negative extent", R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "1234", "a negative number"},
      {"a fraction", R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", "1234", "a fraction"},
      {"nine axes", R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", "1234", "8 axes"},
      {"a product past 2^63", R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", "1234",
       "4 bytes for F32"},
      {"a name twice", R"({"a":)" + good + R"(,"a":)" + good + "}", "1234", "occurs twice"},
      {"metadata that is a number", R"({"__metadata__":{"x":1}})", "", "a number where none belongs"},
      {"too few bytes", R"({"a":)" + good + "}", "123", "bytes 0 to 4 of 3"},
      {"bytes that no tensor has", R"({"a":)" + good + "}", "12345", "1 bytes after the last tensor"},
      {"a gap", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "12345678", "expected to begin at 0"},
      {"an overlap", R"({"a":)" + good + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})", "123456",
       "expected to begin at 4"},
      {"offsets that are not the shape's", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234",
       "4 bytes for F32 [2]"},
  };
  for (const auto& c : cases)
    EXPECT_NE(refusal(file_of(c.header, c.data)).find(c.says), std::string::npos)
        << c.name << ": " << refusal(file_of(c.header, c.data));
  EXPECT_NE(refusal("1234567").find("too short"), std::string::npos);
  EXPECT_NE(refusal(raw<std::uint64_t>(~0ull) + "{}").find("a header of"), std::string::npos);
}

TEST(Safetensors, DamageAtEveryByteIsRefusedOrStaysInsideTheFile) {
  const std::string file =
      file_of(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
              R"("b":{"dtype":"I8","shape":[3],"data_offsets":[8,11]}})",
              "12345678abc");
  ASSERT_EQ(refusal(file), "");
  int accepted = 0;
  for (std::size_t at = 0; at < file.size(); ++at) {
    EXPECT_NE(refusal(file.substr(0, at)), "") << "cut at " << at;
    for (int value = 0; value < 256; ++value) {
      std::string damaged = file;
      damaged[at] = static_cast<char>(value);
      try {
        const char* begin = damaged.data();
        for (const StoredTensor& tensor : parse_safetensors(as_bytes(damaged), "F")) {
          const auto* bytes = reinterpret_cast<const char*>(tensor.bytes.data());
          ASSERT_TRUE(bytes >= begin && bytes + tensor.bytes.size() <= begin + damaged.size()) << at;
        }
        ++accepted;
      } catch (const Error&) {
      }
    }
  }
  EXPECT_GT(accepted, 0);  // names and data may be anything
}

TEST(Safetensors, WhatIsWrittenReadsBack) {
  TempFolder folder;
  const std::string data = "0123456789abcdef";
  const auto bytes = as_bytes(data);
  const std::vector<StoredTensor> tensors = {{"x.weight", StoredType::i32, {2, 1}, bytes.subspan(0, 8)},
                                             {"\"quoted\"", StoredType::u8, {4}, bytes.subspan(8, 4)}};
  write_safetensors(folder / "model.safetensors", tensors);
  const Checkpoint checkpoint(folder.path());
  ASSERT_EQ(checkpoint.tensors().size(), 2u);
  for (const StoredTensor& tensor : tensors) {
    const StoredTensor* found = checkpoint.find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->type, tensor.type);
    EXPECT_EQ(found->shape, tensor.shape);
    EXPECT_TRUE(std::equal(found->bytes.begin(), found->bytes.end(), tensor.bytes.begin(), tensor.bytes.end()));
  }
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(checkpoint.find("x.weight")->bytes.data()) % 8, 0u);
  EXPECT_TRUE(test::unfinished_in(folder.path()).empty());
  const StoredTensor wrong{"x", StoredType::i32, {3}, bytes.subspan(0, 8)};
  EXPECT_THROW(write_safetensors(folder / "other.safetensors", {&wrong, 1}), Error);
}

/// A folder of two files, "a" and "b", each with one tensor of that name, and an index of the given text.
void make_folder(const TempFolder& folder, const std::string& index) {
  for (const char* name : {"a", "b"})
    write_file(folder / (std::string(name) + ".safetensors"),
               file_of(std::string("{\"") + name + R"(":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})", "x"));
  if (!index.empty()) write_file(folder / "model.safetensors.index.json", index);
}

TEST(CheckpointFolder, OpensWhatTheIndexNamesAndOnlyWhatIsWanted) {
  TempFolder folder;
  make_folder(folder, R"({"metadata":{},"weight_map":{"a":"a.safetensors","b":"b.safetensors"}})");
  EXPECT_EQ(Checkpoint(folder.path()).tensors().size(), 2u);
  std::filesystem::remove(folder / "b.safetensors");
  const Checkpoint one(folder.path(), [](std::string_view name) { return name == "a"; });
  EXPECT_EQ(one.file_count(), 1u);
  EXPECT_NE(one.find("a"), nullptr);
  EXPECT_THROW(Checkpoint{folder.path()}, Error);
}

TEST(CheckpointFolder, WithoutAnIndexOpensEveryFile) {
  TempFolder folder;
  make_folder(folder, "");
  EXPECT_EQ(Checkpoint(folder.path()).tensors().size(), 2u);
  std::filesystem::copy_file(folder / "a.safetensors", folder / "c.safetensors");
  try {
    const Checkpoint checkpoint(folder.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("tensor 'a' lies in two files"), std::string::npos) << error.what();
  }
}

TEST(CheckpointFolder, RefusesAnIndexThatDoesNotFitItsFiles) {
  constexpr struct {
    const char *name, *index, *says;
  } kCases[] = {
      {"not JSON", "{", "not JSON"},
      {"no map", "{}", "weight_map"},
      {"a number for a file", R"({"weight_map":{"a":1}})", "not a string"},
      {"a path", R"({"weight_map":{"a":"../a.safetensors"}})", "expected the name of a .safetensors file"},
      {"another kind of file", R"({"weight_map":{"a":"a.bin"}})", "expected the name of a .safetensors file"},
      {"a file that is not there", R"({"weight_map":{"a":"c.safetensors"}})", "cannot open"},
      {"a tensor that is not in its file", R"({"weight_map":{"a":"b.safetensors","b":"b.safetensors"}})",
       "tensor 'a' is not in 'b.safetensors'"},
      {"a tensor that is in the other file", R"({"weight_map":{"a":"b.safetensors","b":"a.safetensors"}})",
       "is not in"},
      {"a tensor that is not in the index", R"({"weight_map":{"a":"a.safetensors","c":"b.safetensors"}})",
       "tensor 'c' is not in"},
  };
  for (const auto& c : kCases) {
    TempFolder folder;
    make_folder(folder, c.index);
    try {
      const Checkpoint checkpoint(folder.path());
      ADD_FAILURE() << c.name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(c.says), std::string::npos) << c.name << ": " << error.what();
    }
  }
}

TEST(CheckpointFolder, ReleasedTensorsReadTheSameAgain) {
  TempFolder folder;
  const std::string data(100000, 'q');
  const StoredTensor tensor{"t", StoredType::u8, {100000}, as_bytes(data)};
  write_safetensors(folder / "model.safetensors", {&tensor, 1});
  const Checkpoint checkpoint(folder.path());
  const StoredTensor& found = *checkpoint.find("t");
  checkpoint.release(found);
  EXPECT_EQ(std::memcmp(found.bytes.data(), data.data(), data.size()), 0);
}

}  // namespace
}  // namespace lockstep
