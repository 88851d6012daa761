#include "pacer/data/vocabulary.h"

#include <gtest/gtest.h>

#include "pacer/base/error.h"

namespace pacer::data {
namespace {

using Ids = std::vector<int64_t>;

TEST(SelectVocabulary, KeepsTheMostFrequentAndFillsUpFromZero) {
  // Supervised: 7 3 9 | 9 9 11, so 9 three times, the others once; one token is missing to five.
  const std::vector<TokenRow> rows = {{.id = "a", .ids = {7, 7, 3, 9, 1}, .supervised = {0, 1, 1, 1, 0}},
                                      {.id = "b", .ids = {9, 9, 11, 3, 7}, .supervised = {1, 1, 1, 0, 0}}};
  const DraftVocabulary five = select_vocabulary(rows, 5, 12);
  EXPECT_EQ(five.kept_ids, (Ids{0, 3, 7, 9, 11}));
  EXPECT_EQ(five.d2t_offsets, (Ids{0, 2, 5, 6, 7}));
  EXPECT_DOUBLE_EQ(five.coverage, 1.0);
}

TEST(SelectVocabulary, BreaksTiesByTheOrderOfFirstSight) {
  const std::vector<TokenRow> rows = {{.id = "a", .ids = {7, 3, 9}, .supervised = {1, 1, 1}},
                                      {.id = "b", .ids = {9, 2}, .supervised = {1, 1}}};
  EXPECT_EQ(select_vocabulary(rows, 1, 12).kept_ids, (Ids{9}));
  EXPECT_EQ(select_vocabulary(rows, 2, 12).kept_ids, (Ids{3, 9}));  // 3 before 7 inside the row, both before 2
  EXPECT_EQ(select_vocabulary(rows, 3, 12).kept_ids, (Ids{3, 7, 9}));
  EXPECT_DOUBLE_EQ(select_vocabulary(rows, 1, 12).coverage, 0.4);
}

TEST(SelectVocabulary, FillersComeLast) {
  const std::vector<TokenRow> rows = {{.id = "a", .ids = {10, 10, 8}, .supervised = {1, 1, 1}}};
  const DraftVocabulary four = select_vocabulary(rows, 4, 12);
  EXPECT_EQ(four.kept_ids, (Ids{0, 1, 8, 10}));
  EXPECT_EQ(four.d2t_offsets, (Ids{0, 0, 6, 7}));
}

TEST(SelectVocabulary, RefusesImpossibleSizes) {
  EXPECT_THROW(select_vocabulary({}, 0, 12), Error);
  EXPECT_THROW(select_vocabulary({}, 13, 12), Error);
}

TEST(VocabularySize, IsTwiceWhatAnswersHaveInSteps) {
  std::vector<TokenRow> rows(1);
  for (int64_t id = 0; id < 300; ++id) {
    rows[0].ids.insert(rows[0].ids.end(), {id, 5000 + id});
    rows[0].supervised.insert(rows[0].supervised.end(), {1, 0});
  }
  EXPECT_EQ(vocabulary_size_for(rows, 49152), 1024) << "600, in steps of 512; prompts do not count";
  rows.push_back(rows[0]);
  EXPECT_EQ(vocabulary_size_for(rows, 49152), 1024) << "a token counts once";
  EXPECT_EQ(vocabulary_size_for(rows, 700), 700);
  EXPECT_EQ(vocabulary_size_for({}, 49152), 512);
}

}  // namespace
}  // namespace pacer::data
