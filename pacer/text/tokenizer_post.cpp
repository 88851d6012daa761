#include "pacer/text/tokenizer_post.h"

#include <algorithm>
#include <utility>

#include "pacer/text/tokenizer_byte_alphabet.h"
#include "pacer/text/tokenizer_text.h"
#include "pacer/text/tokenizer_unicode.h"

namespace pacer::text {
namespace {

bool is_space(char32_t c) { return is_white_space(c) || byte_alphabet().byte_of(c) == ' '; }

// ["token", id] as BERT's and RoBERTa's processors have them.
int64_t named_id(const Component& config, const std::string& key) {
  const Component pair = config.at(key);
  if (!pair.json().is_array() || pair.json().size() != 2 || !pair.json()[1].is_number_integer()) {
    pair.refuse("[token, id] expected");
  }
  return pair.json()[1].get<int64_t>();
}

}  // namespace

TokenSpaces count_spaces(std::string_view token) {
  TokenSpaces spaces;
  for (size_t at = 0; at < token.size(); ++spaces.leading) {
    const CodePoint c = decode_utf8(token, at);
    if (!is_space(c.value)) break;
    at += c.length;
  }
  for (size_t end = token.size(); end > 0; ++spaces.trailing) {
    const CodePoint c = decode_utf8_before(token, end);
    if (!is_space(c.value)) break;
    end -= c.length;
  }
  return spaces;
}

PostProcessor::PostProcessor(const Component& config) {
  if (!config.is_null()) add(config);
}

void PostProcessor::add(const Component& config) {
  const std::string type = config.type();
  if (type == "Sequence") {
    for (const Component& part : config.list("processors")) {
      if (part.is_null()) part.refuse("a post-processor expected, found null");
      add(part);
    }
  } else if (type == "TemplateProcessing") {
    add_template(config);
  } else if (type == "ByteLevel" || type == "RobertaProcessing" || type == "BertProcessing") {
    Step step;
    if (type != "BertProcessing") {
      step.trim = config.flag_or("trim_offsets", true);
      step.add_prefix_space = config.flag_or("add_prefix_space", true);
      trims_ = trims_ || step.trim;
    }
    if (type != "ByteLevel") {
      step.insert = true;
      step.before = {named_id(config, "cls")};
      step.after = {named_id(config, "sep")};
    }
    steps_.push_back(std::move(step));
  } else {
    config.refuse_type({"Sequence", "TemplateProcessing", "ByteLevel", "RobertaProcessing", "BertProcessing"});
  }
}

void PostProcessor::add_template(const Component& config) {
  Step step;
  step.insert = true;
  bool seen = false;
  for (const Component& part : config.list("single")) {
    if (part.has("Sequence")) {
      const Component sequence = part.at("Sequence");
      if (sequence.text("id") != "A" || seen) sequence.refuse("the text must stand in its template once, as \"A\"");
      seen = true;
      continue;
    }
    const std::string name = part.at("SpecialToken").text("id");
    const Component ids = config.at("special_tokens").at(name).at("ids");
    if (!ids.json().is_array()) ids.refuse("an array of ids expected");
    for (const OrderedJson& id : ids.json()) {
      if (!id.is_number_integer()) ids.refuse("an array of ids expected");
      (seen ? step.after : step.before).push_back(id.get<int64_t>());
    }
  }
  if (!seen) config.at("single").refuse("the text itself is missing from its template");
  steps_.push_back(std::move(step));
}

void PostProcessor::require_ids_below(int64_t size, const std::string& place) const {
  for (const Step& step : steps_) {
    for (const auto* ids : {&step.before, &step.after}) {
      for (const int64_t id : *ids) {
        if (id >= 0 && id < size) continue;
        throw Error(ErrorKind::format,
                    place + ": post_processor puts the id " + std::to_string(id) + " around texts; there are " +
                        std::to_string(size) + " tokens",
                    "post-processor and vocabulary belong to different tokenizers");
      }
    }
  }
}

void PostProcessor::trim(Encoding& encoding, const std::vector<TokenSpaces>& spaces, bool add_prefix_space) {
  for (size_t i = 0; i < encoding.offsets.size() && i < spaces.size(); ++i) {
    auto& [begin, end] = encoding.offsets[i];
    int64_t leading = spaces[i].leading;
    const int64_t trailing = spaces[i].trailing;
    if (leading > 0) {
      // A single space before the text is the one that was put there; more of them are the text's own.
      if (leading == 1 && add_prefix_space && (i == 0 || begin == 0)) leading = 0;
      begin = std::min(begin + leading, end);
    }
    if (trailing > 0 && end >= trailing) end = std::max(end - trailing, begin);
  }
}

void PostProcessor::apply(Encoding& encoding, const std::vector<TokenSpaces>& spaces,
                          const EncodeOptions& options) const {
  std::vector<TokenSpaces> moved;
  const std::vector<TokenSpaces>* current = &spaces;
  for (const Step& step : steps_) {
    if (step.trim && options.offsets) trim(encoding, *current, step.add_prefix_space);
    if (!step.insert || !options.add_special_tokens) continue;
    encoding.ids.insert(encoding.ids.begin(), step.before.begin(), step.before.end());
    encoding.ids.insert(encoding.ids.end(), step.after.begin(), step.after.end());
    if (!options.offsets) continue;
    const std::pair<int64_t, int64_t> nowhere{0, 0};
    encoding.offsets.insert(encoding.offsets.begin(), step.before.size(), nowhere);
    encoding.offsets.insert(encoding.offsets.end(), step.after.size(), nowhere);
    if (!trims_) continue;
    moved = *current;
    moved.insert(moved.begin(), step.before.size(), TokenSpaces{});
    moved.insert(moved.end(), step.after.size(), TokenSpaces{});
    current = &moved;
  }
}

}  // namespace pacer::text
