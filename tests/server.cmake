lockstep_test(server_http_test SOURCES server_http_test.cc server_http_limits_test.cc USES server)
lockstep_test(server_replay_test SOURCES server_replay_test.cc USES server)
lockstep_test(server_operations_test SOURCES server_operations_test.cc USES server)
target_compile_definitions(server_operations_test PRIVATE LOCKSTEP_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
lockstep_test(server_requests_test WHOLE SOURCES server_requests_test.cc USES server)
lockstep_test(server_input_test WHOLE SOURCES server_input_test.cc USES server)
lockstep_test(server_logprobs_test WHOLE SOURCES server_logprobs_test.cc USES server)
lockstep_test(server_schema_test WHOLE SOURCES server_schema_test.cc USES server)
lockstep_test(server_front_end_test WHOLE SOURCES server_front_end_test.cc USES server)
lockstep_test(server_chat_test WHOLE SOURCES server_chat_test.cc USES server)
lockstep_test(server_protocols_test WHOLE SOURCES server_protocols_test.cc USES server)
lockstep_test(server_tokens_test SOURCES server_tokens_test.cc USES server)
lockstep_test(server_model_test WHOLE SOURCES server_model_test.cc USES server cpu)
lockstep_test(load_memory_test SOURCES load_memory_test.cc load/memory.cc)
target_include_directories(load_memory_test PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
if(TARGET lockstep)
  lockstep_test(serve_test SOURCES serve_test.cc USES cli)
  target_compile_definitions(serve_test PRIVATE LOCKSTEP_PROGRAM="$<TARGET_FILE:lockstep>"
                                                LOCKSTEP_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  add_dependencies(serve_test lockstep)
  # The short form; `server_load LOCKSTEP` is the one of four minutes, which judges memory too.
  add_executable(server_load load/server_load.cc load/memory.cc)
  target_include_directories(server_load PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(server_load PRIVATE lockstep_flags nlohmann_json::nlohmann_json Threads::Threads)
  target_compile_definitions(server_load PRIVATE LOCKSTEP_PROGRAM="$<TARGET_FILE:lockstep>")
  add_dependencies(server_load lockstep)
  add_test(NAME server_load_test COMMAND server_load $<TARGET_FILE:lockstep> 10)
  set_tests_properties(server_load_test PROPERTIES LABELS slow TIMEOUT 300)
endif()

# What a fuzzer is about is compiled again, so that it sees every branch of it.
function(lockstep_fuzz name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} fuzz/${name}.cc)
  foreach(source ${ARG_SOURCES})
    target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src/${source}.cc)
  endforeach()
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE lockstep_flags ${ARG_LIBRARIES})
  target_compile_options(${name} PRIVATE -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer,address,undefined)
endfunction()
if(LOCKSTEP_FUZZ)
  lockstep_fuzz(api_request_fuzz
    SOURCES server/anthropic_messages server/ask server/chat_messages server/client_tools server/fields
            server/generation_fields server/http_error server/message_parts server/normalise server/random_id
            server/response_items engine/sampler engine/synth_vocabulary ops/row_draw
    LIBRARIES lockstep_text OpenSSL::Crypto fmt::fmt)
  lockstep_fuzz(grammar_fuzz
    SOURCES engine/grammar engine/grammar_builder engine/grammar_choices engine/grammar_number engine/grammar_pattern
            engine/grammar_schema engine/grammar_tools engine/synth_vocabulary text/schema_references
    LIBRARIES lockstep_text fmt::fmt)
  lockstep_fuzz(http_fuzz
    SOURCES server/api_keys server/connection server/connection_answer server/exchange server/http server/http_error
            server/http_server server/origin server/random_id server/socket
    LIBRARIES lockstep_base nlohmann_json::nlohmann_json fmt::fmt Boost::headers OpenSSL::SSL Threads::Threads)
endif()
