#include "pacer/draft/block_plan.h"

#include <algorithm>
#include <cmath>

#include "pacer/base/error.h"
#include "pacer/base/random.h"

namespace pacer::draft {
namespace {

std::span<const uint8_t> sequence_mask(const PackedTokens& tokens, size_t sequence) {
  const auto begin = static_cast<size_t>(tokens.starts[sequence]),
             end = static_cast<size_t>(tokens.starts[sequence + 1]);
  return tokens.supervised.subspan(begin, end - begin);
}

void check(const PackedTokens& tokens, size_t lists) {
  const size_t sequences = tokens.starts.empty() ? 0 : tokens.starts.size() - 1;
  if (tokens.starts.empty() || tokens.sample_ids.size() != sequences || lists != sequences ||
      tokens.ids.size() != tokens.supervised.size() || tokens.ids.size() != static_cast<size_t>(tokens.starts.back())) {
    throw Error(ErrorKind::bug, "plan_blocks: " + std::to_string(tokens.ids.size()) + " tokens, " +
                                    std::to_string(tokens.supervised.size()) + " mask values, " +
                                    std::to_string(sequences) + " sequences, " +
                                    std::to_string(tokens.sample_ids.size()) + " sample ids, " + std::to_string(lists) +
                                    " anchor lists");
  }
}

// Of a supervised slot k.
float slot_weight(const DraftConfig& config, const LossOptions& options, int64_t k) {
  if (options.decay_gamma <= 0 || options.dynamic_weights()) return 1.0f;
  const int64_t draft = config.sample_from_anchor ? k : std::max<int64_t>(k - 1, 0);
  return static_cast<float>(std::exp(-static_cast<double>(draft) / options.decay_gamma));
}

}  // namespace

int64_t training_lanes(const LossOptions& options, int64_t slots, int64_t head_bytes, int64_t threads) {
  constexpr int64_t kMost = 4, kLeastSlots = 256, kCached = 24 << 20;
  const bool pays = !options.fixed_parts && threads <= kMost && slots >= threads * kLeastSlots && head_bytes <= kCached;
  return pays ? threads : 1;
}

int64_t blocks_of_a_part(const LossOptions& options, int64_t blocks, int64_t block_size, int64_t row_bytes,
                         int64_t lanes) {
  constexpr int64_t kNarrow = 1280;  // bytes of a row
  const int64_t slots = row_bytes <= kNarrow ? 1120 : 512;
  if (options.fixed_parts) {
    if (options.anchors_at_once > 0 && options.anchors_at_once < LossOptions::kExactPart) {
      throw Error(ErrorKind::usage, "exact gradients are added in parts of " + std::to_string(LossOptions::kExactPart) +
                                        " blocks, and " + std::to_string(options.anchors_at_once) +
                                        " may exist at once");
    }
    return LossOptions::kExactPart;
  }
  const int64_t allowed =
      std::max<int64_t>(1, options.anchors_at_once > 0 ? options.anchors_at_once / lanes : slots / block_size);
  // Parts of equal size, as many for every lane: a small last one would cost as many calls as a large one.
  const int64_t needed = std::max<int64_t>(1, (blocks + allowed - 1) / allowed);
  const int64_t parts = (needed + lanes - 1) / lanes * lanes;
  return std::max<int64_t>(1, (blocks + parts - 1) / parts);
}

int64_t logits_bytes(const LossOptions& options, int64_t vocabulary, int64_t lanes) {
  if (options.tile_bytes > 0) return std::max<int64_t>(1, options.tile_bytes / lanes);
  constexpr int64_t kRows = 330, kLeast = 64 << 20, kMost = 192 << 20;
  return std::clamp(kRows * vocabulary * static_cast<int64_t>(sizeof(float)), kLeast, kMost);
}

std::vector<int64_t> anchor_candidates(std::span<const uint8_t> supervised) {
  std::vector<int64_t> candidates;
  for (size_t p = 0; p + 1 < supervised.size(); ++p) {
    if (supervised[p] != 0 && supervised[p + 1] != 0) candidates.push_back(static_cast<int64_t>(p));
  }
  return candidates;
}

std::vector<int64_t> choose_anchors(std::span<const int64_t> candidates, int64_t count,
                                    const std::function<double(int64_t position)>& key) {
  std::vector<std::pair<double, int64_t>> keyed;
  keyed.reserve(candidates.size());
  for (const int64_t position : candidates) keyed.emplace_back(key(position), position);
  const size_t kept = std::min(keyed.size(), static_cast<size_t>(std::max<int64_t>(count, 0)));
  std::partial_sort(keyed.begin(), keyed.begin() + static_cast<std::ptrdiff_t>(kept), keyed.end());
  std::vector<int64_t> anchors;
  for (size_t i = 0; i < kept; ++i) anchors.push_back(keyed[i].second);
  std::sort(anchors.begin(), anchors.end());
  return anchors;
}

BlockPlan plan_blocks(const DraftConfig& config, const LossOptions& options, const PackedTokens& tokens,
                      const std::vector<std::vector<int64_t>>& anchors) {
  check(tokens, anchors.size());
  const int64_t slots = config.block_size;
  const int64_t first_label = config.sample_from_anchor ? 1 : 0;  // slot k predicts anchor + k + first_label
  const auto kept = [&config](int64_t id) {
    return config.kept_ids.empty() || std::binary_search(config.kept_ids.begin(), config.kept_ids.end(), id);
  };

  BlockPlan plan;
  plan.block_size = slots;
  plan.counts.supervised.resize(static_cast<size_t>(slots));
  plan.counts.kept.resize(static_cast<size_t>(slots));
  plan.counts.sequences = static_cast<int64_t>(anchors.size());
  for (size_t s = 0; s < anchors.size(); ++s) {
    const std::span<const uint8_t> mask = sequence_mask(tokens, s);
    const int64_t start = tokens.starts[s], length = static_cast<int64_t>(mask.size());
    int64_t before = -1;
    for (const int64_t anchor : anchors[s]) {
      if (anchor <= before || anchor < 0 || anchor > length - 2 || mask[static_cast<size_t>(anchor)] == 0 ||
          mask[static_cast<size_t>(anchor) + 1] == 0) {
        throw Error(ErrorKind::bug, "plan_blocks: position " + std::to_string(anchor) + " of a sequence of " +
                                        std::to_string(length) + " cannot be an anchor here");
      }
      before = anchor;
      plan.sequence.push_back(static_cast<int64_t>(s));
      plan.anchor.push_back(anchor);
      plan.sample_id.push_back(tokens.sample_ids[s]);
      bool unbroken = true;
      for (int64_t k = 0; k < slots; ++k) {
        const int64_t label = anchor + k + first_label;
        const bool inside = label < length && mask[static_cast<size_t>(label)] != 0;
        unbroken = unbroken && inside;
        const bool live = config.sample_from_anchor ? unbroken : inside && k > 0;
        plan.label_row.push_back(live ? start + label : -1);
        plan.teacher_row.push_back(live ? start + label - 1 : -1);
        plan.previous_row.push_back(start + std::clamp(label - 1, anchor, length - 1));
        plan.weight.push_back(live ? slot_weight(config, options, k) : 0.0f);
        if (!live) continue;
        ++plan.counts.supervised[static_cast<size_t>(k)];
        plan.weight_sum += static_cast<double>(plan.weight.back());
        if (kept(tokens.ids[static_cast<size_t>(start + label)])) {
          ++plan.counts.kept[static_cast<size_t>(k)];
          plan.ce_weight_sum += static_cast<double>(plan.weight.back());
        }
      }
    }
  }
  if (options.dynamic_weights()) plan.ce_weight_sum = static_cast<double>(anchors.size());
  return plan;
}

Denominators denominators(const DraftConfig& config, const LossOptions& options, const SlotCounts& counts) {
  Denominators sums;
  for (size_t k = 0; k < counts.supervised.size(); ++k) {
    const auto weight = static_cast<double>(slot_weight(config, options, static_cast<int64_t>(k)));
    sums.all += weight * static_cast<double>(counts.supervised[k]);
    sums.ce += weight * static_cast<double>(counts.kept[k]);
  }
  if (options.dynamic_weights()) sums.ce = static_cast<double>(counts.sequences);
  return sums;
}

BlockPlan plan_blocks(const DraftConfig& config, const LossOptions& options, const PackedTokens& tokens,
                      int64_t anchors_per_sequence, const StepRandom& random) {
  const size_t sequences = tokens.starts.empty() ? 0 : tokens.starts.size() - 1;
  check(tokens, sequences);
  std::vector<std::vector<int64_t>> anchors(sequences);
  for (size_t s = 0; s < sequences; ++s) {
    const RandomStream stream(random.seed, Purpose::anchors, random.step, tokens.sample_ids[s]);
    anchors[s] = choose_anchors(anchor_candidates(sequence_mask(tokens, s)), anchors_per_sequence,
                                [&](int64_t position) { return stream.uniform(static_cast<uint64_t>(position)); });
  }
  return plan_blocks(config, options, tokens, anchors);
}

}  // namespace pacer::draft
