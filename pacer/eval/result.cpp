#include <algorithm>
#include <string>
#include <utility>

#include "pacer/base/numbers.h"
#include "pacer/eval/summary.h"

namespace pacer::eval {
namespace {

OrderedJson seconds_json(const decode::Seconds& seconds) { return {{"cpu_s", seconds.cpu}, {"wall_s", seconds.wall}}; }

OrderedJson times_json(const decode::PhaseTimes& times) {
  return {{"total", seconds_json(times.total())}, {"prefill", seconds_json(times.prefill)},
          {"draft", seconds_json(times.draft)},   {"verify", seconds_json(times.verify)},
          {"sample", seconds_json(times.sample)}, {"other", seconds_json(times.other)}};
}

template <typename T>
OrderedJson json_of(const std::optional<T>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

OrderedJson rate(double amount, double seconds) { return seconds > 0.0 ? OrderedJson(amount / seconds) : nullptr; }

OrderedJson spread_json(const SpeedUp& speed_up) {
  return {{"low", speed_up.low},
          {"high", speed_up.high},
          {"smallest", speed_up.smallest},
          {"median", speed_up.median},
          {"largest", speed_up.largest}};
}

OrderedJson run_json(int64_t new_tokens, const decode::PhaseTimes& times) {
  const decode::Seconds total = times.total();
  return {{"new_tokens", new_tokens},
          {"tokens_per_s", rate(static_cast<double>(new_tokens), total.wall)},
          {"tokens_per_cpu_s", rate(static_cast<double>(new_tokens), total.cpu)},
          {"time", times_json(times)}};
}

OrderedJson totals_json(const Totals& totals) {
  OrderedJson json;
  json["acceptance_length"] = json_of(totals.counts.acceptance_length());
  json["acceptance_length_mean_of_texts"] = json_of(totals.mean_acceptance_length);
  const auto value = [](const std::optional<SpeedUp>& speed_up) {
    return speed_up ? OrderedJson(speed_up->value) : OrderedJson(nullptr);
  };
  const auto spread = [](const std::optional<SpeedUp>& speed_up) {
    return speed_up ? spread_json(*speed_up) : OrderedJson(nullptr);
  };
  json["speedup_cpu"] = value(totals.cpu);
  json["speedup_wall"] = value(totals.wall);
  json["speedup_cpu_spread"] = spread(totals.cpu);
  json["speedup_wall_spread"] = spread(totals.wall);
  json["speedup_cpu_per_token"] = json_of(totals.cpu_per_token);
  json["identical"] = json_of(totals.identical);
  json["differing"] = totals.differing;
  json["acceptance"] = OrderedJson(totals.counts.to_json());
  json.update(run_json(totals.new_tokens, totals.times));
  return json;
}

OrderedJson summary_json(const Summary& summary) {
  OrderedJson json;
  json["prompts"] = summary.prompts;
  json["turns"] = summary.turns;
  json["prompt_tokens"] = summary.prompt_tokens;
  json["prompt_tokens_known"] = summary.prompt_tokens_known;
  json["plain"] = run_json(summary.plain.new_tokens, summary.plain.times);
  json["speculative"] = summary.speculative ? totals_json(*summary.speculative) : OrderedJson(nullptr);
  json["paced"] = summary.paced ? totals_json(*summary.paced) : OrderedJson(nullptr);
  json["lookup"] = summary.lookup ? totals_json(*summary.lookup) : OrderedJson(nullptr);
  json["calibration"] = summary.calibration.empty() ? OrderedJson(nullptr) : OrderedJson(summary.calibration.to_json());
  return json;
}

OrderedJson comparison_json(const Comparison& comparison) {
  OrderedJson json;
  json["new_tokens"] = comparison.figures.new_tokens;
  json["finish"] = decode::finish_name(comparison.figures.finish);
  json["rounds"] = comparison.figures.counts.rounds;
  json["acceptance_length"] = json_of(comparison.figures.counts.acceptance_length());
  json["cpu_s"] = comparison.figures.times.total().cpu;
  json["wall_s"] = comparison.figures.times.total().wall;
  json["identical"] = json_of(comparison.identical);
  if (const auto& difference = comparison.difference) {
    json["difference"] = {{"position", difference->position},
                          {"plain_token", difference->plain},
                          {"speculative_token", difference->speculative},
                          {"margin", difference->margin},
                          {"disagreement", difference->disagreement}};
  }
  return json;
}

OrderedJson turn_json(const TurnResult& turn) {
  OrderedJson json;
  json["id"] = turn.id;
  json["turn"] = turn.turn;
  json["prompt_tokens"] = turn.prompt_tokens;
  json["plain"] = {{"new_tokens", turn.plain.new_tokens},
                   {"finish", decode::finish_name(turn.plain.finish)},
                   {"cpu_s", turn.plain.times.total().cpu},
                   {"wall_s", turn.plain.times.total().wall}};
  json["speculative"] = turn.speculative ? comparison_json(*turn.speculative) : OrderedJson(nullptr);
  json["paced"] = turn.paced ? comparison_json(*turn.paced) : OrderedJson(nullptr);
  json["lookup"] = turn.lookup ? comparison_json(*turn.lookup) : OrderedJson(nullptr);
  json["text"] = turn.text;
  return json;
}

std::string fixed(const std::optional<double>& value, int digits = 2) {
  return value ? format_fixed(*value, digits) : "-";
}

std::string yes_no(const std::optional<bool>& value) { return !value ? "-" : *value ? "yes" : "no"; }

using Row = std::vector<std::string>;

std::optional<double> per_second(const Totals& totals) {
  const double wall = totals.times.total().wall;
  if (wall <= 0.0) return std::nullopt;
  return static_cast<double>(totals.new_tokens) / wall;
}

// Columns of a way of decoding that was not measured on any task are left out.
struct Columns {
  bool draft, paced, lookup;
};

Row head_of(const Columns& columns) {
  Row row = {"task", "texts", "plain tok/s"};
  if (columns.draft) {
    row.insert(row.end(), {"acceptance", "speed-up", "5 to 95 %", "wall", "draft tok/s", "same text"});
  }
  if (columns.paced) row.insert(row.end(), {"paced acc.", "paced speed-up", "idle rounds", "same text"});
  if (columns.lookup) row.insert(row.end(), {"lookup acc.", "lookup speed-up"});
  return row;
}

Row row_of(const std::string& name, const Summary& summary, const Columns& columns) {
  Row row = {name, std::to_string(summary.turns), fixed(per_second(summary.plain), 1)};
  const auto length = [](const std::optional<Totals>& way) {
    return fixed(way ? way->counts.acceptance_length() : std::nullopt);
  };
  const auto speed_up = [](const std::optional<Totals>& way) {
    return fixed(way && way->cpu ? std::optional(way->cpu->value) : std::nullopt);
  };
  if (columns.draft) {
    const auto& fast = summary.speculative;
    std::string spread = "-";
    if (fast && fast->cpu) spread = format_fixed(fast->cpu->low, 2) + " to " + format_fixed(fast->cpu->high, 2);
    row.insert(row.end(),
               {length(fast), speed_up(fast), spread,
                fixed(fast && fast->wall ? std::optional(fast->wall->value) : std::nullopt),
                fixed(fast ? per_second(*fast) : std::nullopt, 1), yes_no(fast ? fast->identical : std::nullopt)});
  }
  if (columns.paced) {
    const auto& paced = summary.paced;
    std::string idle = "-";
    if (paced && paced->counts.rounds > 0) {
      idle = format_percent(static_cast<double>(paced->counts.idle) / static_cast<double>(paced->counts.rounds));
    }
    row.insert(row.end(), {length(paced), speed_up(paced), idle, yes_no(paced ? paced->identical : std::nullopt)});
  }
  if (columns.lookup) row.insert(row.end(), {length(summary.lookup), speed_up(summary.lookup)});
  return row;
}

const char* name_of(PaceUse use) { return use == PaceUse::off ? "off" : use == PaceUse::on ? "on" : "only"; }

}  // namespace

OrderedJson result_json(const Setup& setup, const MeasureOptions& options, const std::vector<TaskResult>& tasks) {
  OrderedJson json;
  json["schema"] = "pacer.evaluation/1";
  json["target"] = setup.target;
  json["dtype"] = setup.dtype;
  json["threads"] = setup.threads;
  json["draft"] =
      setup.draft.empty() ? OrderedJson(nullptr) : OrderedJson({{"path", setup.draft}, {"method", setup.draft_method}});
  const decode::SamplingOptions& sampling = options.sampling;
  json["settings"] = {{"temperature", sampling.temperature},
                      {"top_k", sampling.top_k},
                      {"top_p", sampling.top_p},
                      {"max_new_tokens", sampling.max_new_tokens},
                      {"stop_ids", sampling.stop_ids},
                      {"seed", sampling.seed},
                      {"confidence_threshold", options.confidence_threshold},
                      {"drafts", options.most_drafts},
                      {"max_turns", options.max_turns},
                      {"system", options.system},
                      {"lookup_tokens", options.lookup ? options.lookup_tokens : 0},
                      {"pace", name_of(options.pace)}};
  OrderedJson by_task = OrderedJson::object();
  for (const TaskResult& task : tasks) {
    OrderedJson entry = summary_json(summarise({task}));
    OrderedJson turns = OrderedJson::array();
    for (const TurnResult& turn : task.turns) turns.push_back(turn_json(turn));
    entry["results"] = std::move(turns);
    by_task[task.name] = std::move(entry);
  }
  json["tasks"] = std::move(by_task);
  json["total"] = summary_json(summarise(tasks));
  return json;
}

std::string text_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const Row& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string table;
  for (const Row& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string padding(widths[c] - row[c].size(), ' ');
      line += (c == 0 ? row[c] + padding : "  " + padding + row[c]);
    }
    table += line + "\n";
  }
  return table;
}

std::string result_table(const std::vector<TaskResult>& tasks) {
  const Summary all = summarise(tasks);
  const Columns columns{all.speculative.has_value(), all.paced.has_value(), all.lookup.has_value()};
  std::vector<Row> rows = {head_of(columns)};
  for (const TaskResult& task : tasks) rows.push_back(row_of(task.name, summarise({task}), columns));
  if (tasks.size() > 1) rows.push_back(row_of("all", all, columns));
  return text_table(rows);
}

}  // namespace pacer::eval
