#include "pacer/train/state.h"

#include "pacer/base/error.h"

namespace pacer::train {
namespace {

constexpr int kVersion = 1;

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json terms_json(const draft::LossTerms& terms) {
  return {{"ce_sum", terms.ce_sum},
          {"ce_weight", terms.ce_weight},
          {"l1_sum", terms.l1_sum},
          {"l1_weight", terms.l1_weight},
          {"confidence_sum", terms.confidence_sum},
          {"confidence_weight", terms.confidence_weight},
          {"accept_sum", terms.accept_sum},
          {"accept_count", terms.accept_count},
          {"correct", terms.correct},
          {"tau_sum", terms.tau_sum},
          {"blocks", terms.blocks},
          {"label_kept", terms.label_kept},
          {"label_total", terms.label_total},
          {"confidence_abs_error_sum", terms.confidence_abs_error_sum}};
}

draft::LossTerms terms_from(const Json& json) {
  draft::LossTerms terms;
  json.at("ce_sum").get_to(terms.ce_sum);
  json.at("ce_weight").get_to(terms.ce_weight);
  json.at("l1_sum").get_to(terms.l1_sum);
  json.at("l1_weight").get_to(terms.l1_weight);
  json.at("confidence_sum").get_to(terms.confidence_sum);
  json.at("confidence_weight").get_to(terms.confidence_weight);
  json.at("accept_sum").get_to(terms.accept_sum);
  json.at("accept_count").get_to(terms.accept_count);
  json.at("correct").get_to(terms.correct);
  json.at("tau_sum").get_to(terms.tau_sum);
  json.at("blocks").get_to(terms.blocks);
  json.at("label_kept").get_to(terms.label_kept);
  json.at("label_total").get_to(terms.label_total);
  json.at("confidence_abs_error_sum").get_to(terms.confidence_abs_error_sum);
  return terms;
}

std::optional<double> number_or_none(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional<double>(json.get<double>());
}

}  // namespace

Json TrainState::to_json() const {
  return {{"schema", "pacer-train-state"},
          {"version", kVersion},
          {"step", step},
          {"rows", rows},
          {"tokens", tokens},
          {"blocks", blocks},
          {"terms", terms_json(terms)},
          {"terms_steps", terms_steps},
          {"first_loss", or_null(first_loss)},
          {"last_loss", or_null(last_loss)},
          {"validation_tau", or_null(validation_tau)},
          {"best_tau", or_null(best_tau)},
          {"best_step", best_step}};
}

TrainState TrainState::from_json(const Json& json, const std::string& place) {
  if (!json.is_object() || json.value("schema", "") != "pacer-train-state" || json.value("version", 0) != kVersion) {
    throw Error(ErrorKind::format, place + ": not the state of a training run, version " + std::to_string(kVersion),
                "was it written by another version of Pacer?");
  }
  TrainState state;
  try {
    json.at("step").get_to(state.step);
    json.at("rows").get_to(state.rows);
    json.at("tokens").get_to(state.tokens);
    json.at("blocks").get_to(state.blocks);
    state.terms = terms_from(json.at("terms"));
    json.at("terms_steps").get_to(state.terms_steps);
    state.first_loss = number_or_none(json.at("first_loss"));
    state.last_loss = number_or_none(json.at("last_loss"));
    state.validation_tau = number_or_none(json.at("validation_tau"));
    state.best_tau = number_or_none(json.at("best_tau"));
    json.at("best_step").get_to(state.best_step);
  } catch (const Json::exception& error) {
    throw Error(ErrorKind::format, place + ": " + error.what(), "was it written by another version of Pacer?");
  }
  return state;
}

}  // namespace pacer::train
