#include "pacer/device/plugin_loader.h"

#include <dlfcn.h>

#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "pacer/base/error.h"

namespace pacer::device {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "libpacer_";
constexpr const char* kSuffix = ".so";

std::string folders_text() {
  std::string text;
  for (const fs::path& folder : plugin_folders()) text += (text.empty() ? "" : ", ") + folder.string();
  return text;
}

Error broken(const fs::path& library, const std::string& why) {
  return Error(ErrorKind::device, "the plugin " + library.string() + " cannot be used: " + why,
               "build it again together with the program, or take the file away to do without this back end");
}

const Plugin* open_library(const fs::path& library) {
  // RTLD_GLOBAL: libraries that the vendor opens later look for LibTorch's and Python's symbols here.
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    const char* message = ::dlerror();
    throw broken(library, message == nullptr ? "the dynamic loader gives no reason" : message);
  }
  void* entry = ::dlsym(handle, kPluginSymbol);
  if (entry == nullptr) throw broken(library, std::string("it has no function ") + kPluginSymbol);
  const auto* plugin = reinterpret_cast<decltype(&pacer_device_plugin)>(entry)();
  if (plugin == nullptr) throw broken(library, std::string(kPluginSymbol) + " returned nothing");
  if (plugin->interface_version != kPluginInterface) {
    throw broken(library, "it was built for version " + std::to_string(plugin->interface_version) +
                              " of the plugin interface and this program has version " +
                              std::to_string(kPluginInterface));
  }
  if (plugin->product == nullptr && plugin->make_backend == nullptr) {
    throw broken(library, "it brings neither a device nor collectives");
  }
  return plugin;
}

}  // namespace

std::vector<fs::path> plugin_folders() {
  if (const char* given = std::getenv("PACER_PLUGIN_DIR"); given != nullptr && *given != '\0') return {given};
  std::error_code code;
  const fs::path program = fs::read_symlink("/proc/self/exe", code);
  if (code) return {};
  return {program.parent_path().parent_path() / "lib" / "pacer" / "plugins"};
}

std::vector<std::string> plugin_names() {
  std::set<std::string> names;
  for (const fs::path& folder : plugin_folders()) {
    std::error_code code;
    for (const auto& entry : fs::directory_iterator(folder, code)) {
      const std::string file = entry.path().filename();
      const size_t frame = std::string(kPrefix).size() + std::string(kSuffix).size();
      if (file.starts_with(kPrefix) && file.ends_with(kSuffix) && file.size() > frame) {
        names.insert(file.substr(std::string(kPrefix).size(), file.size() - frame));
      }
    }
  }
  return {names.begin(), names.end()};
}

const Plugin* open_plugin(const std::string& name) {
  static std::mutex mutex;
  static auto& opened = *new std::map<fs::path, const Plugin*>;
  const std::lock_guard lock(mutex);
  for (const fs::path& folder : plugin_folders()) {
    const fs::path library = folder / (kPrefix + name + kSuffix);
    std::error_code code;
    if (!fs::exists(fs::symlink_status(library, code))) continue;
    if (const auto found = opened.find(library); found != opened.end()) return found->second;
    return opened[library] = open_library(library);
  }
  return nullptr;
}

const Loaded& load_plugin(const Plugin& plugin) {
  struct Answer {
    Loaded loaded;
    std::optional<Error> failure;
  };
  static std::mutex mutex;
  static auto& answers = *new std::map<const Plugin*, Answer>;
  const std::lock_guard lock(mutex);
  auto found = answers.find(&plugin);
  if (found == answers.end()) {
    Answer answer;
    try {
      answer.loaded = plugin.load();
    } catch (const std::exception& failure) {
      answer.failure = Error(ErrorKind::device,
                             "the back end of device \"" + std::string(plugin.product) +
                                 "\" is there and does not work: " + failure.what(),
                             "run `pacer doctor`; it looked for plugins in " + folders_text());
    }
    found = answers.emplace(&plugin, std::move(answer)).first;
  }
  if (found->second.failure) throw Error(*found->second.failure);
  return found->second.loaded;
}

}  // namespace pacer::device
