// The tensors of a Llama-like model by their Hugging Face names, and how they hang together.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/formats/tensor_source.h"
#include "pacer/target/config.h"

namespace pacer::target {

using WeightMap = std::map<std::string, at::Tensor>;

struct LayerWeights {
  at::Tensor input_norm, post_norm;           // [H]
  at::Tensor q, k, v, o;                      // [heads*D, H], [kv*D, H], [kv*D, H], [H, heads*D]
  at::Tensor q_bias, k_bias, v_bias, o_bias;  // undefined where the model has none
  at::Tensor q_norm, k_norm;                  // [D], undefined without norms of q and k
  at::Tensor gate, up, down;                  // [F, H], [F, H], [H, F]
  at::Tensor gate_bias, up_bias, down_bias;   // undefined where the model has none
};

struct ModelWeights {
  at::Tensor embedding;   // [V, H]
  at::Tensor head;        // [V, H]; the embedding itself when tied
  at::Tensor final_norm;  // [H]
  std::vector<LayerWeights> layers;
};

// Every tensor that a checkpoint of this model holds, with its shape.
std::map<std::string, std::vector<int64_t>> weight_shapes(const ModelConfig& config);

// Reads them all in `dtype` (mapped where the file has that dtype). Throws Error{format} for a missing tensor or
// another shape; tensors that the model does not know are refused as well, because leaving one out changes the model.
WeightMap load_weights(const ModelConfig& config, const std::shared_ptr<const formats::TensorSource>& source,
                       at::ScalarType dtype);

// The same tensors by their role. Throws Error{format} when one is missing.
ModelWeights arrange(const ModelConfig& config, const WeightMap& weights);

}  // namespace pacer::target
