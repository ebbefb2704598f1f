# The command is compiled in: the library of all commands is many times this test.
lockstep_test(disk_cache_test SOURCES disk_cache_test.cc disk_faults_test.cc ../src/cli/cache.cc ../src/cli/memory_plan.cc
  USES engine cpu model text base TIMEOUT 120)
target_link_libraries(disk_cache_test PRIVATE CLI11::CLI11)
