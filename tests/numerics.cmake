lockstep_test(numerics_round_test SOURCES numerics_round_test.cc USES numerics)
lockstep_test(numerics_functions_test SOURCES numerics_functions_test.cc USES numerics)
lockstep_test(numerics_random_test SOURCES numerics_random_test.cc USES numerics)
lockstep_test(numerics_guard_test SOURCES numerics_guard_test.cc USES numerics)
# Every f32 of every function's range: an hour. The long form of numerics_functions_test, by command only:
#   cmake --preset cpu -DLOCKSTEP_EXHAUSTIVE=ON, then ctest --preset cpu -L exhaustive
if(LOCKSTEP_EXHAUSTIVE)
  lockstep_test(numerics_exhaustive_test SOURCES numerics_exhaustive_test.cc USES numerics LABELS exhaustive TIMEOUT 3600)
endif()
