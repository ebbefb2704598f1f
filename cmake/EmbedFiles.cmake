# cmake -DOUTPUT=FILE.cc "-DFILES=a;b" -P EmbedFiles.cmake
#
# Writes a C++ source that holds the files' bytes, as server/page.h declares them.
set(text "// Made by cmake/EmbedFiles.cmake.\n#include \"server/page.h\"\n\nnamespace lockstep {\nnamespace {\n\n")
set(entries "")
set(count 0)
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  file(READ ${file} bytes HEX)
  string(LENGTH "${bytes}" digits)
  math(EXPR size "${digits} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" bytes "${bytes}")
  # Short lines: 32 bytes each.
  string(REPEAT "\\\\x[0-9a-f][0-9a-f]" 32 line)
  string(REGEX REPLACE "(${line})" "\\1\"\n  \"" bytes "${bytes}")
  string(APPEND text "constexpr char kBytes${count}[] =\n  \"${bytes}\";\n")
  string(APPEND entries "  {\"${name}\", {kBytes${count}, ${size}}},\n")
  math(EXPR count "${count} + 1")
endforeach()
string(APPEND text "\nconstexpr PageFile kFiles[] = {\n${entries}};\n\n}  // namespace\n\n"
                   "std::span<const PageFile> page_files() { return kFiles; }\n\n}  // namespace lockstep\n")
file(WRITE ${OUTPUT} "${text}")
