#include "pacer/workflow/convert_to_gguf.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "pacer/base/error.h"
#include "pacer/base/numbers.h"
#include "pacer/base/progress.h"
#include "pacer/formats/gguf_model.h"
#include "pacer/formats/gguf_names.h"
#include "pacer/formats/gguf_write.h"
#include "pacer/formats/half.h"
#include "pacer/formats/model_folder.h"
#include "pacer/target/weights.h"
#include "pacer/workflow/gguf_metadata.h"

namespace pacer::workflow {
namespace {

namespace fs = std::filesystem;
using formats::GgmlType;
using formats::GgufTensorSpec;

// Rows [first, first + count) of a tensor in f32, in the order of the file to be written.
using ReadRows = std::function<void(const std::string& gguf_name, int64_t first, int64_t count, std::span<float> out)>;

struct Source {
  formats::GgufMetadata metadata;
  std::vector<GgufTensorSpec> tensors;
  ReadRows read;
};

// llama.cpp's number for "most tensors are of this type".
int64_t file_type(GgmlType type) { return type == GgmlType::F32 ? 0 : type == GgmlType::Q8_0 ? 7 : 32; }

int64_t width_of(const std::vector<int64_t>& shape) { return shape.empty() ? 1 : shape.back(); }

int64_t rows_of(const std::vector<int64_t>& shape) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

// Vectors are a thousandth of a model and cheap to keep exact; rows that are no whole number of blocks must be.
GgmlType type_for(const std::vector<int64_t>& shape, GgmlType type) {
  const bool whole = width_of(shape) % static_cast<int64_t>(formats::ggml_layout(type).block_values) == 0;
  return shape.size() < 2 || !whole ? GgmlType::F32 : type;
}

Source from_gguf(const fs::path& path, GgmlType type) {
  const auto model = formats::GgufModel::open(path);  // refuses what is not understood
  const formats::GgufFile& file = model->file();
  Source source;
  for (const std::string& key : file.keys()) {
    // Of the old data section and of its types.
    if (key == "general.alignment" || key == "general.file_type") continue;
    source.metadata.copy(key, file.value(key));
  }
  for (const formats::GgufTensor& tensor : file.tensors()) {
    source.tensors.push_back({tensor.name, type_for(tensor.shape, type), tensor.shape});
  }
  source.read = [model](const std::string& name, int64_t first, int64_t count, std::span<float> out) {
    model->file().dequantize_rows(name, first, count, out);
  };
  return source;
}

Source from_folder(const fs::path& path, GgmlType type) {
  const auto folder = std::make_shared<const formats::ModelFolder>(formats::ModelFolder::open(path));
  const target::ModelConfig config = target::ModelConfig::from_json(folder->config(), folder->config_place());
  const std::shared_ptr<const formats::TensorSource> tensors = folder->tensors();
  const auto shapes = target::weight_shapes(config);
  target::check_names(config, shapes, tensors->names(), tensors->place());
  Source source;
  source.metadata = gguf_metadata(*folder, config);
  std::map<std::string, std::string> names;  // GGUF -> Hugging Face
  for (const auto& [name, shape] : shapes) {
    target::check_shape(tensors->place(), name, tensors->tensor(name).shape, shape);
    const auto gguf = formats::gguf_name(name);
    if (!gguf) throw Error(ErrorKind::bug, "no GGUF name for " + name);
    names[*gguf] = name;
    source.tensors.push_back({*gguf, type_for(shape, type), shape});
  }
  const std::vector<float> divisors = rope_divisors(config);
  if (!divisors.empty()) {
    source.tensors.push_back({"rope_freqs.weight", GgmlType::F32, {static_cast<int64_t>(divisors.size())}});
  }
  const bool llama = config.architecture == "llama";
  source.read = [=](const std::string& gguf, int64_t first, int64_t count, std::span<float> out) {
    if (gguf == "rope_freqs.weight") return void(std::copy(divisors.begin(), divisors.end(), out.begin()));
    const formats::TensorView view = tensors->tensor(names.at(gguf));
    const bool interleaved =
        llama && (gguf.find(".attn_q.") != std::string::npos || gguf.find(".attn_k.") != std::string::npos);
    // A bias is one row here, and its values are what is interleaved.
    const bool vector = view.shape.size() == 1;
    const int64_t units = vector ? width_of(view.shape) : count, width = vector ? 1 : width_of(view.shape);
    const size_t unit_bytes = static_cast<size_t>(width) * formats::item_size(view.dtype);
    for (int64_t i = 0; i < units; ++i) {
      const int64_t stored = first + i;
      const int64_t row = interleaved ? formats::hugging_face_row(stored, config.head_dim) : stored;
      formats::to_f32(view.dtype, view.bytes.subspan(static_cast<size_t>(row) * unit_bytes, unit_bytes),
                      out.subspan(static_cast<size_t>(i * width), static_cast<size_t>(width)));
    }
  };
  return source;
}

}  // namespace

GgmlType parse_gguf_type(const std::string& word) {
  if (word == "q8_0") return GgmlType::Q8_0;
  if (word == "bf16") return GgmlType::BF16;
  if (word == "f32") return GgmlType::F32;
  throw Error(ErrorKind::usage, "--type is '" + word + "'; allowed are q8_0, bf16 and f32");
}

ConvertedModel convert_to_gguf(const fs::path& model, const fs::path& out, GgmlType type, bool replace) {
  if (fs::exists(out) && (!replace || !fs::is_regular_file(out))) {
    throw Error(ErrorKind::usage, out.string() + " exists", "choose another name, or replace the file with --replace");
  }
  Source source = fs::is_directory(model) ? from_folder(model, type) : from_gguf(model, type);
  source.metadata.u32("general.file_type", file_type(type));
  source.metadata.u32("general.quantization_version", 2);
  ConvertedModel result;
  for (const GgufTensorSpec& tensor : source.tensors) {
    result.tensors += 1;
    result.parameters += static_cast<uint64_t>(rows_of(tensor.shape) * width_of(tensor.shape));
  }
  Progress progress("converting", result.parameters, {.unit = "values"});
  uint64_t done = 0;
  formats::write_gguf(out, source.metadata, source.tensors, [&](const GgufTensorSpec& tensor, std::span<std::byte> to) {
    const int64_t width = width_of(tensor.shape), rows = rows_of(tensor.shape);
    const size_t row_bytes = to.size() / static_cast<size_t>(rows);
    const int64_t step = std::max<int64_t>(1, 65536 / width);
    std::vector<float> values(static_cast<size_t>(std::min(step, rows) * width));
    for (int64_t row = 0; row < rows; row += step) {
      const int64_t count = std::min(step, rows - row);
      const std::span<float> block = std::span(values).first(static_cast<size_t>(count * width));
      source.read(tensor.name, row, count, block);
      formats::quantize_blocks(tensor.type, block,
                               to.subspan(static_cast<size_t>(row) * row_bytes, static_cast<size_t>(count) * row_bytes),
                               model.string() + ": tensor '" + tensor.name + "'");
      done += block.size();
      progress.update(done);
    }
  });
  result.bytes = fs::file_size(out);
  progress.finish(format_bytes(result.bytes));
  return result;
}

}  // namespace pacer::workflow
