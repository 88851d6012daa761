// Training features: whole prompts through the target, taps and last state kept in bf16 per sample.
#include "pacer/bench/benches.h"
#include "pacer/bench/models.h"

#include <c10/core/InferenceMode.h>

namespace pacer::bench {

Result prefill(const Work& work, const Settings& settings, device::Runtime& runtime) {
  const at::ScalarType dtype = settings.scalar_type();
  const int64_t batch = work.integer("batch"), length = work.integer("seq"), tokens = batch * length;
  Values values(work.seed());
  const std::shared_ptr<const target::Target> target = given_or_random(settings, work.model("model"), values, runtime);
  const target::ModelConfig& config = target->config();
  const target::Taps taps = target::default_taps(config.layers, work.integer("capture_taps"));
  std::vector<std::vector<int64_t>> sequences;
  for (int64_t i = 0; i < batch; ++i) sequences.push_back(values.tokens(length, config.vocab_size));
  const target::TokenBatch rows = target::TokenBatch::packed(sequences);

  const bool keeps_last = work.flag("capture_last_hidden");
  std::vector<at::Tensor> kept;
  Result result;
  result.timings = time_work(work, settings, [&] {
    const c10::InferenceMode inference;
    kept.clear();
    const target::TargetOutput output = target->forward(rows, taps);
    for (size_t s = 0; s + 1 < rows.starts.size(); ++s) {
      const auto sample = [&](const at::Tensor& all) {
        return all.slice(0, rows.starts[s], rows.starts[s + 1]).to(at::kBFloat16, false, /*copy=*/true);
      };
      kept.push_back(sample(output.tapped.flatten(1)));
      if (keeps_last) kept.push_back(sample(output.last));
    }
  });

  result.tokens_per_cpu_s = static_cast<double>(tokens) / median(result.timings.cpu);
  // No head; every row attends to those before it: two products of heads * head_dim with half of the length.
  const auto layers = static_cast<double>(matrix_elements(config) - config.vocab_size * config.hidden_size);
  const double attention =
      4.0 * static_cast<double>(config.layers * config.heads * config.head_dim) * 0.5 * static_cast<double>(length + 1);
  result.flops = static_cast<double>(tokens) * (2.0 * layers + attention);
  result.bytes = layers * static_cast<double>(c10::elementSize(dtype));
  result.work = {
      {"batch", batch},
      {"seq", length},
      {"model", settings.model.empty() ? work.text("model") : settings.model.string()},
      {"taps", taps},
      {"last_hidden", keeps_last},
      {"kept_bytes", tokens * config.hidden_size * (static_cast<int64_t>(taps.size()) + (keeps_last ? 1 : 0)) * 2}};
  return result;
}

}  // namespace pacer::bench
