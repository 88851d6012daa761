// One order of summation whatever the mesh: leaves are numbered, and a fixed binary tree says which pairs are added.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include <ATen/core/Tensor.h>

namespace pacer::parallel {

// The sum of the leaves begin .. begin + count - 1, if it is one of the sums that T(0, leaves) forms:
//   T(lo, n) = T(lo, h) + T(lo + h, n - h),  h the largest power of two below n;  T(lo, 1) = leaf lo
struct TreeNode {
  int64_t begin = 0, count = 1;
  bool operator==(const TreeNode&) const = default;
};

// The fewest nodes of T(0, leaves) that cover the leaves begin .. end - 1, ascending: what a rank that holds these
// leaves can sum without knowing the others.
std::vector<TreeNode> covering_nodes(int64_t leaves, int64_t begin, int64_t end);

// Sums of consecutive leaves as far as they are known. Two siblings become their parent at once, so no more than about
// log2(leaves) tensors are held for a run of leaves.
class TreeSum {
 public:
  explicit TreeSum(int64_t leaves) : leaves_(leaves) {}

  // Takes `value` over: it may be changed, and must not be used again. Throws Error{bug} when the node is no node of
  // the tree or a leaf of it is already here.
  void add(TreeNode node, at::Tensor value);

  // Removes and returns what is known, by first leaf.
  struct Part {
    TreeNode node;
    at::Tensor value;
  };
  std::vector<Part> take_parts();
  // The sum of all leaves; throws Error{bug} while one is missing.
  at::Tensor take_root();
  bool empty() const { return parts_.empty(); }

 private:
  int64_t leaves_;
  std::map<int64_t, Part> parts_;  // by first leaf
};

}  // namespace pacer::parallel
