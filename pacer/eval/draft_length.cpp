#include "pacer/eval/draft_length.h"

#include <algorithm>

#include "pacer/base/numbers.h"

namespace pacer::eval {
namespace {

struct RoundTimes {
  double propose_s, verify_s, host_s;
};

std::optional<RoundTimes> round_times(const Totals& totals) {
  if (totals.counts.rounds == 0) return std::nullopt;
  const auto rounds = static_cast<double>(totals.counts.rounds);
  const decode::PhaseTimes& times = totals.times;
  return RoundTimes{times.draft.cpu / rounds, times.verify.cpu / rounds, (times.sample.cpu + times.other.cpu) / rounds};
}

std::string milliseconds(double seconds) { return format_fixed(1e3 * seconds, 2); }

}  // namespace

std::optional<LengthAdvice> advise_length(const Summary& summary) {
  if (!summary.speculative) return std::nullopt;
  const decode::AcceptanceCounts& counts = summary.speculative->counts;
  const std::optional<RoundTimes> round = round_times(*summary.speculative);
  // The first token of every text comes from its prompt.
  const int64_t steps = summary.plain.new_tokens - summary.turns;
  if (!round || counts.proposed == 0 || steps <= 0) return std::nullopt;
  const decode::PhaseTimes& plain = summary.plain.times;
  LengthAdvice advice;
  advice.plain_step_s = (plain.verify.cpu + plain.sample.cpu + plain.other.cpu) / static_cast<double>(steps);
  advice.propose_s = round->propose_s, advice.verify_s = round->verify_s, advice.host_s = round->host_s;
  if (advice.plain_step_s <= 0.0) return std::nullopt;

  const double measured = static_cast<double>(counts.proposed) / static_cast<double>(counts.rounds);
  const double per_draft = (advice.verify_s + advice.host_s - advice.plain_step_s) / measured;
  DraftLength length;
  advice.lengths.push_back(length);
  advice.best = length;
  for (const std::optional<double>& survival : counts.survival()) {
    if (!survival) break;
    ++length.drafts;
    length.acceptance_length += *survival;
    // A pass over more rows is never cheaper, whatever the clock said.
    const double pass = advice.plain_step_s + std::max(0.0, per_draft) * static_cast<double>(length.drafts);
    length.speed_up = length.acceptance_length * advice.plain_step_s / (pass + advice.propose_s);
    advice.lengths.push_back(length);
    if (length.speed_up > advice.best.speed_up) advice.best = length;
  }
  return advice;
}

std::optional<LengthAdvice> advise_length(const std::vector<LengthRun>& runs) {
  const auto longest = std::max_element(runs.begin(), runs.end(),
                                        [](const LengthRun& a, const LengthRun& b) { return a.drafts < b.drafts; });
  return longest == runs.end() ? std::nullopt : advise_length(summarise(longest->tasks));
}

OrderedJson advice_json(const LengthAdvice& advice) {
  OrderedJson lengths = OrderedJson::array();
  for (const DraftLength& length : advice.lengths) {
    lengths.push_back(
        {{"drafts", length.drafts}, {"acceptance_length", length.acceptance_length}, {"speedup_cpu", length.speed_up}});
  }
  return {{"drafts", advice.best.drafts},
          {"speedup_cpu", advice.best.speed_up},
          {"plain_step_ms", 1e3 * advice.plain_step_s},
          {"round_ms",
           {{"propose", 1e3 * advice.propose_s}, {"verify", 1e3 * advice.verify_s}, {"host", 1e3 * advice.host_s}}},
          {"lengths", std::move(lengths)}};
}

std::string advice_text(const LengthAdvice& advice) {
  std::string text = "a round: draft " + milliseconds(advice.propose_s) + ", verify " + milliseconds(advice.verify_s) +
                     ", host " + milliseconds(advice.host_s) +
                     " CPU ms; a plain step: " + milliseconds(advice.plain_step_s) + " CPU ms; ";
  if (advice.best.drafts == 0) return text + "no gain expected from this draft at any length\n";
  return text + "best by these costs: " + std::to_string(advice.best.drafts) + " drafts a round, " +
         format_fixed(advice.best.speed_up, 2) + " times as fast, prompts left out\n";
}

OrderedJson length_runs_json(const std::vector<LengthRun>& runs) {
  OrderedJson all = OrderedJson::array();
  for (const LengthRun& run : runs) {
    const Summary summary = summarise(run.tasks);
    if (!summary.speculative) continue;
    OrderedJson one = {{"drafts", run.drafts},
                       {"acceptance_length", nullptr},
                       {"speedup_cpu", summary.speculative->cpu->value},
                       {"speedup_wall", summary.speculative->wall->value},
                       {"identical", nullptr},
                       {"round_ms", nullptr}};
    if (const auto length = summary.speculative->counts.acceptance_length()) one["acceptance_length"] = *length;
    if (summary.speculative->identical) one["identical"] = *summary.speculative->identical;
    if (const auto round = round_times(*summary.speculative)) {
      one["round_ms"] = {
          {"propose", 1e3 * round->propose_s}, {"verify", 1e3 * round->verify_s}, {"host", 1e3 * round->host_s}};
    }
    all.push_back(std::move(one));
  }
  return all;
}

std::string length_runs_table(const std::vector<LengthRun>& runs) {
  std::vector<std::vector<std::string>> rows = {
      {"drafts a round", "acceptance", "speed-up", "5 to 95 %", "draft ms", "verify ms", "host ms", "same text"}};
  for (const LengthRun& run : runs) {
    const Summary summary = summarise(run.tasks);
    if (!summary.speculative) continue;
    const Totals& fast = *summary.speculative;
    const auto length = fast.counts.acceptance_length();
    const auto round = round_times(fast);
    const auto ms = [&](double RoundTimes::* part) { return round ? milliseconds((*round).*part) : "-"; };
    rows.push_back({std::to_string(run.drafts), length ? format_fixed(*length, 2) : "-",
                    format_fixed(fast.cpu->value, 2),
                    format_fixed(fast.cpu->low, 2) + " to " + format_fixed(fast.cpu->high, 2),
                    ms(&RoundTimes::propose_s), ms(&RoundTimes::verify_s), ms(&RoundTimes::host_s),
                    !fast.identical   ? "-"
                    : *fast.identical ? "yes"
                                      : "no"});
  }
  return text_table(rows);
}

}  // namespace pacer::eval
