# Sanitizers are chosen for the whole build, so that every library agrees.
if(SWITCHYARD_SANITIZE)
  string(REPLACE ";" "," sanitizers "${SWITCHYARD_SANITIZE}")
  add_compile_options(-fsanitize=${sanitizers} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${sanitizers})
endif()
if(SWITCHYARD_FUZZ)
  # Coverage of the libraries steers the fuzzer; its main program is linked in fuzz/CMakeLists.txt.
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()
