// Greedy text from one target, one token at a time.
#include "pacer/base/error.h"
#include "pacer/bench/benches.h"
#include "pacer/bench/models.h"
#include "pacer/decode/loop.h"

namespace pacer::bench {

Result decode(const Work& work, const Settings& settings, device::Runtime& runtime) {
  const at::ScalarType dtype = settings.scalar_type();
  const int64_t prompt_tokens = work.integer("prompt"), new_tokens = work.integer("new_tokens");
  Values values(work.seed());
  const std::shared_ptr<const target::Target> target = given_or_random(settings, work.model("model"), values, runtime);
  const target::ModelConfig& config = target->config();
  const std::vector<int64_t> prompt = values.tokens(prompt_tokens, config.vocab_size);
  decode::DecodeOptions options;
  options.sampling.max_new_tokens = new_tokens;  // without stop ids nothing ends the text earlier

  std::vector<double> after_prefill;
  Result result;
  result.timings = time_work(work, settings, [&] {
    const decode::Decoded text = decode::decode_plain(*target, prompt, options);
    if (static_cast<int64_t>(text.tokens.size()) != new_tokens) {
      throw Error(ErrorKind::usage, "the text ended after " + std::to_string(text.tokens.size()) + " of " +
                                        std::to_string(new_tokens) + " tokens: the model has positions for " +
                                        std::to_string(config.max_position));
    }
    after_prefill.push_back(text.times.total().cpu - text.times.prefill.cpu);
  });
  after_prefill.erase(after_prefill.begin(),
                      after_prefill.end() - static_cast<std::ptrdiff_t>(result.timings.cpu.size()));

  // The first token needs the head only, so the time after the prefill is that of the other tokens, a little more.
  result.tokens_per_cpu_s = static_cast<double>(new_tokens) / median(result.timings.cpu);
  result.decode_only_tokens_per_cpu_s = static_cast<double>(new_tokens - 1) / median(after_prefill);
  const auto elements = static_cast<double>(matrix_elements(config));
  const double weight_bytes = elements * static_cast<double>(c10::elementSize(dtype));
  result.flops = 2.0 * elements * static_cast<double>(prompt_tokens + new_tokens - 1);
  result.bytes = weight_bytes * static_cast<double>(new_tokens);  // the prompt reads them once, then each token
  result.work = {{"prompt", prompt_tokens},
                 {"new_tokens", new_tokens},
                 {"model", settings.model.empty() ? work.text("model") : settings.model.string()},
                 {"matrix_elements", matrix_elements(config)},
                 {"weight_bytes_per_token", weight_bytes}};
  return result;
}

}  // namespace pacer::bench
