// What config.json and the tokenizer files say, in the words of GGUF metadata.
#pragma once

#include <vector>

#include "pacer/formats/gguf_write.h"
#include "pacer/formats/model_folder.h"
#include "pacer/target/config.h"

namespace pacer::workflow {

// Architecture, sizes, rotary settings, tokenizer, chat template, name and licence. Throws Error{format} for what GGUF
// has no word for.
formats::GgufMetadata gguf_metadata(const formats::ModelFolder& folder, const target::ModelConfig& config);

// What Llama 3 models divide their frequencies by, [D/2], written as the tensor rope_freqs.weight; empty for others.
std::vector<float> rope_divisors(const target::ModelConfig& config);

}  // namespace pacer::workflow
