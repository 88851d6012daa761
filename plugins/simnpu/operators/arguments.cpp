#include "plugins/simnpu/operators/arguments.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/List.h>
#include <ATen/ops/clone.h>

#include "plugins/simnpu/runtime/generator.h"
#include "plugins/simnpu/runtime/runtime.h"

namespace pacer::simnpu {
namespace {

using MaybeTensor = std::optional<at::Tensor>;

// The one traversal. f sees every tensor that is there, undefined ones too; the order is the same at every call.
template <class F>
c10::IValue traverse(const c10::IValue& value, const F& f) {
  if (value.isTensor()) return f(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(f(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<MaybeTensor> list;
    for (const MaybeTensor& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor ? MaybeTensor(f(*tensor)) : std::nullopt);
    }
    return list;
  }
  return value;
}

}  // namespace

c10::IValue map_tensors(const c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& f) {
  return traverse(value, [&](const at::Tensor& tensor) { return tensor.defined() ? f(tensor) : tensor; });
}

void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& f) {
  traverse(value, [&](const at::Tensor& tensor) {
    if (tensor.defined()) f(tensor);
    return tensor;
  });
}

Frozen::Frozen(const c10::IValue& value) {
  if (value.isDevice()) {
    shape_ = value.toDevice().type() == kDevice ? c10::IValue(c10::Device(c10::kCPU)) : value;
  } else if (value.isGenerator()) {
    shape_ = twin_of(value.toGenerator());
  } else {
    shape_ = traverse(value, [&](const at::Tensor& tensor) {
      if (on_device(tensor)) {
        views_.emplace_back(View(tensor));
        return at::Tensor();
      }
      views_.emplace_back(std::nullopt);
      return tensor.defined() ? tensor.clone() : tensor;  // the caller may change it before the kernel runs
    });
  }
}

c10::IValue Frozen::thaw() const {
  size_t next = 0;
  return traverse(shape_, [&](const at::Tensor& tensor) {
    const std::optional<View>& view = views_[next++];
    return view ? view->tensor() : tensor;
  });
}

at::Tensor meta_of(const at::Tensor& tensor) {
  at::Tensor meta = at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  return meta;
}

}  // namespace pacer::simnpu
