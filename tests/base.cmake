lockstep_test(base_test SOURCES base_test.cc USES base)
