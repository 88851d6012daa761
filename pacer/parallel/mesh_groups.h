// The communicators of one rank's place on the mesh.
#pragma once

#include <memory>

#include "pacer/parallel/mesh.h"
#include "pacer/parallel/world.h"

namespace pacer::parallel {

struct MeshGroups {
  // Meets the other ranks of row and column. Throws Error{usage} unless the mesh has as many ranks as the world.
  MeshGroups(World& world, const Mesh& mesh);

  World& world;
  Mesh mesh;
  Coordinate at;
  int64_t data_rank;
  std::shared_ptr<ProcessGroup> row, column;  // the ranks of the shard axis, of the replicate axis
};

}  // namespace pacer::parallel
