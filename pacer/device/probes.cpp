#include "pacer/device/probes.h"

#include <stdexcept>

#include <ATen/TensorOperators.h>
#include <ATen/core/GraphImplInterface.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gru.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "pacer/base/error.h"
#include "pacer/device/collectives.h"
#include "pacer/device/device_memory.h"
#include "pacer/device/streams.h"

namespace pacer::device {
namespace {

at::TensorOptions on(const Runtime& runtime, at::ScalarType dtype) {
  return at::TensorOptions().dtype(dtype).device(runtime.device());
}

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

void host_memory(const Runtime& runtime) {
  require(at::ones({2}, on(runtime, at::kFloat)).is_cpu(), "tensors lie in the device's own memory");
}

void streams(const Runtime& runtime) {
  require(new_stream(runtime) != current_stream(runtime), "there is one stream only");
}

void float64(const Runtime& runtime) {
  require((at::ones({4}, on(runtime, at::kDouble)) + 1).sum().item<double>() == 8.0, "1 + 1, four times, is not 8");
}

void int64_indices(const Runtime& runtime) {
  const at::Tensor picked =
      at::arange(6, on(runtime, at::kFloat)).index_select(0, at::arange(2, 4, on(runtime, at::kLong)));
  require(picked.sum().item<float>() == 5.0f, "rows 2 and 3 are not 2 and 3");
}

void zero_size_launches(const Runtime& runtime) {
  const at::Tensor nothing = at::empty({0, 4}, on(runtime, at::kFloat)) + 1;
  runtime.synchronize();
  require(nothing.numel() == 0, "nothing plus one is something");
}

void bfloat16_gru(const Runtime& runtime) {
  const auto options = on(runtime, at::kBFloat16);
  const at::Tensor input = at::ones({2, 1, 4}, options), state = at::zeros({1, 1, 4}, options);
  const std::vector<at::Tensor> weights = {at::ones({12, 4}, options), at::ones({12, 4}, options),
                                           at::ones({12}, options), at::ones({12}, options)};
  at::gru(input, state, weights, /*has_biases=*/true, 1, 0.0, /*train=*/false, false, false);
  runtime.synchronize();
}

void bfloat16_logsumexp(const Runtime& runtime) {
  at::logsumexp(at::ones({2, 8}, on(runtime, at::kBFloat16)), {1});
  runtime.synchronize();
}

void flash_attention(const Runtime& runtime) {
  const at::Tensor q = at::ones({1, 2, 16, 16}, on(runtime, at::kBFloat16));
  require(at::_fused_sdp_choice(q, q, q) != 0, "scaled_dot_product_attention takes the composed form");
}

void event_timing(const Runtime& runtime) {
  const c10::Stream stream = current_stream(runtime);
  Event begin(runtime, true), end(runtime, true);
  begin.record(stream);
  const at::Tensor work = at::ones({256, 256}, on(runtime, at::kFloat)) + 1;
  end.record(stream);
  runtime.synchronize();
  require(begin.elapsed_ms(end) >= 0, "time runs backwards");
}

void graph_capture(const Runtime& runtime) {
  require(at::has_graph_impl(runtime.device().type()), "the back end registers no graphs");
}

void single_rank_collectives(const Runtime& runtime) {
  const auto group =
      make_collectives(runtime, c10::make_intrusive<c10d::HashStore>(), 0, 1, std::chrono::milliseconds(20000));
  if (!group) throw std::runtime_error("the back end brings no collectives");
  std::vector<at::Tensor> tensors = {at::ones({4}, on(runtime, at::kFloat))};
  const auto work = group->allreduce(tensors);  // waiting for it would order streams, and not the host
  runtime.synchronize();
}

}  // namespace

const std::vector<Probe>& probes() {
  static const std::vector<Probe> all = {{Capability::host_memory, host_memory},
                                         {Capability::streams, streams},
                                         {Capability::float64, float64},
                                         {Capability::int64_indices, int64_indices},
                                         {Capability::zero_size_launches, zero_size_launches},
                                         {Capability::bfloat16_gru, bfloat16_gru},
                                         {Capability::bfloat16_logsumexp, bfloat16_logsumexp},
                                         {Capability::flash_attention, flash_attention},
                                         {Capability::event_timing, event_timing},
                                         {Capability::graph_capture, graph_capture},
                                         {Capability::single_rank_collectives, single_rank_collectives}};
  return all;
}

ProbeResult run_probe(const Runtime& runtime, const Probe& probe) {
  ProbeResult result{probe.capability, false, ""};
  try {
    probe.run(runtime);
    runtime.synchronize();
    result.works = true;
  } catch (const std::exception& refusal) {
    result.message = refusal.what();
    result.message = result.message.substr(0, result.message.find('\n'));
  }
  return result;
}

}  // namespace pacer::device
