#include "pacer/decode/verify.h"

#include <algorithm>
#include <string>

#include "pacer/base/error.h"
#include "pacer/decode/sampling.h"
#include "pacer/device/kernels.h"

namespace pacer::decode {
namespace {

constexpr double kSmallestShare = 1e-8;

std::span<const float> row_of(const at::Tensor& matrix, int64_t row) {
  const auto width = static_cast<size_t>(matrix.size(1));
  return {matrix.const_data_ptr<float>() + static_cast<size_t>(row) * width, width};
}

void check_matrix(const at::Tensor& matrix, int64_t rows, const char* name) {
  if (matrix.dim() != 2 || matrix.size(0) != rows || matrix.scalar_type() != at::kFloat || !matrix.is_contiguous() ||
      !device::in_host_memory(matrix)) {
    throw Error(ErrorKind::bug, std::string("verify: ") + name + " must be a contiguous f32 host matrix of " +
                                    std::to_string(rows) + " rows");
  }
}

std::vector<double> normalised(std::vector<double> weights, std::span<const float> p) {
  double sum = 0.0;
  for (const double w : weights) sum += w;
  if (sum <= kSmallestShare) {
    weights.assign(p.begin(), p.end());
    sum = 1.0;
  }
  for (double& w : weights) w /= sum;
  return weights;
}

// One draft against one row of the target.
struct Slot {
  std::span<const float> p;  // empty when greedy
  int64_t best;              // the target's token when greedy
  std::span<const float> q;  // empty: one-hot at `token`
  int64_t token;

  double target_share() const { return p.empty() ? (best == token ? 1.0 : 0.0) : p[static_cast<size_t>(token)]; }
  double draft_share() const { return q.empty() ? 1.0 : q[static_cast<size_t>(token)]; }
  bool accepts(double u) const {
    if (p.empty()) return best == token;
    return u < std::min(1.0, target_share() / std::max(draft_share(), kSmallestShare));
  }
};

}  // namespace

std::vector<double> residual(std::span<const float> p, std::span<const float> q) {
  std::vector<double> weights(p.size());
  for (size_t i = 0; i < p.size(); ++i) {
    weights[i] = std::max(static_cast<double>(p[i]) - static_cast<double>(q[i]), 0.0);
  }
  return normalised(std::move(weights), p);
}

std::vector<double> residual(std::span<const float> p, int64_t token) {
  std::vector<double> weights(p.begin(), p.end());
  weights[static_cast<size_t>(token)] = std::max(weights[static_cast<size_t>(token)] - 1.0, 0.0);
  return normalised(std::move(weights), p);
}

Verification verify(const TargetRows& target, const draft::Proposal& proposal, const VerifyDraws& draws,
                    std::span<const int64_t> stop_ids) {
  const auto n = static_cast<int64_t>(proposal.tokens.size());
  const bool greedy = !target.probabilities.defined();
  const bool one_hot = !proposal.probabilities.defined();
  if (!one_hot) check_matrix(proposal.probabilities, n, "draft probabilities");
  if (greedy && static_cast<int64_t>(target.greedy.size()) != n + 1) {
    throw Error(ErrorKind::bug, "verify: " + std::to_string(target.greedy.size()) + " target rows for " +
                                    std::to_string(n) + " drafts");
  }
  if (!greedy) {
    check_matrix(target.probabilities, n + 1, "target probabilities");
    if (static_cast<int64_t>(draws.accept.size()) != n) {
      throw Error(ErrorKind::bug, "verify: " + std::to_string(draws.accept.size()) + " acceptance draws for " +
                                      std::to_string(n) + " drafts");
    }
    if (!one_hot && proposal.probabilities.size(1) != target.probabilities.size(1)) {
      throw Error(ErrorKind::bug, "verify: draft and target distributions differ in width");
    }
    for (const int64_t token : proposal.tokens) {
      if (token < 0 || token >= target.probabilities.size(1)) {
        throw Error(ErrorKind::bug, "verify: draft token " + std::to_string(token) + " of a vocabulary of " +
                                        std::to_string(target.probabilities.size(1)));
      }
    }
  }
  const auto slot = [&](int64_t i) {
    return Slot{greedy ? std::span<const float>() : row_of(target.probabilities, i),
                greedy ? target.greedy[static_cast<size_t>(i)] : -1,
                one_hot ? std::span<const float>() : row_of(proposal.probabilities, i),
                proposal.tokens[static_cast<size_t>(i)]};
  };

  Verification result;
  result.judged = n;
  while (result.accepted_raw < n) {
    const double u = greedy ? 0.0 : draws.accept[static_cast<size_t>(result.accepted_raw)];
    if (!slot(result.accepted_raw).accepts(u)) break;
    ++result.accepted_raw;
  }
  result.accepted = result.accepted_raw;
  for (int64_t i = 0; i < result.accepted_raw; ++i) {
    if (std::find(stop_ids.begin(), stop_ids.end(), proposal.tokens[static_cast<size_t>(i)]) != stop_ids.end()) {
      result.accepted = result.judged = i + 1;
      result.stopped = true;
      return result;
    }
  }
  if (greedy) {
    result.next_token = target.greedy[static_cast<size_t>(result.accepted)];
  } else if (result.accepted == n) {
    result.next_token = draw_token(row_of(target.probabilities, n), draws.token);
  } else {
    const Slot failed = slot(result.accepted);
    const std::vector<double> law = one_hot ? residual(failed.p, failed.token) : residual(failed.p, failed.q);
    result.next_token = draw_token(std::span<const double>(law), draws.token);
  }
  return result;
}

}  // namespace pacer::decode
