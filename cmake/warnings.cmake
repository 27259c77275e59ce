# Strict warnings for our own code, through one interface target.
add_library(switchyard_warnings INTERFACE)
target_compile_options(switchyard_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
  -Woverloaded-virtual -Wcast-align -Wunused -Wdouble-promotion -Wformat=2 -Wimplicit-fallthrough)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports impossible overlaps inside std::string (GCC bug 105651).
  target_compile_options(switchyard_warnings INTERFACE -Wno-restrict)
endif()
if(SWITCHYARD_WERROR)
  target_compile_options(switchyard_warnings INTERFACE -Werror)
endif()
