# Strict warnings for our own code, through one interface target.
add_library(switchyard_warnings INTERFACE)
target_compile_options(switchyard_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
  -Woverloaded-virtual -Wcast-align -Wunused -Wdouble-promotion -Wformat=2 -Wimplicit-fallthrough)
if(SWITCHYARD_WERROR)
  target_compile_options(switchyard_warnings INTERFACE -Werror)
endif()
