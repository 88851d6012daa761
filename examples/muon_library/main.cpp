// Trains a torch::nn model with Muon on as many ranks as it is started as:
//
//   pacer launch -n 2 -- muon_library
//   torchrun --no-python --nproc-per-node 2 muon_library
//
// A step has four micro-batches, whatever the number of ranks (1, 2 or 4), and sums are exact: each of these commands
// prints the same digits.
#include <torch/torch.h>

#include <cstdio>

#include <pacer/parallel/engine.h>

namespace {

// A smooth function of 16 numbers; micro-batch l of step s always has the same rows.
struct Batch {
  Batch(int64_t step, int64_t leaf) {
    auto random = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(1000 * step + leaf));
    x = torch::randn({32, 16}, random);
    y = (x * torch::linspace(-1, 1, 16)).sum(1, true).sin() + 0.1 * x.square().sum(1, true);
  }
  torch::Tensor x, y;
};

}  // namespace

int main() try {
  torch::set_num_threads(1);
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(16, 64), torch::nn::Tanh(), torch::nn::Linear(64, 64),
                              torch::nn::Tanh(), torch::nn::Linear(64, 1));

  namespace parallel = pacer::parallel;
  parallel::World world(parallel::read_launch_environment(), {});
  std::vector<parallel::EngineParameter> parameters;
  for (const auto& item : model->named_parameters()) {  // the last layer is a head: its rows are no matrix to turn
    const bool matrix = item.value().dim() == 2 && item.key() != "4.weight";
    parameters.push_back({item.key(), item.value(), matrix ? parallel::Route::muon : parallel::Route::adamw});
  }
  parallel::EngineOptions options;
  options.mesh = {.replicate = world.size()};
  options.reduction = {.micro_batches = 4 / world.size(), .exact = true};
  parallel::Engine engine(world, parameters, {}, {}, options);

  for (int64_t step = 0; step < 200; ++step) {
    for (int64_t k = 0; k < options.reduction.micro_batches; ++k) {
      const Batch batch(step, world.rank() * options.reduction.micro_batches + k);
      engine.acquire();
      const torch::Tensor loss = (model->forward(batch.x) - batch.y).square().sum();
      loss.backward();
      engine.finish_backward(loss.item<double>(), batch.y.numel());
    }
    const parallel::StepReport report = engine.step({.muon = 0.02, .adamw = 0.01});
    if (world.rank() == 0 && step % 50 == 49) {
      std::printf("step %lld: loss %.9g\n", static_cast<long long>(step + 1), report.loss);
    }
  }
} catch (const std::exception& failure) {
  std::fprintf(stderr, "error: %s\n", failure.what());
  return 1;
}
