#include "plugins/simnpu/operators/shapes.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/result_type.h>
#include <c10/util/Exception.h>

#include "plugins/simnpu/operators/arguments.h"
#include "plugins/simnpu/runtime/runtime.h"

namespace pacer::simnpu {
namespace {

using torch::jit::Stack;

at::Tensor meta(c10::IntArrayRef sizes, at::ScalarType dtype) { return at::detail::empty_meta(sizes, dtype); }
at::Tensor like(const c10::IValue& value) {
  const at::Tensor& tensor = value.toTensor();
  return meta(tensor.sizes(), tensor.scalar_type());
}

// Each gets the Meta arguments and gives the results; out= arguments are resized by the caller from them.
Stack index_select(const Stack& in) {  // self, dim, index
  const at::Tensor& self = in[0].toTensor();
  std::vector<int64_t> sizes = self.sizes().vec();
  if (!sizes.empty())
    sizes[static_cast<size_t>(c10::maybe_wrap_dim(in[1].toInt(), self.dim()))] = in[2].toTensor().numel();
  return {meta(sizes, self.scalar_type())};
}

Stack where(const Stack& in) {  // condition, self, other
  const at::Tensor &condition = in[0].toTensor(), &self = in[1].toTensor(), &other = in[2].toTensor();
  const auto sizes = at::infer_size(condition.sizes(), at::infer_size(self.sizes(), other.sizes()));
  return {meta(sizes, at::result_type(self, other))};
}

Stack embedding_dense_backward(const Stack& in) {  // grad_output, indices, num_weights, ...
  const at::Tensor& grad = in[0].toTensor();
  return {meta({in[2].toInt(), grad.size(-1)}, grad.scalar_type())};
}

Stack native_layer_norm_backward(const Stack& in) {  // grad_out, input, shape, mean, rstd, weight, bias, mask
  const auto wanted = in[7].toBoolList();
  const auto if_wanted = [&](size_t which, const c10::IValue& of) -> c10::IValue {
    return wanted[which] && !of.isNone() ? like(of) : at::Tensor();
  };
  return {if_wanted(0, in[1]), if_wanted(1, in[5]), if_wanted(2, in[6])};
}

Stack native_layer_norm(const Stack& in) {  // input, normalized_shape, weight, bias, eps
  const at::Tensor& input = in[0].toTensor();
  std::vector<int64_t> sizes = input.sizes().vec();
  const size_t normalized = in[1].toIntVector().size();
  for (size_t d = sizes.size() - std::min(normalized, sizes.size()); d < sizes.size(); ++d) sizes[d] = 1;
  const bool mixed = !in[2].isNone() && in[2].toTensor().scalar_type() != input.scalar_type();
  const at::Tensor statistics = meta(sizes, mixed ? at::kFloat : input.scalar_type());
  return {like(in[0]), statistics, statistics};
}

// Sizes after a reduction over `dims`; none or an empty list: all.
std::vector<int64_t> reduced(const at::Tensor& self, const c10::IValue& dims, bool keep) {
  const bool all = dims.isNone() || dims.toIntVector().empty();
  std::vector<bool> gone(static_cast<size_t>(self.dim()), all);
  if (!all) {
    for (const int64_t dim : dims.toIntVector()) gone[static_cast<size_t>(c10::maybe_wrap_dim(dim, self.dim()))] = true;
  }
  std::vector<int64_t> sizes;
  for (size_t d = 0; d < gone.size(); ++d) {
    if (!gone[d]) sizes.push_back(self.sizes()[d]);
    if (gone[d] && keep) sizes.push_back(1);
  }
  return sizes;
}

Stack variance(const Stack& in) {  // self, dim?, correction, keepdim
  const at::Tensor& self = in[0].toTensor();
  return {meta(reduced(self, in[1], in[3].toBool()), self.scalar_type())};
}

Stack logsumexp(const Stack& in) {  // self, dim, keepdim
  const at::Tensor& self = in[0].toTensor();
  const bool floating = at::isFloatingType(self.scalar_type());
  return {meta(reduced(self, in[1], in[2].toBool()), floating ? self.scalar_type() : at::kFloat)};
}

Stack isnan(const Stack& in) { return {meta(in[0].toTensor().sizes(), at::kBool)}; }
Stack same_as_first(const Stack& in) { return {like(in[0])}; }

using Rule = Stack (*)(const Stack&);
const std::unordered_map<std::string, Rule>& table() {
  static const auto* rules = new std::unordered_map<std::string, Rule>{
      {"aten::index_select", index_select},
      {"aten::index_select.out", index_select},
      {"aten::where.self", where},
      {"aten::where.self_out", where},
      {"aten::embedding_dense_backward", embedding_dense_backward},
      {"aten::native_layer_norm_backward", native_layer_norm_backward},
      {"aten::native_layer_norm", native_layer_norm},
      {"aten::var.correction", variance},
      {"aten::std.correction", variance},
      {"aten::logsumexp", logsumexp},
      {"aten::logsumexp.out", logsumexp},
      {"aten::flip", same_as_first},
      {"aten::roll", same_as_first},
      {"aten::isnan", isnan},
      {"aten::abs", same_as_first},
      {"aten::abs.out", same_as_first},
  };
  return *rules;
}

}  // namespace

std::optional<Shapes> infer_shapes(const c10::OperatorHandle& op, const Stack& arguments) {
  Shapes shapes;
  for (const c10::IValue& value : arguments) {
    shapes.arguments.push_back(value.isDevice() ? c10::IValue(c10::Device(c10::kMeta)) : map_tensors(value, meta_of));
  }
  if (const auto rule = table().find(toString(op.operator_name())); rule != table().end()) {
    shapes.results = rule->second(shapes.arguments);
    return shapes;
  }
  shapes.results = shapes.arguments;
  try {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &shapes.results);
  } catch (const c10::NotImplementedError&) {
    return std::nullopt;  // LibTorch registers a Meta fallback for every operator; this is what it throws
  }
  return shapes;
}

}  // namespace pacer::simnpu
