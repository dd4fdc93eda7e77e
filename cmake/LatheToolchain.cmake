# Language level, warnings and sanitizers shared by every target (interface library lathe_options).
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

add_library(lathe_options INTERFACE)
target_compile_options(lathe_options INTERFACE -Wall -Wextra -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlapping copies in string concatenations where there are none (its bug 105651).
  target_compile_options(lathe_options INTERFACE -Wno-restrict)
endif()
target_compile_definitions(lathe_options INTERFACE LATHE_VERSION="${PROJECT_VERSION}")
if(LATHE_SANITIZE)
  target_compile_options(lathe_options INTERFACE -fsanitize=${LATHE_SANITIZE} -fno-sanitize-recover=all
                                                 -fno-omit-frame-pointer)
  target_link_options(lathe_options INTERFACE -fsanitize=${LATHE_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # Instrumented, GCC takes moved-from optionals for uninitialised ones.
    target_compile_options(lathe_options INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()
