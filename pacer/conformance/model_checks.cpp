#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include "pacer/conformance/checks.h"
#include "pacer/conformance/tiny.h"
#include "pacer/decode/loop.h"
#include "pacer/device/device_memory.h"
#include "pacer/device/kernels.h"
#include "pacer/draft/block_proposer.h"
#include "pacer/draft/training.h"
#include "pacer/target/exact_rows.h"

namespace pacer::conformance {
namespace {

constexpr double kPlainBound = 1e-5;  // plain operators on both sides
constexpr double kOwnBound = 1e-4;    // Pacer's kernels on the host's side
constexpr device::KernelPaths kPlain = {device::KernelPath::plain, device::KernelPath::plain};

std::shared_ptr<const target::Target> tiny_target(Scene& scene, device::Runtime& runtime,
                                                  at::ScalarType dtype = at::kFloat) {
  const auto folder = scene.scratch / "target";
  if (!std::filesystem::exists(folder)) write_tiny_target(folder);
  return target::Target::load(folder, dtype, runtime);
}

std::vector<std::vector<int64_t>> texts(int64_t count) {
  std::vector<std::vector<int64_t>> sequences;
  for (const TinyRow& row : tiny_rows(count)) {
    sequences.push_back(row.prompt);
    sequences.back().insert(sequences.back().end(), row.answer.begin(), row.answer.end());
  }
  return sequences;
}

// Long passes and passes over a cache, against the host's kernels and against plain operators there.
void forward(Scene& scene) {
  const target::Taps taps = {-1, 2, 4};
  const auto sequences = texts(3);
  const auto outputs = [&](device::Runtime& runtime, bool cached) {
    const auto target = tiny_target(scene, runtime);
    const target::TargetOutput states = cached ? target::forward_exact(*target, sequences, taps)
                                               : target->forward(target::TokenBatch::packed(sequences), taps);
    return std::vector<at::Tensor>{states.tapped, states.last, target->logits(states.last)};
  };
  const char* names[] = {"taps", "last states", "logits"};
  for (const bool cached : {false, true}) {
    device::use_kernel_paths({});
    const auto own = outputs(scene.host, cached);
    device::use_kernel_paths(kPlain);
    const auto plain = outputs(scene.host, cached), found = outputs(scene.runtime, cached);
    const std::string pass = cached ? " over a cache" : " of a long pass";
    for (size_t i = 0; i < found.size(); ++i) {
      require_close(names[i] + pass + " against plain operators", found[i], plain[i], kPlainBound);
      require_close(names[i] + pass + " against the host's kernels", found[i], own[i], kOwnBound);
    }
  }
}

// Rows one by one, in pieces, behind a crop, and in another batch: the same bits.
void decoding_promise(Scene& scene) {
  device::use_kernel_paths(kPlain);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto target = tiny_target(scene, scene.runtime, dtype);
    const auto sequences = texts(2);
    const std::vector<int64_t>& text = sequences[0];
    const auto length = static_cast<int64_t>(text.size());
    const auto logits_by = [&](const std::vector<int64_t>& pieces) {
      const auto cache = target->new_cache(length);
      std::vector<at::Tensor> rows;
      int64_t at = 0;
      for (const int64_t piece : pieces) {
        const int64_t end = std::min(at + piece, length);
        const std::vector<int64_t> ids(text.begin() + at, text.begin() + end);
        rows.push_back(target->logits(target->forward(target::TokenBatch::single(ids, at), {}, {cache.get()}).last));
        at = end;
        if (at == length) break;
        // Something that is thrown away again, as a rejected draft is.
        const int64_t kept = cache->length();
        target->forward(target::TokenBatch::single({3, 5, 7}, at), {}, {cache.get()});
        cache->crop(kept);
      }
      return at::cat(rows, 0);
    };
    const at::Tensor one_by_one = logits_by(std::vector<int64_t>(static_cast<size_t>(length), 1));
    const std::string in = dtype == at::kFloat ? " in f32" : " in bf16";
    require_equal("rows in pieces of 5" + in, logits_by(std::vector<int64_t>(static_cast<size_t>(length), 5)),
                  one_by_one);
    require_equal("rows in pieces of 16" + in, logits_by({16, 16, 16}), one_by_one);
    const at::Tensor batch = target->logits(target::forward_exact(*target, sequences, {}).last.slice(0, 0, length));
    require_equal("rows of a batch of two texts" + in, batch, one_by_one);
  }
}

struct Losses {
  draft::LossTerms terms;
  std::map<std::string, at::Tensor> gradients;
};

Losses losses(Scene& scene, device::Runtime& runtime, const std::string& method, draft::MarkovKind markov) {
  const auto target = tiny_target(scene, runtime);
  const draft::DraftConfig config = tiny_draft(*target, method, markov);
  draft::LossOptions options;
  options.tile_bytes = 1 << 16;
  if (method == "dflash") options.l1_alpha = 0, options.ce_alpha = 1;
  const auto draft = draft::DraftTraining::create(config, options, target, 9, at::kFloat, runtime);
  const draft::FeatureBatch batch = tiny_features(*target, tiny_rows(4), config.target_layer_ids);
  const draft::BlockPlan plan = draft->plan(batch, 3, {2, 1});
  Losses result;
  result.terms = draft->loss(batch, plan, {0.1 / plan.ce_weight_sum, 0.9 / plan.weight_sum, 1.0 / plan.weight_sum});
  for (const auto& [name, master] : draft->parameters()) {
    if (master.grad().defined()) result.gradients[name] = device::to_host(master.grad()).clone();
  }
  return result;
}

void compare_losses(Scene& scene, const std::string& method, draft::MarkovKind markov) {
  device::use_kernel_paths({});
  const Losses own = losses(scene, scene.host, method, markov);
  device::use_kernel_paths(kPlain);
  const Losses plain = losses(scene, scene.host, method, markov), found = losses(scene, scene.runtime, method, markov);
  const auto check = [&](const Losses& expected, double bound, const std::string& of) {
    const auto near = [&](const char* name, double a, double b) {
      require(std::abs(a - b) <= bound * std::max(1.0, std::abs(b)),
              std::string(name) + " is " + std::to_string(a) + ", " + of + " " + std::to_string(b));
    };
    near("the cross-entropy", found.terms.ce_sum, expected.terms.ce_sum);
    near("the L1 distance", found.terms.l1_sum, expected.terms.l1_sum);
    near("the confidence loss", found.terms.confidence_sum, expected.terms.confidence_sum);
    require(found.terms.correct == expected.terms.correct, "right answers: " + std::to_string(found.terms.correct) +
                                                               ", " + of + " " +
                                                               std::to_string(expected.terms.correct));
    require(!expected.gradients.empty() && found.gradients.size() == expected.gradients.size(),
            "gradients of " + std::to_string(found.gradients.size()) + " parameters, " + of + " " +
                std::to_string(expected.gradients.size()));
    for (const auto& [name, gradient] : expected.gradients) {
      require_close("gradient of " + name + " against " + of, found.gradients.at(name), gradient, bound);
    }
  };
  check(plain, kPlainBound, "plain operators on the host");
  check(own, kOwnBound, "the host's kernels");
}

void dspark_vanilla(Scene& scene) { compare_losses(scene, "dspark", draft::MarkovKind::vanilla); }
void dspark_gated(Scene& scene) { compare_losses(scene, "dspark", draft::MarkovKind::gated); }
void dspark_rnn(Scene& scene) { compare_losses(scene, "dspark", draft::MarkovKind::rnn); }
void dflash(Scene& scene) { compare_losses(scene, "dflash", draft::MarkovKind::none); }

// Greedy texts: plain on the device as on the host, and with a draft as without one.
void same_texts(Scene& scene) {
  const std::vector<int64_t> prompt = tiny_rows(1)[0].prompt;
  decode::DecodeOptions options;
  options.sampling.max_new_tokens = 40;
  options.sampling.temperature = 0;
  const auto plain_text = [&](device::Runtime& runtime, at::ScalarType dtype) {
    return decode::decode_plain(*tiny_target(scene, runtime, dtype), prompt, options).tokens;
  };
  const auto with_draft = [&](at::ScalarType dtype) {
    const auto target = tiny_target(scene, scene.runtime, dtype);
    const draft::DraftConfig config = tiny_draft(*target, "dspark", draft::MarkovKind::vanilla);
    const auto training = draft::DraftTraining::create(config, {}, target, 4, at::kFloat, scene.runtime);
    training->save(scene.scratch / "draft", at::kFloat);
    const auto proposer = draft::load_block_proposer(scene.scratch / "draft", target);
    return decode::decode_speculative(*target, *proposer, prompt, options).tokens;
  };
  device::use_kernel_paths({});
  const auto host_f32 = plain_text(scene.host, at::kFloat), there_f32 = plain_text(scene.runtime, at::kFloat);
  require(there_f32 == host_f32, "the f32 text differs from the host's");
  require(with_draft(at::kFloat) == there_f32, "the f32 text with a draft differs from the one without");
  require(with_draft(at::kBFloat16) == plain_text(scene.runtime, at::kBFloat16),
          "the bf16 text with a draft differs from the one without");
  device::use_kernel_paths(kPlain);
  require(plain_text(scene.runtime, at::kBFloat16) == plain_text(scene.host, at::kBFloat16),
          "the bf16 text of plain operators differs from the host's");
  require(with_draft(at::kBFloat16) == plain_text(scene.runtime, at::kBFloat16),
          "the bf16 text of plain operators with a draft differs from the one without");
}

}  // namespace

std::vector<Check> model_checks() {
  return {{"model.forward", "states and logits of a target, long passes and cached ones", forward},
          {"model.decoding_promise", "a row has the same bits alone and among others", decoding_promise},
          {"draft.dspark_vanilla", "loss and every gradient as on the host", dspark_vanilla},
          {"draft.dspark_gated", "loss and every gradient as on the host", dspark_gated},
          {"draft.dspark_rnn", "loss and every gradient as on the host", dspark_rnn},
          {"draft.dflash", "loss and every gradient as on the host", dflash},
          {"decode.same_texts", "greedy texts as on the host, and with a draft as without one", same_texts}};
}

}  // namespace pacer::conformance
