// The words of a model: tokenizer.json, chat templates, and both together.
#include <algorithm>
#include <string>

#include "pacer/base/error.h"
#include "pacer/text/supervision.h"
#include "tests/fuzz/targets.h"

namespace pacer::fuzz {
namespace {

// A byte-level tokenizer whose every byte is a token: what goes in comes out.
const std::shared_ptr<const text::Tokenizer>& byte_tokenizer() {
  static const std::shared_ptr<const text::Tokenizer> made = [] {
    // The printable stand-ins of the bytes (Radford et al. 2019): these bytes stand for themselves, the others follow
    // from U+0100 on.
    OrderedJson vocabulary = OrderedJson::object();
    int next = 0;
    for (int byte = 0; byte < 256; ++byte) {
      const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const int point = itself ? byte : 0x100 + next++;
      std::string text;
      if (point < 0x80) {
        text.push_back(static_cast<char>(point));
      } else {
        text.push_back(static_cast<char>(0xC0 | (point >> 6)));
        text.push_back(static_cast<char>(0x80 | (point & 0x3F)));
      }
      vocabulary[text] = byte;
    }
    const OrderedJson step = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
    OrderedJson file;
    file["added_tokens"] = OrderedJson::array({{{"id", 256}, {"content", "<|end|>"}, {"special", true}}});
    file["normalizer"] = nullptr;
    file["pre_tokenizer"] = step;
    file["post_processor"] = nullptr;
    file["decoder"] = step;
    file["model"] = {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", OrderedJson::array()}};
    return text::Tokenizer::from_json(file.dump(), "built in");
  }();
  return made;
}

OrderedJson usual_messages() {
  return {{{"role", "system"}, {"content", "Be brief."}},
          {{"role", "user"}, {"content", "What is <|end|> 2 + 3?"}},
          {{"role", "assistant"}, {"content", "5"}, {"reasoning_content", "2 and 3"}},
          {{"role", "user"}, {"content", " Gr\u00fc\u00dfe \n"}},
          {{"role", "assistant"}, {"content", "Hallo"}}};
}

}  // namespace

void tokenizer(std::string_view input) {
  accepted([&] {
    const auto loaded = text::Tokenizer::from_json(input, "tokenizer.json");
    const auto again = text::Tokenizer::from_json(loaded->to_json(), "written again");
    for (const char* text : {"", " Hello world", "a1234--b  don't\r\n", "\u00fcber \u4f60\u597d \U0001F600",
                             "<s><|end|>  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
      accepted([&] {
        const text::Encoding encoding = loaded->encode(text, {.add_special_tokens = true, .offsets = true});
        require(encoding.ids.size() == encoding.offsets.size(), "ids and offsets of different numbers");
        for (const int64_t id : encoding.ids) {
          require(id >= 0 && id < loaded->vocab_size(), "an id outside of the vocabulary");
        }
        require(again->encode(text, {.add_special_tokens = true}).ids == encoding.ids,
                "a tokenizer that was written and read again gives other ids");
        const std::string decoded = loaded->decode(encoding.ids);
        text::TokenStream stream(loaded, /*skip_special_tokens=*/false);
        std::string streamed;
        for (const int64_t id : encoding.ids) streamed += stream.push(id);
        require(streamed + stream.finish() == decoded, "text that is streamed differs from text that is decoded");
      });
    }
  });
}

void jinja(std::string_view input) {
  accepted([&] {
    const auto parsed = text::ChatTemplate::parse(std::string(input), "template");
    text::RenderOptions options;
    options.variables = {{"bos_token", "<s>"}, {"n", 3}, {"list", {1, 2.5, nullptr, "x"}}};
    options.tools = OrderedJson::array({{{"name", "f"}, {"parameters", {{"type", "object"}}}}});
    options.clock = std::tm{};
    options.limits.bytes_per_input = 0;
    for (const bool prompt : {false, true}) {
      options.add_generation_prompt = prompt;
      accepted([&] {
        const text::Rendered rendered = parsed->render(usual_messages(), options);
        require(rendered.text.size() <= options.limits.bytes, "more text than the limit allows");
        for (const auto& [begin, end] : rendered.generation) {
          require(0 <= begin && begin <= end && end <= static_cast<int64_t>(rendered.text.size()),
                  "a generation span outside of the text");
        }
      });
    }
  });
}

void chat(std::string_view input) {
  const size_t cut = input.find('\0');
  const std::string source(input.substr(0, cut));
  accepted([&] {
    const OrderedJson messages = cut == std::string_view::npos
                                     ? usual_messages()
                                     : parse_ordered_json(input.substr(cut + 1), "messages", ErrorKind::data);
    const auto parsed = text::ChatTemplate::parse(source, "template");
    text::SupervisionOptions options;
    options.render.clock = std::tm{};
    const text::SupervisedText done = text::supervise(*parsed, *byte_tokenizer(), messages, options);
    require(done.ids.size() == done.supervised.size(), "ids and mask of different lengths");
    require(done.ids.size() <= static_cast<size_t>(options.max_length), "longer than max_length");
    if (done.ids.size() < static_cast<size_t>(options.max_length)) {
      require(byte_tokenizer()->decode(done.ids) == done.text, "the ids are not those of the text");
    }
    for (const auto& [begin, end] : done.spans) {
      require(0 <= begin && begin <= end && end <= static_cast<int64_t>(done.text.size()),
              "a span outside of the text");
    }
  });
}

}  // namespace pacer::fuzz
