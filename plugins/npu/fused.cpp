#include "plugins/npu/fused.h"

#include <stdexcept>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/logical_not.h>

namespace pacer::npu {
namespace {

// An operator whose list of arguments grew from version to version: leading tensors by place, since their names changed
// too, the others by name, what is not given as its declaration says.
class Operator {
 public:
  Operator(const char* name, size_t tensors, std::vector<std::string> given)
      : name_(std::string("npu::") + name), tensors_(tensors), given_(std::move(given)) {}

  // Why it cannot be called; empty when it can.
  std::string obstacle() const {
    const auto handle = find();
    if (!handle) return name_ + " is not there";
    const auto& arguments = handle->schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      const c10::Argument& argument = arguments[i];
      const bool known = i < tensors_ || place_of(argument.name()) < given_.size();
      if (!known && !argument.default_value()) return name_ + " wants an argument '" + argument.name() + "'";
    }
    for (const std::string& name : given_) {
      if (!handle->schema().argumentIndexWithName(name)) return name_ + " has no argument '" + name + "'";
    }
    return {};
  }

  // tensors and values in the order of the constructor; the first result.
  at::Tensor operator()(const std::vector<at::Tensor>& tensors, const std::vector<c10::IValue>& values) const {
    const auto handle = find();
    if (!handle) throw std::runtime_error(name_ + " is gone");
    std::vector<c10::IValue> stack;
    const auto& arguments = handle->schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      const size_t place = place_of(arguments[i].name());
      stack.push_back(i < tensors_            ? c10::IValue(tensors[i])
                      : place < given_.size() ? values[place]
                                              : *arguments[i].default_value());
    }
    handle->callBoxed(&stack);
    return stack.front().toTensor();
  }

 private:
  std::optional<c10::OperatorHandle> find() const { return c10::Dispatcher::singleton().findSchema({name_, ""}); }
  size_t place_of(const std::string& argument) const {
    size_t place = 0;
    while (place < given_.size() && given_[place] != argument) ++place;
    return place;
  }

  std::string name_;
  size_t tensors_;
  std::vector<std::string> given_;
};

const Operator& rms_norm_operator() {
  static const Operator found("npu_rms_norm", 2, {"epsilon"});
  return found;
}
const Operator& swiglu_operator() {
  static const Operator found("npu_swiglu", 1, {"dim"});
  return found;
}
const Operator& attention_operator() {
  static const Operator found("npu_fusion_attention", 3,
                              {"head_num", "input_layout", "atten_mask", "scale", "sparse_mode"});
  return found;
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return rms_norm_operator()({x, weight}, {epsilon});
}

at::Tensor swiglu(const at::Tensor& gate_up) { return swiglu_operator()({gate_up}, {int64_t{-1}}); }

at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const std::optional<at::Tensor>& visible, double scale) {
  // The operator's mask says what does not take part; mode 1: the mask is all there is to know.
  const c10::IValue mask = visible ? c10::IValue(at::logical_not(*visible)) : c10::IValue();
  const int64_t mode = visible ? 1 : 0;
  return attention_operator()({query, key, value}, {query.size(1), "BNSD", mask, scale, mode});
}

}  // namespace

device::FusedOperators find_fused_operators(std::string& note) {
  device::FusedOperators found;
  const auto usable = [&note](const Operator& each) {
    const std::string obstacle = each.obstacle();
    if (!obstacle.empty()) note += (note.empty() ? "" : "; ") + obstacle + ", the plain path takes its place";
    return obstacle.empty();
  };
  if (usable(rms_norm_operator())) found.rms_norm = &rms_norm;
  if (usable(swiglu_operator())) found.swiglu = &swiglu;
  if (usable(attention_operator())) found.attention = &attention;
  return found;
}

}  // namespace pacer::npu
