#include "plugins/simnpu/operators/launch.h"

#include <optional>
#include <utility>

#include <c10/util/Exception.h>

#include "plugins/simnpu/rules/rules.h"

namespace pacer::simnpu {

void launch_kernel(const char* name, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs,
                   KernelBody body) {
  const std::string* const interned = intern(name);
  std::vector<Access> accesses;
  std::vector<at::Tensor> present;
  using MaybeViews = std::vector<std::optional<View>>;
  const c10::Device device = outputs.at(0).device();
  const auto keep = [&](const std::vector<at::Tensor>& tensors, bool write) {
    MaybeViews views;
    for (const at::Tensor& tensor : tensors) {
      if (!tensor.defined()) {
        views.emplace_back(std::nullopt);
        continue;
      }
      TORCH_CHECK(tensor.device() == device, "npu: ", name, " got tensors on ", device, " and on ", tensor.device());
      views.emplace_back(View(tensor));
      accesses.push_back(views.back()->access(write));
      if (!write) present.push_back(tensor);
    }
    return views;
  };
  const auto thaw = [](const MaybeViews& views) {
    std::vector<at::Tensor> tensors;
    for (const auto& view : views) tensors.push_back(view ? view->tensor() : at::Tensor());
    return tensors;
  };
  const MaybeViews in = keep(inputs, false), out = keep(outputs, true);
  check_rules({*interned, present, outputs});
  launch(device, interned, std::move(accesses), [in, out, thaw, body = std::move(body)] { body(thaw(in), thaw(out)); });
}

}  // namespace pacer::simnpu
