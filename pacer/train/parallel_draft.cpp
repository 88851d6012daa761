#include "pacer/train/parallel_draft.h"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/files.h"
#include "pacer/draft/weights.h"
#include "pacer/train/checkpoint.h"
#include "pacer/train/window_loss.h"

namespace pacer::train {
namespace {

// Calls `each` with every number of the terms, always in the same order. Whole numbers below 2^53 are exact in f64.
template <class Terms, class Each>
void visit(Terms& terms, size_t drafts, const Each& each) {
  terms.accept_sum.resize(drafts), terms.accept_count.resize(drafts);
  each(terms.ce_sum), each(terms.ce_weight), each(terms.l1_sum), each(terms.l1_weight);
  each(terms.confidence_sum), each(terms.confidence_weight), each(terms.correct), each(terms.tau_sum);
  each(terms.blocks), each(terms.label_kept), each(terms.label_total), each(terms.confidence_abs_error_sum);
  each(terms.confidence_bias_sum), each(terms.confidence_survival_bias_sum);
  for (double& sum : terms.accept_sum) each(sum);
  for (int64_t& count : terms.accept_count) each(count);
}

draft::LossScale scale_of(const draft::LossOptions& options, double ce, double all, double factor) {
  const auto divide = [factor](double alpha, double by) { return by > 0 ? alpha * factor / by : 0.0; };
  return {divide(options.ce_alpha, ce), divide(options.l1_alpha, all), divide(options.confidence_alpha, all)};
}

}  // namespace

ParallelDraft::ParallelDraft(const Recipe& recipe, const draft::LossOptions& loss, Ranks& ranks,
                             draft::DraftTraining& draft)
    : recipe_(recipe),
      loss_(loss),
      ranks_(ranks),
      draft_(draft),
      engine_(make_engine(recipe, ranks, draft.parameters())) {}

void ParallelDraft::catch_up() {
  engine_->acquire();
  if (std::exchange(behind_, false)) draft_.refresh();
}

// What multiplies the sums of each of this rank's micro-batches. The engine divides by the number of supervised slots
// of the whole step, so that number is a factor here.
std::vector<draft::LossScale> ParallelDraft::scales(const std::vector<draft::BlockPlan>& plans, int64_t leaves,
                                                    int64_t& supervised) {
  const int64_t slots = draft_.config().block_size;
  at::Tensor counts = at::zeros({2 * slots + 1}, at::kLong);
  int64_t* sums = counts.mutable_data_ptr<int64_t>();
  for (const draft::BlockPlan& plan : plans) {
    for (size_t k = 0; k < plan.counts.supervised.size(); ++k) {
      sums[k] += plan.counts.supervised[k];
      sums[static_cast<size_t>(slots) + k] += plan.counts.kept[k];
    }
    sums[2 * slots] += plan.counts.sequences;
  }
  ranks_.sum(counts, "supervised slots");
  const draft::SlotCounts all{{sums, sums + slots}, {sums + slots, sums + 2 * slots}, sums[2 * slots]};
  supervised = 0;
  for (const int64_t count : all.supervised) supervised += count;
  const auto factor = static_cast<double>(supervised);

  if (recipe_.loss.normalisation == "per_micro_batch") {
    constexpr double kEpsilon = 1e-6;  // as in loss_scales()
    std::vector<draft::LossScale> scales;
    for (const draft::BlockPlan& plan : plans) {
      scales.push_back(scale_of(loss_, plan.ce_weight_sum + kEpsilon, plan.weight_sum + kEpsilon,
                                factor / static_cast<double>(leaves)));
    }
    return scales;
  }
  const draft::Denominators by = draft::denominators(draft_.config(), loss_, all);
  return std::vector<draft::LossScale>(plans.size(), scale_of(loss_, by.ce, by.all, factor));
}

// terms: one entry per leaf or batch, filled on the rank that computed it and empty on the others.
std::vector<draft::LossTerms> ParallelDraft::exchange(const std::vector<draft::LossTerms>& terms, const char* purpose) {
  const auto drafts = static_cast<size_t>(draft_.config().drafts_per_block());
  int64_t width = 0;
  draft::LossTerms shape;
  visit(shape, drafts, [&](auto&) { ++width; });
  at::Tensor values = at::zeros({static_cast<int64_t>(terms.size()), width}, at::kDouble);
  double* place = values.mutable_data_ptr<double>();
  for (draft::LossTerms own : terms) {
    visit(own, drafts, [&](auto& number) { *place++ = static_cast<double>(number); });
  }
  ranks_.sum(values, purpose);
  place = values.mutable_data_ptr<double>();
  std::vector<draft::LossTerms> all(terms.size());
  for (draft::LossTerms& entry : all) {
    visit(entry, drafts, [&](auto& number) { number = static_cast<std::decay_t<decltype(number)>>(*place++); });
  }
  return all;
}

WindowPlan ParallelDraft::plan(const FeatureSource& features, Window window, int64_t step) const {
  const int64_t own = recipe_.data.accumulation;
  return plan_share(draft_, features, std::move(window), step, recipe_, ranks_.data_rank() * own, own);
}

ParallelDraft::Update ParallelDraft::step(const WindowPlan& plan, const BatchOf& batch_of, double learning_rate) {
  ranks_.world().activity()->in_step = true;
  // The denominators are sums over the plans of all ranks, so they are there before the first backward.
  int64_t supervised = 0;
  const auto leaves = static_cast<int64_t>(plan.window.micro_batches.size());
  const std::vector<draft::LossScale> scale = scales(plan.plans, leaves, supervised);

  std::vector<draft::LossTerms> terms(static_cast<size_t>(ranks_.data_size()) * plan.plans.size());
  for (size_t k = 0; k < plan.plans.size(); ++k) {
    const draft::LossScale& by = scale[k];
    draft::LossTerms& leaf = terms[static_cast<size_t>(plan.first) + k];
    const draft::FeatureBatch batch = batch_of(k);
    catch_up();
    if (plan.plans[k].blocks() > 0) leaf = draft_.loss(batch, plan.plans[k], by);
    int64_t count = 0;
    for (const int64_t slots : plan.plans[k].counts.supervised) count += slots;
    engine_->finish_backward(by.ce * leaf.ce_sum + by.l1 * leaf.l1_sum + by.confidence * leaf.confidence_sum, count);
  }
  terms = exchange(terms, "losses of a step");
  Update update;
  for (size_t leaf = 0; leaf < terms.size(); ++leaf) {
    require_finite(terms[leaf], plan.step, leaf);
    update.terms.add(terms[leaf]);
  }
  const parallel::StepReport report = engine_->step(step_rates(recipe_.optimizer, learning_rate));
  require_finite_norm(report, plan.step);
  behind_ = behind_ || report.updated;
  update.gradient_norm = report.norm.item<double>();
  update.clip = report.coefficient.item<double>();
  return update;
}

draft::LossTerms ParallelDraft::evaluate(FeatureSource& validation, int64_t limit) {
  catch_up();
  const auto batches = exchange(
      evaluate_batches(draft_, validation, limit, recipe_, ranks_.data_rank(), ranks_.data_size()), "validation");
  draft::LossTerms sums;
  for (const draft::LossTerms& terms : batches) sums.add(terms);
  return sums;
}

void ParallelDraft::save(const std::filesystem::path& folder, const TrainState& state,
                         const std::map<std::string, std::string>& fingerprints) {
  parallel::CheckpointExtras extras;
  extras.name = checkpoint_name();
  extras.constants = draft::constant_tensors(draft_.config());
  extras.write = [&](const std::filesystem::path& unnamed) {
    draft::write_draft_config(unnamed, draft_.config(), at::kFloat);
    write_file(unnamed / "state.json", state.to_json().dump(2) + "\n");
  };
  extras.write_each = [this](const std::filesystem::path& unnamed) {
    save_generator(unnamed, ranks_.runtime(), ranks_.rank(), ranks_.world().size());
  };
  extras.fingerprints = fingerprints;
  extras.details = {{"step", state.step}};
  extras.replace = true;  // a folder of this step is damaged, or of a run that goes on from an older one
  parallel::save_checkpoint(*engine_, folder, extras);
}

void ParallelDraft::load(const std::filesystem::path& folder) {
  parallel::load_checkpoint(*engine_, folder, checkpoint_name());
  behind_ = true;
}

}  // namespace pacer::train
