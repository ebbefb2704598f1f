// The page at /: files that the build put into the program (cmake/EmbedFiles.cmake).
#pragma once

#include <span>
#include <string_view>

#include "server/http.h"

namespace lockstep {

struct PageFile {
  std::string_view name, bytes;
};
std::span<const PageFile> page_files();

/// GET / is page.html, and GET /NAME each of its other files; all without a key.
void add_page(Router& router);

}  // namespace lockstep
