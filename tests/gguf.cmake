lockstep_test(gguf_read_test SOURCES gguf_read_test.cc USES tensor base)
lockstep_test(gguf_split_test SOURCES gguf_split_test.cc USES tensor base)
lockstep_test(gguf_writer_test SOURCES gguf_writer_test.cc USES tensor base)
lockstep_test(gguf_damage_test SOURCES gguf_damage_test.cc USES tensor base)
lockstep_test(gguf_inspect_test SOURCES gguf_inspect_test.cc USES cli tensor base)
target_link_libraries(gguf_inspect_test PRIVATE fmt::fmt nlohmann_json::nlohmann_json)

# The parser and what it stands on are compiled again, so that the fuzzer sees every branch of them.
if(LOCKSTEP_FUZZ)
  add_executable(gguf_fuzz fuzz/gguf_fuzz.cc)
  foreach(source base/error.cc base/mapped_file.cc tensor/dtype.cc tensor/gguf.cc tensor/gguf_parse.cc
                 tensor/gguf_producer.cc tensor/gguf_value.cc)
    target_sources(gguf_fuzz PRIVATE ${CMAKE_SOURCE_DIR}/src/${source})
  endforeach()
  target_link_libraries(gguf_fuzz PRIVATE lockstep_flags)
  target_compile_options(gguf_fuzz PRIVATE -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined)
  target_link_options(gguf_fuzz PRIVATE -fsanitize=fuzzer,address,undefined)
endif()
