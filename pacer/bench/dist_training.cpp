#include "pacer/bench/dist_training.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>

#include "pacer/base/clocks.h"
#include "pacer/base/error.h"
#include "pacer/bench/models.h"
#include "pacer/optim/optimizer.h"
#include "pacer/target/autograd_forward.h"
#include "pacer/train/head_loss.h"
#include "pacer/train/language_model.h"

namespace pacer::bench {
namespace {

constexpr double kRate = 1e-4, kClip = 1.0;  // small: values do not matter, and must stay finite over many steps
constexpr double kMomentum = 0.95;

// The same weights and tokens on every rank.
class Model {
 public:
  explicit Model(const DistSetting& setting) : config_(setting.config) {
    Values values(setting.seed);
    for (const auto& [name, shape] : target::weight_shapes(config_)) {
      weights_[name] =
          name.ends_with("norm.weight") ? at::ones(shape, at::kFloat) : values.normal(shape, 0.02, at::kFloat);
      weights_[name].requires_grad_(true);
    }
    all_ = weights_;
    if (config_.tied_embeddings) all_["lm_head.weight"] = weights_.at("model.embed_tokens.weight");
    pieces_.emplace(config_, all_);
    train::TokenRows rows;
    for (int64_t i = 0; i < setting.batch; ++i) rows.push_back(values.tokens(setting.seq + 1, config_.vocab_size));
    tokens_.emplace(rows);
    turns_ = pieces_->rope_rows(tokens_->inputs);
  }

  const std::map<std::string, at::Tensor>& weights() const { return weights_; }
  int64_t tokens() const { return tokens_->labels.numel(); }
  std::vector<std::vector<std::string>> places() const { return pieces_->parameters_by_place(); }
  size_t calls() const { return static_cast<size_t>(config_.layers) + 2; }

  std::vector<parallel::Segment> segments() {
    const auto reads = places();
    std::vector<parallel::Segment> segments;
    for (size_t call = 0; call < calls(); ++call) {
      segments.push_back(
          {"call " + std::to_string(call), reads[call],
           [this, call](const parallel::Tensors& in) -> parallel::Tensors { return {forward(call, in)}; }});
    }
    return segments;
  }
  at::Tensor loss() const {
    parallel::Tensors values;
    for (size_t call = 0; call < calls(); ++call) values = {forward(call, values)};
    return values[0];
  }

 private:
  at::Tensor forward(size_t call, const parallel::Tensors& in) const {
    if (call == 0) return pieces_->embed(tokens_->inputs);
    if (call + 1 == calls()) return train::head_loss(pieces_->normed(in[0]), pieces_->head(), tokens_->labels);
    return pieces_->layer(static_cast<int64_t>(call) - 1, in[0], tokens_->inputs, turns_);
  }

  target::ModelConfig config_;
  std::map<std::string, at::Tensor> weights_;
  target::WeightMap all_;
  std::optional<target::DifferentiableModel> pieces_;
  std::optional<train::LabelledTokens> tokens_;
  nn::RopeRows turns_;
};

optim::RouteOptions routes_of(const DistSetting& setting) {
  optim::RouteOptions routes;
  if (setting.optimizer != "adamw") routes.matrix = optim::Route::muon;
  // Tables of the vocabulary are what no rank should hold alone.
  if (setting.fsdp) routes.rules.push_back({.pattern = "*embed*", .route = optim::Route::sharded_adamw});
  return routes;
}

std::vector<optim::RoutedParameter> routed(const Model& model, const DistSetting& setting) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> shapes;
  for (const auto& [name, weight] : model.weights()) shapes.emplace_back(name, weight.sizes().vec());
  return optim::route_parameters(shapes, routes_of(setting));
}

optim::MuonOptions muon_of(const DistSetting& setting) {
  optim::MuonOptions muon;
  muon.momentum = kMomentum;
  muon.newton_schulz.storage = setting.storage;
  return muon;
}

void clear_gradients(const Model& model) {
  for (const auto& [name, weight] : model.weights()) at::Tensor(weight).mutable_grad() = at::Tensor();
}

void run_forward_backward(const Model& model) {
  model.loss().backward();
  clear_gradients(model);
}

class EngineTraining : public DistTraining {
 public:
  EngineTraining(parallel::World& world, const DistSetting& setting)
      : world_(world), setting_(setting), model_(setting) {
    std::vector<parallel::EngineParameter> parameters;
    for (const optim::RoutedParameter& one : routed(model_, setting_)) {
      parameters.push_back({.name = one.name, .weight = model_.weights().at(one.name), .route = one.route});
    }
    std::vector<size_t> calls(model_.calls());
    std::iota(calls.begin(), calls.end(), size_t{0});
    parallel::EngineOptions options;
    options.mesh = setting_.mesh(world.size());
    options.reduction = {
        .micro_batches = setting_.micro_batches, .accumulation = setting_.accumulation, .exact = setting_.exact};
    options.update.muon = muon_of(setting_);
    options.plan.cost_model = parallel::CostModel::route;
    options.free_weights = setting_.fsdp;
    options.overlap = setting_.overlap;
    options.clip = kClip;
    engine_ = std::make_unique<parallel::Engine>(world, std::move(parameters), model_.segments(), calls, options);
  }

  StepCost step() override {
    world_.all().barrier("bench");
    for (parallel::ProcessGroup* group : groups()) group->clear_traffic();
    const Stopwatch whole;
    for (int64_t k = 0; k < setting_.micro_batches; ++k) {
      parallel::Tensors values;
      for (size_t call = 0; call < model_.calls(); ++call) values = engine_->run(call, values);
      engine_->backward(values[0], model_.tokens());
    }
    const Stopwatch optimizer;
    loss_ = engine_->step({.muon = kRate, .adamw = kRate}).loss;
    StepCost cost{.optimizer_wall = optimizer.wall(), .optimizer_cpu = optimizer.cpu()};
    if (setting_.settle) engine_->settle();
    cost.wall = whole.wall();
    cost.cpu = whole.cpu();
    return cost;
  }
  void settle() override { engine_->settle(); }
  double loss() const override { return loss_; }

  std::map<std::string, parallel::Traffic> traffic() override {
    std::map<std::string, parallel::Traffic> sum;
    for (parallel::ProcessGroup* group : groups()) {
      for (const auto& [name, traffic] : group->traffic()) {
        sum[name].calls += traffic.calls;
        sum[name].bytes += traffic.bytes;
      }
    }
    return sum;
  }

  double orthogonalise_cpu() override {
    using Kind = parallel::Engine::StateTensor::Kind;
    const optim::NewtonSchulzOptions options = muon_of(setting_).newton_schulz;
    std::vector<at::Tensor> matrices;
    for (const auto& tensor : engine_->state_tensors()) {
      if (tensor.kind != Kind::momentum) continue;
      if (const auto run = engine_->held(tensor)) matrices.push_back(run->values.view(tensor.shape));
    }
    const Stopwatch watch;
    for (const at::Tensor& matrix : matrices) optim::newton_schulz(matrix, options);
    return watch.cpu();
  }

  void forward_backward() override {
    // Freed weights are only there inside of the engine: a second model of the same sizes stands in.
    if (setting_.fsdp && !whole_) whole_.emplace(setting_);
    run_forward_backward(whole_ ? *whole_ : model_);
  }

  std::optional<parallel::PredictionInput> prediction_input() override {
    parallel::PredictionInput input;
    for (const optim::RoutedParameter& one : routed(model_, setting_)) {
      input.parameters.push_back({one.name, one.sizes, false, one.route});
    }
    const parallel::EngineOptions& options = engine_->options();
    input.mesh = options.mesh;
    input.plan = options.plan;
    input.reduction = options.reduction;
    input.free_weights = options.free_weights;
    input.calls = model_.places();
    return input;
  }

 private:
  std::vector<parallel::ProcessGroup*> groups() {
    std::vector<parallel::ProcessGroup*> groups = {engine_->groups().row.get(), engine_->groups().column.get()};
    groups.push_back(&world_.all());
    return groups;
  }

  parallel::World& world_;
  DistSetting setting_;
  Model model_;
  std::optional<Model> whole_;
  std::unique_ptr<parallel::Engine> engine_;
  double loss_ = 0;
};

// What trainers without owners do: one all-reduce per layer, then everything on every rank.
class RedundantTraining : public DistTraining {
 public:
  RedundantTraining(parallel::World& world, const DistSetting& setting)
      : world_(world), setting_(setting), model_(setting) {
    optim::OptimizerOptions options;
    options.routes = routes_of(setting_);
    options.muon = muon_of(setting_);
    options.muon_weight_decay = parallel::UpdateOptions{}.muon_weight_decay;
    options.adamw = parallel::UpdateOptions{}.adamw;
    optimizer_ = std::make_unique<optim::Optimizer>(model_.weights(), options);
    std::map<std::string, std::vector<at::Tensor>> by_layer;
    for (const auto& [name, weight] : model_.weights()) {
      by_layer[parallel::layer_of(name).value_or(name)].push_back(weight);
    }
    for (auto& [name, weights] : by_layer) buckets_.push_back(std::move(weights));
  }

  StepCost step() override {
    world_.all().barrier("bench");
    world_.all().clear_traffic();
    const Stopwatch whole;
    double sum = 0;
    for (int64_t k = 0; k < setting_.micro_batches; ++k) {
      const at::Tensor loss = model_.loss();
      loss.backward();
      sum += loss.item<double>();
    }
    std::vector<at::Tensor> flat;
    std::vector<parallel::Pending> pending;
    for (const auto& bucket : buckets_) {
      std::vector<at::Tensor> lines;
      for (const at::Tensor& weight : bucket) lines.push_back(weight.grad().view({-1}));
      flat.push_back(lines.size() == 1 ? lines.front() : at::cat(lines));
      pending.push_back(world_.all().sum(flat.back(), "gradients"));
    }
    for (parallel::Pending& message : pending) message.wait();
    const Stopwatch optimizer;
    for (size_t i = 0; i < buckets_.size(); ++i) {
      int64_t offset = 0;
      for (const at::Tensor& weight : buckets_[i]) {
        at::Tensor(weight).mutable_grad() = flat[i].narrow(0, offset, weight.numel()).view(weight.sizes());
        offset += weight.numel();
      }
    }
    const double scale = 1.0 / static_cast<double>(world_.size() * setting_.micro_batches * model_.tokens());
    double squares = 0;
    for (const at::Tensor& bucket : flat) squares += bucket.square().sum().item<double>();
    const double norm = std::sqrt(squares) * scale;
    optimizer_->step(kRate, scale * std::min(1.0, kClip / (norm + 1e-6)));
    clear_gradients(model_);
    loss_ = sum * scale * static_cast<double>(world_.size());
    StepCost cost{.optimizer_wall = optimizer.wall(), .optimizer_cpu = optimizer.cpu()};
    cost.wall = whole.wall();
    cost.cpu = whole.cpu();
    return cost;
  }
  void settle() override {}
  double loss() const override { return loss_; }
  std::map<std::string, parallel::Traffic> traffic() override { return world_.all().traffic(); }
  double orthogonalise_cpu() override {
    std::vector<at::Tensor> matrices;
    for (const optim::RoutedParameter& one : optimizer_->routed()) {
      if (one.route == optim::Route::muon) matrices.push_back(model_.weights().at(one.name).detach());
    }
    const Stopwatch watch;
    for (const at::Tensor& matrix : matrices) optim::newton_schulz(matrix, muon_of(setting_).newton_schulz);
    return watch.cpu();
  }
  void forward_backward() override { run_forward_backward(model_); }
  std::optional<parallel::PredictionInput> prediction_input() override { return std::nullopt; }

 private:
  parallel::World& world_;
  DistSetting setting_;
  Model model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<std::vector<at::Tensor>> buckets_;  // weights that travel together
  double loss_ = 0;
};

}  // namespace

parallel::Mesh DistSetting::mesh(int64_t ranks) const {
  parallel::Mesh mesh;
  (fsdp ? mesh.shard : mesh.replicate) = ranks;
  return mesh;
}

DistSetting dist_setting(const Work& work, at::ScalarType storage) {
  const auto one_of = [&](const std::string& field, const std::vector<std::string>& allowed) {
    const std::string value = work.text(field);
    if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
      std::string list;
      for (const std::string& name : allowed) list += (list.empty() ? "" : ", ") + name;
      throw Error(ErrorKind::format, "dist." + work.name() + "." + field + " is '" + value + "', allowed: " + list);
    }
    return value;
  };
  DistSetting setting;
  setting.config = work.model("model");
  setting.config.layers = work.integer("draft_layers");
  if (work.has("vocab")) setting.config.vocab_size = work.integer("vocab");
  setting.batch = work.integer("batch");
  setting.seq = work.integer("seq");
  // In the works plain "muon" is the form without owners.
  setting.optimizer = one_of("optimizer", {"adamw", "muon", "muon_owner"});
  if (setting.optimizer == "muon") setting.optimizer = "muon_replicated";
  setting.fsdp = one_of("wrap", {"ddp", "fsdp"}) == "fsdp";
  setting.micro_batches = work.integer_or("accumulation", 1);
  setting.storage = storage;
  setting.seed = work.seed();
  if (one_of("dtype_grad", {"f32"}); setting.fsdp && setting.optimizer == "muon_replicated") {
    throw Error(ErrorKind::format, "dist." + work.name() + ": without owners there is only wrap ddp");
  }
  return setting;
}

std::unique_ptr<DistTraining> DistTraining::make(parallel::World& world, const DistSetting& setting) {
  if (setting.optimizer == "muon_replicated") return std::make_unique<RedundantTraining>(world, setting);
  return std::make_unique<EngineTraining>(world, setting);
}

}  // namespace pacer::bench
