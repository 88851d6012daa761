// Linear layers: the library's product for many rows, our own row-streaming product for few.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

namespace pacer::nn {

// y = x W^T + bias, by the fastest library product of this processor; for training and long forwards.
//
//   x        [..., K]  f32 or bf16
//   weight   [N, K]    dtype of x
//   bias     [N]       dtype of x, or undefined
//   returns  [..., N]  dtype of x
//
// Differentiable in all three. The bits of a row may depend on the number of rows. Throws Error{format} on shapes.
// Products of bf16 are multiplied as f32 where that is faster (widens_bf16_products); y is rounded once in any case.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

// The same by products of widened factors, whatever the processor.
at::Tensor widened_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

// Which library takes the f32 products of linear(): y = x W^T, dx = dy W and dW = dy^T x. Two can; which one is faster
// depends on the processor (by a factor of two on some), and they round differently.
enum class F32Library { torch, onednn };
struct F32Products {
  F32Library forward = F32Library::onednn, input_gradient = F32Library::onednn, weight_gradient = F32Library::onednn;
  bool operator==(const F32Products&) const = default;
};
// In use; f32_products_of_processor() at first. A LibTorch without oneDNN computes with torch whatever is chosen.
F32Products f32_products();
void use_f32_products(const F32Products& products);  // not while another thread computes

// What to expect of the processor. torch multiplies f32 with MKL, which runs at half its rate on processors that are
// not Intel's; on Intel's it is the faster one in all three, by a twentieth for y and dx, by a third for dW, and by
// more than two for dx and dW of [1024, 3072] weights.
F32Products f32_products_of_processor();

// The same, corrected where a measurement on layers of a small draft (about 0.1 s of one thread) finds the other
// library twice as fast. With a nearer border the noise of a busy machine would decide, and with it the bits of a run.
F32Products measured_f32_products();
const char* name_of(F32Library library);          // "torch", "onednn"
F32Library f32_library(const std::string& name);  // throws Error{format} for another name

}  // namespace pacer::nn
