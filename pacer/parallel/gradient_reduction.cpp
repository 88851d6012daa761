#include "pacer/parallel/gradient_reduction.h"

#include <algorithm>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"

namespace pacer::parallel {
namespace {

// Devices refuse to launch on tensors without elements.
at::Tensor add(at::Tensor& sum, const at::Tensor& addend) { return sum.numel() == 0 ? sum : sum.add_(addend); }

// One after the other; the tensor itself where only one has elements.
at::Tensor joined(const std::vector<at::Tensor>& parts) {
  std::vector<at::Tensor> filled;
  for (const at::Tensor& part : parts) {
    if (part.numel() > 0) filled.push_back(part);
  }
  if (filled.empty()) return parts.front();
  return filled.size() == 1 ? filled.front() : at::cat(filled);
}

}  // namespace

const char* name_of(Accumulation accumulation) {
  switch (accumulation) {
    case Accumulation::reduce_each:
      return "reduce_each";
    case Accumulation::no_sync:
      return "no_sync";
    case Accumulation::replicate_gate:
      return "replicate_gate";
  }
  return "";
}

Accumulation parse_accumulation(const std::string& text) {
  for (const Accumulation form : {Accumulation::reduce_each, Accumulation::no_sync, Accumulation::replicate_gate}) {
    if (text == name_of(form)) return form;
  }
  throw Error(ErrorKind::usage, "'" + text + "' is no form of accumulation",
              "allowed are reduce_each, no_sync and replicate_gate");
}

GradientReduction::GradientReduction(const UnitLayout& layout, MeshGroups& groups, const ReductionOptions& options,
                                     c10::Device device)
    : layout_(layout),
      groups_(groups),
      options_(options),
      device_(device),
      local_(leaves()),
      row_(leaves()),
      final_(leaves()) {}

bool GradientReduction::leaves_as_they_are() const {
  return options_.exact && options_.accumulation == Accumulation::reduce_each && options_.micro_batches > 1;
}

int64_t GradientReduction::leaves() const {
  return groups_.mesh.data_size() * (options_.exact ? options_.micro_batches : 1);
}

std::vector<TreeNode> GradientReduction::nodes_of_rank(int64_t rank) const {
  if (!options_.exact) return {{rank, 1}};
  const int64_t count = options_.micro_batches;
  if (options_.accumulation != Accumulation::no_sync) return {{rank * count + micro_batch_, 1}};
  return covering_nodes(leaves(), rank * count, (rank + 1) * count);
}

std::vector<TreeNode> GradientReduction::nodes_of_row(int64_t replicate) const {
  const int64_t first = replicate * groups_.mesh.shard, behind = first + groups_.mesh.shard;
  if (!options_.exact) return covering_nodes(leaves(), first, behind);
  const int64_t count = options_.micro_batches;
  if (!leaves_as_they_are()) return covering_nodes(leaves(), first * count, behind * count);
  // Leaves of one micro-batch are no neighbours in the tree: they travel as they are.
  std::vector<TreeNode> nodes;
  for (int64_t rank = first; rank < behind; ++rank) nodes.push_back({rank * count + micro_batch_, 1});
  return nodes;
}

int64_t GradientReduction::common_begin(int64_t replicate) const {
  const int64_t each = (part().common_count + groups_.mesh.replicate - 1) / groups_.mesh.replicate;
  return std::min(part().common_count, replicate * each);
}

int64_t GradientReduction::kept(int64_t replicate) const {
  return part().owner_counts[static_cast<size_t>(replicate)] + common_begin(replicate + 1) - common_begin(replicate);
}

at::Tensor GradientReduction::for_member(const at::Tensor& value, int64_t replicate) const {
  const at::Tensor owned =
      value.narrow(0, part().owner_offset(replicate), part().owner_counts[static_cast<size_t>(replicate)]);
  const at::Tensor common = value.narrow(0, part().owner_total() + common_begin(replicate),
                                         common_begin(replicate + 1) - common_begin(replicate));
  return joined({owned, common});
}

at::Tensor GradientReduction::collect(const std::vector<at::Tensor>& gradients, at::ScalarType dtype) const {
  at::Tensor flat = at::empty({layout_.total()}, at::TensorOptions().dtype(dtype).device(device_));
  std::vector<at::Tensor> lines;
  for (const at::Tensor& gradient : gradients) {
    lines.push_back(gradient.defined() ? gradient.detach().contiguous().view({-1}) : gradient);
  }
  for (size_t shard = 0; shard < layout_.shards.size(); ++shard) {
    const int64_t offset = layout_.offset(static_cast<int64_t>(shard));
    for (const Piece& piece : layout_.shards[shard].pieces) {
      at::Tensor place = flat.narrow(0, offset + piece.offset, piece.count);
      const at::Tensor& line = lines[piece.parameter];
      if (line.defined()) {
        place.copy_(line.narrow(0, piece.begin, piece.count));
      } else {
        place.zero_();
      }
    }
  }
  return flat;
}

void GradientReduction::start(int64_t micro_batch, const std::vector<at::Tensor>& gradients) {
  if (state_ != State::idle) throw Error(ErrorKind::bug, "unit " + layout_.name + " is still being reduced");
  micro_batch_ = micro_batch;
  const bool wait_for_all = options_.accumulation == Accumulation::no_sync;
  const int64_t rank = groups_.data_rank;
  std::vector<TreeSum::Part> parts;
  if (options_.exact) {
    at::Tensor leaf = collect(gradients, at::kFloat);
    const TreeNode node{rank * options_.micro_batches + micro_batch, 1};
    if (wait_for_all) {
      local_.add(node, std::move(leaf));
      if (!last()) return;
      parts = local_.take_parts();
    } else {
      parts.push_back({node, std::move(leaf)});
    }
  } else if (wait_for_all) {
    at::Tensor mine = collect(gradients, at::kFloat);
    local_sum_ = local_sum_.defined() ? add(local_sum_, mine) : std::move(mine);
    if (!last()) return;
    parts.push_back({{rank, 1}, std::exchange(local_sum_, at::Tensor()).to(layout_.message_dtype())});
  } else {
    parts.push_back({{rank, 1}, collect(gradients, layout_.message_dtype())});
  }

  state_ = State::row;
  const auto pieces = static_cast<int64_t>(parts.size());
  std::vector<at::Tensor> slices;
  std::vector<int64_t> sent, received;
  int64_t total = 0;
  for (int64_t shard = 0; shard < groups_.mesh.shard; ++shard) {
    const int64_t count = layout_.shards[static_cast<size_t>(shard)].total();
    for (const TreeSum::Part& part : parts) slices.push_back(part.value.narrow(0, layout_.offset(shard), count));
    sent.push_back(pieces * count);
    const int64_t source = groups_.at.replicate * groups_.mesh.shard + shard;
    received.push_back(static_cast<int64_t>(nodes_of_rank(source).size()) * part().total());
    total += received.back();
  }
  const at::Tensor message = pieces == 1 ? parts.front().value : joined(slices);
  if (groups_.mesh.shard == 1) {
    received_ = message;
    return;
  }
  received_ = at::empty({total}, message.options());
  pending_ = groups_.row->exchange(received_, received, message, sent, "reduce in the row");
}

void GradientReduction::advance() {
  if (state_ != State::row) return;
  pending_.wait();
  const at::Tensor received = std::exchange(received_, at::Tensor()).to(at::kFloat);
  const bool as_they_are = leaves_as_they_are();
  std::vector<TreeSum::Part> parts;
  int64_t offset = 0;
  for (int64_t shard = 0; shard < groups_.mesh.shard; ++shard) {
    for (const TreeNode node : nodes_of_rank(groups_.at.replicate * groups_.mesh.shard + shard)) {
      at::Tensor value = received.narrow(0, offset, part().total());
      offset += part().total();
      if (as_they_are) {
        parts.push_back({node, std::move(value)});
      } else {
        row_.add(node, std::move(value));
      }
    }
  }
  const bool gated = options_.accumulation == Accumulation::replicate_gate;
  if (gated && options_.exact && !last()) {
    state_ = State::idle;
    return;
  }
  if (!as_they_are) parts = row_.take_parts();
  if (gated && !options_.exact) {
    for (size_t i = 0; i < partial_.size(); ++i) parts[i].value = add(partial_[i].value, parts[i].value);
    partial_.clear();
    if (!last()) {
      partial_ = std::move(parts);
      state_ = State::idle;
      return;
    }
  }
  start_column(std::move(parts));
}

void GradientReduction::start_column(std::vector<TreeSum::Part> parts) {
  state_ = State::column;
  std::vector<at::Tensor> slices;
  std::vector<int64_t> sent, received;
  int64_t total = 0;
  for (int64_t replicate = 0; replicate < groups_.mesh.replicate; ++replicate) {
    for (const TreeSum::Part& part : parts) slices.push_back(for_member(part.value, replicate));
    sent.push_back(static_cast<int64_t>(parts.size()) * kept(replicate));
    received.push_back(static_cast<int64_t>(nodes_of_row(replicate).size()) * kept(groups_.at.replicate));
    total += received.back();
  }
  const at::Tensor message = joined(slices);
  if (groups_.mesh.replicate == 1) {
    received_ = message;
    return;
  }
  received_ = at::empty({total}, message.options());
  pending_ = groups_.column->exchange(received_, received, message, sent, "reduce over the rows");
}

void GradientReduction::finish() {
  advance();
  if (state_ != State::column) return;
  pending_.wait();
  take_in(std::exchange(received_, at::Tensor()));
  state_ = State::idle;
  if (options_.exact && !last()) return;
  at::Tensor root = final_.take_root();
  result_ = result_.defined() ? add(result_, root) : std::move(root);
}

void GradientReduction::take_in(const at::Tensor& received) {
  const int64_t count = kept(groups_.at.replicate);
  std::vector<at::Tensor> own;
  int64_t offset = 0, own_offset = 0;
  for (int64_t r = 0; r < groups_.at.replicate; ++r) {
    own_offset += count * static_cast<int64_t>(nodes_of_row(r).size());
  }
  for (int64_t replicate = 0; replicate < groups_.mesh.replicate; ++replicate) {
    const auto nodes = nodes_of_row(replicate);
    for (size_t i = 0; i < nodes.size(); ++i, offset += count) {
      at::Tensor value = received.narrow(0, offset, count);
      if (ignore_other_rows_) value = received.narrow(0, own_offset + static_cast<int64_t>(i) * count, count).clone();
      final_.add(nodes[i], std::move(value));
    }
  }
}

GradientReduction::Sums GradientReduction::take() {
  if (state_ != State::idle || !result_.defined() || !last()) {
    throw Error(ErrorKind::bug, "the gradients of unit " + layout_.name + " are not complete");
  }
  const at::Tensor result = std::exchange(result_, at::Tensor());
  const int64_t owned = part().owner_counts[static_cast<size_t>(groups_.at.replicate)];
  Sums sums{result.narrow(0, 0, owned), result.narrow(0, owned, result.numel() - owned)};
  if (groups_.mesh.replicate == 1 || part().common_count == 0) return sums;
  // Pieces of one size: the last ones are padded.
  const int64_t each = common_begin(1);
  at::Tensor mine = at::zeros({each}, sums.common.options());
  mine.narrow(0, 0, sums.common.numel()).copy_(sums.common);
  at::Tensor all = at::empty({each * groups_.mesh.replicate}, mine.options());
  groups_.column->all_gather(all, mine, "gather over the rows").wait();
  sums.common = all.narrow(0, 0, part().common_count);
  return sums;
}

void GradientReduction::abandon() {
  if (state_ != State::idle) throw Error(ErrorKind::bug, "unit " + layout_.name + " is still being reduced");
  for (TreeSum* sum : {&local_, &row_, &final_}) sum->take_parts();
  local_sum_ = result_ = at::Tensor();
  partial_.clear();
}

}  // namespace pacer::parallel
