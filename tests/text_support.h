// What the text tests share: files of tests/data/text, and the real vocabulary.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "text/python_json.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace lockstep {

inline std::string text_data_path(const std::string& name) { return std::string(LOCKSTEP_TEST_DATA) + "/text/" + name; }

inline std::string read_gzip(const std::string& path) {
  std::string out;
  gzFile file = gzopen(path.c_str(), "rb");
  EXPECT_NE(file, nullptr) << path;
  std::vector<char> block(1 << 18);
  for (int n = 0; file != nullptr && (n = gzread(file, block.data(), static_cast<unsigned>(block.size()))) > 0;)
    out.append(block.data(), static_cast<std::size_t>(n));
  if (file != nullptr) gzclose(file);
  return out;
}

inline std::vector<std::string> read_lines(const std::string& name) {
  std::ifstream file(text_data_path(name), std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

inline Vocabulary v4_vocabulary() {
  return vocabulary_from_tokenizer_json(read_gzip(text_data_path("tokenizer-v4.json.gz")), "tokenizer-v4.json");
}

}  // namespace lockstep
