// What a draft is measured on: files of prompts, one kind each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pacer/base/json.h"
#include "pacer/data/prompts.h"
#include "pacer/text/model_text.h"

namespace pacer::eval {

struct Task {
  std::string name;  // the file's name without its ending
  std::vector<data::Prompt> prompts;
};

// One task per file of JSON Lines (data::read_prompts), in the order given, at most `limit` prompts each, 0: all.
// "FILE:N" takes at most N prompts of this one. A folder stands for all files NAME.jsonl in it, by name.
// Throws Error{usage} for two files of one name: their results could not be told apart; for a file that is not there,
// with those that lie beside it; for a folder without any. Rows that are not prompts are logged with their lines.
std::vector<Task> read_tasks(const std::vector<std::filesystem::path>& files, int64_t limit);

// How conversations become ids and ids become text.
struct Words {
  std::function<std::vector<int64_t>(const OrderedJson& messages, const OrderedJson& tools)> encode;
  std::function<std::string(std::span<const int64_t> ids)> decode;
};
// variables: for the chat template, such as {"enable_thinking": false}.
Words words_of(std::shared_ptr<const text::ModelText> text, OrderedJson variables = OrderedJson::object());

}  // namespace pacer::eval
