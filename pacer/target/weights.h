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
#include "pacer/target/stored_matrices.h"

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
  // Where matrices stay as a GGUF file has them; embedding, head and the matrices of layers are undefined then.
  std::shared_ptr<const StoredMatrices> stored;
};

// Every tensor that a checkpoint of this model holds, with its shape.
std::map<std::string, std::vector<int64_t>> weight_shapes(const ModelConfig& config);

// Refuse, with Error{format}, tensors that such a model does not have, and a tensor of another shape.
void check_names(const ModelConfig& config, const std::map<std::string, std::vector<int64_t>>& shapes,
                 const std::vector<std::string>& names, const std::string& place);
void check_shape(const std::string& place, const std::string& name, const std::vector<int64_t>& found,
                 const std::vector<int64_t>& expected);

// Reads them all in `dtype` (mapped where the file has that dtype). Throws Error{format} for a missing tensor or
// another shape; tensors that the model does not know are refused as well, because leaving one out changes the model.
WeightMap load_weights(const ModelConfig& config, const std::shared_ptr<const formats::TensorSource>& source,
                       at::ScalarType dtype);

// The same from a GGUF file, by all threads. vectors_only: norms and biases, for a model whose matrices stay in the
// file; names and shapes of all tensors are checked.
WeightMap load_weights(const ModelConfig& config, const StoredMatrices& stored, at::ScalarType dtype,
                       bool vectors_only);

// The same tensors by their role. Throws Error{format} when one is missing. stored: what the matrices come from when
// `weights` has none.
ModelWeights arrange(const ModelConfig& config, const WeightMap& weights,
                     std::shared_ptr<const StoredMatrices> stored = nullptr);

// The name of a layer's tensor: layer_name(3, "mlp.up_proj.weight").
std::string layer_name(int64_t layer, const std::string& name);

}  // namespace pacer::target
