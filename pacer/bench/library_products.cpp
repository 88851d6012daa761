#include "pacer/bench/library_products.h"

#include <optional>
#include <string_view>

#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/linear.h>

namespace pacer::bench {

std::vector<Call> library_products(const at::Tensor& x, const at::Tensor& weight) {
  std::vector<Call> calls = {{"at::linear", [=] { at::linear(x, weight); }}};
  using Scalars = c10::List<std::optional<at::Scalar>>;
  using Pointwise = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, std::string_view,
                               Scalars, std::optional<std::string_view>);
  const auto handle = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
  if (handle) {
    const auto typed = handle->typed<Pointwise>();
    calls.push_back(
        {"mkldnn::_linear_pointwise", [=] { typed.call(x, weight, std::nullopt, "none", Scalars(), std::nullopt); }});
  }
  return calls;
}

}  // namespace pacer::bench
