// Clipping of gradients that live on many ranks: what a rank adds up by itself, and what follows from the sum over
// ranks. The collective between the two is the caller's: one all-reduce of one vector, whatever any rank sees.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace pacer::optim {

// One gradient, or this rank's part of it.
struct ClipTensor {
  std::string name;
  at::Tensor gradient;  // f32, bf16 or f16; undefined or without elements: counts as zero
  // Ranks of the collective that hold these very elements: 1 for a shard or an owner's gradient, the number of copies
  // for a replicated one. Every element then counts once.
  int64_t multiplicity = 1;
};

// Gradients with a norm and a coefficient of their own.
struct ClipBucket {
  std::string name;
  std::vector<ClipTensor> tensors;
  bool reduce = true;  // false: the bucket is this rank's affair, its entry must not be summed over ranks
};

constexpr double kMaximumNorm = std::numeric_limits<double>::infinity();

// Sum of |x|^p over each bucket divided by the multiplicities, or the largest |x| for p = kMaximumNorm: f32 [buckets]
// on `device`. p >= 1; powers are summed in f32 tensor by tensor in the order given, by blocks whose order never
// changes. Not-a-number and infinite elements come out as such. Throws Error{usage} for p, Error{bug} for dtypes,
// devices and multiplicities below 1.
at::Tensor local_powers(const std::vector<ClipBucket>& buckets, double p, const at::Device& device);

// What to hand to the collective: entries of buckets with reduce = false are zero in `shared`. After the reduction
// (sum, or maximum for p = kMaximumNorm) put_back gives them their local value again.
at::Tensor shared_part(const at::Tensor& powers, const std::vector<ClipBucket>& buckets);
at::Tensor put_back(const at::Tensor& reduced, const at::Tensor& powers, const std::vector<ClipBucket>& buckets);

// Tensors without dimensions on the device of the powers: f32, f32, bool, bool. Nothing is read by the host.
struct ClipStatistics {
  at::Tensor total_norm;   // before clipping
  at::Tensor coefficient;  // min(1, limit / (norm + 1e-6)); 1 without a limit; 0 for an infinite norm
  at::Tensor clipped;      // a finite norm above the limit
  at::Tensor found_inf;    // a norm that is not finite; whether the step is then left out is the caller's to decide
};

// limit: 0 or more, nothing for statistics alone. Throws Error{usage} for a negative one.
ClipStatistics clip_statistics(const at::Tensor& power, double p, std::optional<double> limit);

// The norm of all buckets together.
at::Tensor combined_norm(const at::Tensor& powers, double p);

// Multiplies every gradient of the bucket in place, always, so that no host has to know the coefficient.
void scale_gradients(const ClipBucket& bucket, const at::Tensor& coefficient);

}  // namespace pacer::optim
