# The real vocabulary lies in tests/data/text as tokenizer-v4.json.gz (1.8 MB; 7 MB unpacked) and is read through zlib.
find_package(ZLIB REQUIRED)

lockstep_test(text_utf8_test SOURCES text_utf8_test.cc USES text)
lockstep_test(text_json_test SOURCES text_json_test.cc USES text)
lockstep_test(text_chat_test SOURCES text_chat_test.cc USES text)
lockstep_test(text_vocabulary_test SOURCES text_vocabulary_test.cc USES text)

# WHOLE: loading the vocabulary takes longer than most cases do, so it happens once a program.
lockstep_test(text_tokenizer_test WHOLE SOURCES text_tokenizer_test.cc USES text)
lockstep_test(text_lines_test WHOLE SOURCES text_lines_test.cc ../src/cli/tokenize.cc ../src/cli/render.cc USES text)
lockstep_test(sampled_tokens_test WHOLE SOURCES sampled_tokens_test.cc USES text)
foreach(test text_tokenizer_test text_lines_test sampled_tokens_test)
  target_link_libraries(${test} PRIVATE ZLIB::ZLIB)
endforeach()
