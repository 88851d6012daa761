#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <vector>

#include "pacer/text/normalizer.h"

namespace pacer::text {
namespace {

constexpr char32_t kCodePoints = 0x110000;
constexpr char32_t kHangulFirst = 0xAC00, kHangulLast = 0xD7A3;
using CodePointSet = std::bitset<kCodePoints>;

// A character of the normalised text. change > 0: inserted; change <= 0: stands for 1 - change old characters.
struct Changed {
  char32_t value;
  int change;
};

bool composes(NormalizationForm form) { return form == NormalizationForm::nfc || form == NormalizationForm::nfkc; }
bool compatibility(NormalizationForm form) {
  return form == NormalizationForm::nfkc || form == NormalizationForm::nfkd;
}

int combining_class(char32_t c) { return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class; }

// Full decomposition; returns the number of characters written. 18 is the longest there is (U+FDFA).
size_t decompose(char32_t c, bool compatible, std::array<utf8proc_int32_t, 32>& out) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  int boundary_class = 0;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), out.data(),
                                             static_cast<utf8proc_ssize_t>(out.size()), options, &boundary_class);
  return static_cast<size_t>(std::max<utf8proc_ssize_t>(count, 0));
}

// The primary composite of a pair, or 0.
char32_t compose(char32_t first, char32_t second) {
  utf8proc_int32_t pair[2] = {static_cast<utf8proc_int32_t>(first), static_cast<utf8proc_int32_t>(second)};
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  return utf8proc_normalize_utf32(pair, 2, options) == 1 ? static_cast<char32_t>(pair[0]) : 0;
}

bool may_decompose(char32_t c) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->decomp_seqindex != UINT16_MAX ||
         (c >= kHangulFirst && c <= kHangulLast);
}

// Characters that stay as they are whatever stands around them, so that text made of them needs no work: starters that
// do not decompose (or compose back to themselves) and never attach to the character before them.
CodePointSet find_stable(NormalizationForm form) {
  CodePointSet stable;
  stable.set();
  std::array<utf8proc_int32_t, 32> parts;
  for (char32_t c = 0; c < kCodePoints; ++c) {
    if (combining_class(c) != 0) stable.reset(c);
    if (!may_decompose(c)) continue;
    const size_t canonical = decompose(c, false, parts);
    for (size_t i = 1; composes(form) && i < canonical; ++i) stable.reset(static_cast<size_t>(parts[i]));
    const size_t count = decompose(c, compatibility(form), parts);
    char32_t again = count > 0 ? static_cast<char32_t>(parts[0]) : 0;
    for (size_t i = 1; i < count; ++i) {
      again = composes(form) && again != 0 ? compose(again, static_cast<char32_t>(parts[i])) : 0;
    }
    if (again != c) stable.reset(c);
  }
  return stable;
}

const CodePointSet& stable_set(NormalizationForm form) {
  switch (form) {
    case NormalizationForm::nfc: {
      static const CodePointSet set = find_stable(form);
      return set;
    }
    case NormalizationForm::nfd: {
      static const CodePointSet set = find_stable(form);
      return set;
    }
    case NormalizationForm::nfkc: {
      static const CodePointSet set = find_stable(form);
      return set;
    }
    default: {
      static const CodePointSet set = find_stable(form);
      return set;
    }
  }
}

// Decomposed and in canonical order (stable sort of each run of marks by combining class).
std::vector<Changed> decomposed(std::string_view text, bool compatible) {
  std::vector<Changed> out;
  std::array<utf8proc_int32_t, 32> parts;
  size_t run = 0;  // where the marks behind the last starter begin
  const auto sort_run = [&] {
    std::stable_sort(out.begin() + static_cast<std::ptrdiff_t>(run), out.end(), [](const Changed& a, const Changed& b) {
      return combining_class(a.value) < combining_class(b.value);
    });
    run = out.size();
  };
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text, at);
    const size_t count = decompose(c.value, compatible, parts);
    for (size_t i = 0; i < count; ++i) {
      const auto part = static_cast<char32_t>(parts[i]);
      if (combining_class(part) == 0) sort_run();
      out.push_back({part, i == 0 ? 0 : 1});
    }
    at += c.length;
  }
  sort_run();
  return out;
}

// Canonical composition: a mark joins the last starter unless a mark of the same or a higher class stands between.
std::vector<Changed> composed(const std::vector<Changed>& text) {
  std::vector<Changed> out;
  size_t starter = SIZE_MAX;
  int last_class = 0;  // of the character before, when it is a mark that did not compose
  for (const Changed& item : text) {
    const int own = combining_class(item.value);
    if (starter != SIZE_MAX && (last_class == 0 || last_class < own)) {
      if (const char32_t joined = compose(out[starter].value, item.value)) {
        out[starter] = {joined, out[starter].change + item.change - 1};
        continue;
      }
    }
    if (own == 0) starter = out.size();
    last_class = own;
    out.push_back(item);
  }
  return out;
}

class UnicodeNormalizer : public Normalizer {
 public:
  explicit UnicodeNormalizer(NormalizationForm form) : form_(form), stable_(stable_set(form)) {}

  void apply(MappedText& text, RegexScratch&) const override {
    const std::string_view bytes = text.bytes;
    size_t begin = bytes.size(), end = bytes.size();
    if (!next_region(bytes, 0, begin, end)) return;
    TextRewriter rewriter(text);
    do {
      rewriter.keep_until(begin);
      std::vector<Changed> region = decomposed(bytes.substr(begin, end - begin), compatibility(form_));
      if (composes(form_)) region = composed(region);
      for (const Changed& item : region) rewriter.put(item.value, item.change);
      rewriter.drop_until(end);
    } while (next_region(bytes, end, begin, end));
    rewriter.finish();
  }

 private:
  // The next stretch that may change: a stable character and the unstable ones behind it.
  bool next_region(std::string_view bytes, size_t from, size_t& begin, size_t& end) const {
    size_t previous = from;
    for (size_t at = from; at < bytes.size();) {
      if (static_cast<unsigned char>(bytes[at]) < 0x80) {
        previous = at++;
        continue;
      }
      const CodePoint c = decode_utf8(bytes, at);
      if (stable_[c.value]) {
        previous = at;
        at += c.length;
        continue;
      }
      begin = previous;
      for (end = at; end < bytes.size();) {
        const CodePoint next = decode_utf8(bytes, end);
        if (stable_[next.value]) break;
        end += next.length;
      }
      return true;
    }
    return false;
  }

  NormalizationForm form_;
  const CodePointSet& stable_;
};

}  // namespace

std::unique_ptr<const Normalizer> make_unicode_normalizer(NormalizationForm form) {
  return std::make_unique<UnicodeNormalizer>(form);
}

}  // namespace pacer::text
