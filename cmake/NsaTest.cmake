# Where checkout, build folder and Python environment are, for tests (base/testing/paths.h). Compiled once: as definitions
# on a command line they would make the objects of every test differ between two clones.
if(NSA_BUILD_TESTS)
  file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/generated/test_paths.cpp" @ONLY CONTENT [[
#include "base/testing/paths.h"
const std::string& base::source_dir() { static const std::string dir = "@CMAKE_SOURCE_DIR@"; return dir; }
const std::string& base::build_dir() { static const std::string dir = "@CMAKE_BINARY_DIR@"; return dir; }
const std::string& base::venv_dir() { static const std::string dir = "@NSA_VENV@"; return dir; }
]])
  add_library(nsa_test_paths STATIC "${CMAKE_BINARY_DIR}/generated/test_paths.cpp")
  target_include_directories(nsa_test_paths PUBLIC "${CMAKE_SOURCE_DIR}")
endif()

# nsa_add_test(NAME x_test SOURCES ... LIBS ... [LABELS cpu|gpu|quick ...] [ARGS ...] [TIMEOUT s])
# Label quick: what tools/test --quick builds and runs; seconds to compile, not many more to run.
# One ctest entry a program: a LibTorch process costs about 0.3 s to start, so cases are not separate entries.
function(nsa_add_test)
  if(NOT NSA_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(T "" "NAME;TIMEOUT" "SOURCES;LIBS;LABELS;ARGS" ${ARGN})
  add_executable(${T_NAME} ${T_SOURCES})
  set_target_properties(${T_NAME} PROPERTIES NSA_TEST ON)
  target_compile_options(${T_NAME} PRIVATE ${NSA_TEST_COMPILE})
  target_link_libraries(${T_NAME} PRIVATE nsa_build_flags nsa_test_paths ${T_LIBS}
    GTest::gtest GTest::gmock GTest::gtest_main)
  target_include_directories(${T_NAME} PRIVATE "${CMAKE_SOURCE_DIR}")
  add_test(NAME ${T_NAME} COMMAND ${T_NAME} ${T_ARGS})
  if(NOT T_LABELS)
    set(T_LABELS cpu)
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300)
  endif()
  set_tests_properties(${T_NAME} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT})
  if(T_TIMEOUT GREATER 300)  # the longest start first, so that none of them ends alone
    set_tests_properties(${T_NAME} PROPERTIES COST ${T_TIMEOUT})
  endif()
endfunction()

# nsa_add_torch_test(NAME ...): a test that includes LibTorch.
function(nsa_add_torch_test)
  cmake_parse_arguments(T "" "NAME" "" ${ARGN})
  nsa_add_test(NAME ${T_NAME} ${T_UNPARSED_ARGUMENTS})
  if(NSA_BUILD_TESTS)
    # The precompiled header is the library's, with its optimisation and its sanitizer.
    set_target_properties(${T_NAME} PROPERTIES NSA_TEST OFF)
    target_precompile_headers(${T_NAME} REUSE_FROM nsa_pch)
    target_compile_options(${T_NAME} PRIVATE ${NSA_BRIEF_COMPILE})
    if(NSA_SANITIZER)
      # LibTorch is not instrumented: leaks and containers that it shares are not judged.
      set_tests_properties(${T_NAME} PROPERTIES ENVIRONMENT
        "ASAN_OPTIONS=detect_leaks=0:detect_container_overflow=0:protect_shadow_gap=0")
    endif()
  endif()
endfunction()

# nsa_add_gpu_test(NAME ... LIBS ...): one that needs a GPU; its main(), unless it has one of its own, exits with 77 where
# there is none. LIBS stands last.
function(nsa_add_gpu_test)
  if(NSA_ENABLE_CUDA AND NSA_BUILD_TESTS)
    cmake_parse_arguments(T "" "NAME" "" ${ARGN})
    nsa_add_torch_test(NAME ${T_NAME} ${T_UNPARSED_ARGUMENTS} nsa_gpu_test_main LABELS gpu TIMEOUT 300)
    set_tests_properties(${T_NAME} PROPERTIES SKIP_RETURN_CODE 77)
    set_property(GLOBAL APPEND PROPERTY NSA_GPU_TESTS ${T_NAME})
  endif()
endfunction()
