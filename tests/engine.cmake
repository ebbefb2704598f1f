lockstep_test(golden_test SOURCES golden_test.cc USES engine cpu LABELS slow)
target_link_libraries(golden_test PRIVATE nlohmann_json::nlohmann_json)
lockstep_test(schedule_test SOURCES schedule_test.cc USES engine cpu LABELS slow TIMEOUT 1200)
lockstep_test(law_test SOURCES law_test.cc USES engine cpu LABELS slow TIMEOUT 1200)
