#include "pacer/train/ranks.h"

#include <algorithm>
#include <chrono>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "pacer/base/error.h"
#include "pacer/parallel/launch_environment.h"

namespace pacer::train {

Ranks::Ranks(const ParallelSection& section, const std::string& device, parallel::World* world)
    : world_(world), level_before_(log_level()) {
  const parallel::LaunchEnvironment environment =
      world == nullptr ? parallel::read_launch_environment() : parallel::LaunchEnvironment{};
  if (!section.wanted()) {
    const int64_t size = world == nullptr ? environment.world : world->size();
    world_ = nullptr;
    if (size == 1) {
      runtime_ = device::Runtime::open(device);
      return;
    }
    throw Error(ErrorKind::usage,
                "this is one of " + std::to_string(size) +
                    " processes, and the recipe does not say how they share the "
                    "work",
                "set parallel.replicate=" + std::to_string(size) + ", or start the command once");
  }
  mesh_ = {.replicate = section.rows(), .shard = section.shards(), .tensor = 1};
  rank_ = world_ == nullptr ? environment.rank : world_->rank();
  parallel::require_world(mesh_, world_ == nullptr ? environment.world : world_->size());
  if (!first()) set_log_level(LogLevel::off);
  try {
    runtime_ = device::Runtime::open(device);
    if (world_ == nullptr) {
      const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(section.timeout_s * 1e3));
      own_ = std::make_unique<parallel::World>(
          environment, parallel::WorldOptions{
                           .timeout = timeout, .runtime = runtime_, .through_host = section.collectives == "host"});
    }
  } catch (...) {
    set_log_level(level_before_);
    throw;
  }
  local_ = own_ == nullptr ? world_->size() : environment.local_world;
  if (own_ != nullptr) world_ = own_.get();
  data_rank_ = mesh_.data_rank(rank_);
}

void Ranks::set_up() const {
  if (!first()) set_log_level(std::max(level_before_, LogLevel::warning));
}

Ranks::~Ranks() { set_log_level(level_before_); }

std::string Ranks::from_first(const std::string& text, const char* purpose) {
  if (!parallel() || world_->size() == 1) return text;
  at::Tensor size = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  world_->all().broadcast(size, 0, purpose).wait();
  at::Tensor bytes = at::empty({size.item<int64_t>()}, at::kByte);
  if (bytes.numel() == 0) return {};
  if (first()) std::copy(text.begin(), text.end(), bytes.mutable_data_ptr<uint8_t>());
  world_->all().broadcast(bytes, 0, purpose).wait();
  const uint8_t* data = bytes.const_data_ptr<uint8_t>();
  return {data, data + bytes.numel()};
}

bool Ranks::any(bool mine, const char* purpose) {
  if (!parallel()) return mine;
  at::Tensor votes = at::full({1}, mine ? int64_t{1} : int64_t{0}, at::kLong);
  sum(votes, purpose);
  return votes.item<int64_t>() > 0;
}

void Ranks::sum(at::Tensor& values, const char* purpose) {
  if (!parallel()) return;
  parallel::ProcessGroup& all = world_->all();
  (values.scalar_type() == at::kDouble ? all.sum_exact(values, purpose) : all.sum(values, purpose)).wait();
}

}  // namespace pacer::train
