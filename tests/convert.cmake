lockstep_test(safetensors_test SOURCES safetensors_test.cc USES tensor base)
lockstep_test(convert_test SOURCES convert_test.cc USES engine cpu)
target_link_libraries(convert_test PRIVATE nlohmann_json::nlohmann_json)
