#include "plugins/npu/torch_npu.h"

#include <dlfcn.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

#include "plugins/npu/fused.h"

namespace pacer::npu {
namespace {

constexpr const char* kLibrary = "libtorch_npu.so";
constexpr const char* kStart = "_ZN9torch_npu8init_npuEa";  // torch_npu::init_npu(c10::DeviceIndex)

std::string loader_message() {
  const char* message = ::dlerror();
  return message == nullptr ? "the dynamic loader gives no reason" : message;
}

std::string value_of(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

// The device that this rank will use; the start makes a context on it, and one on a foreign device costs it memory.
signed char rank_device() {
  const std::string local = value_of("LOCAL_RANK");
  if (local.empty()) return 0;
  signed char rank = 0;
  const auto [end, failure] = std::from_chars(local.data(), local.data() + local.size(), rank);
  if (failure != std::errc() || end != local.data() + local.size()) {
    throw std::runtime_error("LOCAL_RANK is '" + local + "', expected a device number from 0 to 127");
  }
  return rank;
}

// The wheel's library needs symbols of Python. Opened globally, once.
void* open_python() {
  const std::string given = value_of("PACER_PYTHON_LIBRARY");
  if (!given.empty()) {
    void* handle = ::dlopen(given.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (handle == nullptr) throw std::runtime_error("PACER_PYTHON_LIBRARY: " + loader_message());
    return handle;
  }
  for (const char* name : {"libpython3.11.so.1.0", "libpython3.12.so.1.0", "libpython3.10.so.1.0",
                           "libpython3.9.so.1.0", "libpython3.13.so.1.0"}) {
    if (void* handle = ::dlopen(name, RTLD_NOW | RTLD_GLOBAL); handle != nullptr) return handle;
  }
  throw std::runtime_error(
      "this is the wheel build of torch_npu, which needs Python in the process, and no libpython was found; set "
      "PACER_PYTHON_LIBRARY to the one of the environment that torch_npu is installed in");
}

template <typename Function>
Function* python_function(void* python, const char* name) {
  void* found = ::dlsym(python, name);
  if (found == nullptr) throw std::runtime_error(std::string("the Python library has no ") + name);
  return reinterpret_cast<Function*>(found);
}

// torch_npu's lazy start takes Python's lock and imports its own package; so Python runs, and no thread of ours holds
// the lock.
void start_python(void* python) {
  const bool running = python_function<int()>(python, "Py_IsInitialized")() != 0;
  if (!running) python_function<void(int)>(python, "Py_InitializeEx")(0);
  const int failed = python_function<int(const char*, void*)>(python, "PyRun_SimpleStringFlags")(
      "import torch, torch_npu\ntorch_npu.npu.init()\n", nullptr);
  if (!running) python_function<void*()>(python, "PyEval_SaveThread")();
  if (failed != 0) {
    throw std::runtime_error(
        "the library of torch_npu (wheel build) is loaded, but Python cannot import and start torch_npu (its message "
        "is above); activate its environment (PYTHONHOME, PYTHONPATH) and let this program use the LibTorch of the "
        "same environment");
  }
}

bool needs_python(const std::string& message) {
  return message.find("libtorch_python") != std::string::npos || message.find("Py") != std::string::npos ||
         message.find("python") != std::string::npos;
}

}  // namespace

device::Loaded load_torch_npu(device::FusedOperators& operators) {
  const std::string given = value_of("PACER_TORCH_NPU"), library = given.empty() ? kLibrary : given;
  if (!given.empty() && !std::filesystem::exists(given)) {
    throw std::runtime_error("PACER_TORCH_NPU=" + given + " does not exist");
  }
  void* python = nullptr;
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    const std::string message = loader_message();
    // A message about another file means that this one is there and needs it.
    if (given.empty() && message.starts_with(std::string(kLibrary) + ": cannot open")) {
      return {false, "libtorch_npu.so is not where the dynamic loader looks; PACER_TORCH_NPU may name it"};
    }
    if (!needs_python(message)) throw std::runtime_error(message);
    python = open_python();
    handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (handle == nullptr) throw std::runtime_error(loader_message());
  }
  std::string missing;
  operators = find_fused_operators(missing);
  if (!missing.empty()) missing = "; " + missing;
  if (void* start = ::dlsym(handle, kStart); start != nullptr) {
    reinterpret_cast<void (*)(signed char)>(start)(rank_device());
    return {true, library + " (native build)" + missing};
  }
  if (python == nullptr) python = open_python();
  start_python(python);
  return {true, library + " (wheel build, with Python)" + missing};
}

}  // namespace pacer::npu
