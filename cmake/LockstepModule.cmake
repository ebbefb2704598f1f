# lockstep_module(NAME SOURCES ... USES ... [LIBRARIES ...])
#
# One static library a folder of src/. USES names the modules below it (the include-direction test holds the same table);
# LIBRARIES are outside packages. UNITY: files are compiled several at a time (LOCKSTEP_UNITY), so names in their
# anonymous namespaces must differ within a folder. Every module gets the float flags of the law: no contraction and no
# fast-math, so that a multiplication and an addition in the source are two roundings and std::fma is one, in every file.
add_library(lockstep_flags INTERFACE)
# For C++ alone: device code has flags of its own (LockstepDevice.cmake).
set(lockstep_cxx_flags -ffp-contract=off -fno-fast-math -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion
                       -Wnon-virtual-dtor)
if(LOCKSTEP_WERROR)
  list(APPEND lockstep_cxx_flags -Werror)
endif()
target_compile_options(lockstep_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${lockstep_cxx_flags}>")
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all
                                            -fno-omit-frame-pointer)
  target_link_options(lockstep_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
endif()
target_include_directories(lockstep_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)

function(lockstep_module name)
  cmake_parse_arguments(ARG "UNITY" "" "SOURCES;USES;LIBRARIES" ${ARGN})
  add_library(lockstep_${name} STATIC ${ARG_SOURCES})
  # A fuzzer links a folder's archive beside files of it that were compiled again: the archive must hold them apart.
  if(LOCKSTEP_UNITY AND ARG_UNITY AND NOT LOCKSTEP_FUZZ)
    set_target_properties(lockstep_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 7)
  endif()
  target_link_libraries(lockstep_${name} PUBLIC lockstep_flags)
  foreach(used ${ARG_USES})
    target_link_libraries(lockstep_${name} PUBLIC lockstep_${used})
  endforeach()
  target_link_libraries(lockstep_${name} PUBLIC ${ARG_LIBRARIES})
endfunction()

# lockstep_test(NAME SOURCES ... USES ... [LABELS fast|slow|law])
#
# One GoogleTest program a unit, run by ctest as one test a case. Data lies in tests/data (LOCKSTEP_TEST_DATA).
function(lockstep_test name)
  cmake_parse_arguments(ARG "WHOLE" "TIMEOUT" "SOURCES;USES;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE lockstep_flags GTest::gtest_main)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)  # headers take most of it
  foreach(used ${ARG_USES})
    target_link_libraries(${name} PRIVATE lockstep_${used})
  endforeach()
  target_compile_definitions(${name} PRIVATE LOCKSTEP_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data")
  if(NOT ARG_LABELS)
    set(ARG_LABELS fast)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(ARG_WHOLE)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  else()
    gtest_discover_tests(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} DISCOVERY_TIMEOUT 60)
  endif()
endfunction()
