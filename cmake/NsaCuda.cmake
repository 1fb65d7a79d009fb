# One build folder serves builds with and without CUDA code: only the files below are compiled again when NSA_ENABLE_CUDA
# changes.

# nsa_add_cuda_sources(TARGET FILE...): files that only builds with CUDA code have. Compiled by themselves, so that the
# batches of a unity build stay as they are.
function(nsa_add_cuda_sources target)
  target_sources(${target} PRIVATE ${ARGN})
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# nsa_define_cuda(FOLDER): every source of its targets that asks for NSA_WITH_CUDA gets it. Of a library these sources become
# an object library of their own, of any other target each is compiled by itself. Headers must not test NSA_WITH_CUDA, as
# every file that includes them would then depend on it (ci/check_layers).
function(nsa_define_cuda folder)
  get_property(targets DIRECTORY "${folder}" PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    nsa_asking_sources(${target} asking others)
    get_target_property(type ${target} TYPE)
    if(asking AND type MATCHES "^(STATIC|SHARED)_LIBRARY$")
      nsa_split_target(${target} "${asking}" "${others}")
    elseif(asking)
      set_source_files_properties(${asking} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON
        COMPILE_DEFINITIONS "$<$<BOOL:${NSA_ENABLE_CUDA}>:NSA_WITH_CUDA=1>")
    endif()
  endforeach()
  get_property(subfolders DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
  foreach(subfolder ${subfolders})
    nsa_define_cuda("${subfolder}")
  endforeach()
endfunction()

# The C++ sources of TARGET that ask for NSA_WITH_CUDA, with absolute paths, and its other sources.
function(nsa_asking_sources target asking others)
  get_target_property(sources ${target} SOURCES)
  get_target_property(here ${target} SOURCE_DIR)
  set(yes "")
  set(no "")
  foreach(source ${sources})
    set(asks "")
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${here}" OUTPUT_VARIABLE path)
    if(path MATCHES "\\.cpp$" AND EXISTS "${path}")
      file(STRINGS "${path}" asks REGEX "NSA_WITH_CUDA" LIMIT_COUNT 1)
    endif()
    if(asks)
      list(APPEND yes "${path}")
    else()
      list(APPEND no "${source}")
    endif()
  endforeach()
  set(${asking} "${yes}" PARENT_SCOPE)
  set(${others} "${no}" PARENT_SCOPE)
endfunction()

function(nsa_split_target target asking others)
  set(part ${target}_cuda_calls)
  add_library(${part} OBJECT ${asking})
  foreach(property LINK_LIBRARIES INCLUDE_DIRECTORIES COMPILE_OPTIONS COMPILE_DEFINITIONS)
    get_target_property(value ${target} ${property})
    if(value)
      set_target_properties(${part} PROPERTIES ${property} "${value}")
    endif()
  endforeach()
  if(NSA_ENABLE_CUDA)
    target_compile_definitions(${part} PRIVATE NSA_WITH_CUDA=1)
  endif()
  target_precompile_headers(${part} REUSE_FROM nsa_pch)
  set_target_properties(${target} PROPERTIES SOURCES "${others};$<TARGET_OBJECTS:${part}>")
endfunction()
