#include "pacer/device/doctor.h"

#include <algorithm>
#include <cstdlib>
#include <iomanip>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include <ATen/Parallel.h>
#include <torch/version.h>

#include "pacer/base/machine.h"
#include "pacer/base/version.h"
#include "pacer/device/back_ends.h"
#include "pacer/device/child.h"
#include "pacer/device/collectives.h"
#include "pacer/device/device_memory.h"
#include "pacer/device/kernels.h"
#include "pacer/device/names.h"
#include "pacer/device/plugin_loader.h"
#include "pacer/device/probes.h"

namespace pacer::device {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

uint64_t megabytes(uint64_t bytes) { return bytes >> 20; }

// What a child printed; how it ended when that is no answer.
OrderedJson answer_of(const std::vector<std::string>& command) {
  const Ended ended = run_child(command);
  OrderedJson answer = OrderedJson::parse(ended.out, nullptr, /*allow_exceptions=*/false);
  if (answer.is_object() && !answer.contains("error")) return answer;
  const std::string how =
      ended.signal != 0 ? "signal " + std::to_string(ended.signal) : "exit code " + std::to_string(ended.exit_code);
  return {{"died", "its process ended with " + how + (ended.error.empty() ? "" : ": " + first_line(ended.error))}};
}

std::vector<std::string> products() {
  std::vector<std::string> all = preferred_products();
  for (const std::string& name : plugin_names()) {
    if (std::ranges::find(all, name) == all.end()) all.push_back(name);
  }
  return all;
}

const std::map<Capability, std::string>& instead() {
  static const std::map<Capability, std::string> lines = {
      {Capability::host_memory, "own kernels: operators of LibTorch and fused ones of the back end"},
      {Capability::float64, "float64: counts are exact as int64, statistics in float32 on the device or on the host"},
      {Capability::bfloat16_gru, "at::gru: an explicit cell of linear, sigmoid and tanh"},
      {Capability::bfloat16_logsumexp, "logsumexp: maxima and sums in float32, tile by tile"},
      {Capability::zero_size_launches, "operators on nothing: left out"},
      {Capability::event_timing, "times of events: the host's clock after a synchronisation"},
      {Capability::graph_capture, "captured graphs: launches one by one"},
      {Capability::reduce_float64, "float64 in collectives: int64 counts, float32 sums"},
      {Capability::single_rank_collectives, "collectives of one rank: left out"},
      {Capability::coalesced_collectives, "coalesced collectives: one call each"},
      {Capability::split_groups, "splitting of groups: a new group on a prefix of the store"}};
  return lines;
}

EnvironmentNote general_note(const char* variable, const char* meaning, std::string advice = {}) {
  return {variable, meaning, std::move(advice)};
}

std::vector<EnvironmentNote> general_notes() {
  const auto value = [](const char* name) -> std::string {
    const char* text = std::getenv(name);
    return text == nullptr ? "" : text;
  };
  std::vector<EnvironmentNote> notes = {
      general_note(
          "OMP_NUM_THREADS", "threads of an operator",
          value("OMP_NUM_THREADS").empty() ? "set it to cores / ranks when several ranks share a machine" : ""),
      general_note("OMP_WAIT_POLICY", "what waiting threads do",
                   value("OMP_WAIT_POLICY") == "passive" ? "" : "set it to passive: spinning threads slow each other"),
      general_note("GOMP_SPINCOUNT", "how often a waiting thread looks before it sleeps"),
      general_note("THP_MEM_ALLOC_ENABLE", "pages of 2 MiB for large tensors",
                   value("THP_MEM_ALLOC_ENABLE") == "1" ? "" : "set it to 1: small pages make large tensors slow"),
      general_note("PACER_KERNELS", "instruction set of own kernels",
                   value("PACER_KERNELS").empty() ? "" : "unset it unless you compare kernels"),
      general_note("PACER_KERNEL_IMPL", "auto or plain operators"),
      general_note("PACER_ATTENTION_IMPL", "the same for attention"),
      general_note("PACER_PLUGIN_DIR", "where back ends are looked for"),
      general_note("PACER_DISABLED_SITES", "waits that are left out, for debugging",
                   value("PACER_DISABLED_SITES").empty() ? "" : "unset it: results may be wrong"),
      general_note("LOCAL_RANK", "which device of the machine is this rank's"),
      general_note("RANK", "this process among all ranks"),
      general_note("WORLD_SIZE", "number of ranks"),
      general_note("MASTER_ADDR", "where ranks meet"),
      general_note("MASTER_PORT", "and the port"),
  };
  return notes;
}

OrderedJson note_json(const EnvironmentNote& note) {
  const char* value = std::getenv(note.variable.c_str());
  return {{"variable", note.variable},
          {"value", value == nullptr ? OrderedJson() : OrderedJson(value)},
          {"meaning", note.meaning},
          {"advice", note.advice}};
}

std::string join(const OrderedJson& list) {
  std::string text;
  for (const auto& item : list) text += (text.empty() ? "" : ", ") + item.get<std::string>();
  return text.empty() ? "none" : text;
}

}  // namespace

OrderedJson describe(const std::string& product) {
  OrderedJson entry = {{"product", product}, {"state", "absent"}, {"summary", ""}, {"note", ""}};
  try {
    const Plugin* plugin = find_back_end(product);
    if (plugin == nullptr) {
      entry["note"] = open_plugin(product) == nullptr ? "no plugin libpacer_" + product + ".so"
                                                      : "for the devices of another library";
      if (open_plugin(product) != nullptr) entry["state"] = "collectives";
      return entry;
    }
    entry["summary"] = plugin->summary;
    if (plugin->simulated) {
      entry["state"] = "simulated";
      entry["note"] = "used only when it is asked for: --device " + product;
      return entry;
    }
    const Availability found = examine(product);
    entry["note"] = found.note;
    if (!found.there()) return entry;
    entry["state"] = "works";
    entry["devices"] = OrderedJson::array();
    for (const int index : found.devices) {
      const auto [available, total] =
          device_allocator(c10::Device(plugin->torch_type, static_cast<c10::DeviceIndex>(index)))
              .getMemoryInfo(static_cast<c10::DeviceIndex>(index));
      entry["devices"].push_back({{"index", index}, {"free_mb", megabytes(available)}, {"total_mb", megabytes(total)}});
    }
  } catch (const std::exception& failure) {
    entry["state"] = "broken";
    entry["note"] = first_line(failure.what());
  }
  return entry;
}

OrderedJson back_ends_report(const std::string& program) {
  OrderedJson list = OrderedJson::array();
  for (const std::string& product : products()) {
    OrderedJson entry = answer_of({program, "doctor", "--describe", product});
    if (entry.contains("died"))
      entry = {{"product", product}, {"state", "broken"}, {"summary", ""}, {"note", entry["died"]}};
    list.push_back(std::move(entry));
  }
  return list;
}

OrderedJson probe_report(const Runtime& runtime, const std::string& capability) {
  for (const Probe& probe : probes()) {
    if (name_of(probe.capability) != capability) continue;
    const ProbeResult result = run_probe(runtime, probe);
    return {{"capability", capability}, {"works", result.works}, {"message", result.message}};
  }
  return {{"capability", capability}, {"works", nullptr}, {"message", "there is no probe for it"}};
}

OrderedJson device_report(const Runtime& runtime, const std::string& program, bool probe) {
  const MemoryInfo memory = runtime.memory();
  OrderedJson report = {
      {"name", runtime.name()},
      {"product", runtime.product()},
      {"torch", runtime.device().str()},
      {"simulated", runtime.plugin() != nullptr && runtime.plugin()->simulated},
      {"memory", {{"free_mb", megabytes(memory.available_bytes)}, {"total_mb", megabytes(memory.total_bytes)}}},
      {"kernel_impl", name_of(kernel_paths().kernels)},
      {"attention_impl", name_of(kernel_paths().attention)},
      {"own_kernels", own_kernels(runtime.device())}};
  std::set<Capability> probed;
  for (const Probe& one : probes()) probed.insert(one.capability);
  OrderedJson capabilities = OrderedJson::object(), fallbacks = OrderedJson::array();
  for (const Capability capability : all_capabilities()) {
    const std::string name = name_of(capability);
    OrderedJson entry = {{"promised", runtime.can(capability)}, {"works", nullptr}, {"message", ""}};
    // Without collectives of its own the device's tensors go through host memory: there is nothing to try.
    const bool pointless = capability == Capability::single_rank_collectives && collectives_name(runtime).empty();
    if (probe && probed.contains(capability) && !pointless) {
      const OrderedJson answer = answer_of({program, "doctor", "--device", runtime.name(), "--probe", name});
      // A process that died has not shown that it works.
      entry["works"] = answer.contains("died") ? OrderedJson(false) : answer["works"];
      entry["message"] = answer.contains("died") ? answer["died"] : answer["message"];
    }
    if (!runtime.can(capability)) {
      if (const auto line = instead().find(capability); line != instead().end()) fallbacks.push_back(line->second);
    }
    capabilities[name] = std::move(entry);
  }
  report["capabilities"] = std::move(capabilities);
  report["fallbacks"] = std::move(fallbacks);

  OrderedJson table = OrderedJson::object();
  for (const Collective collective : all_collectives()) {
    OrderedJson dtypes = OrderedJson::array();
    const auto found = runtime.capabilities().collectives.find(collective);
    if (found != runtime.capabilities().collectives.end()) {
      for (const at::ScalarType dtype : found->second) dtypes.push_back(toString(dtype));
    }
    table[name_of(collective)] = std::move(dtypes);
  }
  report["collectives"] = {{"name", collectives_name(runtime)}, {"dtypes", std::move(table)}};
  OrderedJson switches = OrderedJson::array();
  if (runtime.plugin() != nullptr && runtime.plugin()->switches != nullptr) {
    for (const Switch& one : runtime.plugin()->switches()) {
      switches.push_back({{"name", one.name}, {"value", one.value}, {"meaning", one.meaning}});
    }
  }
  report["switches"] = std::move(switches);
  report["versions"] = {{"pacer", version()}, {"torch", TORCH_VERSION}, {"threads", at::get_num_threads()}};
  report["machine"] = to_json(this_machine());
  return report;
}

OrderedJson environment_report(const Runtime& runtime) {
  OrderedJson list = OrderedJson::array();
  for (const EnvironmentNote& note : general_notes()) list.push_back(note_json(note));
  std::set<std::string> told;
  for (const std::string& product : products()) {
    const Plugin* plugin = nullptr;
    try {
      plugin = find_back_end(product);
    } catch (const std::exception&) {
      continue;  // a broken library has its own row in the list of back ends
    }
    if (plugin == nullptr || plugin->environment == nullptr) continue;
    if (plugin->simulated && plugin != runtime.plugin()) continue;
    for (EnvironmentNote note : plugin->environment()) {
      // Nobody needs advice about variables of a device that is not used.
      if (plugin != runtime.plugin()) note.advice.clear();
      if (told.insert(note.variable).second) list.push_back(note_json(note));
    }
  }
  return list;
}

std::string doctor_text(const OrderedJson& report) {
  std::ostringstream out;
  const auto field = [](const OrderedJson& json, const char* name) { return json.at(name).get<std::string>(); };
  if (report.contains("back_ends")) {
    out << "Back ends\n";
    for (const auto& entry : report.at("back_ends")) {
      out << "  " << std::left << std::setw(10) << field(entry, "product") << std::setw(12) << field(entry, "state")
          << field(entry, "note") << "\n";
      if (!entry.contains("devices")) continue;
      for (const auto& one : entry.at("devices")) {
        out << "      " << one.at("index") << ": " << one.at("free_mb") << " of " << one.at("total_mb") << " MB free\n";
      }
    }
  }
  const OrderedJson& device = report.at("device");
  out << "\nDevice " << field(device, "name") << (device.at("simulated") == true ? " (simulated)" : "") << "\n  "
      << device.at("memory").at("free_mb") << " of " << device.at("memory").at("total_mb") << " MB free; "
      << (device.at("own_kernels") == true ? "own kernels" : "operators of LibTorch") << "; collectives: "
      << (field(device.at("collectives"), "name").empty() ? "through host memory"
                                                          : field(device.at("collectives"), "name"))
      << "\n\nCapabilities               promised  works\n";
  for (const auto& [name, entry] : device.at("capabilities").items()) {
    const auto yes_no = [](const OrderedJson& value) { return value.is_null() ? "-" : value == true ? "yes" : "no"; };
    const bool differs = !entry.at("works").is_null() && entry.at("works") != entry.at("promised");
    out << "  " << std::left << std::setw(25) << name << std::setw(10) << yes_no(entry.at("promised")) << std::setw(6)
        << yes_no(entry.at("works")) << (differs ? "  DIFFERS " : "  ") << field(entry, "message") << "\n";
  }
  out << "\nDtypes of collectives\n";
  for (const auto& [name, dtypes] : device.at("collectives").at("dtypes").items()) {
    out << "  " << std::left << std::setw(16) << name << join(dtypes) << "\n";
  }
  if (!device.at("fallbacks").empty()) out << "\nDone instead of what it cannot do\n";
  for (const auto& line : device.at("fallbacks")) out << "  " << line.get<std::string>() << "\n";
  if (!device.at("switches").empty()) out << "\nSwitches\n";
  for (const auto& one : device.at("switches")) {
    out << "  " << std::left << std::setw(28) << field(one, "name") << std::setw(4) << one.at("value") << "  "
        << field(one, "meaning") << "\n";
  }
  out << "\nEnvironment\n";
  for (const auto& row : report.at("environment")) {
    const OrderedJson& value = row.at("value");
    if (value.is_null() && field(row, "advice").empty()) continue;
    out << "  " << field(row, "variable") << (value.is_null() ? " (unset)" : "=" + value.get<std::string>()) << ": "
        << field(row, "meaning") << (field(row, "advice").empty() ? "" : "; " + field(row, "advice")) << "\n";
  }
  const OrderedJson& versions = device.at("versions");
  out << "\nPacer " << field(versions, "pacer") << ", LibTorch " << field(versions, "torch") << ", "
      << versions.at("threads") << " threads; " << field(device.at("machine"), "processor") << ", "
      << field(device.at("machine"), "system") << "\n";
  return out.str();
}

}  // namespace pacer::device
