# Finds the CUDA toolkit and decides, once, whether device/cuda.cpp or device/cuda_absent.cpp is built.
set(SWITCHYARD_CUDA_FOUND OFF)
if(NOT SWITCHYARD_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND)
    set(SWITCHYARD_CUDA_FOUND ON)
  elseif(SWITCHYARD_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SWITCHYARD_CUDA=ON, but no CUDA toolkit was found: install it, set "
                        "CUDAToolkit_ROOT, or configure with -DSWITCHYARD_CUDA=OFF")
  endif()
endif()
message(STATUS "switchyard: CUDA devices ${SWITCHYARD_CUDA_FOUND}")

# switchyard_cuda_objects(NAME ARCHITECTURES list SOURCES a.cu ...): device code for these architectures alone. A file whose
# name ends in an architecture goes into that architecture's objects; the rest are for sm_80 and, by PTX, everything newer.
if(SWITCHYARD_CUDA_FOUND)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${SWITCHYARD_CCACHE})
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
  endif()
  set(CMAKE_CUDA_ARCHITECTURES 80)
  enable_language(CUDA)
  # CMake 3.25 does not know how CUDA 13 spells C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
function(switchyard_cuda_objects name)
  cmake_parse_arguments(arg "" "" "ARCHITECTURES;SOURCES" ${ARGN})
  add_library(${name} OBJECT ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES CUDA_ARCHITECTURES "${arg_ARCHITECTURES}" CUDA_STANDARD 20)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_compile_options(${name} PRIVATE --expt-relaxed-constexpr --Werror all-warnings -Xcompiler=-Wall,-Wextra)
endfunction()
