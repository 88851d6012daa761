// With caches and at most kExactRows rows a sequence, a row has the same bits however the work was cut.
#include <ostream>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "pacer/base/random.h"
#include "pacer/target/target.h"
#include "tests/support/files.h"
#include "tests/support/kernels.h"
#include "tests/support/tensors.h"

namespace pacer::target {
namespace {

struct Case {
  std::string model;
  Precision precision;
};
const char* word(Precision precision) {
  switch (precision) {
    case Precision::f32:
      return "f32";
    case Precision::bf16:
      return "bf16";
    case Precision::stored:
      return "stored";
    case Precision::stored_int8:
      return "stored_int8";
  }
  return "";
}
void PrintTo(const Case& one, std::ostream* out) { *out << one.model << " in " << word(one.precision); }

class DecodingPromise : public ::testing::TestWithParam<Case> {
 protected:
  DecodingPromise()
      : own_kernels_(as_stored(GetParam().precision) ? std::make_unique<test::OwnKernels>() : nullptr),
        runtime_(device::Runtime::open("cpu")),
        target_(Target::load(test::golden(GetParam().model), GetParam().precision, runtime_)) {}

  std::vector<int64_t> random_ids(int64_t count, uint64_t seed) const {
    const RandomStream stream(seed, Purpose::test);
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < count; ++i) {
      const auto bound = static_cast<uint64_t>(target_->config().vocab_size);
      ids.push_back(static_cast<int64_t>(stream.below(static_cast<uint64_t>(i), bound)));
    }
    return ids;
  }

  std::unique_ptr<KvCache> prefilled(const std::vector<int64_t>& prompt) const {
    auto cache = target_->new_cache();
    target_->forward(TokenBatch::single(prompt), {}, {cache.get()});
    return cache;
  }

  // Everything a caller sees of some rows: taps, final state, logits.
  struct Rows {
    at::Tensor tapped, last, logits;
  };
  Rows continued(KvCache& cache, const std::vector<int64_t>& ids) const {
    const TargetOutput output = target_->forward(TokenBatch::single(ids, cache.length()), {-1, 0}, {&cache});
    return {output.tapped, output.last, target_->logits(output.last)};
  }
  static void expect_same(const Rows& a, const Rows& b, const std::string& what) {
    EXPECT_TRUE(test::same_bits(a.tapped, b.tapped)) << what;
    EXPECT_TRUE(test::same_bits(a.last, b.last)) << what;
    EXPECT_TRUE(test::same_bits(a.logits, b.logits)) << what;
  }
  static Rows slice(const Rows& rows, int64_t begin, int64_t end) {
    return {rows.tapped.slice(0, begin, end), rows.last.slice(0, begin, end), rows.logits.slice(0, begin, end)};
  }

  static bool as_stored(Precision precision) {
    return precision == Precision::stored || precision == Precision::stored_int8;
  }

  std::unique_ptr<test::OwnKernels> own_kernels_;
  device::Runtime runtime_;
  std::unique_ptr<Target> target_;
};

TEST_P(DecodingPromise, OneByOneAndTogether) {
  const auto prompt = prefilled(random_ids(21, 1));
  const std::vector<int64_t> ids = random_ids(kExactRows, 2);
  std::vector<Rows> alone;
  const auto single = prompt->clone();
  for (const int64_t id : ids) alone.push_back(continued(*single, {id}));
  for (int64_t count = 1; count <= kExactRows; count += count < 16 ? 1 : 16) {
    const auto cache = prompt->clone();
    const Rows together = continued(*cache, {ids.begin(), ids.begin() + count});
    for (int64_t row = 0; row < count; ++row) {
      expect_same(slice(together, row, row + 1), alone[static_cast<size_t>(row)],
                  "row " + std::to_string(row) + " of " + std::to_string(count));
    }
  }
}

// A speculative round: rows that are rejected leave no trace.
TEST_P(DecodingPromise, CroppedRowsLeaveNoTrace) {
  const auto clean = prefilled(random_ids(21, 1));
  const auto used = clean->clone();
  const std::vector<int64_t> ids = random_ids(12, 3);
  for (int64_t length = 1; length <= 12; length += 3) {
    continued(*used, random_ids(length, 4));
    used->crop(used->length() - length);
  }
  expect_same(continued(*used, ids), continued(*clean, ids), "after crops");
  EXPECT_EQ(used->length(), clean->length());
}

TEST_P(DecodingPromise, OtherSequencesInTheBatchDoNotMatter) {
  constexpr size_t kSequences = 20;  // more than two groups of rows
  std::vector<std::unique_ptr<KvCache>> together, alone;
  std::vector<KvCache*> pointers;
  std::vector<std::vector<int64_t>> ids;
  for (size_t s = 0; s < kSequences; ++s) {
    alone.push_back(prefilled(random_ids(3 + static_cast<int64_t>(s) * 4, s)));
    together.push_back(alone.back()->clone());
    pointers.push_back(together.back().get());
    ids.push_back(random_ids(static_cast<int64_t>(s % 3), 100 + s));  // one in three has nothing to do
  }
  TokenBatch batch = TokenBatch::packed(ids);
  for (size_t s = 0; s < kSequences; ++s) {
    batch.positions.slice(0, batch.starts[s], batch.starts[s + 1]).add_(together[s]->length());
  }
  const TargetOutput output = target_->forward(batch, {-1, 0}, pointers);
  const Rows all{output.tapped, output.last, target_->logits(output.last)};
  for (size_t s = 0; s < kSequences; ++s) {
    if (!ids[s].empty()) {
      expect_same(slice(all, batch.starts[s], batch.starts[s + 1]), continued(*alone[s], ids[s]),
                  "sequence " + std::to_string(s));
    }
    EXPECT_EQ(together[s]->length(), alone[s]->length());
  }
}

TEST_P(DecodingPromise, ThreadsDoNotChangeBits) {
  const int threads = at::get_num_threads();
  const auto prompt = prefilled(random_ids(21, 1));
  const std::vector<int64_t> ids = random_ids(kExactRows, 2);
  at::set_num_threads(1);
  const Rows one = continued(*prompt->clone(), ids);
  at::set_num_threads(2);
  const Rows two = continued(*prompt->clone(), ids);
  at::set_num_threads(threads);
  expect_same(one, two, "threads");
}

// The row kernels and the library path are the same model.
TEST_P(DecodingPromise, TheLongPathAgrees) {
  const std::vector<int64_t> ids = random_ids(30, 5);
  const TargetOutput output = target_->forward(TokenBatch::single(ids), {-1, 0});
  const auto cache = target_->new_cache();
  const Rows first = continued(*cache, {ids.begin(), ids.begin() + 15});
  const Rows second = continued(*cache, {ids.begin() + 15, ids.end()});
  // With stored weights the long call runs in pieces of the same kernels.
  const double bound = GetParam().precision == Precision::bf16 ? 1e-2 : 1e-4;
  EXPECT_TRUE(test::close_l2(at::cat({first.tapped, second.tapped}), output.tapped, bound));
  EXPECT_TRUE(test::close_l2(at::cat({first.last, second.last}), output.last, bound));
  EXPECT_TRUE(test::close_l2(at::cat({first.logits, second.logits}), target_->logits(output.last), bound));
}

INSTANTIATE_TEST_SUITE_P(
    Models, DecodingPromise,
    ::testing::Values(Case{"llama_tiny/default", Precision::f32}, Case{"llama_tiny/default", Precision::bf16},
                      Case{"llama_tiny/mha_bias", Precision::bf16}, Case{"llama_tiny/mqa_headdim", Precision::f32},
                      Case{"llama_tiny/mqa_headdim", Precision::bf16},
                      Case{"qwen2_tiny/sliding_window", Precision::f32},
                      Case{"qwen2_tiny/sliding_window", Precision::bf16}, Case{"qwen3_tiny/untied", Precision::f32},
                      Case{"qwen3_tiny/untied", Precision::bf16},
                      Case{"checkpoint_layouts/tiny_llama_q8_0.gguf", Precision::stored},
                      Case{"checkpoint_layouts/tiny_llama_q8_0.gguf", Precision::stored_int8},
                      Case{"checkpoint_layouts/tiny_llama_f32.gguf", Precision::stored}),
    [](const auto& info) {
      std::string name = info.param.model;
      for (char& c : name) c = c == '/' || c == '.' ? '_' : c;
      return name + "_" + word(info.param.precision);
    });

}  // namespace
}  // namespace pacer::target
