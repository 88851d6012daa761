#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "pacer/formats/safetensors_header.h"
#include "pacer/formats/tensor_source.h"

namespace pacer::formats {
namespace {

struct Layout {
  std::string header;         // the JSON text, padded
  std::vector<size_t> order;  // of the data
  std::vector<size_t> sizes;  // bytes of each tensor, in the given order
};

Layout lay_out(const std::string& path, const std::vector<TensorSpec>& tensors,
               const std::map<std::string, std::string>& metadata) {
  Layout layout;
  // Wide element types first, otherwise in the given order: each tensor is then aligned to its elements although no
  // holes are allowed between them.
  layout.order.resize(tensors.size());
  layout.sizes.resize(tensors.size());
  std::iota(layout.order.begin(), layout.order.end(), size_t{0});
  std::stable_sort(layout.order.begin(), layout.order.end(),
                   [&](size_t a, size_t b) { return item_size(tensors[a].dtype) > item_size(tensors[b].dtype); });

  std::set<std::string> seen;
  uint64_t offset = 0;
  std::string entries;  // joined by hand: an ordered JSON object searches all its keys at each insertion
  for (const size_t i : layout.order) {
    const TensorSpec& tensor = tensors[i];
    const std::string place = path + ": tensor '" + tensor.name + "'";
    if (tensor.name == "__metadata__" || !seen.insert(tensor.name).second) {
      throw Error(ErrorKind::bug, place + ": this name cannot be written twice, nor can __metadata__");
    }
    const uint64_t bytes = element_count(tensor.shape, place) * item_size(tensor.dtype);
    const OrderedJson entry = {{"dtype", dtype_name(tensor.dtype)},
                               {"shape", tensor.shape},
                               {"data_offsets", std::array{offset, offset + bytes}}};
    entries += (entries.empty() ? "" : ",") + OrderedJson(tensor.name).dump() + ":" + entry.dump();
    layout.sizes[i] = bytes;
    offset += bytes;
  }
  OrderedJson header = OrderedJson::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  layout.header = header.dump();
  if (!entries.empty()) layout.header.insert(layout.header.size() - 1, (header.empty() ? "" : ",") + entries);
  return layout;
}

void write_laid_out(const std::filesystem::path& path, Layout layout,
                    const std::function<std::span<const std::byte>(size_t index)>& bytes_of) {
  constexpr size_t kAlignment = 64, kPrefix = 8;
  layout.header.append((kAlignment - (kPrefix + layout.header.size()) % kAlignment) % kAlignment, ' ');
  std::array<std::byte, kPrefix> prefix;
  for (size_t i = 0; i < kPrefix; ++i) prefix[i] = static_cast<std::byte>(layout.header.size() >> (8 * i));
  write_file(path, [&](int descriptor) {
    write_all(descriptor, prefix, path);
    write_all(descriptor, std::as_bytes(std::span(layout.header)), path);
    for (const size_t i : layout.order) write_all(descriptor, bytes_of(i), path);
  });
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, view] : tensors) specs.push_back({name, view.dtype, view.shape});
  const Layout layout = lay_out(path.string(), specs, metadata);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].view.bytes.size() != layout.sizes[i]) {
      throw Error(ErrorKind::bug, path.string() + ": tensor '" + tensors[i].name + "': " +
                                      std::to_string(tensors[i].view.bytes.size()) + " bytes do not fit its shape");
    }
  }
  write_laid_out(path, layout, [&](size_t i) { return tensors[i].view.bytes; });
}

void write_safetensors(const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
                       const std::function<void(const TensorSpec&, std::span<std::byte>)>& fill,
                       const std::map<std::string, std::string>& metadata) {
  const Layout layout = lay_out(path.string(), tensors, metadata);
  std::vector<std::byte> buffer;
  write_laid_out(path, layout, [&](size_t i) -> std::span<const std::byte> {
    buffer.assign(layout.sizes[i], std::byte{0});
    fill(tensors[i], buffer);
    return buffer;
  });
}

}  // namespace pacer::formats
