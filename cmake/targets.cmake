# How a folder becomes a library and its tests a program.

# switchyard_library(NAME SOURCES a.cpp ... DEPENDS base ... LINKS PkgConfig::x ...)
#   DEPENDS is the folder's line of layers.txt; LINKS are third parties, private to the folder.
function(switchyard_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;LINKS" ${ARGN})
  add_library(switchyard_${name} STATIC ${arg_SOURCES})
  target_include_directories(switchyard_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src
                                                       ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(switchyard_${name} PRIVATE switchyard_warnings PUBLIC fmt::fmt)
  foreach(dependency ${arg_DEPENDS})
    target_link_libraries(switchyard_${name} PUBLIC switchyard_${dependency})
  endforeach()
  target_link_libraries(switchyard_${name} PRIVATE ${arg_LINKS})
endfunction()

# switchyard_test(FOLDER SOURCES a_test.cpp ... DEPENDS folder ... [LABELS fast] [LINKS ...])
#   One GoogleTest program per folder, so that linking stays cheap on small machines.
function(switchyard_test folder)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;LABELS;LINKS" ${ARGN})
  if(NOT arg_LABELS)
    set(arg_LABELS fast)
  endif()
  add_executable(test_${folder} ${arg_SOURCES})
  target_include_directories(test_${folder} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(test_${folder} PRIVATE SWITCHYARD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(test_${folder} PRIVATE switchyard_warnings GTest::gtest_main ${arg_LINKS})
  foreach(dependency ${folder} ${arg_DEPENDS})
    if(TARGET switchyard_${dependency})
      target_link_libraries(test_${folder} PRIVATE switchyard_${dependency})
    endif()
  endforeach()
  add_test(NAME ${folder} COMMAND test_${folder} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${folder} PROPERTIES LABELS "${arg_LABELS}")
endfunction()

# switchyard_embed(FOLDER OUTPUT): the folder's files as one C++ source, by embed.cmake.
function(switchyard_embed folder output)
  file(GLOB inputs CONFIGURE_DEPENDS ${folder}/*)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D FOLDER=${folder} -D OUTPUT=${output} -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${inputs} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
endfunction()
