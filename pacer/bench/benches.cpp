#include "pacer/bench/benches.h"

#include "pacer/base/error.h"
#include "pacer/base/nearest.h"
#include "pacer/train/draft_setup.h"

namespace pacer::bench {

at::ScalarType Settings::scalar_type() const { return train::parse_dtype(dtype); }

Timings time_work(const Work& work, const Settings& settings, const std::function<void()>& step) {
  if (settings.repeat < 1) {
    throw Error(ErrorKind::usage, "repeat is " + std::to_string(settings.repeat) + ", allowed is 1 or more");
  }
  return time_steps(settings.warmup.value_or(work.integer("warmup_steps")),
                    settings.repeat * settings.steps.value_or(work.integer("steps")), step);
}

const std::vector<Bench>& all_benches() {
  static const std::vector<Bench> benches = {
      {"dspark_train", dspark_train},
      {"prefill", prefill},
      {"decode", decode},
      {"gguf", gguf},
      {"specdec", specdec},
      {"tokenizer", tokenizer},
      {"coldstart", coldstart},
      {"roofline", roofline},
      {"muon_ns", muon_ns},
      {"muon_step", muon_step},
      {"fixed_order", fixed_order},
      {"dist", dist, dist_ranks},
  };
  return benches;
}

bool uses_dtype(const Work& work) {
  // The forward and backward beside muon_step are f32 whatever is asked for.
  if (work.bench() == "muon_step" && work.text("optimizer") == "none") return false;
  if (work.bench() == "dist" && work.text("optimizer") == "adamw") return false;
  return work.bench() != "tokenizer" && !(work.bench() == "coldstart" && work.name() == "help");
}

const Bench& find_bench(const std::string& name) {
  std::vector<std::string> names;
  for (const Bench& bench : all_benches()) {
    if (bench.name == name) return bench;
    names.push_back(bench.name);
  }
  throw Error(ErrorKind::usage, "this version cannot measure '" + name + "', it can: " + quoted_list(names));
}

}  // namespace pacer::bench
