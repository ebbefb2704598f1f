# The page in a real browser: a test where node and chromium are installed, which the build itself does not need.
find_program(LOCKSTEP_NODE node)
find_program(LOCKSTEP_CHROMIUM chromium)
if(LOCKSTEP_NODE AND LOCKSTEP_CHROMIUM)
  add_test(NAME page_test COMMAND ${LOCKSTEP_NODE} ${CMAKE_CURRENT_SOURCE_DIR}/page/page_test.mjs)
  set_tests_properties(page_test PROPERTIES LABELS slow TIMEOUT 600)
else()
  message(STATUS "node or chromium was not found: the page is not tested here")
endif()
