#include "pacer/bench/models.h"

#include <string>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include "pacer/base/error.h"
#include "pacer/target/transformer.h"

namespace pacer::bench {
namespace {

class TablesTarget final : public target::Target {
 public:
  TablesTarget(target::ModelConfig config, at::Tensor embedding, at::Tensor head)
      : config_(std::move(config)), embedding_(std::move(embedding)), head_(std::move(head)) {}

  const target::ModelConfig& config() const override { return config_; }
  at::ScalarType dtype() const override { return embedding_.scalar_type(); }
  at::Tensor embedding_weight() const override { return embedding_; }
  at::Tensor head_weight() const override { return head_; }
  uint64_t weight_bytes() const override {
    return static_cast<uint64_t>(embedding_.nbytes() + (head_.is_same(embedding_) ? 0 : head_.nbytes()));
  }

  std::unique_ptr<target::KvCache> new_cache(int64_t) const override { no_layers(); }
  target::TargetOutput forward(const target::TokenBatch&, const target::Taps&,
                               const std::vector<target::KvCache*>&) const override {
    no_layers();
  }
  at::Tensor logits(const at::Tensor&) const override { no_layers(); }
  at::Tensor weight(const std::string&) const override { no_layers(); }

 private:
  [[noreturn]] static void no_layers() {
    throw Error(ErrorKind::bug, "a training step asked for the target's layers, which this measurement leaves out");
  }

  target::ModelConfig config_;
  at::Tensor embedding_, head_;
};

at::Tensor random_weight(const std::string& name, const std::vector<int64_t>& shape, at::ScalarType dtype,
                         Values& values) {
  if (name.ends_with("norm.weight")) return at::ones(shape, dtype);
  return values.normal(shape, 0.02, dtype);
}

}  // namespace

Values::Values(uint64_t seed) : generator_(at::detail::createCPUGenerator(seed)) {}

at::Tensor Values::normal(const std::vector<int64_t>& shape, double deviation, at::ScalarType dtype) {
  return at::empty(shape, at::kFloat).normal_(0.0, deviation, generator_).to(dtype);
}

std::vector<int64_t> Values::tokens(int64_t count, int64_t vocabulary) {
  const at::Tensor ids = at::empty({count}, at::kLong).random_(0, vocabulary, generator_);
  const int64_t* data = ids.const_data_ptr<int64_t>();
  return {data, data + count};
}

std::shared_ptr<const target::Target> random_target(const target::ModelConfig& config, at::ScalarType dtype,
                                                    Values& values) {
  target::WeightMap weights;
  for (const auto& [name, shape] : target::weight_shapes(config)) {
    weights[name] = random_weight(name, shape, dtype, values);
  }
  return std::make_shared<target::Transformer>(config, std::move(weights), dtype);
}

std::shared_ptr<const target::Target> given_or_random(const Settings& settings, const target::ModelConfig& config,
                                                      Values& values, device::Runtime& runtime) {
  if (settings.model.empty()) return random_target(config, settings.scalar_type(), values);
  return target::Target::load(settings.model, settings.scalar_type(), runtime);
}

std::shared_ptr<const target::Target> random_tables(const target::ModelConfig& config, at::ScalarType dtype,
                                                    Values& values) {
  const std::vector<int64_t> shape = {config.vocab_size, config.hidden_size};
  const at::Tensor embedding = values.normal(shape, 0.02, dtype);
  const at::Tensor head = config.tied_embeddings ? embedding : values.normal(shape, 0.02, dtype);
  return std::make_shared<TablesTarget>(config, embedding, head);
}

int64_t matrix_elements(const target::ModelConfig& config) {
  int64_t elements = config.vocab_size * config.hidden_size;
  for (const auto& [name, shape] : target::weight_shapes(config)) {
    if (shape.size() == 2 && name.starts_with("model.layers.")) elements += shape[0] * shape[1];
  }
  return elements;
}

}  // namespace pacer::bench
