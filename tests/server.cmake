lockstep_test(server_http_test SOURCES server_http_test.cc USES server)
lockstep_test(server_operations_test SOURCES server_operations_test.cc USES server)
target_compile_definitions(server_operations_test PRIVATE LOCKSTEP_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
lockstep_test(server_requests_test WHOLE SOURCES server_requests_test.cc USES server)
lockstep_test(server_chat_test WHOLE SOURCES server_chat_test.cc USES server)
lockstep_test(server_protocols_test WHOLE SOURCES server_protocols_test.cc USES server)
lockstep_test(server_model_test WHOLE SOURCES server_model_test.cc USES server cpu)
if(TARGET lockstep)
  lockstep_test(serve_test SOURCES serve_test.cc USES cli)
  target_compile_definitions(serve_test PRIVATE LOCKSTEP_PROGRAM="$<TARGET_FILE:lockstep>"
                                                LOCKSTEP_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  add_dependencies(serve_test lockstep)
endif()

# What reads requests is compiled again, so that the fuzzer sees every branch of it.
if(LOCKSTEP_FUZZ)
  add_executable(api_request_fuzz fuzz/api_request_fuzz.cc)
  foreach(source anthropic_messages ask chat_messages client_tools fields generation_fields http_error message_parts
                 normalise random_id response_items)
    target_sources(api_request_fuzz PRIVATE ${CMAKE_SOURCE_DIR}/src/server/${source}.cc)
  endforeach()
  target_link_libraries(api_request_fuzz PRIVATE lockstep_flags lockstep_engine OpenSSL::Crypto)
  target_compile_options(api_request_fuzz PRIVATE -g -O1 -fsanitize=fuzzer,address,undefined
                                                  -fno-sanitize-recover=undefined)
  target_link_options(api_request_fuzz PRIVATE -fsanitize=fuzzer,address,undefined)
endif()
