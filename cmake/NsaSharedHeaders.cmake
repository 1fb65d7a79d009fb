# nsa_share_headers(DIR...): the targets of these torch-free folders read the heavy headers of third parties (JSON,
# GoogleTest) from one precompiled file. A file of a folder spends half its time on them. LibTorch's are nsa_pch's.
# Code without harness_base has another -O, with which GCC 12 crashes on these files; it does without.
# A missing #include is reported by tools/lint, which reads the files of a change without these.
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
      get_target_property(is_test ${target} NSA_TEST)
      nsa_links(${target} nsa_json has_json)  # its definitions are the precompiled file's
      nsa_links(${target} harness_base has_base)
      if(is_test AND has_json)
        target_precompile_headers(${target} REUSE_FROM harness_test_pch)
        target_compile_options(${target} PRIVATE ${NSA_NO_STRING_WARNINGS})
      elseif(has_base)
        target_precompile_headers(${target} REUSE_FROM harness_pch)
      endif()
    endforeach()
  endforeach()
endfunction()

# Whether `target` links `wanted`, by way of others too.
function(nsa_links target wanted result)
  set(${result} OFF PARENT_SCOPE)
  foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
    get_target_property(links ${target} ${property})
    foreach(link ${links})
      if(TARGET ${link} AND NOT link STREQUAL wanted)
        nsa_links(${link} ${wanted} found)
      else()
        string(COMPARE EQUAL "${link}" ${wanted} found)
      endif()
      if(found)
        set(${result} ON PARENT_SCOPE)
        return()
      endif()
    endforeach()
  endforeach()
endfunction()

function(nsa_precompiled name libraries)
  add_library(${name} OBJECT "${CMAKE_SOURCE_DIR}/harness/pch.cpp")
  target_link_libraries(${name} PRIVATE nsa_build_flags nsa_json ${libraries})
  target_compile_options(${name} PRIVATE ${NSA_BRIEF_COMPILE} ${NSA_TEST_COMPILE})
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()
