// The ranks of a training run as its loop sees them: one process alone, or many of which the first one writes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "pacer/base/logging.h"
#include "pacer/device/runtime.h"
#include "pacer/parallel/mesh.h"
#include "pacer/parallel/world.h"
#include "pacer/train/recipe.h"

namespace pacer::train {

class Ranks {
 public:
  // Opens the recipe's device, which is bound when the ranks meet, and meets them when the recipe has a section
  // `parallel`. world: ranks that have met already, for programs that embed Pacer; null: those of the environment.
  // Ranks other than the first say nothing while the run is set up, which they do all alike, and only warnings then.
  // Throws Error{usage}: several processes and no section, a mesh of another size, a partial environment; Error{device}
  // as Runtime::open, before a rank waits for another.
  Ranks(const ParallelSection& section, const std::string& device, parallel::World* world);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  bool parallel() const { return world_ != nullptr; }  // false: no engine, nothing is sent
  bool first() const { return rank_ == 0; }            // who writes and prints
  int64_t data_rank() const { return data_rank_; }
  int64_t data_size() const { return mesh_.data_size(); }
  void set_up() const;  // the set-up is over
  const parallel::Mesh& mesh() const { return mesh_; }
  int64_t rank() const { return rank_; }
  int64_t on_this_machine() const { return local_; }  // ranks that share its memory
  parallel::World& world() { return *world_; }
  device::Runtime& runtime() { return *runtime_; }

  // All ranks call these together; with one process they return what they are given.
  std::string from_first(const std::string& text, const char* purpose);
  bool any(bool mine, const char* purpose);
  // Adds elementwise over the ranks, in place: int64, or f64 of which only one rank's is not zero, which is exact.
  void sum(at::Tensor& values, const char* purpose);

 private:
  std::optional<device::Runtime> runtime_;
  std::unique_ptr<parallel::World> own_;
  parallel::World* world_ = nullptr;
  parallel::Mesh mesh_;
  int64_t rank_ = 0, data_rank_ = 0, local_ = 1;
  LogLevel level_before_;
};

}  // namespace pacer::train
