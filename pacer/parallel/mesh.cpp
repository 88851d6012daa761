#include "pacer/parallel/mesh.h"

#include <charconv>
#include <string_view>

#include "pacer/base/error.h"

namespace pacer::parallel {
namespace {

constexpr int64_t kLargest = int64_t{1} << 20;  // of one axis; keeps the product far from overflow

void require_rank(const Mesh& mesh, int64_t rank) {
  if (rank >= 0 && rank < mesh.size()) return;
  throw Error(ErrorKind::bug, "rank " + std::to_string(rank) + " is not on the mesh " + mesh.text());
}

}  // namespace

const char* name_of(Axis axis) {
  return axis == Axis::replicate ? "replicate" : axis == Axis::shard ? "shard" : "tensor";
}

Coordinate Mesh::coordinate(int64_t rank) const {
  require_rank(*this, rank);
  return {rank / tensor / shard, rank / tensor % shard, rank % tensor};
}

int64_t Mesh::rank(const Coordinate& at) const { return (at.replicate * shard + at.shard) * tensor + at.tensor; }

int64_t Mesh::data_rank(int64_t rank) const {
  require_rank(*this, rank);
  return rank / tensor;
}

std::vector<int64_t> Mesh::group(int64_t rank, Axis axis) const {
  Coordinate at = coordinate(rank);
  int64_t& index = axis == Axis::replicate ? at.replicate : axis == Axis::shard ? at.shard : at.tensor;
  const int64_t count = axis == Axis::replicate ? replicate : axis == Axis::shard ? shard : tensor;
  std::vector<int64_t> ranks;
  for (index = 0; index < count; ++index) ranks.push_back(this->rank(at));
  return ranks;
}

std::vector<int64_t> Mesh::data_group(int64_t rank) const {
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < data_size(); ++i) ranks.push_back(i * tensor + coordinate(rank).tensor);
  return ranks;
}

std::string Mesh::text() const {
  std::string text = std::to_string(replicate) + "x" + std::to_string(shard);
  if (tensor > 1) text += "x" + std::to_string(tensor);
  return text;
}

Mesh parse_mesh(const std::string& text) {
  const auto refuse = [&] {
    throw Error(ErrorKind::usage, "'" + text + "' is not a mesh",
                "give replicate x shard, such as 2x4: two rows of four ranks that share the weights");
  };
  std::vector<int64_t> sizes;
  for (std::string_view rest = text;;) {
    int64_t size = 0;
    const auto [end, failure] = std::from_chars(rest.data(), rest.data() + rest.size(), size);
    if (failure != std::errc() || size < 1 || size > kLargest) refuse();
    sizes.push_back(size);
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    if (rest.empty()) break;
    if (rest.front() != 'x') refuse();
    rest.remove_prefix(1);
  }
  if (sizes.size() < 2 || sizes.size() > 3) refuse();
  return {sizes[0], sizes[1], sizes.size() == 3 ? sizes[2] : 1};
}

void require_world(const Mesh& mesh, int64_t world) {
  if (mesh.size() == world) return;
  throw Error(ErrorKind::usage,
              "the mesh " + mesh.text() + " has " + std::to_string(mesh.size()) + " ranks, started are " +
                  std::to_string(world),
              "replicate x shard x tensor must be the number of processes");
}

}  // namespace pacer::parallel
