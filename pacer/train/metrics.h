// What a run writes down about itself: metrics.jsonl for programs, TensorBoard event files for curves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "pacer/base/json.h"
#include "pacer/draft/block_plan.h"
#include "pacer/draft/features.h"
#include "pacer/formats/tensorboard.h"

namespace pacer::train {

// Ratios of the sums, as they are shown and stored:
//   loss            ce + l1 + confidence, each times its weight in the recipe
//   ce, l1, confidence    sum / weight; left out when nothing was weighed
//   accept          [drafts per block] mean acceptance rate of supervised slots
//   tau             mean over blocks of 1 + sum over k of the product of the first k acceptance rates: the expected
//                   tokens per round of rejection sampling, the bonus token included
//   correct         share of supervised slots whose most likely token is the label
//   coverage        share of labels inside the draft vocabulary
//   confidence_error      mean |sigma(confidence) - acceptance|; left out without a confidence head
//   blocks          how many
OrderedJson metrics_of(const draft::LossTerms& terms, const draft::LossOptions& options);

// metrics.jsonl: one object per line with "kind" ("start", "train", "validation", "end") and "step".
class MetricsLog {
 public:
  // Opens for appending. continued_from: step of the checkpoint that the run continues from; lines of later steps, and
  // a last line without an end, are dropped, because the run will write them again. tensorboard: folder for event
  // files, empty for none.
  MetricsLog(std::filesystem::path file, const std::filesystem::path& tensorboard,
             std::optional<int64_t> continued_from);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  // One line, in one write. Numbers and lists of numbers of train and validation records also become scalars
  // "train/loss", "validation/accept/1".
  void append(const OrderedJson& record);
  void sync();  // metrics.jsonl to the disk

 private:
  std::filesystem::path file_;
  int descriptor_ = -1;
  std::unique_ptr<formats::TensorBoardWriter> tensorboard_;
};

}  // namespace pacer::train
