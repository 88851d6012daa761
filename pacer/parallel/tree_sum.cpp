#include "pacer/parallel/tree_sum.h"

#include <bit>
#include <optional>
#include <string>
#include <utility>

#include <ATen/TensorOperators.h>

#include "pacer/base/error.h"

namespace pacer::parallel {
namespace {

// Leaves of the left child of a node with `count` >= 2 leaves.
int64_t left_count(int64_t count) { return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(count - 1))); }

void cover(TreeNode node, int64_t begin, int64_t end, std::vector<TreeNode>& out) {
  if (node.begin >= end || node.begin + node.count <= begin) return;
  if (node.begin >= begin && node.begin + node.count <= end) {
    out.push_back(node);
    return;
  }
  const int64_t left = left_count(node.count);
  cover({node.begin, left}, begin, end, out);
  cover({node.begin + left, node.count - left}, begin, end, out);
}

struct Family {
  TreeNode parent, left, right;
};

// Nothing for the root; Error{bug} for what is not in the tree.
std::optional<Family> family_of(int64_t leaves, TreeNode node) {
  TreeNode at{0, leaves};
  if (node == at) return std::nullopt;
  while (at.count > 1) {
    const int64_t half = left_count(at.count);
    const TreeNode left{at.begin, half}, right{at.begin + half, at.count - half};
    if (node == left || node == right) return Family{at, left, right};
    at = node.begin < right.begin ? left : right;
  }
  throw Error(ErrorKind::bug, "leaves " + std::to_string(node.begin) + " to " +
                                  std::to_string(node.begin + node.count - 1) + " are no node of a tree over " +
                                  std::to_string(leaves));
}

}  // namespace

std::vector<TreeNode> covering_nodes(int64_t leaves, int64_t begin, int64_t end) {
  std::vector<TreeNode> nodes;
  if (leaves > 0) cover({0, leaves}, begin, end, nodes);
  return nodes;
}

void TreeSum::add(TreeNode node, at::Tensor value) {
  for (;;) {
    const auto family = family_of(leaves_, node);
    const auto behind = parts_.upper_bound(node.begin + node.count - 1);
    if (behind != parts_.begin()) {
      const Part& before = std::prev(behind)->second;
      if (before.node.begin + before.node.count > node.begin) {
        throw Error(ErrorKind::bug, "leaf " + std::to_string(node.begin) + " was summed twice");
      }
    }
    if (family) {
      const TreeNode sibling = node == family->left ? family->right : family->left;
      const auto found = parts_.find(sibling.begin);
      if (found != parts_.end() && found->second.node == sibling) {
        at::Tensor other = std::move(found->second.value);
        parts_.erase(found);
        if (node == family->left) {
          if (value.numel() > 0) value.add_(other);
        } else {
          if (value.numel() > 0) other.add_(value);
          value = std::move(other);
        }
        node = family->parent;
        continue;
      }
    }
    parts_[node.begin] = {node, std::move(value)};
    return;
  }
}

std::vector<TreeSum::Part> TreeSum::take_parts() {
  std::vector<Part> parts;
  for (auto& [begin, part] : parts_) parts.push_back(std::move(part));
  parts_.clear();
  return parts;
}

at::Tensor TreeSum::take_root() {
  if (parts_.size() != 1 || parts_.begin()->second.node != TreeNode{0, leaves_}) {
    throw Error(ErrorKind::bug, "a sum over " + std::to_string(leaves_) + " leaves is asked for before all are here");
  }
  at::Tensor root = std::move(parts_.begin()->second.value);
  parts_.clear();
  return root;
}

}  // namespace pacer::parallel
