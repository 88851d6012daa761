#include "pacer/train/schema.h"

#include <utility>

namespace pacer::train {
namespace {

template <typename Section, typename T>
Slot at(Section Recipe::* section, T Section::* member) {
  return Member<T>([=](Recipe& recipe) -> T& { return recipe.*section.*member; });
}

template <typename T>
Slot at(T Recipe::* member) {
  return Member<T>([=](Recipe& recipe) -> T& { return recipe.*member; });
}

// The rows of the table read as sentences: key("loss.ce", at(...), "...").from(0).to(1).
struct Row : Key {
  Row(std::string key_name, Slot key_slot, std::string key_doc) {
    name = std::move(key_name), slot = std::move(key_slot), doc = std::move(key_doc);
  }
  Row& from(double value) { return least = value, *this; }
  Row& greater(double value) { return least = value, above = true, *this; }
  Row& to(double value) { return most = value, *this; }
  Row& of(std::vector<std::string> values) { return choices = std::move(values), *this; }
  Row& must() { return required = true, *this; }
  Row& free() { return may_change = true, *this; }
  Row& wish() { return is_a_wish = true, *this; }
};

std::vector<Key> make_schema() {
  using R = Recipe;
  using M = ModelSection;
  using D = DraftSection;
  using A = DataSection;
  using F = FeaturesSection;
  using T = LanguageModelSection;
  using O = OptimizerSection;
  using L = LossSection;
  using S = ScheduleSection;
  using V = ValidationSection;
  using C = CheckpointSection;
  using G = LoggingSection;
  using P = ParallelSection;
  return {
      Row("model.target", at(&R::model, &M::target),
          "the large model that the draft will run ahead of: a Hugging Face folder or a .gguf file")
          .must(),
      Row("model.dtype", at(&R::model, &M::dtype), "element type in which the target computes").of({"bf16", "f32"}),

      Row("draft.method", at(&R::draft, &D::method),
          "`dspark`: block draft with a Markov head between its slots; `dflash`: the same without any head")
          .of({"dspark", "dflash"}),
      Row("draft.layers", at(&R::draft, &D::layers), "transformer layers of the draft").from(1).to(64),
      Row("draft.block_size", at(&R::draft, &D::block_size), "slots K that one pass of the draft fills").from(2).to(64),
      Row("draft.sample_from_anchor", at(&R::draft, &D::sample_from_anchor),
          "`true`: slot k predicts the token k + 1 after the anchor, K drafts a block; `false`: slot 0 is the anchor "
          "itself, K - 1 drafts. An engine that serves the draft must read it the same way"),
      Row("draft.taps", at(&R::draft, &D::taps),
          "target layers whose output the draft reads, ascending; empty: spread evenly (3 below 32 layers, else 5)")
          .from(-1)
          .to(1024),
      Row("draft.markov", at(&R::draft, &D::markov), "kind of Markov head (DSpark)")
          .of({"none", "vanilla", "gated", "rnn"})
          .wish(),
      Row("draft.markov_rank", at(&R::draft, &D::markov_rank), "rank of the Markov head").from(1).to(4096).wish(),
      Row("draft.confidence", at(&R::draft, &D::confidence),
          "train a head that estimates how likely each draft is to be accepted (DSpark)")
          .wish(),
      Row("draft.confidence_with_markov", at(&R::draft, &D::confidence_with_markov),
          "feed that head with the Markov embedding of the previous token as well")
          .wish(),
      Row("draft.vocabulary", at(&R::draft, &D::vocabulary),
          "tokens the draft can propose, the most frequent of the training answers; 0: all of the target's")
          .from(0)
          .to(1e7),
      Row("draft.mask_token_id", at(&R::draft, &D::mask_token_id),
          "id whose embedding fills the open slots; must not occur in the data; null: the first id that the tokenizer "
          "does not use")
          .from(0)
          .to(1e7),
      Row("draft.warm_start", at(&R::draft, &D::warm_start),
          "start the draft's layers and norms from the target's last layers instead of from noise"),
      Row("draft.sliding_window", at(&R::draft, &D::sliding_window),
          "window of each draft layer, 0 for full attention; empty: full attention everywhere")
          .from(0)
          .to(1e7),
      Row("draft.dtype", at(&R::draft, &D::dtype),
          "element type in which the draft computes; its masters are always f32")
          .of({"bf16", "f32"}),

      Row("data.train", at(&R::data, &A::train), "training rows, JSONL as `pacer data generate` writes it").must(),
      Row("data.validation", at(&R::data, &A::validation), "held-out rows in the same form; null: see the next key"),
      Row("data.validation_rows", at(&R::data, &A::validation_rows),
          "rows of the training file to hold out when there is no validation file; 0: no validation")
          .from(0)
          .to(1e9),
      Row("data.max_length", at(&R::data, &A::max_length), "tokens of a row; longer rows are cut on the right")
          .from(8)
          .to(1 << 20),
      Row("data.sequences", at(&R::data, &A::sequences), "rows of a micro-batch").from(1).to(65536),
      Row("data.anchors", at(&R::data, &A::anchors), "blocks drawn from each row, at most").from(1).to(65536),
      Row("data.anchors_at_once", at(&R::data, &A::anchors_at_once),
          "blocks of a micro-batch whose activations exist at once: fewer need less memory and give the same gradients "
          "up to rounding, with `parallel.exact` to the bit; 0: as many as have 1120 slots, or 512 where rows are "
          "wide, with `parallel.exact` 32")
          .from(0)
          .to(1 << 20),
      Row("data.accumulation", at(&R::data, &A::accumulation), "micro-batches of an optimizer step").from(1).to(65536),

      Row("language_model.text", at(&R::language_model, &T::text),
          "for method `causal_lm`: the text that the model learns, and whose end is held out"),
      Row("language_model.start", at(&R::language_model, &T::start),
          "`scratch`: a new model of the sizes below, with bytes as tokens; `weights`: model.target with its tokenizer")
          .of({"scratch", "weights"}),
      Row("language_model.length", at(&R::language_model, &T::length), "tokens of a row; data.sequences rows at a time")
          .from(8)
          .to(1 << 20),
      Row("language_model.held_out", at(&R::language_model, &T::held_out), "share of the text to validate on")
          .from(0)
          .to(0.9),
      Row("language_model.layers", at(&R::language_model, &T::layers), "of a new model").from(1).to(1024).wish(),
      Row("language_model.hidden", at(&R::language_model, &T::hidden), "width of a new model").from(2).to(65536).wish(),
      Row("language_model.intermediate", at(&R::language_model, &T::intermediate), "inner width of its gated layers")
          .from(1)
          .to(1 << 20)
          .wish(),
      Row("language_model.heads", at(&R::language_model, &T::heads), "attention heads of a new model")
          .from(1)
          .to(1024)
          .wish(),
      Row("language_model.kv_heads", at(&R::language_model, &T::kv_heads), "heads of its keys and values")
          .from(1)
          .to(1024)
          .wish(),

      Row("features.memory_mb", at(&R::features, &F::memory_mb),
          "memory for hidden states of the target that are kept for later epochs, in MiB")
          .from(0)
          .to(1e8),
      Row("features.rows_together", at(&R::features, &F::rows_together),
          "rows of one pass of the target; 0: 8 when the features of all rows fit in memory_mb, else 1")
          .from(0)
          .to(1024),
      Row("features.kernels", at(&R::features, &F::kernels),
          "library: the products that are fastest for long texts; decoding: the kernels that the target decodes with, "
          "so "
          "that the draft is trained on the very states that it will see")
          .of({"library", "decoding"}),

      Row("optimizer.learning_rate", at(&R::optimizer, &O::learning_rate), "peak learning rate of AdamW")
          .greater(0)
          .to(1),
      Row("optimizer.beta1", at(&R::optimizer, &O::beta1), "decay of the first moment").from(0).to(0.9999),
      Row("optimizer.beta2", at(&R::optimizer, &O::beta2), "decay of the second moment").from(0).to(0.999999),
      Row("optimizer.epsilon", at(&R::optimizer, &O::epsilon), "added to the denominator of the update")
          .greater(0)
          .to(1),
      Row("optimizer.weight_decay", at(&R::optimizer, &O::weight_decay), "decoupled weight decay").from(0).to(10),
      Row("optimizer.clip", at(&R::optimizer, &O::clip), "longest gradient norm; 0: no clipping").from(0).to(1e9),
      Row("optimizer.rates", at(&R::optimizer, &O::rates),
          "factors on the learning rate by parameter name, `*` matches any text, for example `\"markov_head.*\": 3`")
          .greater(0)
          .to(1000),
      Row("optimizer.decays", at(&R::optimizer, &O::decays),
          "weight decay by parameter name in place of the other ones, for example `\"*norm*\": 0`")
          .from(0)
          .to(10),
      Row("optimizer.matrix", at(&R::optimizer, &O::matrix),
          "what updates matrices: `adamw`, or `muon`, an orthogonalised momentum; embeddings and heads take `rest`")
          .of({"adamw", "muon"}),
      Row("optimizer.rest", at(&R::optimizer, &O::rest),
          "what updates everything else; `sharded_adamw` is AdamW whose tensors are cut among ranks")
          .of({"adamw", "sharded_adamw"}),
      Row("optimizer.routes", at(&R::optimizer, &O::routes),
          "what updates the parameters with these names, for example `\"markov_head.*\": muon`; `parameters.txt` in "
          "the "
          "run folder shows every parameter's route and its reason")
          .of({"muon", "adamw", "sharded_adamw"}),
      Row("optimizer.matrix_learning_rate", at(&R::optimizer, &O::matrix_learning_rate),
          "peak learning rate of Muon; null: learning_rate, which `match_rms_adamw` makes a sensible choice")
          .greater(0)
          .to(10)
          .wish(),
      Row("optimizer.matrix_weight_decay", at(&R::optimizer, &O::matrix_weight_decay),
          "weight decay of Muon; null: weight_decay")
          .from(0)
          .to(10)
          .wish(),
      Row("optimizer.momentum", at(&R::optimizer, &O::momentum), "of Muon").from(0).to(0.9999).wish(),
      Row("optimizer.nesterov", at(&R::optimizer, &O::nesterov), "Muon looks one step of its momentum ahead").wish(),
      Row("optimizer.momentum_dtype", at(&R::optimizer, &O::momentum_dtype), "element type of Muon's momentum")
          .of({"f32", "bf16"})
          .wish(),
      Row("optimizer.update_scale", at(&R::optimizer, &O::update_scale),
          "factor on an m x n update of Muon: `match_rms_adamw` 0.2 sqrt(max(m, n)), `original` sqrt(max(1, m / n))")
          .of({"match_rms_adamw", "original", "none"})
          .wish(),
      Row("optimizer.newton_schulz", at(&R::optimizer, &O::newton_schulz),
          "form of the iteration: `direct` works on the matrix, `gram` on its smaller product with itself, `automatic` "
          "takes the cheaper one")
          .of({"automatic", "gram", "direct"})
          .wish(),
      Row("optimizer.newton_schulz_dtype", at(&R::optimizer, &O::newton_schulz_dtype),
          "element type between its products, whose sums are f32")
          .of({"bf16", "f32", "f16"})
          .wish(),
      Row("optimizer.coefficients", at(&R::optimizer, &O::coefficients), "of the iteration's polynomials")
          .of({"polar-express", "you", "jordan"})
          .wish(),
      Row("optimizer.restarts", at(&R::optimizer, &O::restarts),
          "iterations, counted from 0, before which the Gram form begins again from the matrix; bf16 needs one")
          .from(1)
          .to(4)
          .wish(),

      Row("loss.ce", at(&R::loss, &L::ce), "weight of the cross-entropy with the labels").from(0).to(1000),
      Row("loss.labels", at(&R::loss, &L::labels),
          "of the cross-entropy: `hard`, the target's tokens, or `soft`, its whole distribution, which teaches more "
          "by few answers")
          .of({"hard", "soft"}),
      Row("loss.l1", at(&R::loss, &L::l1), "weight of the L1 distance to the target's distribution").from(0).to(1000),
      Row("loss.confidence", at(&R::loss, &L::confidence), "weight of the confidence head's loss").from(0).to(1000),
      Row("loss.decay_gamma", at(&R::loss, &L::decay_gamma),
          "draft d = 0, 1, ... of a block weighs exp(-d / decay_gamma); 0: all the same")
          .from(0)
          .to(1e6),
      Row("loss.weights", at(&R::loss, &L::weights),
          "`decay`, or D-PACE weights that follow the draft's own confidence (DFlash)")
          .of({"decay", "dpace", "dpace-cumulative-confidence-only", "dpace-continuation-value-only"}),
      Row("loss.dpace_alpha", at(&R::loss, &L::dpace_alpha), "smoothing of the D-PACE weights").from(0).to(1),
      Row("loss.normalisation", at(&R::loss, &L::normalisation),
          "`supervised_weight`: sums divided by the weight of the whole optimizer step, so accumulation changes "
          "nothing; `per_micro_batch`: each micro-batch by its own, then averaged, as DeepSpec does")
          .of({"supervised_weight", "per_micro_batch"}),
      Row("loss.renormalised_teacher", at(&R::loss, &L::renormalised_teacher),
          "with a reduced vocabulary: renormalise the target's distribution over it (for comparison only)"),
      Row("loss.tile_mb", at(&R::loss, &L::tile_mb),
          "logits that exist at one time, in MiB; 0: what 330 rows take, 64 to 192")
          .from(0)
          .to(1e6),

      Row("schedule.steps", at(&R::schedule, &S::steps), "optimizer steps to train for").from(1).to(1e9),
      Row("schedule.epochs", at(&R::schedule, &S::epochs), "passes over the training rows, also fractions")
          .greater(0)
          .to(1e6),
      Row("schedule.time_budget_s", at(&R::schedule, &S::time_budget_s),
          "seconds to train for; turned once, after a measured warm-up, into a number of steps")
          .greater(0)
          .to(1e8),
      Row("schedule.budget_clock", at(&R::schedule, &S::budget_clock),
          "what the time budget counts: seconds on the wall or CPU-seconds of the process")
          .of({"wall", "cpu"}),
      Row("schedule.warmup_steps", at(&R::schedule, &S::warmup_steps),
          "steps in which the learning rate grows to its peak; null: warmup_ratio decides")
          .from(0)
          .to(1e9),
      Row("schedule.warmup_ratio", at(&R::schedule, &S::warmup_ratio), "the same as a share of all steps")
          .from(0)
          .to(0.9)
          .wish(),
      Row("schedule.shape", at(&R::schedule, &S::shape), "the way down after the warm-up")
          .of({"cosine", "linear", "constant"}),
      Row("schedule.floor", at(&R::schedule, &S::floor), "share of the peak that the way down ends at").from(0).to(1),

      Row("validation.every", at(&R::validation, &V::every), "steps between validations; 0: only at the end")
          .from(0)
          .to(1e9),
      Row("validation.rows", at(&R::validation, &V::rows), "validation rows to use, from the first; 0: all")
          .from(0)
          .to(1e9),

      Row("checkpoint.every", at(&R::checkpoint, &C::every), "steps between checkpoints; 0: only at the end")
          .from(0)
          .to(1e9)
          .free(),
      Row("checkpoint.epochs", at(&R::checkpoint, &C::epochs),
          "epochs between checkpoints that are kept, each with a link `epoch_E`; 0: none")
          .from(0)
          .to(1e6)
          .free(),
      Row("checkpoint.keep_last", at(&R::checkpoint, &C::keep_last), "newest checkpoints to keep")
          .from(1)
          .to(1e6)
          .free(),
      Row("checkpoint.keep_best", at(&R::checkpoint, &C::keep_best),
          "keep the checkpoint with the best validation tau as well")
          .free(),

      Row("logging.every", at(&R::logging, &G::every), "steps between lines of metrics").from(1).to(1e6),
      Row("logging.tensorboard", at(&R::logging, &G::tensorboard), "write TensorBoard event files as well").free(),

      Row("parallel.replicate", at(&R::parallel, &P::replicate),
          "ranks that hold a whole draft each; times `shard` it is the number of processes (`pacer launch -n N`); "
          "null: 1, and without both keys one process trains alone")
          .from(1)
          .to(1 << 20)
          .free(),
      Row("parallel.shard", at(&R::parallel, &P::shard), "ranks that share one copy of weights and states; null: 1")
          .from(1)
          .to(1 << 20)
          .free(),
      Row("parallel.exact", at(&R::parallel, &P::exact),
          "every mesh with as many micro-batches in a step ends with the same bits, also with different data per rank"),
      Row("parallel.accumulation", at(&R::parallel, &P::accumulation),
          "how the micro-batches of a rank come together: `reduce_each` sends each, `no_sync` sums them and sends "
          "once, "
          "`replicate_gate` sends each inside of a row of shards")
          .of({"reduce_each", "no_sync", "replicate_gate"})
          .free(),
      Row("parallel.free_weights", at(&R::parallel, &P::free_weights),
          "whole masters only while a micro-batch reads them, else they stay on every rank")
          .free(),
      Row("parallel.unshard", at(&R::parallel, &P::unshard), "how weights reach the ranks of a row")
          .of({"broadcast", "all_gather"})
          .free(),
      Row("parallel.message_dtype", at(&R::parallel, &P::message_dtype),
          "element type of gradients on their way; they are added in f32")
          .of({"f32", "bf16"}),
      Row("parallel.overlap", at(&R::parallel, &P::overlap),
          "messages travel while ranks compute; `false` waits for each, with the same bits")
          .free(),
      Row("parallel.collectives", at(&R::parallel, &P::collectives),
          "`auto`: messages go through the collectives of the device; `host`: through host memory, as where a device "
          "brings none")
          .of({"auto", "host"})
          .free(),
      Row("parallel.generator_stride", at(&R::parallel, &P::generator_stride),
          "LibTorch's random number generators of rank r are seeded with `seed` + r times this; 0: the same "
          "everywhere. "
          "Pacer's own draws are the same on every mesh")
          .from(0)
          .to(1 << 20)
          .free(),
      Row("parallel.timeout_s", at(&R::parallel, &P::timeout_s),
          "seconds after which a message counts as lost and the ranks end")
          .greater(0)
          .to(1e6)
          .free(),
      Row("method", at(&R::method),
          "`draft`: train a draft for model.target as the section draft says; `causal_lm`: train a whole model on "
          "language_model.text")
          .of({"draft", "causal_lm"}),
      Row("seed", at(&R::seed), "of everything that is drawn: weights, order of the rows, anchors")
          .from(0)
          .to(9007199254740992.0),
      Row("threads", at(&R::threads), "CPU threads; 0: all cores this process may use").from(0).to(4096),
      Row("device", at(&R::device), "where to compute, as in `pacer train --help` and docs/devices.md").free(),
      Row("kernel_impl", at(&R::kernel_impl),
          "`auto`: own kernels where they apply; `plain`: LibTorch's operators only, alike on every device")
          .of({"auto", "plain"})
          .free(),
      Row("attention_impl", at(&R::attention_impl), "the same for attention").of({"auto", "plain"}).free(),
  };
}

}  // namespace

const std::vector<Key>& schema() {
  static const std::vector<Key> keys = make_schema();
  return keys;
}

const Key* find_key(const std::string& name) {
  for (const Key& key : schema()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

}  // namespace pacer::train
