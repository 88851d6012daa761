#include "pacer/workflow/convert_model.h"

#include "pacer/base/error.h"
#include "pacer/base/numbers.h"
#include "pacer/base/progress.h"
#include "pacer/formats/convert_gguf.h"
#include "pacer/formats/gguf_model.h"
#include "pacer/text/tokenizer.h"

namespace pacer::workflow {

formats::DType parse_weight_dtype(const std::string& word) {
  if (word == "bf16") return formats::DType::BF16;
  if (word == "f16") return formats::DType::F16;
  if (word == "f32") return formats::DType::F32;
  throw Error(ErrorKind::usage, "--dtype is '" + word + "'; allowed are bf16, f16 and f32");
}

ConvertedModel convert_model(const std::filesystem::path& file, const std::filesystem::path& folder,
                             formats::DType dtype, bool replace) {
  ConvertedModel result;
  formats::ConvertOptions options;
  {
    const auto model = formats::GgufModel::open(file);
    for (const std::string& name : model->names()) {
      result.tensors += 1;
      result.parameters += static_cast<uint64_t>(model->stored(name).rows() * model->stored(name).width());
    }
    options.tokenizer_json = text::Tokenizer::from_gguf(model->file())->to_json();
  }
  options.dtype = dtype;
  options.replace = replace;
  Progress progress("converting", result.parameters, {.unit = "values"});
  options.progress = [&](uint64_t done, uint64_t) { progress.update(done); };
  formats::convert_gguf(file, folder, options);
  result.bytes = std::filesystem::file_size(folder / "model.safetensors");
  progress.finish(format_bytes(result.bytes));
  return result;
}

}  // namespace pacer::workflow
