lockstep_test(scheduler_test SOURCES scheduler_test.cc USES engine cpu text base)
