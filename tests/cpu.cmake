lockstep_test(cpu_matmul_test SOURCES cpu_matmul_test.cc USES cpu ops tensor numerics base)

foreach(level avx2 avx512)
  if(TARGET lockstep_cpu_${level})
    add_test(NAME cpu_level_${level}_exports_only_its_own_symbols
             COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DLEVEL=${level}
                     -DOBJECTS=$<JOIN:$<TARGET_OBJECTS:lockstep_cpu_${level}>,$<COMMA>>
                     -P ${CMAKE_CURRENT_LIST_DIR}/cpu_level_symbols.cmake)
    set_tests_properties(cpu_level_${level}_exports_only_its_own_symbols PROPERTIES LABELS "fast")
  endif()
endforeach()
