#include "pacer/parallel/process_group.h"

#include <numeric>
#include <utility>

#include <ATen/ops/empty.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "pacer/base/error.h"
#include "pacer/device/kernels.h"
#include "pacer/device/streams.h"

namespace pacer::parallel {
namespace {

// Back ends append a native stack to one long line.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

[[noreturn]] void lost(const std::string& place, const std::string& why, Activity& activity) {
  const std::string others = activity.explain();
  throw Error(ErrorKind::communication, place + ": " + first_line(why) + (others.empty() ? "" : "; " + others),
              "another rank ended, hangs or never arrived: its own message says why. Start again from the last "
              "checkpoint");
}

double bytes_of(const at::Tensor& tensor) { return static_cast<double>(tensor.nbytes()); }

void require(bool fine, const std::string& what) {
  if (!fine) throw Error(ErrorKind::bug, what);
}

}  // namespace

struct Pending::State {
  c10::intrusive_ptr<c10d::Work> work;
  std::vector<at::Tensor> tensors;
  std::vector<std::pair<at::Tensor, at::Tensor>> results;  // where the caller wants it, where the back end leaves it
  std::string place;
  std::shared_ptr<Activity> activity;
};

void Pending::wait() {
  if (state_ == nullptr) return;
  const auto state = std::exchange(state_, nullptr);
  try {
    device::wait("process_group.pending", *state->work);
    for (auto& [to, from] : state->results) to.copy_(from);
  } catch (const std::exception& failure) {
    lost(state->place, failure.what(), *state->activity);
  }
}

ProcessGroup::ProcessGroup(std::string name, std::vector<int64_t> ranks, int64_t rank,
                           c10::intrusive_ptr<c10d::Backend> backend, c10::Device place,
                           std::shared_ptr<Activity> activity)
    : name_(std::move(name)),
      ranks_(std::move(ranks)),
      rank_(rank),
      backend_(std::move(backend)),
      place_(place),
      activity_(std::move(activity)) {
  require(rank_ >= 0 && rank_ < size(), "process group " + name_ + ": this rank is not a member");
  require(size() == 1 || backend_ != nullptr, "process group " + name_ + " has no back end");
}

ProcessGroup::~ProcessGroup() = default;

template <class Start>
Pending ProcessGroup::start(const char* operation, const char* purpose, double bytes,
                            const std::vector<Operand>& operands, const Start& call) {
  Traffic& traffic = traffic_[std::string(purpose) + "/" + operation];
  ++traffic.calls;
  traffic.bytes += bytes;
  const int64_t sequence = ++activity_->sequence;
  activity_->what = purpose;
  Pending pending;
  pending.state_ = std::make_shared<Pending::State>();
  pending.state_->activity = activity_;
  pending.state_->place = std::string(purpose) + " (" + operation + " " + std::to_string(sequence) + " of group " +
                          name_ + ", rank " + std::to_string(ranks_[static_cast<size_t>(rank_)]) + ")";
  std::vector<at::Tensor>& tensors = pending.state_->tensors;
  for (const auto& [tensor, use] : operands) {
    require(tensor.is_contiguous(), std::string(purpose) + ": a tensor is not contiguous");
    if (tensor.device() == place_) {
      tensors.push_back(tensor);
      continue;
    }
    const auto there = tensor.options().device(place_).requires_grad(false);
    tensors.push_back(use == Use::written ? at::empty(tensor.sizes(), there) : tensor.to(place_));
    if (use != Use::read) pending.state_->results.emplace_back(tensor, tensors.back());
  }
  try {
    pending.state_->work = call(tensors);
  } catch (const std::exception& failure) {
    lost(pending.state_->place, failure.what(), *activity_);
  }
  return pending;
}

Pending ProcessGroup::broadcast(at::Tensor tensor, int64_t root, const char* purpose) {
  require(root >= 0 && root < size(), std::string(purpose) + ": the root is outside of the group");
  if (size() == 1) return {};
  const double share = static_cast<double>(size() - 1) / static_cast<double>(size());
  return start("broadcast", purpose, bytes_of(tensor) * share, {{tensor, Use::both}},
               [&](std::vector<at::Tensor>& tensors) {
                 c10d::BroadcastOptions options;
                 options.rootRank = root;
                 return backend_->broadcast(tensors, options);
               });
}

Pending ProcessGroup::sum(at::Tensor tensor, const char* purpose) {
  if (size() == 1) return {};
  const double share = 2 * static_cast<double>(size() - 1) / static_cast<double>(size());
  return start("all_reduce", purpose, bytes_of(tensor) * share, {{tensor, Use::both}},
               [&](std::vector<at::Tensor>& tensors) { return backend_->allreduce(tensors); });
}

Pending ProcessGroup::sum_exact(at::Tensor tensor, const char* purpose) {
  require(tensor.scalar_type() == at::kDouble, std::string(purpose) + ": the values are not f64");
  return sum(tensor.view(at::kLong), purpose);
}

Pending ProcessGroup::all_gather(at::Tensor all, at::Tensor mine, const char* purpose) {
  require(all.numel() == mine.numel() * size() && all.scalar_type() == mine.scalar_type(),
          std::string(purpose) + ": the gathered tensor has another size or dtype than the pieces");
  if (size() == 1) {
    all.view({-1}).copy_(mine.view({-1}));
    return {};
  }
  const double share = static_cast<double>(size() - 1) / static_cast<double>(size());
  return start("all_gather", purpose, bytes_of(all) * share, {{all, Use::written}, {mine, Use::read}},
               [&](std::vector<at::Tensor>& tensors) { return backend_->_allgather_base(tensors[0], tensors[1]); });
}

Pending ProcessGroup::exchange(at::Tensor received, std::vector<int64_t> received_sizes, at::Tensor sent,
                               std::vector<int64_t> sent_sizes, const char* purpose) {
  const auto total = [](const std::vector<int64_t>& sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  };
  const auto places = static_cast<size_t>(size());
  require(received_sizes.size() == places && sent_sizes.size() == places && total(received_sizes) == received.numel() &&
              total(sent_sizes) == sent.numel() && received.scalar_type() == sent.scalar_type(),
          std::string(purpose) + ": the pieces do not add up to the tensors");
  if (size() == 1) {
    received.copy_(sent);
    return {};
  }
  const int64_t others = sent.numel() - sent_sizes[static_cast<size_t>(rank_)];
  return start("exchange", purpose, static_cast<double>(others) * static_cast<double>(sent.element_size()),
               {{received, Use::written}, {sent, Use::read}}, [&](std::vector<at::Tensor>& tensors) {
                 return backend_->alltoall_base(tensors[0], tensors[1], received_sizes, sent_sizes);
               });
}

bool ProcessGroup::is_lost() const {
  if (backend_ == nullptr || device::in_host_memory(place_)) return false;  // there the wait itself throws
  return backend_->getError() != c10d::ErrorType::SUCCESS;
}

void ProcessGroup::barrier(const char* purpose) {
  if (size() == 1) return;
  start("barrier", purpose, 0, {}, [&](std::vector<at::Tensor>&) { return backend_->barrier(); }).wait();
}

}  // namespace pacer::parallel
