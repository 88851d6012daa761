// Answers of the target to prompts: the text that a draft is trained on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "pacer/base/json.h"
#include "pacer/data/prompts.h"
#include "pacer/decode/batch_generate.h"
#include "pacer/target/target.h"
#include "pacer/text/model_text.h"
#include "pacer/train/state_store.h"

namespace pacer::workflow {

struct GenerateOptions {
  std::filesystem::path prompts, out;
  decode::SamplingOptions sampling;  // stop_ids empty: the model's own
  std::string target_name;           // recorded beside the rows; a file is continued only with the same target
  std::string system;                // put in front of conversations that have no system message
  OrderedJson variables = OrderedJson::object();  // for the chat template, e.g. {"enable_thinking": false}
  data::BadRowPolicy policy = data::BadRowPolicy::drop;
  int64_t sequences = 48;                     // answers in flight
  int64_t limit = 0;                          // first so many prompts; 0: all
  bool keep_cut = true;                       // keep answers that ran into max_new_tokens
  std::function<bool()> stop_requested;       // asked after every answer; true: leave, to be continued by the same call
  std::shared_ptr<train::StateStore> states;  // gets the hidden states of the rows that this call writes
};

struct GenerateReport {
  int64_t prompts = 0;      // conversations read
  int64_t resumed = 0;      // answers that were in the file already
  int64_t answered = 0;     // written by this call
  int64_t cut_dropped = 0;  // answers left out because they ran into the limit
  int64_t new_tokens = 0, prompt_tokens = 0;
  int64_t too_long = 0;  // prompts that leave no room for an answer; their ids are logged
  bool finished = true;  // false: stopped on request
  data::RowProblems problems;
  decode::BatchStatistics statistics;
  double wall_s = 0, cpu_s = 0;
  OrderedJson to_json() const;
};

// Answers every user turn of every prompt in order, with the target's own earlier answers before it, and appends a row
// per answer to `out` (see data/generated_rows.h); answers that are there already are not made again. The answer to
// turn t of a prompt with several turns has the id "ID/t", t from 1. A finished file is in the order of the prompts,
// whatever was interrupted on the way.
GenerateReport generate_data(const target::Target& target, const text::ModelText& text, const GenerateOptions& options);

}  // namespace pacer::workflow
