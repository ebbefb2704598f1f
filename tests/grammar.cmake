lockstep_test(grammar_test SOURCES grammar_test.cc USES engine text base)
target_link_libraries(grammar_test PRIVATE ZLIB::ZLIB)
