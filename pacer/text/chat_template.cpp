#include "pacer/text/chat_template.h"

#include "pacer/text/jinja/context.h"
#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/interpreter.h"
#include "pacer/text/jinja/parser.h"

namespace pacer::text {
namespace {

const char* hint_for(jinja::FailureType type) {
  switch (type) {
    case jinja::FailureType::undefined:
      return "does every message have the fields that the template of this model reads?";
    case jinja::FailureType::security:
      return "chat templates run in a sandbox: they cannot change what they are given";
    case jinja::FailureType::limit:
      return "the limits are there to stop templates that never end; see RenderLimits";
    default:
      return "a message has another form than the template of this model expects";
  }
}

// Bytes of all texts in `json`, and a few for every value: what a template that copies its input must be able to make.
uint64_t input_bytes(const OrderedJson& json) {
  uint64_t bytes = 16;
  if (json.is_string()) bytes += json.get_ref<const std::string&>().size();
  if (json.is_structured()) {
    for (const auto& item : json) bytes += input_bytes(item);
  }
  return bytes;
}

jinja::Context make_context(const OrderedJson& messages, const RenderOptions& options) {
  RenderLimits limits = options.limits;
  const uint64_t input = input_bytes(messages) + input_bytes(options.tools) + input_bytes(options.documents) +
                         input_bytes(options.variables);
  limits.bytes += limits.bytes_per_input * input;
  return jinja::Context(limits, options.clock);
}

class ParsedTemplate final : public ChatTemplate {
 public:
  ParsedTemplate(std::string source, std::string place)
      : source_(std::move(source)), place_(std::move(place)), tree_(jinja::parse(source_, place_)) {}

  Rendered render(const OrderedJson& messages, const RenderOptions& options) const override {
    jinja::Context context = make_context(messages, options);
    try {
      if (!options.variables.is_object()) jinja::type_error("RenderOptions::variables is not an object");
      jinja::Interpreter interpreter(tree_, context);
      interpreter.define("messages", value_of("messages", messages));
      interpreter.define("tools", value_of("tools", options.tools));
      interpreter.define("documents", value_of("documents", options.documents));
      interpreter.define("add_generation_prompt", options.add_generation_prompt);
      for (const auto& [name, value] : options.variables.items()) interpreter.define(name, value_of(name, value));
      return interpreter.run();
    } catch (const jinja::Failure& failure) {
      const std::string at =
          place_ + ":" + std::to_string(context.place.line) + ":" + std::to_string(context.place.column);
      if (failure.type() == jinja::FailureType::raised) {
        throw Error(ErrorKind::data, failure.what(), "the chat template refuses these messages at " + at);
      }
      throw Error(ErrorKind::data, at + ": " + failure.what(), hint_for(failure.type()));
    }
  }

  const std::string& source() const override { return source_; }
  std::vector<std::string> constructs() const override { return tree_.constructs; }

 private:
  // What the template never mentions is not converted.
  jinja::Value value_of(const std::string& name, const OrderedJson& json) const {
    return tree_.symbols.contains(name) ? jinja::Value::from_json(json) : jinja::Value();
  }

  const std::string source_;
  const std::string place_;
  const jinja::Template tree_;
};

}  // namespace

std::shared_ptr<const ChatTemplate> ChatTemplate::parse(const std::string& source, const std::string& place) {
  constexpr size_t kMostBytes = size_t{256} << 10;  // the longest ones in use have a tenth of it
  if (source.size() > kMostBytes) {
    throw Error(ErrorKind::format,
                place + ": a template of " + std::to_string(source.size()) + " bytes, at most " +
                    std::to_string(kMostBytes) + " are read",
                "this is not the chat template of a model");
  }
  return std::make_shared<const ParsedTemplate>(source, place);
}

}  // namespace pacer::text
