#include "pacer/nn/row_layer.h"

#include <algorithm>
#include <type_traits>

#include "pacer/base/error.h"
#include "pacer/nn/bfloat16.h"

namespace pacer::nn {
namespace {

// Rows in the other forms, per thread; grown, never shrunk.
struct Scratch {
  RoundedRows rounded;
  std::vector<uint16_t> narrowed;
};

const at::Tensor* tensor_of(const RowMatrix& matrix) { return std::get_if<at::Tensor>(&matrix); }

bool stored_alike(const RowMatrix& a, const RowMatrix& b) {
  if (a.index() != b.index()) return false;
  if (const at::Tensor* tensor = tensor_of(a)) return tensor->scalar_type() == tensor_of(b)->scalar_type();
  return std::get<QuantMatrix>(a).type == std::get<QuantMatrix>(b).type;
}

int64_t inputs_of(const RowMatrix& matrix) {
  if (const at::Tensor* tensor = tensor_of(matrix)) return tensor->dim() == 2 ? tensor->size(1) : -1;
  return std::get<QuantMatrix>(matrix).inputs;
}

int64_t padded(int64_t outputs) { return (outputs + 15) / 16 * 16; }

template <typename Part>
int64_t padded_outputs(const Part& part) {
  return padded(part.outputs());
}

}  // namespace

template <typename T>
RowLayer<T>::RowLayer(const std::vector<RowMatrix>& weights, PanelArena& arena) : inputs_(inputs_of(weights.at(0))) {
  std::vector<RowMatrix> group;
  for (const RowMatrix& weight : weights) {
    if (inputs_of(weight) != inputs_) {
      throw Error(ErrorKind::format, "RowLayer: a matrix of " + std::to_string(inputs_of(weight)) +
                                         " inputs beside one of " + std::to_string(inputs_));
    }
    if (!group.empty() && !stored_alike(group.front(), weight)) add(group, arena), group.clear();
    group.push_back(weight);
  }
  add(group, arena);
}

template <typename T>
void RowLayer<T>::add(const std::vector<RowMatrix>& group, PanelArena& arena) {
  if (tensor_of(group.front()) == nullptr) {
    if constexpr (std::is_same_v<T, uint16_t>) {
      throw Error(ErrorKind::format, "RowLayer: blocks are computed from f32 rows");
    }
    std::vector<QuantMatrix> blocks;
    for (const RowMatrix& matrix : group) blocks.push_back(std::get<QuantMatrix>(matrix));
    parts_.emplace_back(std::in_place_type<QuantLinear>, blocks, arena);
  } else {
    std::vector<at::Tensor> tensors;
    for (const RowMatrix& matrix : group) tensors.push_back(std::get<at::Tensor>(matrix));
    const bool narrow = std::is_same_v<T, uint16_t> || tensors[0].scalar_type() == at::kBFloat16;
    if (narrow) {
      parts_.emplace_back(std::in_place_type<RowLinear<uint16_t>>, tensors, arena);
    } else {
      parts_.emplace_back(std::in_place_type<RowLinear<float>>, tensors, arena);
    }
  }
  // A part fills whole groups of sixteen; the next one writes over what is too much.
  std::visit(
      [&](const auto& part) {
        stride_ = std::max(stride_, outputs_ + padded_outputs(part));
        outputs_ += part.outputs();
      },
      parts_.back());
}

template <typename T>
uint64_t RowLayer<T>::bytes() const {
  uint64_t sum = 0;
  for (const Part& part : parts_) sum += std::visit([](const auto& one) { return one.bytes(); }, part);
  return sum;
}

template <typename T>
void RowLayer<T>::sums(const T* x, int64_t rows, float* y) const {
  static thread_local Scratch scratch;
  bool rounded = false, narrowed = false;
  int64_t first = 0;
  for (const Part& part : parts_) {
    if (const auto* same = std::get_if<RowLinear<T>>(&part)) {
      same->sums(x, rows, y + first, stride_);
      first += same->outputs();
      continue;
    }
    if constexpr (std::is_same_v<T, float>) {
      if (const auto* blocks = std::get_if<QuantLinear>(&part)) {
        if (!rounded) scratch.rounded.round(blocks->kernels(), blocks->fineness(), x, rows, inputs_);
        rounded = true;
        blocks->sums(scratch.rounded, rows, y + first, stride_);
        first += blocks->outputs();
      } else {
        const auto& narrow = std::get<RowLinear<uint16_t>>(part);
        if (!narrowed) {
          scratch.narrowed.resize(std::max(scratch.narrowed.size(), static_cast<size_t>(rows * inputs_)));
          for (int64_t i = 0; i < rows * inputs_; ++i)
            scratch.narrowed[static_cast<size_t>(i)] = nn::narrow<uint16_t>(x[i]);
        }
        narrowed = true;
        narrow.sums(scratch.narrowed.data(), rows, y + first, stride_);
        first += narrow.outputs();
      }
    }
  }
}

template class RowLayer<float>;
template class RowLayer<uint16_t>;

}  // namespace pacer::nn
