// Which of two implementations a computation takes: Pacer's own kernels, which read and write host memory, or the plain
// path, composed of LibTorch's operators, which runs on every device.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace pacer::device {

struct FusedOperators;

// automatic: own kernels where tensors lie in host memory, else the plain path with the fused operators that the back
// end brings. plain: the plain path everywhere, without them, so that two devices compute alike.
enum class KernelPath { automatic, plain };

struct KernelPaths {
  KernelPath kernels = KernelPath::automatic;    // everything but attention
  KernelPath attention = KernelPath::automatic;  // attention
  bool operator==(const KernelPaths&) const = default;
};

KernelPath parse_kernel_path(const std::string& name, const std::string& place);  // "auto", "plain"; Error{usage}
const char* name_of(KernelPath path);

// For the whole process; before models are made, not while another thread computes. At first what PACER_KERNEL_IMPL and
// PACER_ATTENTION_IMPL say, else automatic.
void use_kernel_paths(const KernelPaths& paths);
KernelPaths kernel_paths();

// Whether own kernels compute on such tensors now.
bool own_kernels(c10::Device device);
bool own_attention(c10::Device device);
inline bool own_kernels(const at::Tensor& tensor) { return own_kernels(tensor.device()); }
inline bool own_attention(const at::Tensor& tensor) { return own_attention(tensor.device()); }

c10::Device host_device();

// Whether the host may read and write such tensors.
bool in_host_memory(c10::Device device);
inline bool in_host_memory(const at::Tensor& tensor) { return in_host_memory(tensor.device()); }

// Most columns of a vocabulary-sized row that one operator may reduce over there; 0: no limit (Capabilities).
int64_t most_reduced_columns(c10::Device device);

// The fused operators to be used on such tensors; its members may be null.
const FusedOperators& fused_operators(c10::Device device);

}  // namespace pacer::device
