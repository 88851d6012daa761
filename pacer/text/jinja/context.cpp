#include "pacer/text/jinja/context.h"

#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/objects.h"

namespace pacer::text::jinja {

Context::~Context() {
  for (const auto& space : namespaces_) space->values.clear();
}

void Context::step(int64_t count) {
  if (count > limits_.steps - steps_) {
    throw Failure(FailureType::limit, "the template ran more than " + std::to_string(limits_.steps) + " steps");
  }
  steps_ += count;
}

void Context::charge(uint64_t bytes) {
  if (bytes > limits_.bytes - bytes_) {
    throw Failure(FailureType::limit, "the template made more than " + std::to_string(limits_.bytes) + " bytes");
  }
  bytes_ += bytes;
}

Context::Level::Level(Context& context) : context_(context) {
  if (++context_.level_ > context_.limits_.depth) {
    --context_.level_;  // the destructor does not run
    throw Failure(FailureType::limit,
                  "expressions and calls nested deeper than " + std::to_string(context_.limits_.depth));
  }
}

std::tm Context::now() const {
  if (clock_) {
    std::tm clock = *clock_;
    timegm(&clock);  // fills the day of the week and of the year
    return clock;
  }
  const std::time_t seconds = std::time(nullptr);
  std::tm clock{};
  localtime_r(&seconds, &clock);
  return clock;
}

std::shared_ptr<Namespace> Context::make_namespace() {
  charge(sizeof(Namespace));
  namespaces_.push_back(std::make_shared<Namespace>());
  return namespaces_.back();
}

}  // namespace pacer::text::jinja
