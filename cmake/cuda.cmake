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
