# nsa_share_headers(DIR...): the targets of these torch-free folders read the heavy headers of third parties (JSON,
# GoogleTest) from one precompiled file. A file of a room spends half its time on them. LibTorch's are nsa_pch's.
# All of them link harness_base: GCC 12 crashes where a file has another -O than the precompiled one.
# Who forgets an #include is found by tools/lint, which compiles without these files.
# GCC 12 takes string + "text" for an overrun (its bug 105651), and a precompiled header for no system header. The
# sanitizers look for overruns better.
set(NSA_NO_STRING_WARNINGS -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread)
function(nsa_share_headers)
  nsa_precompiled(harness_pch "" <nlohmann/json.hpp> <filesystem> <functional> <map> <optional>)
  if(NSA_BUILD_TESTS)
    nsa_precompiled(harness_test_pch GTest::gmock <gmock/gmock.h> <nlohmann/json.hpp> <filesystem> <fstream> <map>)
    set_target_properties(harness_test_pch PROPERTIES NSA_TEST ON)
  endif()
  foreach(folder ${ARGN})
    get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
    foreach(target ${targets})
      get_target_property(links ${target} LINK_LIBRARIES)
      if("GTest::gmock" IN_LIST links)
        target_precompile_headers(${target} REUSE_FROM harness_test_pch)
        target_compile_options(${target} PRIVATE ${NSA_NO_STRING_WARNINGS})
      elseif(links MATCHES "harness_")
        target_precompile_headers(${target} REUSE_FROM harness_pch)
      endif()
    endforeach()
  endforeach()
endfunction()

function(nsa_precompiled name libraries)
  add_library(${name} OBJECT "${CMAKE_SOURCE_DIR}/harness/pch.cpp")
  target_link_libraries(${name} PRIVATE nsa_build_flags nsa_json ${libraries})
  target_compile_options(${name} PRIVATE $<TARGET_PROPERTY:harness_base,INTERFACE_COMPILE_OPTIONS>)
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()
