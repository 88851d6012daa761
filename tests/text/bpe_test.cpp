// Byte pair encoding against the plain rule: again and again the pair of lowest rank, leftmost first.
#include "pacer/text/bpe.h"

#include <map>

#include <gtest/gtest.h>

#include "pacer/base/random.h"

namespace pacer::text {
namespace {

const std::vector<std::string> kCharacters = {"a", "b", "c", "d", "e", "f", "g", "h", "é", "ß", "日", "本"};

struct Toy {
  Vocabulary vocabulary;
  MergeList merges;
};

// Merges of tokens that earlier merges made, so that some characters never meet inside of a token; and a few of a token
// that nothing makes, which can never happen.
Toy random_toy(uint64_t seed) {
  const RandomStream random(seed, Purpose::test);
  Toy toy;
  std::vector<std::string> tokens = kCharacters;
  const auto add = [&](const std::string& text) {
    if (toy.vocabulary.id_of(text) < 0) toy.vocabulary.add(text, static_cast<int32_t>(toy.vocabulary.size()));
  };
  for (const std::string& character : kCharacters) add(character);
  for (uint64_t i = 0; i < 30; ++i) {
    const std::string left = tokens[random.below(2 * i, tokens.size())];
    const std::string right = tokens[random.below(2 * i + 1, tokens.size())];
    add(left + right);
    toy.merges.emplace_back(left, right);
    tokens.push_back(left + right);
  }
  for (const char* whole : {"hhg", "hhga"}) add(whole);
  toy.merges.insert(toy.merges.begin() + 3, {"hhg", "a"});
  return toy;
}

std::vector<std::string> plainly(std::vector<std::string> parts, const MergeList& merges) {
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (size_t rank = 0; rank < merges.size(); ++rank) ranks[merges[rank]] = rank;  // listed twice: the later one counts
  for (;;) {
    size_t best = merges.size(), at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find({parts[i], parts[i + 1]});
      if (found != ranks.end() && found->second < best) best = found->second, at = i;
    }
    if (best == merges.size()) return parts;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(Bpe, PiecesOfAnyLengthAreMergedByTheRule) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Toy toy = random_toy(seed);
    const BpeModel model(toy.vocabulary, toy.merges, {}, "toy");
    BpeScratch scratch;
    for (uint64_t sample = 1; sample <= 60; ++sample) {
      const RandomStream random(seed, Purpose::test, 1, sample);
      std::vector<std::string> characters;
      std::string piece;
      for (uint64_t i = 0; i < 2 * sample; ++i) {
        characters.push_back(kCharacters[random.below(i, kCharacters.size())]);
        piece += characters.back();
      }
      std::vector<Token> tokens;
      model.encode(piece, scratch, tokens);
      std::vector<std::string> got;
      for (const Token& token : tokens) got.emplace_back(toy.vocabulary.text_of(token.id));
      EXPECT_EQ(got, plainly(characters, toy.merges)) << "seed " << seed << ": " << piece;
    }
  }
}

}  // namespace
}  // namespace pacer::text
