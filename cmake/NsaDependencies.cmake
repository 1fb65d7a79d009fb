# Every third-party library as one INTERFACE target. The wheels of .venv bring headers and shared objects; CMake's own
# Torch package is not used: it insists on a CUDA toolkit even for CPU builds and overwrites CUDA flags.
file(GLOB NSA_SITE "${NSA_VENV}/lib/python3*/site-packages")
if(NOT NSA_SITE)
  message(FATAL_ERROR "no Python environment at NSA_VENV='${NSA_VENV}'; run tools/setup first")
endif()
set(NSA_CUDA_HOME "${NSA_SITE}/nvidia/cu13")
find_package(Threads REQUIRED)

add_library(nsa_cuda_headers INTERFACE)  # headers alone: builds without a CUDA compiler have them too
target_include_directories(nsa_cuda_headers SYSTEM INTERFACE "${NSA_CUDA_HOME}/include")

add_library(nsa_json INTERFACE)
target_include_directories(nsa_json SYSTEM INTERFACE "${NSA_SITE}/nlohmann_json/include")
target_compile_definitions(nsa_json INTERFACE JSON_DIAGNOSTIC_POSITIONS=1)

add_library(nsa_fmt INTERFACE)  # Debian has no static fmt: header-only
target_compile_definitions(nsa_fmt INTERFACE FMT_HEADER_ONLY=1)

find_library(NSA_CRYPTO libcrypto.a REQUIRED)  # OpenSSL's
add_library(nsa_crypto INTERFACE)
target_link_libraries(nsa_crypto INTERFACE "${NSA_CRYPTO}" Threads::Threads ${CMAKE_DL_LIBS})

find_library(NSA_SQLITE libsqlite3.a REQUIRED)
add_library(nsa_sqlite INTERFACE)
target_link_libraries(nsa_sqlite INTERFACE "${NSA_SQLITE}" Threads::Threads ${CMAKE_DL_LIBS} m)

find_library(NSA_PUGIXML libpugixml.a REQUIRED)
add_library(nsa_pugixml INTERFACE)
target_link_libraries(nsa_pugixml INTERFACE "${NSA_PUGIXML}")

find_library(NSA_ZLIB libz.a REQUIRED)
add_library(nsa_zlib INTERFACE)
target_link_libraries(nsa_zlib INTERFACE "${NSA_ZLIB}")

find_library(NSA_XZ liblzma.a REQUIRED)
add_library(nsa_xz INTERFACE)
target_link_libraries(nsa_xz INTERFACE "${NSA_XZ}")

find_library(NSA_ZSTD libzstd.a REQUIRED)
add_library(nsa_zstd INTERFACE)
target_link_libraries(nsa_zstd INTERFACE "${NSA_ZSTD}")

find_library(NSA_CMARK_TABLES libcmark-gfm-extensions.a REQUIRED)
find_library(NSA_CMARK libcmark-gfm.a REQUIRED)
add_library(nsa_cmark INTERFACE)
target_link_libraries(nsa_cmark INTERFACE "${NSA_CMARK_TABLES}" "${NSA_CMARK}")

if(NSA_ENABLE_TORCH)
  # Found by their file names: the wheel has no names without version.
  file(GLOB NSA_PYARROW "${NSA_SITE}/pyarrow/libparquet.so.*" "${NSA_SITE}/pyarrow/libarrow.so.*")
  file(GLOB NSA_PYARROW_DIST "${NSA_SITE}/pyarrow-*.dist-info")
  string(REGEX MATCH "pyarrow-([0-9.]+)\\.dist-info" NSA_PYARROW_DIST "${NSA_PYARROW_DIST}")
  set(NSA_PYARROW_VERSION "${CMAKE_MATCH_1}")
  if(NOT NSA_PYARROW)
    message(FATAL_ERROR "no Parquet library in ${NSA_SITE}/pyarrow; run tools/setup first")
  endif()
  add_library(nsa_arrow INTERFACE)
  target_include_directories(nsa_arrow SYSTEM INTERFACE "${NSA_SITE}/pyarrow/include")
  target_link_libraries(nsa_arrow INTERFACE ${NSA_PYARROW})

  set(NSA_TORCH_LIB "${NSA_SITE}/torch/lib")
  add_library(nsa_torch INTERFACE)
  target_include_directories(nsa_torch SYSTEM INTERFACE
    "${NSA_SITE}/torch/include" "${NSA_SITE}/torch/include/torch/csrc/api/include" "${NSA_CUDA_HOME}/include")
  target_link_directories(nsa_torch INTERFACE "${NSA_TORCH_LIB}")
  # With -Og, and with sanitizers, GCC 12 takes empty optionals of LibTorch's headers for uninitialised ones.
  target_compile_options(nsa_torch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
  # In the build tree Torch is found where the wheel is; an installed tree finds its own libraries beside its programs and
  # Torch by LD_LIBRARY_PATH (or nsa-validate --torch DIR).
  target_link_options(nsa_torch INTERFACE "-Wl,-rpath-link,${NSA_TORCH_LIB}")
  set(CMAKE_BUILD_RPATH "${NSA_TORCH_LIB}")
  set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")
  # Registrations live in these libraries' static initialisers, so the linker must not drop them as unused.
  if(NSA_ENABLE_CUDA)
    # The static CUDA runtime: a shared one stands outside LibTorch's folder, where an installed tree would not find it.
    # Its symbols stay hidden, so that LibTorch keeps using its own.
    target_link_libraries(nsa_torch INTERFACE
      -Wl,--no-as-needed torch torch_cpu torch_cuda c10 c10_cuda -Wl,--as-needed
      "${NSA_CUDA_HOME}/lib/libcudart_static.a" -Wl,--exclude-libs,libcudart_static.a rt dl Threads::Threads)
  else()
    # Not libtorch.so: it is empty but for its need of libtorch_cuda.so, cuDNN and NCCL, a third of the time of a start.
    target_link_libraries(nsa_torch INTERFACE -Wl,--no-as-needed torch_cpu c10 -Wl,--as-needed)
  endif()
endif()

if(NSA_ENABLE_CUDA)
  set(CMAKE_CUDA_COMPILER "${NSA_SITE}/nvidia/cu13/bin/nvcc" CACHE FILEPATH "nvcc of .venv")
  set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}" CACHE FILEPATH "")
  enable_language(CUDA)
  set(CMAKE_INCLUDE_SYSTEM_FLAG_CUDA "-isystem ")  # ccache does not see the path in "-isystem=PATH": another clone would miss
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # nsa_torch names the one that is linked; CMake's check of the compiler wants one
endif()

if(NSA_BUILD_TESTS OR NSA_ENABLE_TORCH)
  find_package(GTest REQUIRED)  # nsa-tests is a program of every build with LibTorch
endif()
if(NSA_BUILD_TESTS AND NSA_ENABLE_TORCH)
  find_package(benchmark REQUIRED)
endif()
