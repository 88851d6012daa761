// Data-parallel training on the ranks that a launcher started: a step of one way, or two ways in turns.
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"
#include "pacer/bench/benches.h"
#include "pacer/bench/dist_prediction.h"
#include "pacer/bench/dist_training.h"
#include "pacer/bench/paired.h"
#include "pacer/parallel/modelled_link.h"

namespace pacer::bench {
namespace {

constexpr auto kTimeout = std::chrono::minutes(10);

// "" for one way alone; else what stands against what.
std::string comparison(const Work& work) { return work.has("compare") ? work.text("compare") : std::string(); }

std::vector<double> summed_over_ranks(parallel::World& world, const std::vector<double>& values) {
  at::Tensor sums = at::zeros({static_cast<int64_t>(values.size())}, at::kDouble);
  std::copy(values.begin(), values.end(), sums.mutable_data_ptr<double>());
  world.all().sum(sums, "bench").wait();
  const double* begin = sums.const_data_ptr<double>();
  return {begin, begin + values.size()};
}

// Every step of one way: wall seconds of this rank, CPU seconds of all ranks together.
struct Steps {
  std::vector<double> wall, cpu, optimizer_wall, optimizer_cpu, orthogonalise_cpu;
  void add(const StepCost& cost, double orthogonalise) {
    wall.push_back(cost.wall), cpu.push_back(cost.cpu);
    optimizer_wall.push_back(cost.optimizer_wall), optimizer_cpu.push_back(cost.optimizer_cpu);
    orthogonalise_cpu.push_back(orthogonalise);
  }
  void sum_over_ranks(parallel::World& world) {
    for (auto* values : {&cpu, &optimizer_cpu, &orthogonalise_cpu}) *values = summed_over_ranks(world, *values);
  }
};

OrderedJson messages_of(parallel::World& world, DistTraining& training, double& total) {
  OrderedJson bytes = OrderedJson::object();
  total = 0;
  // Ranks may count different messages: the sums run over the names of all.
  std::vector<std::string> names;
  const auto own = training.traffic();
  for (const auto& [name, traffic] : own) names.push_back(name);
  std::string joined;
  for (const std::string& name : names) joined += name + "\n";
  for (int64_t rank = 0; rank < world.size() && world.size() > 1; ++rank) {
    const std::string key = "bench/messages/" + std::to_string(rank);
    if (rank == world.rank()) world.set(key, joined);
    std::string rest = world.get(key);
    for (size_t end; (end = rest.find('\n')) != std::string::npos; rest.erase(0, end + 1)) {
      names.push_back(rest.substr(0, end));
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const std::string& name : names) {
    if (name.starts_with("bench/")) continue;
    const auto found = own.find(name);
    const double sum = summed_over_ranks(world, {found == own.end() ? 0.0 : found->second.bytes})[0];
    bytes[name] = sum / static_cast<double>(world.size());
    total += sum / static_cast<double>(world.size());
  }
  return bytes;
}

OrderedJson predicted(const parallel::PredictionInput& input, double measured_s) {
  const parallel::Prediction prediction = parallel::predict(input);
  OrderedJson line = prediction.to_json().at("seconds");
  double bytes = 0;
  for (const auto& [name, moved] : prediction.bytes) bytes += moved;
  line["measured_step"] = measured_s;
  line["over_measured"] = prediction.step_s / measured_s;
  line["bytes_per_rank_and_step"] = bytes;
  line["rates"] = {{"bytes_per_s", input.collective_bytes_per_s},
                   {"link_latency_s", input.link_latency_s},
                   {"products_per_s", input.products_per_s},
                   {"memory_bytes_per_s", input.memory_bytes_per_s},
                   {"micro_batch_s", input.micro_batch_s}};
  return line;
}

Result one_way(const Work& work, const Settings& settings, parallel::World& world) {
  const DistSetting setting = dist_setting(work, settings.scalar_type());
  const auto training = DistTraining::make(world, setting);
  Steps steps;
  Result result;
  int64_t skipped = settings.warmup.value_or(work.integer("warmup_steps"));
  result.timings = time_work(work, settings, [&] {
    const StepCost cost = training->step();
    if (skipped-- <= 0) steps.add(cost, 0);
  });
  double sent = 0;
  const OrderedJson messages = messages_of(world, *training, sent);
  steps.sum_over_ranks(world);
  result.timings.wall = steps.wall;
  result.timings.cpu = steps.cpu;
  result.loss = training->loss();
  result.work = {{"world", world.size()},
                 {"optimizer_s", median(steps.optimizer_wall)},
                 {"optimizer_cpu_s", median(steps.optimizer_cpu)},
                 {"bytes_per_rank_and_step", sent},
                 {"messages", messages}};
  if (const auto sizes = training->prediction_input()) {
    const MeasuredInputs inputs = measure_rates(world, *training, setting.storage, *sizes);
    result.work["predicted"] = predicted(inputs.cpu, median(steps.cpu) / static_cast<double>(world.size()));
    result.work["predicted_wall"] = predicted(inputs.wall, median(steps.wall));
  }
  return result;
}

OrderedJson to_json(const MedianInterval& interval) {
  return {{"median", interval.median}, {"low", interval.low}, {"high", interval.high}};
}

// `first` and `second` in turns, which of them comes first in turns, too.
Result in_turns(const Work& work, const Settings& settings, parallel::World& world, const DistSetting& first,
                const DistSetting& second, bool without_orthogonalising) {
  const std::unique_ptr<DistTraining> trainings[] = {DistTraining::make(world, first),
                                                     DistTraining::make(world, second)};
  Steps steps[2];
  int64_t pair = -settings.warmup.value_or(work.integer("warmup_steps"));
  Result result;
  result.timings = time_work(work, settings, [&] {
    for (size_t turn = 0; turn < 2; ++turn) {
      const size_t which = (static_cast<size_t>(pair + 1000) + turn) % 2;
      const StepCost cost = trainings[which]->step();
      const double orthogonalise = without_orthogonalising && which == 0 ? trainings[which]->orthogonalise_cpu() : 0.0;
      if (pair >= 0) steps[which].add(cost, orthogonalise);
    }
    ++pair;
  });
  for (Steps& one : steps) one.sum_over_ranks(world);
  result.timings.wall = steps[0].wall;
  result.timings.cpu = steps[0].cpu;
  std::vector<double> over;
  for (size_t i = 0; i < steps[0].cpu.size(); ++i) {
    over.push_back((steps[0].cpu[i] - steps[0].orthogonalise_cpu[i]) / steps[1].cpu[i] - 1);
  }
  result.work = {{"world", world.size()},
                 {"pairs", over.size()},
                 {"cpu_s", median(steps[0].cpu)},
                 {"against_cpu_s", median(steps[1].cpu)},
                 {"optimizer_cpu_s", median(steps[0].optimizer_cpu)},
                 {"against_optimizer_cpu_s", median(steps[1].optimizer_cpu)}};
  if (without_orthogonalising) result.work["orthogonalise_cpu_s"] = median(steps[0].orthogonalise_cpu);
  result.work["cost_over"] = to_json(median_interval(over));
  return result;
}

// The share of a link's time that a step hides, on a link whose messages take `link_share` of a step without one.
Result hidden_share(const Work& work, const Settings& settings) {
  const int64_t ranks = work.integer("world");
  parallel::ImaginedWorld imagined(ranks, parallel::LinkModel{});
  DistSetting setting = dist_setting(work, settings.scalar_type());
  setting.settle = false;
  const auto together = DistTraining::make(imagined.world(), setting);
  setting.overlap = false;
  const auto apart = DistTraining::make(imagined.world(), setting);
  together->step();
  std::vector<double> alone;
  for (int i = 0; i < 3; ++i) alone.push_back(together->step().wall);
  double bytes = 0;
  for (const auto& [name, traffic] : together->traffic()) bytes += traffic.bytes;
  parallel::LinkModel link;
  link.latency_s = work.number("link_latency_us") * 1e-6;
  link.bytes_per_s = bytes / (work.number("link_share") * median(alone));
  imagined.set_link(link);
  // Steps on end, as in a training: what a step publishes travels behind the forward pass of the next.
  const int64_t steps = settings.repeat * settings.steps.value_or(work.integer("steps"));
  const auto run = [&](DistTraining& training, std::vector<double>& wall, std::vector<double>& cpu) {
    training.step();
    training.settle();
    imagined.clear_times();
    for (int64_t i = 0; i < steps; ++i) {
      const StepCost cost = training.step();
      wall.push_back(cost.wall), cpu.push_back(cost.cpu);
    }
    training.settle();
    return imagined.times();
  };
  Result result;
  const parallel::LinkTimes times = run(*together, result.timings.wall, result.timings.cpu);
  result.timings.peak_rss_mb = static_cast<double>(resident().peak) * 1e-6;
  std::vector<double> synchronous, synchronous_cpu;
  const parallel::LinkTimes waiting = run(*apart, synchronous, synchronous_cpu);
  result.work = {{"world", ranks},
                 {"bytes_per_rank_and_step", bytes},
                 {"link_bytes_per_s", link.bytes_per_s},
                 {"without_link_s", median(alone)},
                 {"link_s", times.link_s / static_cast<double>(steps)},
                 {"waited_s", times.waited_s / static_cast<double>(steps)},
                 {"hidden", 1 - times.waited_s / times.link_s},
                 {"synchronous_s", median(synchronous)},
                 {"synchronous_hidden", 1 - waiting.waited_s / waiting.link_s}};
  return result;
}

}  // namespace

int64_t dist_ranks(const Work& work) { return comparison(work) == "overlap" ? 1 : work.integer("world"); }

Result dist(const Work& work, const Settings& settings, device::Runtime&) {
  const std::string compare = comparison(work);
  if (compare == "overlap") return hidden_share(work, settings);
  const parallel::LaunchEnvironment environment = parallel::read_launch_environment();
  if (environment.world != work.integer("world")) {
    const std::string ranks = std::to_string(work.integer("world"));
    throw Error(
        ErrorKind::usage,
        "dist." + work.name() + " is a training of " + ranks + " ranks, here is " + std::to_string(environment.world),
        "leave out --in-process, or: pacer launch -n " + ranks + " -- pacer bench dist --in-process --case " +
            work.name());
  }
  parallel::World world(environment, {.timeout = kTimeout});
  if (compare.empty()) return one_way(work, settings, world);
  const DistSetting first = dist_setting(work, settings.scalar_type());
  DistSetting second = first;
  DistSetting exact = first;
  exact.exact = true;
  if (compare == "adamw") return second.optimizer = "adamw", in_turns(work, settings, world, first, second, true);
  if (compare == "replicated") {
    return second.optimizer = "muon_replicated", in_turns(work, settings, world, first, second, false);
  }
  if (compare == "fast") return in_turns(work, settings, world, exact, second, false);
  throw Error(ErrorKind::format,
              "dist." + work.name() + ".compare is '" + compare + "', allowed: adamw, replicated, fast, overlap");
}

}  // namespace pacer::bench
