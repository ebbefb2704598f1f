lockstep_test(synth_test SOURCES synth_test.cc USES engine cpu)
