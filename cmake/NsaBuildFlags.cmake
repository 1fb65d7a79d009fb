# One INTERFACE target carries language level, warnings and sanitizers; ccache and mold are used when they are there.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(CMAKE_CXX_FLAGS_RELEASE "-O2")  # no debug information: a seventh of the time to compile; the sanitizers have it
# For code that waits for processes, calls operators or reads small files: a third less time to compile is worth more there
# than -O2.
set(NSA_PLAIN_TEST $<BOOL:$<TARGET_PROPERTY:NSA_TEST>>)
set(NSA_RELEASE_CXX $<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>)
set(NSA_BRIEF_COMPILE $<$<AND:${NSA_RELEASE_CXX},$<NOT:${NSA_PLAIN_TEST}>>:-Og>)
# The tests' own files (property NSA_TEST) compile in 15 % less with -O0; those with LibTorch's headers take as long.
set(NSA_TEST_COMPILE $<$<AND:${NSA_RELEASE_CXX},${NSA_PLAIN_TEST}>:-O0>)
# Fat binaries carry machine code for A100-class and H100/H200-class cards, and beside the first its PTX, which the driver of
# a later card compiles at the first launch (nsa/backend). Code of sm90/ folders has machine code alone.
set(CMAKE_CUDA_ARCHITECTURES "80;90a-real" CACHE STRING "")

if(NSA_UNITY)
  # Most of a file's cost is the headers and templates it shares with its neighbours. The price: names in unnamed
  # namespaces must differ within a target, tests included.
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 32)
endif()

find_program(NSA_CCACHE ccache)
if(NSA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths count relative to the tree, so that another clone finds what this one compiled. The sloppiness is what ccache
  # asks for with precompiled headers.
  set(NSA_CCACHE_ENV CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env ${NSA_CCACHE_ENV}
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${NSA_CCACHE})
  # tools/setup writes nvcc anew into every .venv: it is the same compiler when its bytes are, whatever its time stamp.
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env ${NSA_CCACHE_ENV} CCACHE_COMPILERCHECK=content ${NSA_CCACHE})
endif()

if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU" OR CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "The compiler is ${CMAKE_CXX_COMPILER} (${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}); "
    "GCC 12 or later is needed: install g++, remove the build folder, and call again with CXX=g++.")
endif()
# Warnings of compilers that the gate does not run are not errors: they stop users, not mistakes.
if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(NSA_WERROR -Werror)
endif()

add_library(nsa_build_flags INTERFACE)
# -fPIC for programs too (CMake would use -fPIE), so that they can share the library's precompiled header.
set(NSA_CXX_OPTIONS -fPIC -Wall -Wextra -Wshadow -Wnon-virtual-dtor ${NSA_WERROR} -fpch-preprocess
  "-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=")
target_compile_options(nsa_build_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${NSA_CXX_OPTIONS}>")
find_program(NSA_MOLD mold)
if(NSA_MOLD)
  target_link_options(nsa_build_flags INTERFACE -fuse-ld=mold)
endif()
if(NSA_SANITIZER)
  # Not the tests' own files (property NSA_TEST): what they do is not what is looked for, they would take three times as long
  # to compile, and with the options of the build without sanitizers a compiler cache has them.
  # -Og: what the sanitizers add compiles in two thirds of the time that -O1 takes.
  set(NSA_SANITIZER_OPTIONS -Og -g1 -fsanitize=${NSA_SANITIZER} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_compile_options(nsa_build_flags INTERFACE
    "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<BOOL:$<TARGET_PROPERTY:NSA_TEST>>>>:${NSA_SANITIZER_OPTIONS}>")
  target_link_options(nsa_build_flags INTERFACE -fsanitize=${NSA_SANITIZER})
endif()
