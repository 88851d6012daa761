#include "pacer/decode/thread_choice.h"

#include "pacer/base/logging.h"
#include "pacer/base/numbers.h"
#include "pacer/decode/loop.h"

namespace pacer::decode {
namespace {

double plain_token_seconds(const target::Target& target, const std::vector<int64_t>& prompt) {
  DecodeOptions options;
  options.sampling.max_new_tokens = 32;
  decode_plain(target, prompt, options);  // weights are packed and threads started by the first text
  const Decoded run = decode_plain(target, prompt, options);
  return run.times.total().wall / static_cast<double>(run.tokens.size());
}

}  // namespace

ThreadChoice measure_threads(const target::Target& target, const std::vector<int64_t>& prompt,
                             device::Runtime& runtime) {
  return {runtime.threads(), plain_token_seconds(target, prompt)};
}

ThreadChoice choose_threads(const target::Target& target, const std::vector<int64_t>& prompt,
                            device::Runtime& runtime) {
  const int all = runtime.threads();
  const double together = plain_token_seconds(target, prompt);
  if (all == 1) return {1, together};
  runtime.set_threads(1);
  const double alone = plain_token_seconds(target, prompt);
  const bool use_all = together < 0.9 * alone;
  runtime.set_threads(use_all ? all : 1);
  log_info("threads: " + std::to_string(use_all ? all : 1) + ", plain decoding with one makes " +
           format_fixed(1 / alone, 0) + " tokens/s, with " + std::to_string(all) + " " + format_fixed(1 / together, 0));
  return use_all ? ThreadChoice{all, together} : ThreadChoice{1, alone};
}

std::vector<int64_t> trial_prompt(const text::ModelText& text) {
  return text.prompt_ids(OrderedJson::array({{{"role", "user"}, {"content", "Count from one to twenty."}}}));
}

}  // namespace pacer::decode
