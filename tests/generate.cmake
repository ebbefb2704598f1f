lockstep_test(sampler_test SOURCES sampler_test.cc USES engine cpu ops numerics base)
lockstep_test(generate_test SOURCES generate_test.cc USES engine cpu text base)

# The program itself is there once every command has its file.
if(TARGET lockstep)
  lockstep_test(cli_test WHOLE SOURCES cli_test.cc USES cli)
  target_link_libraries(cli_test PRIVATE nlohmann_json::nlohmann_json)
  target_compile_definitions(cli_test PRIVATE LOCKSTEP_PROGRAM="$<TARGET_FILE:lockstep>")
  add_dependencies(cli_test lockstep)
endif()
