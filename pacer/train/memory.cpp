#include "pacer/train/memory.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "pacer/base/error.h"
#include "pacer/base/logging.h"
#include "pacer/base/numbers.h"
#include "pacer/device/device_memory.h"
#include "pacer/draft/weights.h"
#include "pacer/target/weights.h"
#include "pacer/train/draft_setup.h"
#include "pacer/train/feature_source.h"
#include "pacer/train/head_loss.h"
#include "pacer/train/optimizer_setup.h"

namespace pacer::train {
namespace {

int64_t tokens_of(const std::vector<data::TokenRow>& rows) {
  int64_t tokens = 0;
  for (const data::TokenRow& row : rows) tokens += static_cast<int64_t>(row.ids.size());
  return tokens;
}

// Tokens of the `count` longest rows: a micro-batch cannot hold more.
int64_t longest(const std::vector<data::TokenRow>& rows, int64_t count) {
  std::vector<int64_t> lengths;
  for (const data::TokenRow& row : rows) lengths.push_back(static_cast<int64_t>(row.ids.size()));
  const auto kept = std::min<size_t>(static_cast<size_t>(count), lengths.size());
  std::ranges::partial_sort(lengths, lengths.begin() + static_cast<std::ptrdiff_t>(kept), std::greater<>());
  int64_t tokens = 0;
  for (size_t i = 0; i < kept; ++i) tokens += lengths[i];
  return tokens;
}

uint64_t target_bytes(const Recipe& recipe, const target::ModelConfig& config) {
  uint64_t elements = 0;
  for (const auto& [name, shape] : target::weight_shapes(config)) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    elements += static_cast<uint64_t>(count);
  }
  return elements * c10::elementSize(parse_dtype(recipe.model.dtype));
}

}  // namespace

uint64_t MemoryEstimate::total() const {
  uint64_t sum = 0;
  for (const MemoryLine& line : lines) sum += line.bytes;
  return sum;
}

int64_t draft_parameters(const draft::DraftConfig& config) {
  const target::ModelConfig& layer = config.layer;
  const int64_t h = layer.hidden_size, f = layer.intermediate_size, d = layer.head_dim;
  const int64_t taps = static_cast<int64_t>(config.target_layer_ids.size());
  int64_t per_layer = 2 * h + 2 * d + 2 * layer.heads * d * h + 2 * layer.kv_heads * d * h + 3 * f * h;
  if (layer.qkv_bias) per_layer += (layer.heads + 2 * layer.kv_heads) * d;
  if (layer.o_bias) per_layer += h;
  const int64_t r = config.markov_rank;
  int64_t heads = 0;
  if (config.markov != draft::MarkovKind::none) heads += r * (layer.vocab_size + config.draft_vocab());
  if (config.markov == draft::MarkovKind::gated) heads += r * (h + r) + r;
  if (config.markov == draft::MarkovKind::rnn) heads += 3 * r * (2 * r + h) + 3 * r;
  if (config.confidence_head) heads += h + (config.confidence_with_markov ? r : 0) + 1;
  return taps * h * h + 2 * h + config.layers * per_layer + heads;
}

FeatureMemory feature_memory(const Recipe& recipe, const target::ModelConfig& target, size_t taps,
                             const std::vector<data::TokenRow>& train, const std::vector<data::TokenRow>& validation) {
  const at::ScalarType dtype = parse_dtype(recipe.model.dtype);
  const uint64_t all = static_cast<uint64_t>(recipe.features.memory_mb) << 20;
  const uint64_t train_need = feature_bytes(tokens_of(train), target, taps, dtype);
  const uint64_t validation_need = feature_bytes(tokens_of(validation), target, taps, dtype);
  FeatureMemory memory;
  memory.validation = std::min(validation_need, all / 4);
  memory.train = std::min(train_need, all - memory.validation);
  memory.train_fits = memory.train == train_need;
  memory.validation_fits = memory.validation == validation_need;
  return memory;
}

template <class Shapes>
std::vector<std::pair<std::string, std::vector<int64_t>>> shapes_of(const Shapes& shapes) {
  return {shapes.begin(), shapes.end()};
}

// Masters, gradients and states of the optimizer. AdamW keeps two f32 moments of every element, Muon one momentum.
// Where ranks train together every rank has weights, gradients and the message that they are sent in; master, newest
// weights and states are divided among the owners, those of sharded_adamw among the ranks of a row.
uint64_t optimizer_bytes(const Recipe& recipe,
                         const std::vector<std::pair<std::string, std::vector<int64_t>>>& shapes) {
  const optim::OptimizerOptions options = optimizer_options(recipe.optimizer);
  uint64_t bytes = 0;
  for (const optim::RoutedParameter& parameter : optim::route_parameters(shapes, options.routes)) {
    uint64_t elements = 1;
    for (const int64_t size : parameter.sizes) elements *= static_cast<uint64_t>(size);
    const uint64_t states =
        elements * (parameter.route == optim::Route::muon ? c10::elementSize(options.muon.momentum_dtype) : 8);
    if (!recipe.parallel.wanted()) {
      bytes += elements * 8 + states;
      continue;
    }
    const bool sharded = parameter.route == optim::Route::sharded_adamw;
    const auto holders = static_cast<uint64_t>(sharded ? recipe.parallel.shards() : recipe.parallel.ranks());
    bytes += elements * 12 + (elements * 8 + states) / holders;
  }
  return bytes;
}

MemoryEstimate estimate_memory(const Recipe& recipe, const target::ModelConfig& target, const draft::DraftConfig& draft,
                               const std::vector<data::TokenRow>& train, const std::vector<data::TokenRow>& validation,
                               int64_t threads) {
  const auto parameters = static_cast<uint64_t>(draft_parameters(draft));
  const uint64_t item = c10::elementSize(parse_dtype(recipe.draft.dtype));
  const target::ModelConfig& layer = draft.layer;
  const auto h = static_cast<uint64_t>(layer.hidden_size), f = static_cast<uint64_t>(layer.intermediate_size);
  const auto q = static_cast<uint64_t>(layer.heads * layer.head_dim);
  const auto kv = static_cast<uint64_t>(layer.kv_heads * layer.head_dim);
  const auto taps = static_cast<uint64_t>(draft.target_layer_ids.size());
  const auto layers = static_cast<uint64_t>(draft.layers);

  const auto context = static_cast<uint64_t>(longest(train, recipe.data.sequences));
  const draft::LossOptions loss = loss_options(recipe);
  const int64_t blocks = recipe.data.sequences * recipe.data.anchors;
  const int64_t columns = draft.kept_ids.empty() ? target.vocab_size : static_cast<int64_t>(draft.kept_ids.size());
  const int64_t lanes =
      draft::training_lanes(loss, blocks * draft.block_size, columns * static_cast<int64_t>(h * item), threads);
  const int64_t part =
      lanes * draft::blocks_of_a_part(loss, blocks, draft.block_size, static_cast<int64_t>(h * item), lanes);
  const auto slots = static_cast<uint64_t>(part * draft.block_size);
  const uint64_t saved = context * (taps * h + 2 * h + layers * 2 * kv);
  const uint64_t saved_of_part = slots * layers * (5 * h + 2 * q + 2 * kv + 3 * f);
  const auto together = static_cast<uint64_t>(longest(train, std::max<int64_t>(8, recipe.features.rows_together)));
  const auto th = static_cast<uint64_t>(target.hidden_size), tf = static_cast<uint64_t>(target.intermediate_size);
  const uint64_t forward = together * (4 * th + 3 * tf) * c10::elementSize(parse_dtype(recipe.model.dtype));
  const FeatureMemory features = feature_memory(recipe, target, draft.target_layer_ids.size(), train, validation);
  constexpr uint64_t kLibraries = 150'000'000;  // a process that has only loaded them

  const at::ScalarType states = parse_dtype(recipe.model.dtype);

  const uint64_t weights = target_bytes(recipe, target);
  // The decoding kernels read a packed copy of the layers, about as large as the weights themselves.
  const uint64_t packed = recipe.features.kernels == "decoding" ? weights : 0;

  const auto logits = static_cast<uint64_t>(lanes * draft::logits_bytes(loss, columns, lanes));

  MemoryEstimate estimate;
  estimate.lines = {{"target weights", weights, "model.dtype"},
                    {"packed target weights", packed, "features.kernels"},
                    {"draft masters, gradients and moments",
                     optimizer_bytes(recipe, shapes_of(draft::parameter_shapes(draft))), "draft.layers"},
                    {"draft compute copy", parameters * item, "draft.dtype"},
                    {"kept features", features.train + features.validation, "features.memory_mb", /*on_host=*/true},
                    {"features of two micro-batches",
                     2 * feature_bytes(static_cast<int64_t>(context), target, taps, states), "data.sequences"},
                    {"context of the draft", 2 * saved * item, "data.sequences"},
                    {"activations of blocks", 2 * saved_of_part * item, "data.anchors_at_once"},
                    {"activations of the target", forward, "features.rows_together"},
                    {"logits", logits, "loss.tile_mb"},
                    {"libraries", kLibraries, "", /*on_host=*/true}};
  return estimate;
}

MemoryEstimate estimate_language_model(const Recipe& recipe, const target::ModelConfig& model) {
  const auto width = [](int64_t value) { return static_cast<uint64_t>(value); };
  const uint64_t tokens = width(recipe.data.sequences * recipe.language_model.length), h = width(model.hidden_size),
                 q = width(model.heads * model.head_dim), kv = width(model.kv_heads * model.head_dim),
                 f = width(model.intermediate_size), length = width(recipe.language_model.length);
  // Of a layer: two normed rows and two sums, q, k, v and what they were before they were turned, the scores and their
  // softmax of every head, gate, up and their product.
  const uint64_t row = 6 * h + 3 * q + 4 * kv + 3 * f + 2 * width(model.heads) * length;
  constexpr uint64_t kBytes = 4, kTemporaries = 2;
  // In parts (head_loss.h) the head's gradient is there once more, and that of a part.
  const uint64_t logits = tokens * width(model.vocab_size), at_once = std::min(logits, width(kMostLogits)),
                 of_parts = logits > at_once ? 2 * width(model.vocab_size) * h : 0;
  MemoryEstimate estimate;
  estimate.lines = {
      {"masters, gradients and states", optimizer_bytes(recipe, shapes_of(target::weight_shapes(model))), ""},
      {"activations", kTemporaries * kBytes * tokens * width(model.layers) * row, "data.sequences"},
      {"logits", kBytes * (3 * at_once + of_parts), "data.sequences"}};
  return estimate;
}

MemoryEstimate MemoryEstimate::device_part() const {
  MemoryEstimate part = *this;
  std::erase_if(part.lines, [](const MemoryLine& line) { return line.on_host; });
  return part;
}

namespace {

std::string largest_settings(const MemoryEstimate& estimate) {
  std::vector<MemoryLine> lines = estimate.lines;
  std::erase_if(lines, [](const MemoryLine& line) { return line.setting.empty(); });
  std::ranges::sort(lines, [](const MemoryLine& a, const MemoryLine& b) { return a.bytes > b.bytes; });
  std::string hint = "make smaller what is largest: ";
  for (size_t i = 0; i < std::min<size_t>(3, lines.size()); ++i) {
    hint += (i > 0 ? "; " : "") + lines[i].setting + " (" + lines[i].what + ", " + format_bytes(lines[i].bytes) + ")";
  }
  return hint;
}

}  // namespace

void require_memory(const MemoryEstimate& estimate, const device::MemoryInfo& memory) {
  std::string text = "memory: about " + format_bytes(estimate.total()) + " of " + format_bytes(memory.available_bytes) +
                     " available (";
  for (size_t i = 0; i < estimate.lines.size(); ++i) {
    text += (i > 0 ? ", " : "") + estimate.lines[i].what + " " + format_bytes(estimate.lines[i].bytes);
  }
  log_info(text + ")");
  if (estimate.total() <= memory.available_bytes) return;
  throw Error(ErrorKind::resources,
              "training needs about " + format_bytes(estimate.total()) + " of memory, " +
                  format_bytes(memory.available_bytes) + " are available",
              largest_settings(estimate));
}

Error out_of_memory(const MemoryEstimate& estimate, const device::Runtime& runtime, const std::string& device_message) {
  const device::MemoryUse use = device::memory_use(runtime);
  return Error(ErrorKind::resources,
               "the memory of " + runtime.name() + " ended with " + format_bytes(use.now_bytes) +
                   " in tensors (at most " + format_bytes(use.peak_bytes) + " of " +
                   format_bytes(runtime.memory().total_bytes) +
                   "): " + device_message.substr(0, device_message.find('\n')),
               largest_settings(estimate.device_part()) + "; the weights of the step before are untouched");
}

}  // namespace pacer::train
