#include "pacer/parallel/mesh_groups.h"

#include "pacer/base/error.h"

namespace pacer::parallel {

MeshGroups::MeshGroups(World& world, const Mesh& mesh) : world(world), mesh(mesh) {
  require_world(mesh, world.size());
  if (mesh.tensor > 1) {
    throw Error(ErrorKind::usage,
                "the mesh " + mesh.text() + " has a tensor axis; layers cut over ranks do not run yet");
  }
  at = mesh.coordinate(world.rank());
  data_rank = mesh.data_rank(world.rank());
  row = world.group(mesh.group(world.rank(), Axis::shard), "shard");
  column = world.group(mesh.group(world.rank(), Axis::replicate), "replicate");
}

}  // namespace pacer::parallel
