#include "pacer/draft/block_proposer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/clocks.h"
#include "pacer/base/error.h"
#include "pacer/draft/markov.h"
#include "pacer/draft/row_backbone.h"

namespace pacer::draft {
namespace {

// A draft's own numbers decide no text, so beside stored weights, whose rows are f32, it runs in bf16: half the bytes.
at::ScalarType draft_dtype(const target::Target& target) {
  return target.has_stored_weights() ? at::kBFloat16 : target.dtype();
}

class BlockProposer final : public Proposer {
 public:
  BlockProposer(const DraftFolder& draft, std::shared_ptr<const target::Target> target, const ProposerOptions& options)
      : config_(draft.config),
        target_(std::move(target)),
        options_(options),
        dtype_(draft_dtype(*target_)),
        // Without a vocabulary of its own the draft reads the target's head, which is packed already.
        backbone_(RowBackbone::make(config_, draft.weights,
                                    config_.reduced() ? draft_head(config_, *target_) : at::Tensor(), dtype_,
                                    target_->device())),
        markov_(arrange_markov(config_, draft.weights, dtype_, target_->device())) {
    const c10::Device device = target_->device();
    if (config_.markov != MarkovKind::none) w1_ = draft.weights.at("markov_head.markov_w1.weight").to(device, dtype_);
    if (config_.confidence_head) {
      confidence_weight_ = draft.weights.at("confidence_head.proj.weight").to(device, at::kFloat).flatten();
      confidence_bias_ = draft.weights.at("confidence_head.proj.bias").to(at::kFloat).item<double>();
    }
  }

  std::string name() const override { return config_.method; }
  std::vector<int64_t> taps() const override { return config_.target_layer_ids; }
  // Nothing beyond the positions that the draft was made for: the target then writes alone.
  int64_t max_tokens() const override {
    const int64_t positions = config_.layer.max_position;
    const bool fits = positions <= 0 || committed() + config_.block_size <= positions;
    return fits ? config_.drafts_per_block() : 0;
  }

  void start(const std::vector<int64_t>& ids, const at::Tensor& tapped) override {
    backbone_->clear();
    waiting_.clear();
    waiting_rows_ = 0;
    remember(ids, tapped);
  }

  void advance(const std::vector<int64_t>& tokens, const at::Tensor& tapped) override { remember(tokens, tapped); }
  int64_t behind() const override { return waiting_rows_; }
  void catch_up() override;

  Proposal propose(int64_t anchor, int64_t limit, bool greedy, const DrawToken& draw) override;

 private:
  int64_t committed() const { return backbone_->length() + waiting_rows_; }
  void remember(const std::vector<int64_t>& tokens, const at::Tensor& tapped);
  at::Tensor block_pass(int64_t anchor) const;  // [K, H] after the final norm
  double confidence(const at::Tensor& hidden, const at::Tensor& markov) const;

  DraftConfig config_;
  std::shared_ptr<const target::Target> target_;
  ProposerOptions options_;
  at::ScalarType dtype_;
  std::unique_ptr<RowBackbone> backbone_;
  MarkovWeights markov_;
  at::Tensor w1_, confidence_weight_;
  double confidence_bias_ = 0;
  std::vector<at::Tensor> waiting_;  // features of committed tokens whose keys and values are not computed yet
  int64_t waiting_rows_ = 0;
};

void BlockProposer::remember(const std::vector<int64_t>& tokens, const at::Tensor& tapped) {
  const auto rows = static_cast<int64_t>(tokens.size());
  if (!tapped.defined() || tapped.dim() != 3 || tapped.size(0) != rows ||
      tapped.size(1) != static_cast<int64_t>(config_.target_layer_ids.size()) ||
      tapped.size(2) != config_.layer.hidden_size) {
    throw Error(ErrorKind::bug, name() + ": " + std::to_string(rows) + " tokens come with features " +
                                    (tapped.defined() ? c10::str(tapped.sizes()) : std::string("undefined")));
  }
  waiting_rows_ += rows;
  // Beyond its positions the draft proposes nothing more for this text, and needs no more of it.
  if (max_tokens() == 0) {
    waiting_.clear();
  } else {
    waiting_.push_back(tapped);
  }
}

void BlockProposer::catch_up() {
  if (waiting_.empty() || max_tokens() == 0) return;
  const at::NoGradGuard no_grad;
  // Rows have the same bits together as one by one, so it does not matter when this happens.
  backbone_->append(waiting_.size() == 1 ? waiting_.front() : at::cat(waiting_));
  waiting_.clear();
  waiting_rows_ = 0;
}

at::Tensor BlockProposer::block_pass(int64_t anchor) const {
  const at::Tensor ids = at::full({config_.block_size}, config_.mask_token_id, at::kLong);
  ids.mutable_data_ptr<int64_t>()[0] = anchor;
  return backbone_->block(target_->embed(ids).to(dtype_));
}

double BlockProposer::confidence(const at::Tensor& hidden, const at::Tensor& markov) const {
  const at::Tensor features = config_.confidence_with_markov ? at::cat({hidden, markov}, 1) : hidden;
  return (features.to(at::kFloat) * confidence_weight_).sum().item<double>() + confidence_bias_;
}

Proposal BlockProposer::propose(int64_t anchor, int64_t limit, bool greedy, const DrawToken& draw) {
  const at::NoGradGuard no_grad;
  Proposal proposal;
  const int64_t count = std::min(limit, max_tokens());
  if (count <= 0) return proposal;
  catch_up();
  const int64_t first = config_.sample_from_anchor ? 0 : 1;
  const at::Tensor hidden = block_pass(anchor).slice(0, first, first + count).contiguous();
  const at::Tensor logits =
      config_.reduced() ? backbone_->logits(hidden) : target_->logits(hidden.to(target_->dtype()));

  std::vector<at::Tensor> laws;
  at::Tensor state;
  int64_t previous = anchor;
  for (int64_t d = 0; d < count; ++d) {
    const at::Tensor h = hidden.slice(0, d, d + 1), row = logits.slice(0, d, d + 1);
    at::Tensor e, u;
    std::optional<int64_t> leader;
    if (config_.markov != MarkovKind::none) {
      e = w1_.slice(0, previous, previous + 1);
      MarkovStep step = markov_step(markov_, e, h, state);
      state = step.state, u = step.u;
      if (greedy) {
        leader = backbone_->add_markov_leading(row, u);
      } else {
        backbone_->add_markov(row, u);
      }
    }
    if (config_.confidence_head) {
      const double before = options_.confidence_cpu_s ? process_cpu_seconds() : 0.0;
      const double logit = confidence(h, e);
      if (options_.confidence_cpu_s) *options_.confidence_cpu_s += process_cpu_seconds() - before;
      if (1.0 / (1.0 + std::exp(-logit)) < options_.confidence_threshold) break;
      proposal.confidence.push_back(static_cast<float>(logit));
    }
    at::Tensor law;
    int64_t drawn = draw(row[0], greedy ? nullptr : &law);
    if (leader && drawn != *leader) {  // the leader is no token, as rows that pad a vocabulary are not
      backbone_->add_markov_rest(row, u);
      drawn = draw(row[0], nullptr);
    }
    previous = config_.reduced() ? config_.kept_ids[static_cast<size_t>(drawn)] : drawn;
    proposal.tokens.push_back(previous);
    if (!greedy) laws.push_back(law);
  }
  if (!laws.empty()) {
    proposal.probabilities = at::stack(laws);
    if (config_.reduced()) {
      const at::Tensor ids =
          at::from_blob(config_.kept_ids.data(), {static_cast<int64_t>(config_.kept_ids.size())}, at::kLong);
      proposal.probabilities = at::zeros({proposal.probabilities.size(0), config_.layer.vocab_size}, at::kFloat)
                                   .index_copy(1, ids, proposal.probabilities);
    }
  }
  return proposal;
}

}  // namespace

std::unique_ptr<Proposer> make_block_proposer(const DraftFolder& draft, std::shared_ptr<const target::Target> target,
                                              const ProposerOptions& options) {
  if (options.confidence_threshold > 0 && !draft.config.confidence_head) {
    throw Error(ErrorKind::usage, "a confidence threshold needs a draft with a confidence head",
                "leave the threshold at 0 for this draft");
  }
  check_target(draft.config, *target, "the draft");
  return std::make_unique<BlockProposer>(draft, std::move(target), options);
}

std::unique_ptr<Proposer> load_block_proposer(const std::filesystem::path& folder,
                                              std::shared_ptr<const target::Target> target,
                                              const ProposerOptions& options) {
  const DraftFolder draft = read_draft(folder, draft_dtype(*target), *target);
  return make_block_proposer(draft, std::move(target), options);
}

}  // namespace pacer::draft
