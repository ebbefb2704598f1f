# Client libraries against the server: a test where `tests/clients/run sdk` has fetched them, which the build does not
# need. The agents, which take minutes each, run by that script alone.
set(LOCKSTEP_CLIENTS "${CMAKE_SOURCE_DIR}/build/clients/sdk" CACHE PATH "folder of the packages of tests/clients/sdk")
set(node "${LOCKSTEP_CLIENTS}/node_modules/.bin/node")
if(EXISTS "${node}")
  foreach(family openai anthropic ai_sdk)
    add_test(NAME clients_${family}_test
             COMMAND ${node} ${CMAKE_CURRENT_SOURCE_DIR}/clients/sdk/${family}_test.mjs ${LOCKSTEP_CLIENTS}
                     $<TARGET_FILE:lockstep>)
    set_tests_properties(clients_${family}_test PROPERTIES LABELS "clients;slow" TIMEOUT 600)
  endforeach()
else()
  message(STATUS "no client libraries in ${LOCKSTEP_CLIENTS}: the server is not tested with them here")
endif()
