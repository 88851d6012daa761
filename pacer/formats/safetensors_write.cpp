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

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  // Wide element types first, otherwise in the given order: each tensor is then aligned to its elements although no
  // holes are allowed between them.
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return item_size(tensors[a].view.dtype) > item_size(tensors[b].view.dtype);
  });

  OrderedJson header = OrderedJson::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::set<std::string> seen;
  uint64_t offset = 0;
  std::string entries;  // joined by hand: an ordered JSON object searches all its keys at each insertion
  for (const size_t i : order) {
    const auto& [name, view] = tensors[i];
    const std::string place = path.string() + ": tensor '" + name + "'";
    if (name == "__metadata__" || !seen.insert(name).second) {
      throw Error(ErrorKind::bug, place + ": this name cannot be written twice, nor can __metadata__");
    }
    if (element_count(view.shape, place) * item_size(view.dtype) != view.bytes.size()) {
      throw Error(ErrorKind::bug, place + ": " + std::to_string(view.bytes.size()) + " bytes do not fit its shape");
    }
    const OrderedJson entry = {{"dtype", dtype_name(view.dtype)},
                               {"shape", view.shape},
                               {"data_offsets", std::array{offset, offset + view.bytes.size()}}};
    entries += (entries.empty() ? "" : ",") + OrderedJson(name).dump() + ":" + entry.dump();
    offset += view.bytes.size();
  }
  std::string text = header.dump();
  if (!entries.empty()) text.insert(text.size() - 1, (header.empty() ? "" : ",") + entries);
  constexpr size_t kAlignment = 64, kPrefix = 8;
  text.append((kAlignment - (kPrefix + text.size()) % kAlignment) % kAlignment, ' ');

  std::array<std::byte, kPrefix> prefix;
  for (size_t i = 0; i < kPrefix; ++i) prefix[i] = static_cast<std::byte>(text.size() >> (8 * i));
  write_file(path, [&](int descriptor) {
    write_all(descriptor, prefix, path);
    write_all(descriptor, std::as_bytes(std::span(text)), path);
    for (const size_t i : order) write_all(descriptor, tensors[i].view.bytes, path);
  });
}

}  // namespace pacer::formats
