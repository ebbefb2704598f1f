lockstep_test(disk_cache_test SOURCES disk_cache_test.cc disk_faults_test.cc USES cli engine cpu model text base TIMEOUT 120)
