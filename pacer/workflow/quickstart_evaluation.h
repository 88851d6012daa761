// What the quickstart measures: four kinds of prompts, plain, with the draft, paced, and by prompt lookup; kinds that
// the draft has not seen plain and paced only, unless everything is asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "pacer/base/json.h"
#include "pacer/device/runtime.h"

namespace pacer::workflow {

struct QuickstartEvaluation {
  std::filesystem::path model, draft;
  std::filesystem::path folder;  // evaluation.json (bf16, timed) and evaluation_f32.json (texts) are written here
  std::filesystem::path word_problems;  // held-out ones
  bool mixed = false;                   // the draft was trained on the other kinds too
  int64_t problems = 0;                 // word problems, each also compared in f32
  int64_t others = 0;                   // prompts of each other kind
  int64_t exact_others = 0;             // of those, compared in f32
  bool others_whole = true;             // by every way of decoding; else plainly and paced
  int64_t new_tokens = 64;
  int lanes = 1;  // texts that are compared in f32 at once, each by one thread; what is timed is alone on the machine
  std::function<bool()> stop_requested;
};

// The "domains" of the summary (quickstart.h); null when it was stopped on request.
// Speed-up: plain CPU (wall) seconds / speculative seconds, summed over the same prompts, prefill on both sides.
// Acceptance length: tokens after the first / rounds.
Json evaluate_quickstart(const QuickstartEvaluation& evaluation, device::Runtime& runtime);

}  // namespace pacer::workflow
