// Sampling with a draft is distributed as sampling without one. The draws go through the decoder's own verify(), and
// the same statistic rejects rules that are wrong.
#include <map>
#include <string>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "pacer/base/random.h"
#include "pacer/decode/loop.h"
#include "pacer/decode/prompt_lookup.h"
#include "pacer/decode/sampling.h"
#include "pacer/decode/verify.h"
#include "tests/decode/chi_square.h"
#include "tests/decode/sampled_texts.h"
#include "tests/decode/toy.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace pacer::decode {
namespace {

using test::block_draft;
using test::decode_texts;
using test::kDraws;
using test::kRejectBelow;
using test::kSurelyWrong;
using test::kVocab;
using test::markov_draft;
using test::Outcome;
using test::reduced_draft;
using test::sampled;
using test::toy_target;

// A wrong rule: after a rejection the token comes from p instead of from what p has more than q.
Verification verify_with_p_as_residual(const TargetRows& target, const draft::Proposal& proposal,
                                       const VerifyDraws& draws, std::span<const int64_t> stops) {
  Verification found = verify(target, proposal, draws, stops);
  if (!found.stopped && found.accepted < static_cast<int64_t>(proposal.tokens.size())) {
    const at::Tensor row = target.probabilities[found.accepted].contiguous();
    found.next_token =
        draw_token(std::span<const float>(row.const_data_ptr<float>(), static_cast<size_t>(row.numel())), draws.token);
  }
  return found;
}

// ---- one round against the exact law of what it commits ----

struct ExactLaw {
  nlohmann::json golden;
  at::Tensor p, q;                              // [contexts, V] f32
  std::map<std::vector<int64_t>, int64_t> row;  // of a context
  int64_t n, vocab;
};

ExactLaw exact_law(size_t index) {
  const nlohmann::json golden = test::golden_json("spec_sampling/exact_law.json")[index];
  const test::GoldenTensors tensors("spec_sampling/exact_law.safetensors");
  const std::string prefix = std::to_string(index) + ".";
  ExactLaw law{golden, tensors[prefix + "p"].to(at::kFloat), tensors[prefix + "q"].to(at::kFloat),
               {},     golden["n"].get<int64_t>(),           golden["vocab"].get<int64_t>()};
  for (size_t i = 0; i < golden["contexts"].size(); ++i) {
    law.row[golden["contexts"][i].get<std::vector<int64_t>>()] = static_cast<int64_t>(i);
  }
  return law;
}

struct Tails {
  double sequences, first_token, accepted;
};

Tails draw_rounds(const ExactLaw& law, const Verifier& rule) {
  const auto row = [&](const at::Tensor& table, const std::vector<int64_t>& context) {
    return std::span<const float>(table.const_data_ptr<float>() + law.row.at(context) * law.vocab,
                                  static_cast<size_t>(law.vocab));
  };
  struct Path {
    TargetRows target;
    at::Tensor q;
  };
  std::map<std::vector<int64_t>, Path> paths;  // the tensors of a proposal, made once
  std::map<std::vector<int64_t>, int64_t> sequences;
  std::vector<int64_t> first(static_cast<size_t>(law.vocab), 0), accepted(static_cast<size_t>(law.n) + 1, 0);
  for (int64_t i = 0; i < kDraws; ++i) {
    CounterUniforms uniforms(1, static_cast<uint64_t>(i));
    draft::Proposal proposal;
    for (int64_t k = 0; k < law.n; ++k) {
      const auto q = row(law.q, proposal.tokens);
      proposal.tokens.push_back(draw_token(q, uniforms.uniform(0, k, Draw::draft)));
    }
    Path& path = paths[proposal.tokens];
    if (!path.q.defined()) {
      path.target.probabilities = at::empty({law.n + 1, law.vocab}, at::kFloat);
      path.q = at::empty({law.n, law.vocab}, at::kFloat);
      for (int64_t k = 0; k <= law.n; ++k) {
        const std::vector<int64_t> context(proposal.tokens.begin(), proposal.tokens.begin() + k);
        path.target.probabilities[k].copy_(law.p[law.row.at(context)]);
        if (k < law.n) path.q[k].copy_(law.q[law.row.at(context)]);
      }
    }
    proposal.probabilities = path.q;
    VerifyDraws draws;
    for (int64_t k = 0; k < law.n; ++k) draws.accept.push_back(uniforms.uniform(0, k, Draw::accept));
    draws.token = uniforms.uniform(0, 0, Draw::token);
    const Verification found = rule(path.target, proposal, draws, {});
    std::vector<int64_t> committed(proposal.tokens.begin(), proposal.tokens.begin() + found.accepted);
    committed.push_back(found.next_token);
    ++sequences[committed];
    ++first[static_cast<size_t>(committed[0])];
    ++accepted[static_cast<size_t>(found.accepted)];
  }

  std::vector<int64_t> counts;
  std::vector<double> shares;
  for (const nlohmann::json& pair : law.golden["committed_sequence_probability"]) {
    const auto sequence = pair[0].get<std::vector<int64_t>>();
    counts.push_back(sequences.contains(sequence) ? sequences.at(sequence) : 0);
    shares.push_back(pair[1].get<double>());
    sequences.erase(sequence);
  }
  test::ChiSquare joint, start, length;
  joint.add(counts, shares);
  joint.impossible = joint.impossible || !sequences.empty();
  const auto p = row(law.p, {});
  start.add(first, std::vector<double>(p.begin(), p.end()));
  length.add(accepted, law.golden["accepted_count_probability"].get<std::vector<double>>());
  return {joint.tail(), start.tail(), length.tail()};
}

TEST(Lossless, OneRoundCommitsTheGoldenLaw) {
  for (size_t index = 0; index < test::golden_json("spec_sampling/exact_law.json").size(); ++index) {
    const Tails tails = draw_rounds(exact_law(index), verify);
    EXPECT_GT(tails.sequences, kRejectBelow) << index;
    EXPECT_GT(tails.first_token, kRejectBelow) << index;
    EXPECT_GT(tails.accepted, kRejectBelow) << index;
  }
}

TEST(Lossless, TheStatisticRejectsAResidualReplacedByP) {
  for (size_t index = 0; index < test::golden_json("spec_sampling/exact_law.json").size(); ++index) {
    const Tails tails = draw_rounds(exact_law(index), verify_with_p_as_residual);
    EXPECT_LT(tails.sequences, kSurelyWrong) << index;
    EXPECT_LT(tails.first_token, kSurelyWrong) << index;
    EXPECT_GT(tails.accepted, kRejectBelow) << index;  // lengths alone would not show it
  }
}

// ---- whole texts, every draft method, through the decoding loop ----

TEST(Lossless, BlockDraft) {
  test::ToyProposer proposer = block_draft();
  const Outcome run = decode_texts(toy_target(), proposer, sampled());
  EXPECT_GT(run.tail, kRejectBelow);
  EXPECT_GT(run.drafted, kDraws / 10);
  EXPECT_GT(run.corrected, kDraws / 10);
}

TEST(Lossless, MarkovDraft) {
  test::ToyProposer proposer = markov_draft();
  const Outcome run = decode_texts(toy_target(), proposer, sampled());
  EXPECT_GT(run.tail, kRejectBelow);
  EXPECT_GT(run.acceptance_length, 1.8);
  EXPECT_GT(run.bonus, kDraws / 50);
}

TEST(Lossless, ReducedDraftVocabulary) {
  test::ToyProposer proposer = reduced_draft();
  EXPECT_GT(decode_texts(toy_target(), proposer, sampled()).tail, kRejectBelow);
}

TEST(Lossless, ProposalsCutByConfidence) {
  // The head is certain after some tokens and not after others, so the cut depends on what was drawn.
  const auto confidence = [](int64_t k, int64_t previous) {
    return previous % 2 == 0 ? 2.0f : 0.5f - static_cast<float>(k);
  };
  test::ToyProposer proposer = markov_draft(confidence);
  DecodeOptions options = sampled();
  options.confidence_threshold = 0.6;
  const Outcome run = decode_texts(toy_target(), proposer, options);
  EXPECT_GT(run.tail, kRejectBelow);
  test::ToyProposer uncut = markov_draft();
  EXPECT_LT(run.acceptance_length, decode_texts(toy_target(), uncut, sampled()).acceptance_length - 0.1);
}

TEST(Lossless, PromptLookupDraft) {
  PromptLookup proposer(3);
  const Outcome run = decode_texts(toy_target(), proposer, sampled(0.5));
  EXPECT_GT(run.tail, kRejectBelow);
  EXPECT_GT(run.drafted, kDraws / 10);
}

TEST(Lossless, TopKAndTopP) {
  DecodeOptions options = sampled();
  options.sampling.top_k = 3;
  options.sampling.top_p = 0.85;
  test::ToyProposer proposer = markov_draft();
  EXPECT_GT(decode_texts(toy_target(), proposer, options).tail, kRejectBelow);
}

TEST(Lossless, TheLoopRejectsAResidualReplacedByPForEveryDraft) {
  DecodeOptions options = sampled();
  options.verifier = verify_with_p_as_residual;
  test::ToyProposer block = block_draft(), markov = markov_draft(), reduced = reduced_draft();
  PromptLookup lookup(3);
  for (draft::Proposer* proposer : std::initializer_list<draft::Proposer*>{&block, &markov, &reduced, &lookup}) {
    EXPECT_LT(decode_texts(toy_target(), *proposer, options).tail, kSurelyWrong) << proposer->name();
  }
}

// Tokens drawn from a sharper law than the one that is reported.
class Dishonest : public test::ToyProposer {
 public:
  using ToyProposer::ToyProposer;
  draft::Proposal propose(int64_t anchor, int64_t limit, bool greedy, const draft::DrawToken& draw) override {
    return ToyProposer::propose(anchor, limit, greedy, [&](const at::Tensor& logits, at::Tensor* probabilities) {
      if (probabilities) draw(logits, probabilities);
      return draw(logits * 1.15, nullptr);
    });
  }
};

TEST(Lossless, TheStatisticRejectsADraftThatReportsAnotherLawThanItDrewFrom) {
  const at::Tensor table = test::toy_table(3 * kVocab, kVocab, 21, 1.0);
  Dishonest proposer("dishonest", 3, [table](int64_t k, int64_t, int64_t a) { return table[k * kVocab + a]; });
  EXPECT_LT(decode_texts(toy_target(), proposer, sampled()).tail, kSurelyWrong);
}

TEST(ChiSquare, TailsEqualTabulatedQuantiles) {
  // 5 % and 0.1 % points of the chi-square distribution
  EXPECT_NEAR(test::chi_square_tail(3.841459, 1), 0.05, 1e-6);
  EXPECT_NEAR(test::chi_square_tail(18.307038, 10), 0.05, 1e-6);
  EXPECT_NEAR(test::chi_square_tail(86.660815, 50), 0.001, 1e-6);
}

}  // namespace
}  // namespace pacer::decode
