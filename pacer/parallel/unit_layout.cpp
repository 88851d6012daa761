#include "pacer/parallel/unit_layout.h"

#include <algorithm>
#include <numeric>

#include <c10/core/ScalarType.h>

#include "pacer/base/error.h"

namespace pacer::parallel {

const char* name_of(Placement placement) {
  return placement == Placement::owner ? "owner" : placement == Placement::sharded ? "sharded" : "replicated";
}

int64_t LayoutParameter::elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

int64_t ShardPart::owner_total() const { return std::accumulate(owner_counts.begin(), owner_counts.end(), int64_t{0}); }

int64_t ShardPart::owner_offset(int64_t replicate) const {
  return std::accumulate(owner_counts.begin(), owner_counts.begin() + replicate, int64_t{0});
}

int64_t UnitLayout::total() const { return offset(static_cast<int64_t>(shards.size())); }

int64_t UnitLayout::offset(int64_t shard) const {
  int64_t sum = 0;
  for (int64_t s = 0; s < shard; ++s) sum += shards[static_cast<size_t>(s)].total();
  return sum;
}

int64_t chunk_elements(int64_t elements, int64_t shards) {
  const int64_t blocks = (elements + kBlock - 1) / kBlock;
  return (blocks + shards - 1) / shards * kBlock;
}

UnitLayout make_unit_layout(std::string name, std::vector<LayoutParameter> parameters, const Mesh& mesh) {
  UnitLayout unit{std::move(name), std::move(parameters), std::vector<ShardPart>(static_cast<size_t>(mesh.shard))};
  for (const LayoutParameter& parameter : unit.parameters) {
    if (parameter.message_dtype != unit.message_dtype() || parameter.weight_dtype != unit.weight_dtype()) {
      throw Error(ErrorKind::bug, "unit " + unit.name + " mixes dtypes: " + parameter.name);
    }
  }
  for (int64_t shard = 0; shard < mesh.shard; ++shard) {
    ShardPart& part = unit.shards[static_cast<size_t>(shard)];
    int64_t offset = 0;
    const auto add = [&](size_t parameter, int64_t begin, int64_t count) {
      part.pieces.push_back({parameter, begin, count, offset});
      offset += count;
    };
    for (int64_t replicate = 0; replicate < mesh.replicate; ++replicate) {
      const int64_t before = offset;
      for (size_t i = 0; i < unit.parameters.size(); ++i) {
        const LayoutParameter& parameter = unit.parameters[i];
        if (parameter.placement == Placement::owner && parameter.owner == Owner{shard, replicate}) {
          add(i, 0, parameter.elements());
        }
      }
      part.owner_counts.push_back(offset - before);
    }
    const int64_t before = offset;
    for (size_t i = 0; i < unit.parameters.size(); ++i) {
      const LayoutParameter& parameter = unit.parameters[i];
      if (parameter.placement == Placement::owner) continue;
      const int64_t elements = parameter.elements(), chunk = chunk_elements(elements, mesh.shard);
      const int64_t begin = std::min(elements, shard * chunk);
      add(i, begin, std::min(chunk, elements - begin));
    }
    part.common_count = offset - before;
  }
  return unit;
}

std::string layout_text(const std::vector<UnitLayout>& units) {
  std::string text;
  for (size_t i = 0; i < units.size(); ++i) {
    text += "unit " + units[i].name + " place " + std::to_string(i) + ", gradients " +
            c10::toString(units[i].message_dtype()) + ", weights " + c10::toString(units[i].weight_dtype()) + "\n";
    for (const LayoutParameter& parameter : units[i].parameters) {
      text += "placement " + parameter.name + " " + optim::name_of(parameter.route) + " " +
              name_of(parameter.placement) + " (" + std::to_string(parameter.owner.shard) + "," +
              std::to_string(parameter.owner.replicate) + ") of " + std::to_string(parameter.elements()) +
              " elements in unit " + units[i].name + "\n";
    }
  }
  return text;
}

}  // namespace pacer::parallel
