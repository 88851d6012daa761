// Weights: safetensors and GGUF.
#include <algorithm>
#include <bit>
#include <string>

#include "pacer/base/error.h"
#include "pacer/formats/gguf.h"
#include "pacer/formats/gguf_config.h"
#include "pacer/formats/gguf_model.h"
#include "pacer/formats/tensor_source.h"
#include "pacer/text/tokenizer.h"
#include "tests/fuzz/targets.h"

namespace pacer::fuzz {
namespace {

// Reads every byte that a view shows: one outside of the file would be found by the address sanitizer.
uint64_t sum(std::span<const std::byte> bytes) {
  uint64_t total = 0;
  for (const std::byte byte : bytes) total += std::to_integer<uint64_t>(byte);
  return total;
}

// A result that the optimizer may not throw away.
void use(uint64_t value) {
  volatile uint64_t sink = value;
  static_cast<void>(sink);
}

}  // namespace

void safetensors(std::string_view input) {
  std::string file(input);
  if (input.starts_with('{')) {
    const std::string_view header = input.substr(0, input.find('\0'));
    const std::string_view data = input.substr(std::min(header.size() + 1, input.size()));
    file.clear();
    for (int byte = 0; byte < 8; ++byte) file.push_back(static_cast<char>(header.size() >> (8 * byte)));
    file.append(header).append(data);
  }
  const MemoryFile memory(file);
  accepted([&] {
    const auto opened = formats::SafetensorsFile::open(memory.path());
    uint64_t covered = 0;
    for (const std::string& name : opened->names()) {
      const formats::TensorView view = opened->tensor(name);
      use(sum(view.bytes));
      covered += view.bytes.size();
      require(std::bit_cast<uintptr_t>(view.bytes.data()) % formats::item_size(view.dtype) == 0 || view.bytes.empty(),
              "a tensor that is not aligned to its elements");
    }
    require(covered <= file.size(), "more bytes of tensors than the file has");
    accepted([&] { opened->tensor("not there"); });
  });
}

void gguf(std::string_view input) {
  const MemoryFile memory(input);
  accepted([&] {
    const auto file = formats::GgufFile::open(memory.path());
    for (const std::string& key : file->keys()) use(formats::to_json(file->value(key)).size());
    for (const formats::GgufTensor& tensor : file->tensors()) {
      use(sum(tensor.bytes));
      accepted([&] {
        std::vector<float> row(static_cast<size_t>(tensor.width()));
        file->dequantize_rows(tensor.name, tensor.rows() - 1, 1, row);
      });
    }
    accepted([&] { file->tensor("not there"); });
    accepted([&] { use(formats::gguf_provenance(*file).size()); });
    accepted([&] { use(formats::gguf_generation_config(*file).size()); });
    accepted([&] {
      const auto tokenizer = text::Tokenizer::from_gguf(*file);
      use(tokenizer->decode(tokenizer->encode("a b 12").ids).size());
      use(tokenizer->to_json().size());
    });
  });
  accepted([&] {
    const auto model = formats::GgufModel::open(memory.path());
    const auto tensors = model->tensors(formats::DType::F32);
    for (const std::string& name : tensors->names()) {
      accepted([&] { use(sum(tensors->tensor(name).bytes)); });
    }
  });
}

}  // namespace pacer::fuzz
