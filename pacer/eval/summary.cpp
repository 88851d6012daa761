#include "pacer/eval/summary.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "pacer/base/error.h"
#include "pacer/base/random.h"

namespace pacer::eval {
namespace {

// Linear interpolation between order statistics; values sorted, at least one.
double quantile(const std::vector<double>& values, double share) {
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

std::string label_of(const TurnResult& turn) {
  return turn.turn == 0 ? turn.id : turn.id + "/" + std::to_string(turn.turn + 1);
}

void add(Totals& totals, const RunFigures& figures) {
  totals.new_tokens += figures.new_tokens;
  totals.times += figures.times;
  totals.counts.add(figures.counts);
}

using Pick = const std::optional<Comparison>& (*)(const TurnResult&);

// Totals of the turns that have this way of decoding; the plain seconds of the same turns stand against it.
std::optional<Totals> totals_of(const std::vector<const TurnResult*>& turns, Pick pick) {
  Totals totals;
  std::vector<double> plain_cpu, plain_wall, cpu, wall;
  int64_t plain_tokens = 0, lengths = 0;
  double length_sum = 0.0;
  for (const TurnResult* turn : turns) {
    const std::optional<Comparison>& comparison = pick(*turn);
    if (!comparison) continue;
    add(totals, comparison->figures);
    plain_tokens += turn->plain.new_tokens;
    const decode::Seconds plain = turn->plain.times.total(), other = comparison->figures.times.total();
    plain_cpu.push_back(plain.cpu), plain_wall.push_back(plain.wall);
    cpu.push_back(other.cpu), wall.push_back(other.wall);
    if (const auto length = comparison->figures.counts.acceptance_length()) length_sum += *length, ++lengths;
    if (comparison->identical) {
      totals.identical = totals.identical.value_or(true) && *comparison->identical;
      if (!*comparison->identical) totals.differing.push_back(label_of(*turn));
    }
  }
  if (cpu.empty()) return std::nullopt;
  if (std::ranges::any_of(plain_cpu, [](double seconds) { return seconds > 0; })) {
    totals.cpu = speed_up(plain_cpu, cpu);
    totals.wall = speed_up(plain_wall, wall);
  }
  if (totals.cpu && plain_tokens > 0) {
    totals.cpu_per_token =
        totals.cpu->value * static_cast<double>(totals.new_tokens) / static_cast<double>(plain_tokens);
  }
  if (lengths > 0) totals.mean_acceptance_length = length_sum / static_cast<double>(lengths);
  return totals;
}

}  // namespace

SpeedUp speed_up(const std::vector<double>& plain_seconds, const std::vector<double>& other_seconds) {
  const size_t n = plain_seconds.size();
  if (n == 0 || other_seconds.size() != n) {
    throw Error(ErrorKind::bug, "speed-up of " + std::to_string(n) + " against " +
                                    std::to_string(other_seconds.size()) + " measurements");
  }
  constexpr uint64_t kResamplings = 1000;
  const auto sum = [](const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); };
  SpeedUp result;
  result.value = sum(plain_seconds) / sum(other_seconds);
  std::vector<double> single;
  for (size_t i = 0; i < n; ++i) single.push_back(plain_seconds[i] / other_seconds[i]);
  std::sort(single.begin(), single.end());
  result.smallest = single.front(), result.median = quantile(single, 0.5), result.largest = single.back();

  std::vector<double> resampled;
  for (uint64_t r = 0; r < kResamplings; ++r) {
    const RandomStream random(0, Purpose::bootstrap, r);
    double plain = 0.0, other = 0.0;
    for (size_t i = 0; i < n; ++i) {
      const auto chosen = static_cast<size_t>(random.below(i, n));
      plain += plain_seconds[chosen], other += other_seconds[chosen];
    }
    resampled.push_back(plain / other);
  }
  std::sort(resampled.begin(), resampled.end());
  result.low = quantile(resampled, 0.05), result.high = quantile(resampled, 0.95);
  return result;
}

Summary summarise(const std::vector<TaskResult>& tasks) {
  // Sums of seconds and the resampling see the turns in the order of their names.
  std::vector<std::pair<const TaskResult*, const TurnResult*>> named;
  for (const TaskResult& task : tasks) {
    for (const TurnResult& turn : task.turns) named.emplace_back(&task, &turn);
  }
  std::sort(named.begin(), named.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first->name, a.second->id, a.second->turn) <
           std::tie(b.first->name, b.second->id, b.second->turn);
  });

  Summary summary;
  std::vector<const TurnResult*> turns;
  std::set<std::pair<std::string, std::string>> prompts;
  for (const auto& [task, turn] : named) {
    turns.push_back(turn);
    prompts.emplace(task->name, turn->id);
    summary.prompt_tokens += turn->prompt_tokens;
    summary.prompt_tokens_known += turn->plain.prompt_known;
    add(summary.plain, turn->plain);
    summary.calibration.add(turn->calibration);
  }
  summary.prompts = static_cast<int64_t>(prompts.size());
  summary.turns = static_cast<int64_t>(turns.size());
  summary.speculative =
      totals_of(turns, [](const TurnResult& turn) -> const std::optional<Comparison>& { return turn.speculative; });
  summary.paced =
      totals_of(turns, [](const TurnResult& turn) -> const std::optional<Comparison>& { return turn.paced; });
  summary.lookup =
      totals_of(turns, [](const TurnResult& turn) -> const std::optional<Comparison>& { return turn.lookup; });
  return summary;
}

}  // namespace pacer::eval
