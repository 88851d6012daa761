// One function per bench, each in the file of its name, and what they share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "pacer/bench/result.h"
#include "pacer/bench/works.h"
#include "pacer/device/runtime.h"

namespace pacer::bench {

// What the caller chose besides the work.
struct Settings {
  std::string dtype = "bf16";  // "f32" | "bf16"
  int threads = 1;
  int64_t repeat = 1;                                // times as many timed steps as the work says
  std::optional<int64_t> warmup{}, steps{};          // in place of the work's
  std::filesystem::path model{};                     // in place of the random model, the package or the tokenizer
  std::filesystem::path works{};                     // the file of definitions, empty: the shipped one
  std::filesystem::path program = "/proc/self/exe";  // pacer, for benches that start it
  std::filesystem::path text{};                      // in place of the shipped text
  bool check = false;                                // dspark_train, gguf: compare with a reference

  at::ScalarType scalar_type() const;  // throws Error{usage}
};

// time_steps with the steps of work and settings.
Timings time_work(const Work& work, const Settings& settings, const std::function<void()>& step);

// `threads` are in use already. Each throws Error{format} for a work that lacks a field, Error{usage} for settings that
// the bench cannot honour.
Result dspark_train(const Work& work, const Settings& settings, device::Runtime& runtime);
Result prefill(const Work& work, const Settings& settings, device::Runtime& runtime);
Result decode(const Work& work, const Settings& settings, device::Runtime& runtime);
Result gguf(const Work& work, const Settings& settings, device::Runtime& runtime);
Result specdec(const Work& work, const Settings& settings, device::Runtime& runtime);
Result tokenizer(const Work& work, const Settings& settings, device::Runtime& runtime);
Result coldstart(const Work& work, const Settings& settings, device::Runtime& runtime);
Result muon_ns(const Work& work, const Settings& settings, device::Runtime& runtime);
Result muon_step(const Work& work, const Settings& settings, device::Runtime& runtime);
Result fixed_order(const Work& work, const Settings& settings, device::Runtime& runtime);
Result roofline(const Work& work, const Settings& settings, device::Runtime& runtime);
// On every rank of a world of dist_ranks(work); what it returns counts on rank 0.
Result dist(const Work& work, const Settings& settings, device::Runtime& runtime);
int64_t dist_ranks(const Work& work);

struct Bench {
  std::string name;
  Result (*run)(const Work&, const Settings&, device::Runtime&);
  int64_t (*ranks)(const Work&) = nullptr;  // how many processes a case takes; null: one
};

const std::vector<Bench>& all_benches();

// Whether a work computes anything in settings.dtype.
bool uses_dtype(const Work& work);

// Throws Error{usage}: a bench of the file of works that this version cannot run, with those it can.
const Bench& find_bench(const std::string& name);

}  // namespace pacer::bench
