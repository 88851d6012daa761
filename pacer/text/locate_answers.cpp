// Finds assistant messages in a rendered conversation by rendering it again with other contents.
#include <algorithm>
#include <optional>
#include <string_view>

#include "pacer/base/error.h"
#include "pacer/text/jinja/unicode.h"
#include "pacer/text/supervision.h"

namespace pacer::text {
namespace {

// Where a replaced content stands, and of which message it is.
struct Mark {
  size_t message = 0;
  size_t begin = 0, end = 0;  // bytes
};

bool continues(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

// Bytes that two texts have in common at the front, whole code points only.
size_t common_prefix(std::string_view a, std::string_view b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  auto size = static_cast<size_t>(ends.first - a.begin());
  while (size > 0 && (continues(a, size) || continues(b, size))) --size;
  return size;
}

size_t common_suffix(std::string_view a, std::string_view b) {
  const auto ends = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  auto size = static_cast<size_t>(ends.first - a.rbegin());
  while (size > 0 && continues(a, a.size() - size)) --size;
  return size;
}

bool is_blank(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (!jinja::is_space(jinja::decode_at(text, at))) return false;
  }
  return true;
}

class Locator {
 public:
  Locator(const ChatTemplate& chat_template, const OrderedJson& messages, const RenderOptions& options,
          const std::string& rendered)
      : chat_template_(chat_template), messages_(messages), options_(options), text_(rendered) {}

  std::vector<LocatedAnswer> run() {
    std::vector<size_t> answers;
    for (size_t i = 0; i < messages_.size(); ++i) {
      if (!messages_[i].is_object()) continue;
      const auto role = messages_[i].find("role");  // may be anything, null too
      if (role != messages_[i].end() && *role == "assistant") answers.push_back(i);
    }
    if (answers.empty()) return {};
    require_bounded_work(answers.size());
    choose_first_mark();
    skeleton_ = OrderedJson::array();
    for (size_t i = 0; i < messages_.size(); ++i) skeleton_.push_back(replaced(i));
    skeleton_text_ = render(skeleton_, false);
    skeleton_marks_ = marks(skeleton_text_);
    std::vector<LocatedAnswer> out;
    for (const size_t index : answers) {
      const auto found = by_content(index);
      out.push_back(found ? *found : by_prefix(index));
    }
    return out;
  }

 private:
  // Every answer costs a rendering of all messages.
  void require_bounded_work(size_t answers) const {
    constexpr size_t kMostMessages = 1000, kMostBytes = size_t{32} << 20;
    if (messages_.size() <= kMostMessages && answers * text_.size() <= kMostBytes) return;
    throw Error(ErrorKind::data,
                "a conversation of " + std::to_string(messages_.size()) + " messages and " +
                    std::to_string(text_.size()) + " bytes is too long to find its " + std::to_string(answers) +
                    " answers",
                "cut it into shorter ones, or use a template with {% generation %} blocks");
  }

  [[noreturn]] void fail(size_t index, const std::string& why) const {
    throw Error(ErrorKind::data,
                "assistant message " + std::to_string(index) + " cannot be located in the rendered text: " + why,
                "a template with {% generation %} blocks says itself where answers are");
  }

  std::string render(const OrderedJson& messages, bool generation_prompt) const {
    RenderOptions options = options_;
    options.add_generation_prompt = generation_prompt;
    return chat_template_.render(messages, options).text;
  }

  // One character of a private area per message; the area must not occur in the text.
  void choose_first_mark() {
    bool used[2] = {false, false};
    for (size_t at = 0; at < text_.size();) {
      const char32_t c = jinja::decode_at(text_, at);
      if (c >= 0xF0000) used[c >= 0x100000 ? 1 : 0] = true;
    }
    if ((used[0] && used[1]) || messages_.size() > 0xFFF0) {
      throw Error(ErrorKind::data, "the conversation is too long or uses the private characters of both planes");
    }
    first_mark_ = used[0] ? 0x100000 : 0xF0000;
  }

  // The message with a mark as content, and without reasoning: a template writes an empty think block then, if any.
  OrderedJson replaced(size_t index) const {
    OrderedJson message = messages_[index];
    if (!message.is_object()) return message;
    std::string mark;
    jinja::append_utf8(mark, first_mark_ + static_cast<char32_t>(index));
    message["content"] = mark;
    for (const char* key : {"reasoning_content", "reasoning", "thinking"}) message.erase(key);
    return message;
  }

  // The marks in a text, in its order.
  std::vector<Mark> marks(std::string_view text) const {
    std::vector<Mark> out;
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const char32_t c = jinja::decode_at(text, at);
      if (c >= first_mark_ && c < first_mark_ + messages_.size()) {
        out.push_back({static_cast<size_t>(c - first_mark_), begin, at});
      }
    }
    return out;
  }

  int64_t points(size_t bytes) const { return jinja::code_points(std::string_view(text_).substr(0, bytes)); }

  // What inference puts behind the last content before message `index`; nothing when that cannot be told.
  std::optional<std::string> prompt_tail(size_t index, std::optional<size_t> previous) const {
    if (index == 0) return std::nullopt;
    const OrderedJson before(std::vector<OrderedJson>(skeleton_.begin(), skeleton_.begin() + static_cast<long>(index)));
    const std::string prompt = render(before, true);
    const std::vector<Mark> found = marks(prompt);
    if (found.empty() != !previous) return std::nullopt;
    if (found.empty()) return prompt;
    if (found.back().message != *previous) return std::nullopt;
    return prompt.substr(found.back().end);
  }

  // Empty when the template does not print the content of the message.
  std::optional<LocatedAnswer> by_content(size_t index) const {
    const auto mark = std::find_if(skeleton_marks_.begin(), skeleton_marks_.end(),
                                   [&](const Mark& candidate) { return candidate.message == index; });
    if (mark == skeleton_marks_.end()) return std::nullopt;
    const bool first = mark == skeleton_marks_.begin(), last = mark + 1 == skeleton_marks_.end();
    const size_t front = first ? 0 : (mark - 1)->end;
    const size_t back = last ? skeleton_text_.size() : (mark + 1)->begin;
    const std::string_view skeleton = skeleton_text_;
    const std::string_view before = skeleton.substr(front, mark->begin - front);  // template text around the content
    const std::string_view after = skeleton.substr(mark->end, back - mark->end);

    OrderedJson one = messages_;
    one[index] = replaced(index);
    const std::string changed = render(one, false);
    const std::vector<Mark> at = marks(changed);
    if (at.size() != 1) fail(index, "its content is printed " + std::to_string(at.size()) + " times");
    const std::string_view head = std::string_view(changed).substr(0, at[0].begin);
    const std::string_view tail = std::string_view(changed).substr(at[0].end);
    if (!head.ends_with(before) || !tail.starts_with(after)) {
      fail(index, "the text around it depends on the contents of other messages");
    }
    const size_t same_head = common_prefix(text_, head);
    // Around an empty content both can claim the same character; it belongs to the head.
    const size_t same_tail = std::min(common_suffix(text_, tail), text_.size() - same_head);
    const size_t rest = tail.size() - after.size();  // behind the limit
    if (same_tail < rest) fail(index, "it changes the text behind it");

    const size_t prompt_end = head.size() - before.size() + supplied(index, before, first);
    if (prompt_end > same_head) fail(index, "it changes the text in front of it");
    // The whole head is there: the answer has no reasoning of its own, so what stands there instead is not learnt.
    const bool plain = same_head == head.size();
    const bool blank = is_blank(head.substr(prompt_end));
    const size_t begin = plain && !blank ? head.size() : prompt_end;
    return LocatedAnswer{static_cast<int64_t>(index), points(prompt_end), points(begin),
                         points(std::max(begin, text_.size() - same_tail)), points(text_.size() - rest)};
  }

  // How much of the template text in front of a content the generation prompt supplies.
  size_t supplied(size_t index, std::string_view before, bool first) const {
    std::optional<size_t> previous;
    for (const Mark& mark : skeleton_marks_) {
      if (mark.message == index) break;
      previous = mark.message;
    }
    const auto tail = prompt_tail(index, first ? std::nullopt : previous);
    if (tail && before.starts_with(*tail)) return tail->size();
    // Unknown, or the prompt goes further than the text (a think block that is left out of earlier turns).
    return before.size();
  }

  LocatedAnswer by_prefix(size_t index) const {
    const auto upto = [&](size_t count) {
      return OrderedJson(std::vector<OrderedJson>(messages_.begin(), messages_.begin() + static_cast<long>(count)));
    };
    if (index == 0) fail(index, "the template does not print its content");
    const std::string prompt = render(upto(index), true);
    const std::string whole = index + 1 == messages_.size() ? text_ : render(upto(index + 1), false);
    if (!text_.starts_with(prompt) || !text_.starts_with(whole) || whole.size() < prompt.size()) {
      fail(index, "the template does not print its content, and the messages before it are printed in another way");
    }
    const int64_t begin = points(prompt.size());
    return {static_cast<int64_t>(index), begin, begin, begin, points(whole.size())};
  }

  const ChatTemplate& chat_template_;
  const OrderedJson& messages_;
  const RenderOptions& options_;
  const std::string& text_;
  char32_t first_mark_ = 0;
  OrderedJson skeleton_;
  std::string skeleton_text_;
  std::vector<Mark> skeleton_marks_;
};

}  // namespace

std::vector<LocatedAnswer> locate_answers(const ChatTemplate& chat_template, const OrderedJson& messages,
                                          const RenderOptions& options, const std::string& rendered) {
  return Locator(chat_template, messages, options, rendered).run();
}

}  // namespace pacer::text
