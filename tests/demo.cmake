# The demo model's data. Its checks in Python need an interpreter and no package; without one they are not registered.
lockstep_test(demo_tokenizer_test WHOLE SOURCES demo_tokenizer_test.cc USES text)
target_compile_definitions(demo_tokenizer_test PRIVATE LOCKSTEP_DEMO="${CMAKE_SOURCE_DIR}/demo")

find_package(Python3 3.9 COMPONENTS Interpreter)
if(Python3_FOUND AND TARGET lockstep)
  add_test(NAME demo_data_test
           COMMAND ${Python3_EXECUTABLE} -m demo.data.test_data --lockstep $<TARGET_FILE:lockstep>
           WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(demo_data_test PROPERTIES LABELS fast TIMEOUT 300 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
endif()

lockstep_test(demo_answers_test SOURCES demo_answers_test.cc USES engine cpu text)
target_compile_definitions(demo_answers_test PRIVATE
  LOCKSTEP_README="${CMAKE_SOURCE_DIR}/README.md" LOCKSTEP_DEMO_MODEL="${CMAKE_SOURCE_DIR}/demo/lockstep-demo.gguf")
