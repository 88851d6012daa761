#include "plugins/simnpu/rules/rules.h"

#include <array>
#include <string_view>

#include <c10/util/Exception.h>

#include "plugins/simnpu/settings.h"

namespace pacer::simnpu {
namespace {

std::string data_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return "DT_DOUBLE";
    case at::kBFloat16:
      return "DT_BFLOAT16";
    case at::kLong:
      return "DT_INT64";
    case at::kBool:
      return "DT_BOOL";
    case at::kByte:
      return "DT_UINT8";
    default:
      return std::string("DT_") + toString(dtype);
  }
}

// "aten::mm.out" -> "mm"
std::string_view plain_name(std::string_view name) {
  name.remove_prefix(name.find(':') == std::string_view::npos ? 0 : name.find("::") + 2);
  return name.substr(0, name.find('.'));
}

// The kernel library names its entry points aclnnXxx and tells the tensor and the types that it takes.
[[noreturn]] void refuse_dtype(std::string_view name, at::ScalarType dtype, const char* allowed) {
  TORCH_CHECK(false, "call aclnn ", name, " failed, detail:EZ1001: Tensor self not implemented for ", data_type(dtype),
              ", should be in dtype support list [", allowed, "].");
}

bool takes_indices(std::string_view name) {
  constexpr std::array names = {"index_select", "gather",           "scatter",     "scatter_",
                                "scatter_add",  "scatter_add_",     "index",       "index_put",
                                "index_put_",   "_index_put_impl_", "embedding",   "index_add",
                                "index_add_",   "index_copy",       "index_copy_", "embedding_dense_backward",
                                "index_fill_",  "gather_backward"};
  for (const char* each : names) {
    if (name == each) return true;
  }
  return false;
}

}  // namespace

void check_rules(const OperatorCall& call) {
  const std::string_view name = plain_name(call.name);
  if (on(Switch::refuse_float64)) {
    for (const auto* list : {&call.arguments, &call.results}) {
      for (const at::Tensor& tensor : *list) {
        if (tensor.scalar_type() == at::kDouble) {
          refuse_dtype(call.name, at::kDouble, "DT_FLOAT,DT_FLOAT16,DT_BFLOAT16,DT_INT64,DT_INT32,DT_BOOL");
        }
      }
    }
  }
  if (on(Switch::refuse_zero_size)) {
    for (const auto* list : {&call.arguments, &call.results}) {
      for (const at::Tensor& tensor : *list) {
        TORCH_CHECK(tensor.numel() != 0, call.name,
                    ": rtKernelLaunch failed: coreDim must not equal 0: a tensor of shape ", tensor.sizes(),
                    " has no elements");
      }
    }
  }
  if (on(Switch::refuse_int64_indices) && takes_indices(name)) {
    // The first argument is the data, except in embedding_dense_backward's gradient; integer data is no index.
    for (size_t i = 1; i < call.arguments.size(); ++i) {
      const at::ScalarType dtype = call.arguments[i].scalar_type();
      if (dtype == at::kLong && dtype != call.arguments[0].scalar_type()) refuse_dtype(call.name, dtype, "DT_INT32");
    }
  }
  if (const int64_t most = value_of(Switch::reduced_columns);
      most > 0 && call.arguments.size() + call.results.size() == 2 && call.arguments[0].dim() == 2) {
    const at::Tensor &rows = call.arguments[0], &made = call.results.empty() ? call.arguments[1] : call.results[0];
    const bool reduces = made.numel() == rows.size(0) && rows.size(1) > 1;
    TORCH_CHECK(!reduces || rows.size(1) <= most, call.name, ": ub overflow, requires ", rows.size(1),
                " columns while ", most, " are available");
  }
  if (on(Switch::refuse_bfloat16_logsumexp) && name == "logsumexp" &&
      call.arguments[0].scalar_type() == at::kBFloat16) {
    refuse_dtype(call.name, at::kBFloat16, "DT_FLOAT,DT_FLOAT16");
  }
}

void refuse_event_timing() {
  TORCH_CHECK(!on(Switch::refuse_event_timing),
              "npu: aclrtEventElapsedTime failed, error code is 207001: the event was not created with timing");
}

void check_gru(at::ScalarType dtype) {
  if (on(Switch::refuse_bfloat16_gru) && dtype == at::kBFloat16) {
    TORCH_CHECK(false, "DynamicGRUV2: input dtype ", data_type(dtype),
                " is not supported, should be in dtype support list [DT_FLOAT,DT_FLOAT16].");
  }
}

void check_collective(const std::string& function, at::ScalarType dtype, bool reduces, int ranks) {
  if (on(Switch::refuse_single_rank)) {
    TORCH_CHECK(ranks > 1, "HCCL ", function, " failed, error code is 1 (HCCL_E_PARA): a communicator of one rank");
  }
  const bool refused = (dtype == at::kDouble && on(Switch::refuse_reduce_float64)) ||
                       (dtype == at::kBool && on(Switch::refuse_reduce_bool)) ||
                       (dtype == at::kByte && on(Switch::refuse_reduce_uint8));
  TORCH_CHECK(!reduces || !refused, "HCCL ", function, ": Unsupported data type ", toString(dtype), " (",
              data_type(dtype), ")");
}

}  // namespace pacer::simnpu
