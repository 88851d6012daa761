// config.json and generation_config.json of the model that a GGUF file was made from.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "pacer/base/json.h"
#include "pacer/formats/gguf.h"

namespace pacer::formats {

// Architectures llama, qwen2 and qwen3. Both spellings of the rotary settings are given (rope_parameters; rope_theta
// and rope_scaling). Embeddings are tied when the file has no output.weight. A metadata key under the architecture's
// name that is not understood is refused, because it may change what the model computes. Throws Error{format} naming
// the key.
Json gguf_config(const GgufFile& file);

// bos_token_id, eos_token_id (end of sequence, of turn and of message, as far as the file names them), pad_token_id.
Json gguf_generation_config(const GgufFile& file);

// Name, author, licence and source of the model as the file states them (general.*), in file order.
std::vector<std::pair<std::string, std::string>> gguf_provenance(const GgufFile& file);

// The double that prints like the float: 9.99999974737875e-06 becomes 1e-05, the number that was meant. Their float is
// the same.
double tidy_float(double value);

}  // namespace pacer::formats
