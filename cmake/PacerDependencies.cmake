# Every library that Pacer links; docs/dependencies.md says why each one.

find_package(Threads REQUIRED)
find_package(CLI11 REQUIRED CONFIG)
find_package(yaml-cpp REQUIRED CONFIG)
find_package(nlohmann_json REQUIRED CONFIG)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)

# LibTorch: the caller's own (PACER_TORCH_DIR, CMAKE_PREFIX_PATH) goes before the one that tools/setup.sh fetched.
set(PACER_TORCH_DIR "" CACHE PATH "Folder of a LibTorch or of Python's torch package")
set(pacer_torch_hints)
if(PACER_TORCH_DIR)
  list(APPEND pacer_torch_hints "${PACER_TORCH_DIR}" "${PACER_TORCH_DIR}/share/cmake")
endif()
if(DEFINED ENV{PACER_TORCH_DIR})
  list(APPEND pacer_torch_hints "$ENV{PACER_TORCH_DIR}" "$ENV{PACER_TORCH_DIR}/share/cmake")
endif()
find_package(Torch 2.13 CONFIG QUIET HINTS ${pacer_torch_hints})
if(NOT Torch_FOUND)
  find_package(Torch 2.13 REQUIRED CONFIG PATHS "${PROJECT_SOURCE_DIR}/.deps/torch/torch/share/cmake" NO_DEFAULT_PATH)
endif()

# Tensors, autograd and c10d are all in libtorch_cpu; linking `torch` would add nothing but macros.
add_library(pacer_torch INTERFACE)
target_include_directories(pacer_torch SYSTEM INTERFACE "$<BUILD_INTERFACE:${TORCH_INCLUDE_DIRS}>")
target_compile_definitions(pacer_torch INTERFACE AT_PER_OPERATOR_HEADERS)
target_link_libraries(pacer_torch INTERFACE $<BUILD_INTERFACE:torch_cpu> $<BUILD_INTERFACE:c10>)
