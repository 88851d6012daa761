// Training of a whole language model on text: where an optimizer is judged by itself.
#pragma once

#include "pacer/train/recipe.h"
#include "pacer/train/train.h"

namespace pacer::train {

// method: causal_lm. The model is new, with the sizes of the section language_model and bytes as tokens, or the one of
// model.target with its tokenizer, in f32 either way. A step minimises the mean of -log p(next token) over all tokens
// of its micro-batches. The run folder is that of other runs; a checkpoint is a Hugging Face folder with f32 weights
// and the optimizer's state beside them, and a continued run ends with the same bits. Throws as train().
TrainResult train_causal_lm(const ResolvedRecipe& resolved, const TrainOptions& options);

}  // namespace pacer::train
