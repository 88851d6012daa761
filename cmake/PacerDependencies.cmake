# Every library that Pacer links; docs/dependencies.md says why each one.

find_package(Threads REQUIRED)
find_package(CLI11 REQUIRED CONFIG)
find_package(yaml-cpp REQUIRED CONFIG)
find_package(nlohmann_json REQUIRED CONFIG)
find_package(simdjson REQUIRED CONFIG)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)

# LibTorch: the caller's own (PACER_TORCH_DIR, CMAKE_PREFIX_PATH) goes before the one that tools/setup.sh fetched.
set(PACER_TORCH_DIR "" CACHE PATH "Folder of a LibTorch or of Python's torch package")
set(pacer_torch_hints)
foreach(folder "${PACER_TORCH_DIR}" "$ENV{PACER_TORCH_DIR}")
  if(folder)
    list(APPEND pacer_torch_hints "${folder}" "${folder}/share/cmake")
  endif()
endforeach()
set(pacer_deps "${PROJECT_SOURCE_DIR}/.deps")
if(DEFINED ENV{PACER_DEPS_DIR})
  set(pacer_deps "$ENV{PACER_DEPS_DIR}")
endif()
if(NOT PACER_TORCH_FREE)
  # Its only warning is that it comes without the profiling library kineto, which nothing here uses.
  set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
  find_package(Torch 2.13 CONFIG QUIET HINTS ${pacer_torch_hints})
  string(FIND "${Torch_DIR}/" "${pacer_deps}/torch/" pacer_torch_at)  # what an earlier configuration found
  set(PACER_TORCH_IS_OWN OFF)
  if(NOT Torch_FOUND OR pacer_torch_at EQUAL 0)
    find_package(Torch 2.13 REQUIRED CONFIG PATHS "${pacer_deps}/torch/torch/share/cmake" NO_DEFAULT_PATH)
    set(PACER_TORCH_IS_OWN ON)
  endif()
  unset(CMAKE_MESSAGE_LOG_LEVEL)

  # A function with a std::string in its name: with another string ABI nothing would link, at the very end.
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_LIBRARIES c10)
  set(CMAKE_REQUIRED_INCLUDES ${TORCH_INCLUDE_DIRS})
  check_cxx_source_compiles("#include <c10/core/DeviceType.h>
    int main() { return c10::DeviceTypeName(c10::DeviceType::CPU, true).empty() ? 1 : 0; }" PACER_TORCH_LINKS)
  unset(CMAKE_REQUIRED_LIBRARIES)
  unset(CMAKE_REQUIRED_INCLUDES)
  if(NOT PACER_TORCH_LINKS)
    message(FATAL_ERROR "A program does not link with the LibTorch in ${Torch_DIR}: is its string ABI another one, "
      "by -D_GLIBCXX_USE_CXX11_ABI in CMAKE_CXX_FLAGS or by an older compiler? The logs in CMakeFiles have the linker's "
      "words.")
  endif()

  # Tensors, autograd and c10d are all in libtorch_cpu; linking `torch` would add nothing but macros.
  add_library(pacer_torch INTERFACE)
  target_include_directories(pacer_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
  target_compile_definitions(pacer_torch INTERFACE AT_PER_OPERATOR_HEADERS)
  # libgomp has one name everywhere, so a process holds one copy of it, LibTorch's, with one pool of threads.
  target_link_libraries(pacer_torch INTERFACE torch_cpu c10 gomp)
endif()
