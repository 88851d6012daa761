#include "pacer/text/tokenizer_json.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "pacer/base/huge_pages.h"
#include "pacer/text/tokenizer_json_scan.h"

namespace pacer::text {
namespace {

constexpr size_t kMaxDepth = 128;
constexpr size_t kMaxMembers = 4096;  // an ordered object looks through all of them for each new one

// Streams the file: vocabulary and merges, often ten megabytes, never become JSON values.
class Reader final : public JsonEvents {
 public:
  explicit Reader(TokenizerSpec& spec) : spec_(spec) {}

  bool null() override { return value(nullptr); }
  bool boolean(bool x) override { return value(x); }
  bool number_integer(int64_t x) override { return value(x); }
  bool number_unsigned(uint64_t x) override { return value(x); }
  bool number_real(double x) override { return value(x); }
  bool text(std::string_view x) override {
    if (table_ == Table::merges) return merge_text(x);
    return value(std::string(x));
  }
  bool start_object() override {
    if (table_ == Table::none && at_path("vocab")) {
      table_ = Table::vocabulary;
      return true;
    }
    if (table_ != Table::none) wrong_entry();
    return push(OrderedJson::object());
  }
  bool end_object() override {
    if (table_ == Table::vocabulary) {
      add_waiting();
      table_ = Table::none;
      return true;
    }
    stack_.pop_back();
    return true;
  }
  bool start_array() override {
    if (table_ == Table::none && at_path("merges")) {
      table_ = Table::merges;
      return true;
    }
    if (table_ == Table::merges && !in_pair_) {
      in_pair_ = true;
      pair_.clear();
      return true;
    }
    if (table_ != Table::none) wrong_entry();
    return push(OrderedJson::array());
  }
  bool end_array() override {
    if (table_ == Table::merges) {
      if (!in_pair_) {
        table_ = Table::none;
        return true;
      }
      if (pair_.size() != 2) wrong_entry();
      spec_.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
      in_pair_ = false;
      return true;
    }
    stack_.pop_back();
    return true;
  }
  bool key(std::string_view x) override {
    key_.assign(x);
    return true;
  }

 private:
  enum class Table { none, vocabulary, merges };

  // True when the value that begins now is model.NAME.
  bool at_path(std::string_view name) const { return stack_.size() == 2 && in_model_ && key_ == name; }

  [[noreturn]] void wrong_entry() const {
    if (table_ == Table::merges) {
      throw Error(ErrorKind::format, spec_.place + ": model.merges[" + std::to_string(spec_.merges.size()) +
                                         "]: \"left right\" or [left, right] expected");
    }
    wrong_token(key_);
  }
  [[noreturn]] void wrong_token(std::string_view token) const {
    throw Error(ErrorKind::format, spec_.place + ": model.vocab[\"" + std::string(token) + "\"]: an id from 0 to " +
                                       std::to_string(Vocabulary::kMaxId) + " expected, each token and id once");
  }

  // Tokens go into the vocabulary many at a time.
  void add_waiting() {
    std::vector<std::string_view> texts;
    size_t begin = 0;
    for (const size_t end : waiting_ends_) {
      texts.push_back(std::string_view(waiting_texts_).substr(begin, end - begin));
      begin = end;
    }
    const size_t added = spec_.vocabulary.add_all(texts, waiting_ids_);
    if (added < texts.size()) wrong_token(texts[added]);
    waiting_texts_.clear(), waiting_ends_.clear(), waiting_ids_.clear();
  }

  bool merge_text(std::string_view text) {
    if (in_pair_) {
      pair_.emplace_back(text);
      return true;
    }
    if (text.starts_with("#version")) return true;  // the first line of the merges.txt it was made from
    const size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos) wrong_entry();
    spec_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    return true;
  }

  template <typename T>
  bool value(T&& x) {
    if (table_ == Table::merges) wrong_entry();
    if (table_ == Table::vocabulary) {
      if constexpr (std::is_same_v<std::decay_t<T>, uint64_t>) {
        if (x <= static_cast<uint64_t>(Vocabulary::kMaxId)) {
          waiting_texts_ += key_;
          waiting_ends_.push_back(waiting_texts_.size());
          waiting_ids_.push_back(static_cast<int32_t>(x));
          if (waiting_ids_.size() == kTogether) add_waiting();
          return true;
        }
      }
      add_waiting();  // an earlier token may be wrong, too
      wrong_entry();
    }
    place(OrderedJson(std::forward<T>(x)));
    return true;
  }

  OrderedJson* place(OrderedJson x) {
    if (stack_.empty()) {
      spec_.frame = std::move(x);
      return &spec_.frame;
    }
    OrderedJson& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(x));
      return &parent.back();
    }
    if (parent.size() >= kMaxMembers) {
      throw Error(ErrorKind::format,
                  spec_.place + ": an object with more than " + std::to_string(kMaxMembers) + " members",
                  "only model.vocab may have so many");
    }
    OrderedJson& slot = parent[key_];
    slot = std::move(x);
    return &slot;
  }

  bool push(OrderedJson x) {
    if (stack_.size() >= kMaxDepth) return false;
    if (stack_.size() == 1) in_model_ = key_ == "model";
    stack_.push_back(place(std::move(x)));
    return true;
  }

  TokenizerSpec& spec_;
  std::vector<OrderedJson*> stack_;  // open objects and arrays; a parent does not move while a child is open
  std::string key_;
  bool in_model_ = false;  // inside the top-level member "model"
  Table table_ = Table::none;
  bool in_pair_ = false;
  std::vector<std::string> pair_;
  static constexpr size_t kTogether = 256;
  std::string waiting_texts_;  // end to end
  std::vector<size_t> waiting_ends_;
  std::vector<int32_t> waiting_ids_;
};

std::string json_text(std::string_view text) { return OrderedJson(text).dump(); }

}  // namespace

TokenizerSpec read_tokenizer_json(const std::string& json, const std::string& place) {
  TokenizerSpec spec;
  const auto read = [&](auto scan) {
    spec = TokenizerSpec{};
    spec.place = place;
    const size_t tokens = json.size() / 64;  // a token and its merge take about so many bytes
    spec.vocabulary.reserve(std::min<size_t>(tokens, Vocabulary::kMaxId));
    spec.merges.reserve(tokens);
    advise_huge_pages(spec.merges.data(), tokens * sizeof(spec.merges[0]));
    Reader reader(spec);
    return scan(json, reader);
  };
  // The strict scanner knows neither where an error is nor numbers that fit no 64 bits: what it refuses is read again.
  if (!read(scan_json_fast) && !read(scan_json)) {
    parse_json(json, place);  // says where and why
    throw Error(ErrorKind::bug, place + ": refused as JSON by one reader and accepted by the other");
  }
  if (!spec.frame.is_object()) throw Error(ErrorKind::format, place + ": an object expected");
  return spec;
}

std::string write_tokenizer_json(const OrderedJson& frame, const Vocabulary& vocabulary, const MergeList& merges) {
  std::string out = "{";
  const auto member = [&](std::string_view key, const std::string& value) {
    if (out.back() != '{') out += ',';
    out += json_text(key) + ":" + value;
  };
  for (const auto& [key, value] : frame.items()) {
    if (key != "model") member(key, value.dump());
  }
  member("model", "{");
  for (const auto& [key, value] : frame.at("model").items()) member(key, value.dump());
  member("vocab", "{");
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.has(id)) member(vocabulary.text_of(id), std::to_string(id));
  }
  out += "}";
  // Older readers know only "left right", which cannot hold tokens with a space.
  bool plain = true;
  for (const auto& [left, right] : merges) {
    plain = plain && left.find(' ') == std::string::npos && right.find(' ') == std::string::npos &&
            !left.starts_with("#version");
  }
  member("merges", "[");
  for (const auto& [left, right] : merges) {
    if (out.back() != '[') out += ',';
    out += plain ? json_text(left + " " + right) : "[" + json_text(left) + "," + json_text(right) + "]";
  }
  return out + "]}}\n";
}

}  // namespace pacer::text
