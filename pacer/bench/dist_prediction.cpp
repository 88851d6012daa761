#include "pacer/bench/dist_prediction.h"

#include <algorithm>
#include <functional>
#include <vector>

#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/clocks.h"
#include "pacer/bench/models.h"
#include "pacer/optim/adamw.h"
#include "pacer/optim/newton_schulz.h"

namespace pacer::bench {
namespace {

struct Seconds {
  double wall = 0, cpu = 0;
};

// Medians of this rank; then the slowest rank's wall time and the mean of the CPU times.
Seconds cost_of(parallel::World& world, int64_t times, const std::function<void()>& work) {
  std::vector<double> wall, cpu;
  for (int64_t i = 0; i <= times; ++i) {  // the first one warms up
    world.all().barrier("bench");
    const Stopwatch watch;
    work();
    if (i == 0) continue;
    cpu.push_back(watch.cpu());
    wall.push_back(watch.wall());
  }
  at::Tensor all = at::zeros({2, world.size()}, at::kDouble);
  all[0][world.rank()] = median(wall);
  all[1][world.rank()] = median(cpu);
  world.all().sum(all, "bench").wait();
  return {all[0].max().item<double>(), all[1].mean().item<double>()};
}

}  // namespace

MeasuredInputs measure_rates(parallel::World& world, DistTraining& training, at::ScalarType storage,
                             const parallel::PredictionInput& sizes) {
  MeasuredInputs measured{sizes, sizes};
  parallel::PredictionInput *wall = &measured.wall, *cpu = &measured.cpu;
  parallel::ProcessGroup& all = world.all();
  const int64_t ranks = world.size(), each = (int64_t{1} << 23) / ranks;
  if (ranks > 1) {
    at::Tensor whole = at::ones({each * ranks}, at::kFloat);
    const at::Tensor received = at::empty_like(whole), part = whole.narrow(0, 0, each);
    const std::vector<int64_t> counts(static_cast<size_t>(ranks), each);
    // What a rank sends and receives of it on average, as Prediction::bytes counts.
    const double bytes = static_cast<double>(each * (ranks - 1) * 4);
    const auto measure = [&](const char* name, double moved, const std::function<void()>& message) {
      const Seconds seconds = cost_of(world, 5, message);
      wall->collective_bytes_per_s[name] = moved / seconds.wall;
      cpu->collective_bytes_per_s[name] = moved / seconds.cpu;
    };
    measure("exchange", bytes, [&] { all.exchange(received, counts, whole, counts, "bench").wait(); });
    measure("all_gather", bytes, [&] { all.all_gather(received, part, "bench").wait(); });
    measure("broadcast", bytes, [&] { all.broadcast(received, 0, "bench").wait(); });
    measure("all_reduce", 2 * bytes, [&] { all.sum(whole, "bench").wait(); });
    const at::Tensor little = at::zeros({1}, at::kLong);
    const Seconds message = cost_of(world, 20, [&] { all.sum(little, "bench").wait(); });
    wall->link_latency_s = message.wall, cpu->link_latency_s = message.cpu;
  }

  Values values(1);
  const int64_t rows = 576, columns = 1536;
  const at::Tensor matrix = values.normal({rows, columns}, 1, at::kFloat);
  optim::NewtonSchulzOptions iteration;
  iteration.storage = storage;
  const Seconds orthogonal = cost_of(world, 3, [&] { optim::newton_schulz(matrix, iteration); });
  const double products = parallel::orthogonalise_products(rows, columns);
  wall->products_per_s = products / orthogonal.wall, cpu->products_per_s = products / orthogonal.cpu;

  const int64_t elements = int64_t{1} << 23;  // four tensors that no cache holds
  at::Tensor weight = at::ones({elements}, at::kFloat), gradient = at::ones({elements}, at::kFloat),
             first = at::zeros({elements}, at::kFloat), second = at::zeros({elements}, at::kFloat);
  const Seconds update =
      cost_of(world, 5, [&] { optim::adamw_update(weight, gradient, 1.0, first, second, 1, 1e-4, {}); });
  const double moved = 28.0 * static_cast<double>(elements);
  wall->memory_bytes_per_s = moved / update.wall, cpu->memory_bytes_per_s = moved / update.cpu;

  const Seconds micro_batch = cost_of(world, 3, [&] { training.forward_backward(); });
  wall->micro_batch_s = micro_batch.wall, cpu->micro_batch_s = micro_batch.cpu;
  wall->messages_take_processor = cpu->messages_take_processor = true;  // Gloo copies on the cores that compute
  return measured;
}

}  // namespace pacer::bench
