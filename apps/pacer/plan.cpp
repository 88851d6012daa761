#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/pacer/commands.h"
#include "pacer/base/files.h"
#include "pacer/base/numbers.h"
#include "pacer/formats/tensor_source.h"
#include "pacer/optim/routes.h"
#include "pacer/parallel/prediction.h"
#include "pacer/parallel/timeline.h"

namespace pacer::cli {
namespace {

struct Arguments {
  std::filesystem::path model;
  std::filesystem::path picture;
  std::string mesh = "1x8", accumulation = "reduce_each", unshard = "broadcast", weights = "bf16";
  parallel::PredictionInput input;
  double link_gb = 25, link_us = 20, products_t = 200, memory_gb = 2000;
};

std::vector<parallel::PlanParameter> parameters_of(const std::filesystem::path& model) {
  const auto source = formats::open_safetensors(model);
  std::vector<std::pair<std::string, std::vector<int64_t>>> shapes;
  for (const std::string& name : source->names()) shapes.emplace_back(name, source->tensor(name).shape);
  optim::RouteOptions routes{.matrix = optim::Route::muon, .rest = optim::Route::adamw};
  std::vector<parallel::PlanParameter> parameters;
  for (const auto& routed : optim::route_parameters(shapes, routes)) {
    // Tables of a vocabulary are what no rank should hold alone.
    const bool table = routed.route != optim::Route::muon && routed.sizes.size() > 1;
    parameters.push_back({routed.name, routed.sizes, false, table ? optim::Route::sharded_adamw : routed.route});
  }
  return parameters;
}

// In the order in which a language model reads them: embedding, layers by number, the rest. A model without a head
// reads its embedding again at the end.
void arrange_calls(parallel::PredictionInput& input) {
  const auto place_of = [](const parallel::PlanParameter& parameter) {
    const auto layer = parallel::layer_of(parameter.name);
    if (layer) return std::pair(1, std::stoll(layer->substr(layer->rfind('.') + 1)));
    return std::pair(parameter.name.find("embed") != std::string::npos ? 0 : 2, 0LL);
  };
  std::stable_sort(input.parameters.begin(), input.parameters.end(),
                   [&](const auto& a, const auto& b) { return place_of(a) < place_of(b); });
  bool head = false;
  for (size_t i = 0; i < input.parameters.size(); ++i) {
    if (i == 0 || place_of(input.parameters[i]) != place_of(input.parameters[i - 1])) input.calls.emplace_back();
    input.calls.back().push_back(input.parameters[i].name);
    head = head || input.parameters[i].name.find("head") != std::string::npos;
  }
  if (head || input.parameters.empty()) return;
  for (const parallel::PlanParameter& parameter : input.parameters) {
    if (place_of(parameter).first == 0) input.calls.back().push_back(parameter.name);
  }
}

// "layers.3" for "model.layers.3", "lm_head" for "lm_head.weight".
std::string short_name(std::string name) {
  if (name.starts_with("model.")) name.erase(0, 6);
  if (name.ends_with(".weight")) name.erase(name.size() - 7);
  return name;
}

std::string megabytes(double bytes) { return format_fixed(bytes * 1e-6, 1) + " MB"; }

std::string text_of(const parallel::Prediction& prediction, const Arguments& arguments) {
  std::string text = "mesh " + prediction.plan.mesh.text() + ": the most loaded owner has " +
                     format_fixed(prediction.plan.imbalance(), 3) + " times the mean\n\nmemory of the fullest rank\n";
  for (const auto& [name, bytes] : {std::pair{"masters", prediction.masters},
                                    {"states", prediction.states},
                                    {"weights", prediction.weights},
                                    {"gradients", prediction.gradients}}) {
    text += "  " + std::string(name) + "  " + megabytes(bytes) + "\n";
  }
  text += "\nmessages per rank and step\n";
  for (const auto& [name, bytes] : prediction.bytes) {
    text += "  " + name + "  " + megabytes(bytes) + " in " + std::to_string(prediction.calls.at(name)) + "\n";
  }
  return text + "\nseconds: orthogonalise " + format_fixed(prediction.orthogonalise_s, 4) + ", adamw " +
         format_fixed(prediction.adamw_s, 4) + ", copies " + format_fixed(prediction.copies_s, 4) + ", link " +
         format_fixed(prediction.link_s, 4) + ", step " + format_fixed(prediction.step_s, 4) + "\nassumed: link " +
         format_fixed(arguments.link_gb, 1) + " GB/s and " + format_fixed(arguments.link_us, 1) + " us, " +
         format_fixed(arguments.products_t, 1) + " T multiply-adds/s, memory " + format_fixed(arguments.memory_gb, 0) +
         " GB/s, forward and backward " + format_fixed(arguments.input.micro_batch_s, 4) +
         " s; messages hide behind forward and backward\n";
}

void run(Arguments& arguments, const Context& context) {
  parallel::PredictionInput& input = arguments.input;
  input.mesh = parallel::parse_mesh(arguments.mesh);
  input.reduction.accumulation = parallel::parse_accumulation(arguments.accumulation);
  input.unshard = parallel::parse_unshard(arguments.unshard);
  input.weight_dtype = input.message_dtype = arguments.weights == "bf16" ? at::kBFloat16 : at::kFloat;
  input.link_bytes_per_s = arguments.link_gb * 1e9;
  input.link_latency_s = arguments.link_us * 1e-6;
  input.products_per_s = arguments.products_t * 1e12;
  input.memory_bytes_per_s = arguments.memory_gb * 1e9;
  input.parameters = parameters_of(arguments.model);
  arrange_calls(input);
  if (!arguments.picture.empty()) {
    const parallel::PlannedSchedule schedule = parallel::planned_schedule(input);
    std::vector<std::string> names;
    for (const std::string& unit : schedule.units) names.push_back(short_name(unit));
    write_file(arguments.picture, parallel::timeline_svg(parallel::make_timeline(schedule.input, input.mesh), names));
  }
  const parallel::Prediction prediction = parallel::predict(input);
  context.json ? context.print_json(prediction.to_json()) : context.print(text_of(prediction, arguments));
}

}  // namespace

void add_plan(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("plan", "Predict balance, memory, bytes and time of a training on a cluster");
  command->add_option("--model", arguments->model, "Folder or file of safetensors with the model's shapes")->required();
  command->add_option("--mesh", arguments->mesh, "replicate x shard")->capture_default_str();
  command->add_option("--micro-batches", arguments->input.reduction.micro_batches, "Per rank and step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--accumulation", arguments->accumulation, "reduce_each, no_sync or replicate_gate")
      ->capture_default_str();
  command->add_flag("--exact", arguments->input.reduction.exact, "Bits that do not depend on the mesh");
  command->add_flag("--free-weights", arguments->input.free_weights, "Whole weights only around their use");
  command->add_option("--unshard", arguments->unshard, "broadcast or all_gather")->capture_default_str();
  command->add_option("--weights", arguments->weights, "bf16 or f32")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str();
  command->add_option("--link", arguments->link_gb, "GB/s of each rank, each way")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--latency", arguments->link_us, "Microseconds of a message")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--products", arguments->products_t, "10^12 multiply-adds a second while orthogonalising")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--memory", arguments->memory_gb, "GB/s of a rank's memory")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--micro-batch", arguments->input.micro_batch_s, "Seconds of one forward and backward")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--schedule-svg", arguments->picture,
                      "Also draw what a rank does and which messages travel meanwhile");
  context.add_common(*command, {"pacer plan --model Llama-3.1-8B --mesh 64x8 --free-weights --link 50"});
  command->callback([arguments, &context] { run(*arguments, context); });
}

}  // namespace pacer::cli
