// The "normalizer" part of tokenizer.json: text rewritten before it is cut.
#pragma once

#include <memory>

#include "pacer/text/tokenizer_component.h"
#include "pacer/text/tokenizer_regex.h"
#include "pacer/text/tokenizer_text.h"

namespace pacer::text {

// Immutable, usable from several threads.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(MappedText& text, RegexScratch& scratch) const = 0;
};

// Null for a JSON null. Throws Error{format} naming what is not supported.
std::unique_ptr<const Normalizer> make_normalizer(const Component& config);

// Unicode normalisation forms (Unicode Standard Annex 15), with the origins of every character.
enum class NormalizationForm { nfc, nfd, nfkc, nfkd };
std::unique_ptr<const Normalizer> make_unicode_normalizer(NormalizationForm form);

}  // namespace pacer::text
