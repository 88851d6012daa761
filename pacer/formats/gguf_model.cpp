#include "pacer/formats/gguf_model.h"

#include <algorithm>
#include <cstddef>
#include <mutex>

#include "pacer/base/error.h"
#include "pacer/base/nearest.h"
#include "pacer/formats/gguf_config.h"
#include "pacer/formats/gguf_names.h"
#include "pacer/formats/half.h"

namespace pacer::formats {
namespace {

// Converted tensors, each made once.
class ConvertedTensors : public TensorSource {
 public:
  ConvertedTensors(std::shared_ptr<const GgufModel> model, DType dtype) : model_(std::move(model)), dtype_(dtype) {
    for (const std::string& name : model_->names()) slots_[name];
  }

  std::vector<std::string> names() const override { return model_->names(); }
  bool has(const std::string& name) const override { return model_->has(name); }
  std::string place() const override { return model_->file().place(); }

  TensorView tensor(const std::string& name) const override {
    const std::vector<int64_t>& shape = model_->shape(name);  // throws for an unknown name
    Slot& slot = slots_.at(name);
    std::call_once(slot.once, [&] {
      const GgufTensor& stored = model_->stored(name);
      slot.size = static_cast<size_t>(stored.rows() * stored.width()) * item_size(dtype_);
      slot.words.resize((slot.size + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t));
      model_->read(name, dtype_, {reinterpret_cast<std::byte*>(slot.words.data()), slot.size});
    });
    return {dtype_, shape, {reinterpret_cast<const std::byte*>(slot.words.data()), slot.size}};
  }

 private:
  struct Slot {
    std::once_flag once;
    std::vector<std::max_align_t> words;
    size_t size = 0;
  };

  std::shared_ptr<const GgufModel> model_;
  DType dtype_;
  mutable std::map<std::string, Slot> slots_;  // the set of names is fixed by the constructor
};

// A large model may come as several files, each with a part of the tensors.
void refuse_part(const GgufFile& file) {
  const int64_t parts = file.find_integer("split.count").value_or(1);
  if (parts <= 1) return;
  throw Error(ErrorKind::format,
              file.place() + ": this is part " + std::to_string(file.find_integer("split.no").value_or(0) + 1) +
                  " of " + std::to_string(parts) + " of a model",
              "parts are not read one by one; join them first: llama-gguf-split --merge FIRST_PART JOINED.gguf");
}

}  // namespace

std::shared_ptr<const GgufModel> GgufModel::open(const std::filesystem::path& path) {
  std::shared_ptr<GgufModel> model(new GgufModel);
  model->file_ = GgufFile::open(path);
  const GgufFile& file = *model->file_;
  refuse_part(file);
  model->config_ = gguf_config(file);
  model->generation_config_ = gguf_generation_config(file);
  model->head_dim_ = model->config_["head_dim"].get<int64_t>();
  const int64_t layers = model->config_["num_hidden_layers"].get<int64_t>();
  const bool llama = model->config_["model_type"] == "llama";
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.name == "rope_freqs.weight") continue;  // already in the rotary settings
    const std::optional<std::string> name = hugging_face_name(tensor.name, layers);
    if (!name) {
      throw Error(ErrorKind::format,
                  file.place() + ": tensor '" + tensor.name + "' has no place in a model of this architecture with " +
                      std::to_string(layers) + " layers",
                  "the model has parts that are not supported; use its Hugging Face folder to see what it is");
    }
    const bool interleaved = llama && (tensor.name.find(".attn_q.") != std::string::npos ||
                                       tensor.name.find(".attn_k.") != std::string::npos);
    // A bias is one row of the file but a column of scalars in the model: its values are what is interleaved.
    const int64_t units = tensor.shape.size() == 1 ? tensor.width() : tensor.rows();
    if (interleaved && (model->head_dim_ % 2 != 0 || units % model->head_dim_ != 0)) {
      throw Error(ErrorKind::format, file.place() + ": tensor '" + tensor.name + "' has " + std::to_string(units) +
                                         " rows, heads have " + std::to_string(model->head_dim_));
    }
    model->entries_[*name] = {tensor.name, interleaved};
  }
  return model;
}

std::vector<std::string> GgufModel::names() const {
  std::vector<std::string> result;
  for (const auto& [name, unused] : entries_) result.push_back(name);
  return result;
}

const GgufModel::Entry& GgufModel::entry(const std::string& name) const {
  if (const auto found = entries_.find(name); found != entries_.end()) return found->second;
  throw Error(ErrorKind::format, file_->place() + ": no tensor '" + name + "'",
              "the nearest names are " + quoted_list(nearest(name, names())));
}

const GgufTensor& GgufModel::stored(const std::string& name) const { return file_->tensor(entry(name).stored_name); }

int64_t GgufModel::stored_row(const std::string& name, int64_t row) const {
  return interleaved(name) ? interleaved_row(row, head_dim_) : row;
}

void GgufModel::rows(const std::string& name, int64_t first_row, int64_t count, std::span<float> out) const {
  const Entry& found = entry(name);
  const GgufTensor& tensor = file_->tensor(found.stored_name);
  const auto width = static_cast<size_t>(tensor.width());
  if (!found.interleaved) return file_->dequantize_rows(found.stored_name, first_row, count, out);
  if (first_row < 0 || count < 0 || first_row > tensor.rows() - count ||
      out.size() != static_cast<size_t>(count) * width) {
    throw Error(ErrorKind::bug, file_->place() + ": tensor '" + name + "': rows out of range");
  }
  if (tensor.shape.size() == 1) {
    const std::vector<float> values = file_->dequantize(found.stored_name);
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = values[static_cast<size_t>(interleaved_row(static_cast<int64_t>(i), head_dim_))];
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    file_->dequantize_rows(found.stored_name, interleaved_row(first_row + i, head_dim_), 1,
                           out.subspan(static_cast<size_t>(i) * width, width));
  }
}

void GgufModel::read(const std::string& name, DType dtype, std::span<std::byte> out) const {
  const GgufTensor& tensor = stored(name);
  const auto width = static_cast<size_t>(tensor.width());
  if (out.size() != static_cast<size_t>(tensor.rows()) * width * item_size(dtype)) {
    throw Error(ErrorKind::bug,
                file_->place() + ": tensor '" + name + "': a buffer of " + std::to_string(out.size()) + " bytes");
  }
  // A few rows at a time: the f32 values stay in the cache.
  const int64_t step = std::max<int64_t>(1, 16384 / tensor.width());
  std::vector<float> values(static_cast<size_t>(std::min(step, tensor.rows())) * width);
  for (int64_t row = 0; row < tensor.rows(); row += step) {
    const int64_t count = std::min(step, tensor.rows() - row);
    const std::span<float> block = std::span(values).first(static_cast<size_t>(count) * width);
    rows(name, row, count, block);
    from_f32(block, dtype,
             out.subspan(static_cast<size_t>(row) * width * item_size(dtype), block.size() * item_size(dtype)));
  }
}

std::shared_ptr<const TensorSource> GgufModel::tensors(DType dtype) const {
  return std::make_shared<ConvertedTensors>(shared_from_this(), dtype);
}

}  // namespace pacer::formats
