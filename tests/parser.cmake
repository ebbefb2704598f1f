lockstep_test(parser_lines_test SOURCES parser_lines_test.cc ../src/cli/parse.cc USES text)
lockstep_test(parser_rules_test SOURCES parser_rules_test.cc USES text)
lockstep_test(parser_property_test SOURCES parser_property_test.cc USES text)
lockstep_test(parser_replay_test SOURCES parser_replay_test.cc USES text)

# The parser and what it stands on are compiled again, so that the fuzzer sees every branch of them.
if(LOCKSTEP_FUZZ)
  add_executable(parser_fuzz fuzz/parser_fuzz.cc)
  foreach(source base/error.cc text/call_block.cc text/dsml.cc text/output_parser.cc text/parser_event.cc
                 text/python_json.cc text/schema_references.cc text/symbols.cc text/thought.cc text/tool_schemas.cc text/utf8.cc
                 text/utf8_stream.cc)
    target_sources(parser_fuzz PRIVATE ${CMAKE_SOURCE_DIR}/src/${source})
  endforeach()
  target_include_directories(parser_fuzz PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(parser_fuzz PRIVATE lockstep_flags lockstep_text)  # the tokenizer, which it does not call
  target_compile_options(parser_fuzz PRIVATE -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined)
  target_link_options(parser_fuzz PRIVATE -fsanitize=fuzzer,address,undefined)
endif()
