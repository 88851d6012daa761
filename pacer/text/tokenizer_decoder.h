// The "decoder" part of tokenizer.json: token strings to text, as a chain of steps that work while tokens arrive.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pacer/text/tokenizer_component.h"

namespace pacer::text {

// One run of the chain. Text leaves as soon as no later token can change it.
class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  // A token may come in several parts; `begins` and `ends` mark its first and last.
  virtual void part(std::string_view text, bool begins, bool ends) = 0;
  virtual void finish() = 0;
};

// Makes a step that hands its output to `next`.
using DecodeStepMaker = std::function<std::unique_ptr<DecodeStep>(std::unique_ptr<DecodeStep> next)>;

// Immutable, usable from several threads.
class Decoder {
 public:
  // A JSON null means: tokens joined by spaces. Throws Error{format} naming what is not supported.
  explicit Decoder(const Component& config);
  // Every text that is certain is appended to `out`, which must outlive the step.
  std::unique_ptr<DecodeStep> start(std::string& out) const;

 private:
  void add(const Component& config);
  std::vector<DecodeStepMaker> makers_;
};

}  // namespace pacer::text
