// Conversations from JSON Lines or a JSON list, in the spellings that are in use, reduced to what a target has to
// answer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "pacer/base/json.h"
#include "pacer/data/rows.h"

namespace pacer::data {

// What happens to a conversation whose roles are out of order (an assistant first, two users in a row, an unknown
// role).
enum class BadRowPolicy {
  truncate,  // keep what comes before the violation, when that still has a user turn
  drop,      // leave the conversation out and count it
  error,     // stop with an error that names the line
};
BadRowPolicy parse_bad_row_policy(const std::string& name);  // "truncate", "drop", "error"; throws Error{usage}

struct Prompt {
  std::string id;                  // the row's id, else "line-N"
  std::vector<std::string> turns;  // what the user says, in order; at least one
  std::string system;              // empty without a system message
  OrderedJson tools;               // null when absent
  int64_t line = 0;                // 1-based place in the file

  // The system message and the turns up to `turn` (0-based) with `answers` between them, for a chat template.
  OrderedJson messages(size_t turn, const std::vector<std::string>& answers) const;
};

struct Prompts {
  std::vector<Prompt> prompts;
  RowProblems problems;  // how many rows were left out or cut, by reason, with their lines
};

// Accepted rows: {"messages" | "conversations": [{"role" | "from", "content" | "value"}]}, {"turns": [text]},
// {"prompt": text}, each with an optional "id" and "tools" (a list, or JSON text of one). human and gpt are user and
// assistant. Answers in the file are thrown away: the target writes its own.
// Blank lines are skipped; lines that are not such a row are counted by reason. Two rows with the same id are an error,
// because answers are found again by id. Throws Error{data} for an unreadable file or one without any prompt.
Prompts read_prompts(const std::filesystem::path& path, BadRowPolicy policy = BadRowPolicy::drop);

}  // namespace pacer::data
