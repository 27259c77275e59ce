# Sanitizers are chosen for the whole build, so that every library agrees.
if(SWITCHYARD_SANITIZE)
  string(REPLACE ";" "," sanitizers "${SWITCHYARD_SANITIZE}")
  add_compile_options(-fsanitize=${sanitizers} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${sanitizers})
endif()
