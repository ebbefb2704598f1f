// What `lockstep inspect` prints.
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "cli/inspect.h"
#include "gguf_build.h"

namespace lockstep {
namespace {

using test::raw;
using test::raw_array;
using test::raw_key;
using test::raw_tensor;
using test::raw_text;
using test::RawGguf;
using test::TempFolder;

RawGguf sample() {
  RawGguf file;
  file.keys = {
      raw_key("general.architecture", 8, raw_text("deepseek4")),
      raw_key("epsilon", 6, raw(1e-6f)),
      raw_key("big", 10, raw<std::uint64_t>(UINT64_MAX)),
      raw_key("flag", 7, raw<std::uint8_t>(1)),
      raw_key("odd\x1bname", 8, raw_text("broken \xff text")),
      raw_key("ratios", 9, raw_array(0, 4, std::string("\x00\x04\x80\x04", 4))),
      raw_key("tokens", 9, raw_array(8, 3, raw_text("a") + raw_text("b") + raw_text("c"))),
      raw_key("infinite", 12, raw(std::numeric_limits<double>::infinity())),
  };
  file.tensors = {raw_tensor("blk.0.attn_kv.weight", {32, 2}, 8, 0), raw_tensor("output_norm.weight", {4}, 0, 96)};
  file.data.assign(96 + 16, 'd');
  return file;
}

std::string inspect(const std::filesystem::path& path, bool json) {
  InspectOptions options;
  options.path = path;
  options.json = json;
  options.array_items = 2;
  std::ostringstream out;
  EXPECT_EQ(run_inspect(options, out), 0);
  return out.str();
}

TEST(GgufInspect, text_shows_metadata_tensors_and_totals) {
  const TempFolder folder;
  test::write_file(folder / "m.gguf", sample().bytes());
  const std::string text = inspect(folder / "m.gguf", false);
  for (const char* part : {
           "GGUF version 3\n",
           "producer  unknown\n",
           "layers    1 in the trunk\n",
           "metadata, 8 keys\n",
           "  general.architecture    string              'deepseek4'\n",
           "f32                 1e-06\n",
           "u64                 18446744073709551615\n",
           "bool                true\n",
           "  odd\\x1bname ",
           "'broken \\xff text'\n",
           "array of 4 u8       [0, 4, ...]\n",
           "array of 3 string   ['a', 'b', ...]\n",
           "tensors, 2\n",
           "  blk.0.attn_kv.weight  q8_0            {32, 2}                               68\n",
           "  output_norm.weight    f32             {4}                                   16\n",
           "  q8_0                      1 tensor                 68        68 B   81.0 %\n",
           "  all                       2 tensors                84        84 B\n",
       })
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nin\n" << text;
}

TEST(GgufInspect, json_holds_the_same) {
  const TempFolder folder;
  test::write_file(folder / "m.gguf", sample().bytes());
  const auto json = nlohmann::json::parse(inspect(folder / "m.gguf", true));
  EXPECT_EQ(json["trunk_layers"], 1);
  EXPECT_EQ(json["producer"], "unknown");
  EXPECT_EQ(json["metadata"].size(), 8u);
  EXPECT_EQ(json["metadata"][0]["value"], "deepseek4");
  EXPECT_EQ(json["metadata"][2]["value"], UINT64_MAX);
  EXPECT_EQ(json["metadata"][3]["value"], true);
  EXPECT_EQ(json["metadata"][4]["value"], "broken \xef\xbf\xbd text");
  EXPECT_EQ(json["metadata"][5]["count"], 4);
  EXPECT_EQ(json["metadata"][5]["value"], nlohmann::json::parse("[0, 4]"));
  EXPECT_TRUE(json["metadata"][7]["value"].is_null());
  EXPECT_EQ(json["tensors"][0]["type"], "q8_0");
  EXPECT_EQ(json["tensors"][0]["ne"], nlohmann::json::parse("[32, 2]"));
  EXPECT_EQ(json["tensors"][0]["bytes"], 68);
  EXPECT_EQ(json["totals"]["f32"]["bytes"], 16);
}

TEST(GgufInspect, an_empty_file_has_no_totals_to_divide_by) {
  const TempFolder folder;
  test::write_file(folder / "m.gguf", RawGguf().bytes());
  EXPECT_NE(inspect(folder / "m.gguf", false).find("tensors, 0\n"), std::string::npos);
}

TEST(GgufInspect, a_file_that_is_not_there_is_an_error) {
  std::ostringstream out;
  InspectOptions options;
  options.path = "/nowhere/m.gguf";
  EXPECT_THROW(run_inspect(options, out), Error);
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace lockstep
