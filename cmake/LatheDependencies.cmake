# Finds every third-party dependency once and wraps each in an interface target with system includes.

# LLVM: Support and Object, linked statically so that no LLVM symbol leaves the shared library.
find_package(LLVM REQUIRED CONFIG HINTS /usr/lib/llvm-19 /usr/lib/llvm-18)
if(LLVM_VERSION_MAJOR LESS 18)
  message(FATAL_ERROR "Lathe needs LLVM 18 or later, found ${LLVM_VERSION} in ${LLVM_DIR}; install llvm-19-dev")
endif()
llvm_map_components_to_libnames(LATHE_LLVM_LIBRARIES support object)
add_library(lathe_llvm INTERFACE)
target_include_directories(lathe_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
target_compile_definitions(lathe_llvm INTERFACE ${LLVM_DEFINITIONS})
# --as-needed drops what LLVM lists but these components do not use (z3).
target_link_libraries(lathe_llvm INTERFACE -Wl,--as-needed ${LATHE_LLVM_LIBRARIES})

# spdlog and fmt, compiled into Lathe (header-only), for binaries that run on machines without them.
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(Threads REQUIRED)
add_library(lathe_spdlog INTERFACE)
target_link_libraries(lathe_spdlog INTERFACE spdlog::spdlog_header_only fmt::fmt-header-only Threads::Threads)

# OpenBLAS: the host reference. Static where possible, for the same reason.
find_library(LATHE_OPENBLAS NAMES libopenblas.a openblas PATH_SUFFIXES x86_64-linux-gnu/openblas-pthread openblas-pthread)
find_path(LATHE_CBLAS_INCLUDE cblas.h PATH_SUFFIXES x86_64-linux-gnu/openblas-pthread x86_64-linux-gnu)
if(NOT LATHE_OPENBLAS OR NOT LATHE_CBLAS_INCLUDE)
  message(FATAL_ERROR "OpenBLAS was not found; install libopenblas-dev")
endif()
add_library(lathe_openblas INTERFACE)
target_include_directories(lathe_openblas SYSTEM INTERFACE ${LATHE_CBLAS_INCLUDE})
target_link_libraries(lathe_openblas INTERFACE ${LATHE_OPENBLAS} Threads::Threads)

# CUDA headers (cuda.h, nvrtc.h): types only. libcuda and libnvrtc are opened at run time.
# LATHE_CUDA_INCLUDE may name a list of folders, for example those of the PyPI wheels.
if(NOT LATHE_CUDA_INCLUDE)
  find_path(LATHE_CUDA_H cuda.h HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include REQUIRED)
  find_path(LATHE_NVRTC_H nvrtc.h HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include REQUIRED)
  set(LATHE_CUDA_INCLUDE ${LATHE_CUDA_H} ${LATHE_NVRTC_H})
endif()
add_library(lathe_cuda_headers INTERFACE)
target_include_directories(lathe_cuda_headers SYSTEM INTERFACE ${LATHE_CUDA_INCLUDE})

find_package(CLI11 REQUIRED)
