// The ranks of a training as a grid with named axes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pacer::parallel {

enum class Axis {
  replicate,  // rows that each hold a whole model
  shard,      // the ranks of a row, which share its weights
  tensor      // the ranks that share single matrices
};

const char* name_of(Axis axis);

// Where a rank stands on each axis.
struct Coordinate {
  int64_t replicate = 0, shard = 0, tensor = 0;
  bool operator==(const Coordinate&) const = default;
};

// Explicit sizes of the axes. rank = (replicate index * shard + shard index) * tensor + tensor index, so the ranks of a
// shard group are neighbours: they are the ones that talk most, and launchers put neighbours on one machine.
struct Mesh {
  int64_t replicate = 1, shard = 1, tensor = 1;

  int64_t size() const { return replicate * shard * tensor; }
  // Ranks that see different data.
  int64_t data_size() const { return replicate * shard; }

  Coordinate coordinate(int64_t rank) const;
  int64_t rank(const Coordinate& coordinate) const;
  // Which share of the data a rank sees: replicate index * shard + shard index.
  int64_t data_rank(int64_t rank) const;

  // The ranks that differ from `rank` on this axis only, ascending, itself included.
  std::vector<int64_t> group(int64_t rank, Axis axis) const;
  // The ranks that share its tensor index: every data rank once, by data rank.
  std::vector<int64_t> data_group(int64_t rank) const;

  std::string text() const;  // "2x2", with tensor > 1 "2x2x4": replicate x shard x tensor
  bool operator==(const Mesh&) const = default;
};

// "2x4" is replicate x shard, "2x4x2" also tensor. Throws Error{usage} for anything else and for sizes below 1.
Mesh parse_mesh(const std::string& text);

// Throws Error{usage} that names both numbers unless mesh.size() == world.
void require_world(const Mesh& mesh, int64_t world);

}  // namespace pacer::parallel
