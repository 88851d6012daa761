// One optimizer step of a DSpark draft: loss, backward, clip, AdamW on f32 masters, copy back.
#include <cmath>
#include <map>
#include <string>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "pacer/base/error.h"
#include "pacer/base/logging.h"
#include "pacer/bench/benches.h"
#include "pacer/bench/dense_reference.h"
#include "pacer/bench/models.h"
#include "pacer/draft/training.h"
#include "pacer/optim/clip.h"
#include "pacer/optim/optimizer.h"
#include "pacer/train/metrics.h"
#include "pacer/train/window_loss.h"

namespace pacer::bench {
namespace {

draft::DraftConfig draft_config(const Work& work, const target::ModelConfig& target) {
  draft::DraftConfig config =
      draft::DraftConfig::for_target(target, target::default_taps(target.layers, work.integer("tap_layers")));
  config.layers = config.layer.layers = work.integer("draft_layers");
  config.block_size = work.integer("block_size");
  config.mask_token_id = target.vocab_size - 1;
  if (work.text("markov_head") != "vanilla") {
    throw Error(ErrorKind::format, "markov_head is '" + work.text("markov_head") + "', allowed: 'vanilla'");
  }
  config.markov = draft::MarkovKind::vanilla;
  config.markov_rank = work.integer("markov_rank");
  config.confidence_head = work.flag("confidence_head");
  config.confidence_with_markov = work.flag("confidence_with_markov");
  return config;
}

draft::LossOptions loss_options(const Work& work) {
  draft::LossOptions options;
  options.ce_alpha = work.number("ce_alpha");
  options.l1_alpha = work.number("l1_alpha");
  options.confidence_alpha = work.number("confidence_alpha");
  options.decay_gamma = work.number("loss_decay_gamma");
  return options;
}

// The first share of every sequence is a prompt, all else an answer.
draft::FeatureBatch features(const Work& work, const draft::DraftConfig& config, at::ScalarType dtype, Values& values) {
  const int64_t sequences = work.integer("batch"), length = work.integer("seq"), tokens = sequences * length;
  const auto prompt = static_cast<int64_t>(std::floor(static_cast<double>(length) * work.number("prompt_fraction")));
  const auto taps = static_cast<int64_t>(config.target_layer_ids.size());
  draft::FeatureBatch batch;
  std::vector<int64_t> ids = values.tokens(tokens, config.layer.vocab_size);
  batch.ids = at::from_blob(ids.data(), {tokens}, at::kLong).clone();
  batch.supervised = at::empty({tokens}, at::kByte);
  batch.starts = {0};
  for (int64_t s = 0; s < sequences; ++s) {
    batch.supervised.slice(0, s * length, s * length + prompt).fill_(0);
    batch.supervised.slice(0, s * length + prompt, (s + 1) * length).fill_(1);
    batch.starts.push_back((s + 1) * length);
    batch.sample_ids.push_back(static_cast<uint64_t>(s));
  }
  batch.tapped = values.normal({tokens, taps, config.layer.hidden_size}, 1.0, dtype);
  batch.last = values.normal({tokens, config.layer.hidden_size}, 1.0, dtype);
  return batch;
}

int64_t elements(const std::map<std::string, at::Tensor>& tensors) {
  int64_t sum = 0;
  for (const auto& [name, tensor] : tensors) sum += tensor.numel();
  return sum;
}

// What the step cannot do without: products of live rows, forward and both gradients (frozen factors have none),
// teacher logits and the bias of the previous token once per distinct position, attention over the prefixes that blocks
// see.
struct Needs {
  double flops = 0, exponentials = 0;
  int64_t live_rows = 0, teacher_rows = 0, context_rows = 0;
};
Needs needs(const draft::DraftConfig& config, const draft::BlockPlan& plan) {
  const target::ModelConfig& sizes = config.layer;
  const auto hidden = static_cast<double>(sizes.hidden_size), vocabulary = static_cast<double>(config.draft_vocab());
  const auto block_rows = static_cast<double>(plan.blocks() * plan.block_size);
  std::map<int64_t, int64_t> reach;  // of each sequence: its last anchor
  double seen = 0;                   // keys, summed over block rows
  for (size_t b = 0; b < plan.anchor.size(); ++b) {
    reach[plan.sequence[b]] = plan.anchor[b];
    seen += static_cast<double>(plan.block_size * (plan.anchor[b] + plan.block_size));
  }
  Needs out;
  for (const auto& [sequence, rows] : reach) out.context_rows += rows;
  std::map<int64_t, bool> teachers;
  for (size_t i = 0; i < plan.weight.size(); ++i) {
    if (plan.weight[i] == 0.0f) continue;
    ++out.live_rows;
    teachers[plan.teacher_row[i]] = true;
  }
  out.teacher_rows = static_cast<int64_t>(teachers.size());

  const auto queries = static_cast<double>(sizes.heads * sizes.head_dim),
             keys = static_cast<double>(2 * sizes.kv_heads * sizes.head_dim),
             inner = static_cast<double>(sizes.intermediate_size), rank = static_cast<double>(config.markov_rank),
             live = static_cast<double>(out.live_rows), context = static_cast<double>(out.context_rows),
             taps = static_cast<double>(config.target_layer_ids.size());
  const double layer = block_rows * hidden * (2 * queries + keys + 3 * inner) + context * hidden * keys;
  const double attention = seen * queries * 2;
  out.flops = 2 * 2 * context * taps * hidden * hidden                                    // fc: no gradient of the taps
              + static_cast<double>(config.layers) * (2 * 3 * layer + 2 * 3 * attention)  //
              + 2 * 2 * live * hidden * vocabulary                                        // head: no gradient of it
              + 2 * static_cast<double>(out.teacher_rows) * hidden * static_cast<double>(sizes.vocab_size)  //
              + 2 * 3 * static_cast<double>(out.teacher_rows) * rank *
                    vocabulary;  // Markov: slots behind one position share it
  out.exponentials = (live + static_cast<double>(out.teacher_rows)) * vocabulary;
  return out;
}

struct Gradients {
  double loss = 0, norm = 0;
};

// Loss and gradients of the batch as one optimizer window; metrics are part of the step.
Gradients backward(draft::DraftTraining& training, optim::Optimizer& optimizer, const draft::FeatureBatch& batch,
                   int64_t anchors, const draft::LossOptions& options, uint64_t seed) {
  optimizer.clear_gradients();
  // The same draws in every step: a step of the measurement must not differ from another.
  const draft::BlockPlan plan = training.plan(batch, anchors, {seed, 0});
  const draft::LossScale scale = train::loss_scales({plan}, options, "global").front();
  const OrderedJson metrics = train::metrics_of(training.loss(batch, plan, scale), options);
  return {metrics.at("loss").get<double>(), optim::global_norm(optimizer.gradients())};
}

// |a - b| / |b|
double relative(double a, double b) { return std::abs(a - b) / std::abs(b); }

OrderedJson check(draft::DraftTraining& training, const Gradients& found, const draft::FeatureBatch& batch,
                  const draft::BlockPlan& plan, const draft::LossOptions& options, const target::Target& target,
                  at::ScalarType dtype) {
  const DenseStep dense = dense_step(training.config(), training.parameters(), batch, plan, options, target);
  // f32: other sum orders. bf16: activations keep eight bits, an error of up to 2^-9 each, most of which averages out.
  const bool f32 = dtype == at::kFloat;
  const double loss_bound = f32 ? 1e-5 : 2e-3, norm_bound = f32 ? 1e-5 : 1e-2;
  const double loss_error = relative(found.loss, dense.loss), norm_error = relative(found.norm, dense.gradient_norm);
  if (!(loss_error <= loss_bound && norm_error <= norm_bound)) {
    throw Error(ErrorKind::bug, "loss " + std::to_string(found.loss) + " and gradient norm " +
                                    std::to_string(found.norm) + " are not those of the dense reference, " +
                                    std::to_string(dense.loss) + " and " + std::to_string(dense.gradient_norm));
  }
  return {{"loss", found.loss},       {"grad_norm", found.norm},
          {"dense_loss", dense.loss}, {"dense_grad_norm", dense.gradient_norm},
          {"loss_error", loss_error}, {"grad_norm_error", norm_error},
          {"loss_bound", loss_bound}, {"grad_norm_bound", norm_bound}};
}

}  // namespace

Result dspark_train(const Work& work, const Settings& settings, device::Runtime& runtime) {
  const at::ScalarType dtype = settings.scalar_type();
  if (work.text("optimizer") != "adamw_f32_master") {
    throw Error(ErrorKind::format, "optimizer is '" + work.text("optimizer") + "', allowed: 'adamw_f32_master'");
  }
  Values values(work.seed());
  const std::shared_ptr<const target::Target> target = random_tables(work.model("model"), dtype, values);
  const draft::DraftConfig config = draft_config(work, target->config());
  const draft::LossOptions options = loss_options(work);
  const draft::FeatureBatch batch = features(work, config, dtype, values);
  const int64_t anchors = work.integer("anchors");

  const auto training = draft::DraftTraining::create(config, options, target, work.seed(), dtype, runtime);
  optim::AdamWOptions adamw;
  adamw.weight_decay = work.number("weight_decay");
  optim::Optimizer optimizer(training->parameters(), adamw, {});
  for (auto& [name, moment] : optimizer.state()) at::Tensor(moment).zero_();  // written, so that it is resident
  const double clip = work.number("max_grad_norm"), rate = work.number("lr");

  Gradients last;
  Result result;
  result.timings = time_work(work, settings, [&] {
    last = backward(*training, optimizer, batch, anchors, options, work.seed());
    if (!std::isfinite(last.norm)) throw Error(ErrorKind::bug, "the gradient is not finite");
    optimizer.step(rate, optim::clip_coefficient(last.norm, clip));
    training->refresh();
  });
  result.loss = last.loss;
  result.grad_norm = last.norm;

  const draft::BlockPlan plan = training->plan(batch, anchors, {work.seed(), 0});
  const Needs need = needs(config, plan);
  const int64_t parameters = elements(training->parameters());
  const auto width = static_cast<double>(c10::elementSize(dtype));
  // The optimizer reads weight, gradient and both moments, writes three of them and the copy in the working dtype; the
  // step reads embedding rows, head and features once.
  result.flops = need.flops;
  result.bytes = static_cast<double>(parameters) * (7 * 4.0 + width) + static_cast<double>(target->weight_bytes()) +
                 static_cast<double>(batch.tapped.nbytes() + batch.last.nbytes());
  result.work = {{"query_rows", work.integer("batch") * anchors * config.block_size},
                 {"blocks", plan.blocks()},
                 {"live_rows", need.live_rows},
                 {"teacher_rows", need.teacher_rows},
                 {"context_rows", need.context_rows},
                 {"exponentials", need.exponentials},
                 {"parameters", parameters},
                 {"resident_bytes",
                  {{"embedding_and_head", target->weight_bytes()},
                   {"masters", parameters * 4},
                   {"moments", parameters * 8},
                   {"compute_copies", static_cast<double>(parameters) * width},
                   {"inputs", batch.tapped.nbytes() + batch.last.nbytes() + batch.ids.nbytes()}}}};
  if (settings.check) {
    // At the weights behind the last step, which no longer are what `last` was computed from.
    const Gradients now = backward(*training, optimizer, batch, anchors, options, work.seed());
    result.work["check"] = check(*training, now, batch, plan, options, *target, dtype);
  }
  return result;
}

}  // namespace pacer::bench
