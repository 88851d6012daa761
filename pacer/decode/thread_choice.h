// One thread or all of them, by measurement.
#pragma once

#include <cstdint>
#include <vector>

#include "pacer/device/runtime.h"
#include "pacer/target/target.h"
#include "pacer/text/model_text.h"

namespace pacer::decode {

struct ThreadChoice {
  int threads = 1;
  double token_s = 0.0;  // wall seconds of one token of plain decoding with that many
};

// Decodes 32 tokens behind `prompt` plainly with all of the runtime's threads and with one, leaves the runtime with the
// faster number and says so in the log. Decoding one text streams the weights: a second thread helps where the memory
// has more to give, and costs where it has not or where a core is busy with something else. One thread stays unless all
// are faster by a tenth: less is noise, and costs cores. Throws as decode_plain.
ThreadChoice choose_threads(const target::Target& target, const std::vector<int64_t>& prompt, device::Runtime& runtime);

// The same measurement for the number of threads that the runtime has; nothing is chosen or logged.
ThreadChoice measure_threads(const target::Target& target, const std::vector<int64_t>& prompt,
                             device::Runtime& runtime);

// A short question in the words of the model's chat template, for such a trial. Throws as ModelText::prompt_ids.
std::vector<int64_t> trial_prompt(const text::ModelText& text);

}  // namespace pacer::decode
