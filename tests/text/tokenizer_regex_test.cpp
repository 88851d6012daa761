#include "pacer/text/tokenizer_regex.h"

#include <gtest/gtest.h>

#include <vector>

#include "pacer/base/error.h"

namespace pacer::text {
namespace {

std::vector<std::string> matches(const std::string& regex, const std::string& text) {
  RegexScratch scratch;
  std::vector<std::string> found;
  Pattern::regex(regex, "test").for_each_match(text, scratch, [&](const Match& match) {
    found.push_back(text.substr(match.begin, match.end - match.begin));
  });
  return found;
}

using Texts = std::vector<std::string>;

// Where PCRE2 left alone would do something else than the engine the expressions were written for.
TEST(TokenizerRegex, MeansWhatItMeansInOniguruma) {
  EXPECT_EQ(matches("\\s", "a\u180Eb\u0085c"), Texts{"\u0085"});  // U+180E is no white space any more
  EXPECT_EQ(matches("[^\\s]+", "a\u180Eb\u0085c"), (Texts{"a\u180Eb", "c"}));
  EXPECT_EQ(matches("[\\S]+", "a\u180Eb\u0085c"), (Texts{"a\u180Eb", "c"}));
  EXPECT_EQ(matches("\\w+", "a\u0903b \u203F"), (Texts{"a\u0903b", "\u203F"}));  // marks and connectors belong to words
  EXPECT_EQ(matches("\\h+", "xBEEF \t"), Texts{"BEEF"});                         // hexadecimal digits, not blanks
  EXPECT_EQ(matches("\\p{N}{1,3}+", "1234567"), Texts{"1234567"});  // the interval repeated, not possessive
  EXPECT_EQ(matches("(?:ab){2}+", "ababababab"), Texts{"abababab"});
  EXPECT_EQ(matches("a{,2}b", "aaab"), Texts{"aab"});  // from nothing to two
  EXPECT_EQ(matches("^b$", "a\nb\nc"), Texts{"b"});    // lines, not the whole text
  EXPECT_EQ(matches("\\v", "\x0B\n"), Texts{"\x0B"});  // vertical tab only
  EXPECT_EQ(matches("\\u0041\\x42\\x{43}", "ABC"), Texts{"ABC"});
  EXPECT_EQ(matches("(?i:'s|'T)", "it's DON'T 'ſ"), (Texts{"'s", "'T", "'ſ"}));
}

TEST(TokenizerRegex, EmptyMatchesAdvance) {
  EXPECT_EQ(matches("x*", "axxé"), (Texts{"", "xx", ""}));  // none directly behind another match
  EXPECT_EQ(matches("(?=é)", "éé"), (Texts{"", ""}));
}

TEST(TokenizerRegex, RefusesWhatItCannotTranslate) {
  for (const std::string regex :
       {"[a-z&&[^e]]", "[[a]b]",      "(?m:.)",  "(?<n>a)", "a(?i)b|c", "\\G", "\\K", "\\X", "\\01", "[\\W]",
        "a{2}?",       "[[:punct:]]", "(*UTF)a", "\\k<n>",  "[]a]",     "a)",  "\\",  "[a",  "\\xZ", "\\p"}) {
    EXPECT_THROW(
        {
          try {
            Pattern::regex(regex, "place");
          } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::format);
            EXPECT_TRUE(std::string(error.what()).starts_with("place: ")) << error.what();
            throw;
          }
        },
        Error)
        << regex;
  }
}

}  // namespace
}  // namespace pacer::text
