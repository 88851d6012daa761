// What each collective sends to whom. Sums are made in the order of ranks, so every rank has the same bits.
#include <algorithm>
#include <cstring>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <c10/util/Exception.h>

#include "plugins/simnpu/collectives/sim_hccl.h"

namespace pacer::simnpu {
namespace {

using Tensors = std::vector<at::Tensor>;
using Buffers = std::vector<Buffer>;

size_t at_rank(int rank) { return static_cast<size_t>(rank); }

at::Tensor& only(const char* function, Tensors& tensors) {
  TORCH_CHECK(tensors.size() == 1, "HCCL ", function, ": one tensor per rank, found ", tensors.size());
  return tensors[0];
}

// Elements [begin, end) that a rank sums up in an all-reduce.
struct Part {
  int64_t begin, end;
};
Part part_of(int64_t elements, int rank, int ranks) { return {elements * rank / ranks, elements * (rank + 1) / ranks}; }

// Everybody sends parts to everybody: mine(r) is what goes to rank r, theirs(r) where its part for me goes.
template <class Mine, class Theirs>
void all_to_all(Round& round, const Mine& mine, const Theirs& theirs) {
  std::vector<Mesh::Send> sends;
  std::vector<Mesh::Receive> receives;
  for (int rank = 0; rank < round.size(); ++rank) {
    if (rank == round.rank()) continue;
    const auto [from, from_bytes] = mine(rank);
    const auto [to, to_bytes] = theirs(rank);
    sends.push_back({rank, from, from_bytes});
    receives.push_back({rank, to, to_bytes});
  }
  round.exchange(std::move(sends), std::move(receives));
}

struct Bytes {
  char* data;
  size_t count;
};
Bytes slice(const Buffer& buffer, int64_t begin, int64_t end) {
  return {buffer.data + static_cast<size_t>(begin) * buffer.element_bytes,
          static_cast<size_t>(end - begin) * buffer.element_bytes};
}
Bytes whole(const Buffer& buffer) { return {buffer.data, buffer.bytes()}; }

void copy(const Bytes& from, const Bytes& to) { std::memcpy(to.data, from.data, std::min(from.count, to.count)); }

// The sum over ranks of one part per rank, mine(r) being this rank's part for rank r, in `total`.
template <class Mine>
void reduce_part(Round& round, const Mine& mine, const Buffer& total, c10d::ReduceOp op) {
  std::vector<std::vector<char>> received(at_rank(round.size()));
  std::vector<const void*> inputs(at_rank(round.size()));
  all_to_all(round, mine, [&](int rank) {
    auto& buffer = received[at_rank(rank)];
    buffer.resize(total.bytes());
    inputs[at_rank(rank)] = buffer.data();
    return Bytes{buffer.data(), buffer.size()};
  });
  inputs[at_rank(round.rank())] = mine(round.rank()).data;
  reduce_in_order(inputs, total, op);
}

void all_reduce_one(Round& round, const Buffer& in, const Buffer& out, c10d::ReduceOp op) {
  const auto part = [&](const Buffer& buffer, int rank) {
    const Part p = part_of(buffer.elements, rank, round.size());
    return slice(buffer, p.begin, p.end);
  };
  const Bytes own = part(out, round.rank());
  const Buffer total{own.data, static_cast<int64_t>(own.count / out.element_bytes), out.element_bytes, out.dtype};
  reduce_part(round, [&](int rank) { return part(in, rank); }, total, op);
  all_to_all(round, [&](int) { return own; }, [&](int rank) { return part(out, rank); });
}

void all_gather_one(Round& round, const Buffer& in, const Buffer& out) {
  const auto place = [&](int rank) { return Bytes{out.data + at_rank(rank) * in.bytes(), in.bytes()}; };
  copy(whole(in), place(round.rank()));
  all_to_all(round, [&](int) { return whole(in); }, place);
}

// Equal shares of one buffer per rank.
Bytes share(const Buffer& buffer, int rank, int ranks) {
  return slice(buffer, buffer.elements / ranks * rank, buffer.elements / ranks * (rank + 1));
}

}  // namespace

void reduce_in_order(const std::vector<const void*>& inputs, const Buffer& total, c10d::ReduceOp op) {
  if (total.elements == 0) return;
  const auto tensor = [&](const void* data) {
    return at::from_blob(const_cast<void*>(data), {total.elements}, at::TensorOptions(total.dtype));
  };
  at::Tensor sum = tensor(total.data);
  sum.copy_(tensor(inputs[0]));
  for (size_t rank = 1; rank < inputs.size(); ++rank) {
    const at::Tensor next = tensor(inputs[rank]);
    switch (op) {
      case c10d::ReduceOp::SUM:
      case c10d::ReduceOp::AVG:
        sum.add_(next);
        break;
      case c10d::ReduceOp::PRODUCT:
        sum.mul_(next);
        break;
      case c10d::ReduceOp::MAX:
        sum.copy_(at::maximum(sum, next));
        break;
      case c10d::ReduceOp::MIN:
        sum.copy_(at::minimum(sum, next));
        break;
      default:
        TORCH_CHECK(false, "HCCL: Unsupported reduce operation");
    }
  }
  if (op == c10d::ReduceOp::AVG) sum.div_(static_cast<double>(inputs.size()));
}

SimHccl::WorkPtr SimHccl::all_reduce(const char* function, Tensors tensors, c10d::ReduceOp op,
                                     std::chrono::milliseconds timeout) {
  return launch({function, c10d::OpType::ALLREDUCE, true, tensors, tensors,
                 [op](Round& round, const Buffers& in, const Buffers& out) {
                   for (size_t i = 0; i < in.size(); ++i) all_reduce_one(round, in[i], out[i], op);
                 }},
                timeout);
}

SimHccl::WorkPtr SimHccl::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return all_reduce("HcclAllReduce", {only("HcclAllReduce", tensors)}, options.reduceOp, options.timeout);
}

SimHccl::WorkPtr SimHccl::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return all_reduce("HcclAllReduce", tensors, options.reduceOp, options.timeout);
}

SimHccl::WorkPtr SimHccl::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = only("HcclReduce", tensors);
  const int root = static_cast<int>(options.rootRank);
  // Only the root's tensor changes.
  return launch({"HcclReduce",
                 c10d::OpType::REDUCE,
                 true,
                 {tensor},
                 rank_ == root ? Tensors{tensor} : Tensors{},
                 [root, op = options.reduceOp](Round& round, const Buffers& in, const Buffers& out) {
                   if (round.rank() != root) return round.exchange({{root, in[0].data, in[0].bytes()}}, {});
                   std::vector<std::vector<char>> received(at_rank(round.size()), std::vector<char>(in[0].bytes()));
                   std::vector<const void*> inputs;
                   std::vector<Mesh::Receive> receives;
                   for (int rank = 0; rank < round.size(); ++rank) {
                     auto& buffer = received[at_rank(rank)];
                     inputs.push_back(rank == root ? in[0].data : buffer.data());
                     if (rank != root) receives.push_back({rank, buffer.data(), buffer.size()});
                   }
                   round.exchange({}, std::move(receives));
                   reduce_in_order(inputs, out[0], op);
                 }},
                options.timeout);
}

SimHccl::WorkPtr SimHccl::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = only("HcclBroadcast", tensors);
  const int root = static_cast<int>(options.rootRank);
  const bool sends = rank_ == root;
  return launch({"HcclBroadcast", c10d::OpType::BROADCAST, false, sends ? Tensors{tensor} : Tensors{},
                 sends ? Tensors{} : Tensors{tensor},
                 [root](Round& round, const Buffers& in, const Buffers& out) {
                   if (round.rank() != root) return round.exchange({}, {{root, out[0].data, out[0].bytes()}});
                   std::vector<Mesh::Send> messages;
                   for (int rank = 0; rank < round.size(); ++rank) {
                     if (rank != root) messages.push_back({rank, in[0].data, in[0].bytes()});
                   }
                   round.exchange(std::move(messages), {});
                 }},
                options.timeout);
}

SimHccl::WorkPtr SimHccl::all_gather(Tensors outputs, Tensors inputs, std::chrono::milliseconds timeout) {
  TORCH_CHECK(outputs.size() == inputs.size(), "HCCL HcclAllGather: ", inputs.size(), " inputs and ", outputs.size(),
              " outputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK(outputs[i].numel() == inputs[i].numel() * size_ && outputs[i].scalar_type() == inputs[i].scalar_type(),
                "HCCL HcclAllGather: an output of ", outputs[i].sizes(), " for ", size_, " inputs of ",
                inputs[i].sizes());
  }
  return launch({"HcclAllGather", c10d::OpType::ALLGATHER, false, std::move(inputs), std::move(outputs),
                 [](Round& round, const Buffers& in, const Buffers& out) {
                   for (size_t i = 0; i < in.size(); ++i) all_gather_one(round, in[i], out[i]);
                 }},
                timeout);
}

SimHccl::WorkPtr SimHccl::_allgather_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::AllgatherOptions& options) {
  return all_gather({output}, {input}, options.timeout);
}

SimHccl::WorkPtr SimHccl::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions& options) {
  return all_gather(outputs, inputs, options.timeout);
}

SimHccl::WorkPtr SimHccl::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& options) {
  const at::Tensor& input = only("HcclAllGather", inputs);
  TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == at_rank(size_), "HCCL HcclAllGather: one output per rank");
  for (const at::Tensor& output : outputs[0]) {
    TORCH_CHECK(output.sizes() == input.sizes(), "HCCL HcclAllGather: all tensors must have one size, found ",
                input.sizes(), " and ", output.sizes());
  }
  return launch({"HcclAllGather",
                 c10d::OpType::ALLGATHER,
                 false,
                 {input},
                 outputs[0],
                 [](Round& round, const Buffers& in, const Buffers& out) {
                   copy(whole(in[0]), whole(out[at_rank(round.rank())]));
                   all_to_all(
                       round, [&](int) { return whole(in[0]); }, [&](int rank) { return whole(out[at_rank(rank)]); });
                 }},
                options.timeout);
}

SimHccl::WorkPtr SimHccl::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  const int root = static_cast<int>(options.rootRank);
  const at::Tensor& input = only("HcclGather", inputs);
  return launch({"HcclGather",
                 c10d::OpType::GATHER,
                 false,
                 {input},
                 rank_ == root ? outputs.at(0) : Tensors{},
                 [root](Round& round, const Buffers& in, const Buffers& out) {
                   if (round.rank() != root) return round.exchange({{root, in[0].data, in[0].bytes()}}, {});
                   std::vector<Mesh::Receive> receives;
                   for (int rank = 0; rank < round.size(); ++rank) {
                     const Bytes to = whole(out.at(at_rank(rank)));
                     if (rank == root) copy(whole(in[0]), to);
                     if (rank != root) receives.push_back({rank, to.data, to.count});
                   }
                   round.exchange({}, std::move(receives));
                 }},
                options.timeout);
}

SimHccl::WorkPtr SimHccl::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  const int root = static_cast<int>(options.rootRank);
  const at::Tensor& output = only("HcclScatter", outputs);
  return launch({"HcclScatter",
                 c10d::OpType::SCATTER,
                 false,
                 rank_ == root ? inputs.at(0) : Tensors{},
                 {output},
                 [root](Round& round, const Buffers& in, const Buffers& out) {
                   if (round.rank() != root) return round.exchange({}, {{root, out[0].data, out[0].bytes()}});
                   std::vector<Mesh::Send> sends;
                   for (int rank = 0; rank < round.size(); ++rank) {
                     const Bytes from = whole(in.at(at_rank(rank)));
                     if (rank == root) copy(from, whole(out[0]));
                     if (rank != root) sends.push_back({rank, from.data, from.count});
                   }
                   round.exchange(std::move(sends), {});
                 }},
                options.timeout);
}

SimHccl::WorkPtr SimHccl::reduce_scatter_into(Tensors outputs, Tensors inputs, c10d::ReduceOp op,
                                              std::chrono::milliseconds timeout) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK(inputs[i].numel() == outputs.at(i).numel() * size_, "HCCL HcclReduceScatter: an input of ",
                inputs[i].sizes(), " for ", size_, " outputs of ", outputs[i].sizes());
  }
  return launch({"HcclReduceScatter", c10d::OpType::REDUCE_SCATTER, true, std::move(inputs), std::move(outputs),
                 [op](Round& round, const Buffers& in, const Buffers& out) {
                   for (size_t i = 0; i < in.size(); ++i) {
                     reduce_part(round, [&](int rank) { return share(in[i], rank, round.size()); }, out[i], op);
                   }
                 }},
                timeout);
}

SimHccl::WorkPtr SimHccl::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                               const c10d::ReduceScatterOptions& options) {
  return reduce_scatter_into({output}, {input}, options.reduceOp, options.timeout);
}

SimHccl::WorkPtr SimHccl::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::ReduceScatterOptions& options) {
  return reduce_scatter_into(outputs, inputs, options.reduceOp, options.timeout);
}

SimHccl::WorkPtr SimHccl::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                         const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = only("HcclReduceScatter", outputs);
  TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == at_rank(size_), "HCCL HcclReduceScatter: one input per rank");
  for (const at::Tensor& input : inputs[0]) {
    TORCH_CHECK(input.numel() == output.numel(), "HCCL HcclReduceScatter: all tensors must have one size");
  }
  return launch({"HcclReduceScatter",
                 c10d::OpType::REDUCE_SCATTER,
                 true,
                 inputs[0],
                 {output},
                 [op = options.reduceOp](Round& round, const Buffers& in, const Buffers& out) {
                   reduce_part(round, [&](int rank) { return whole(in[at_rank(rank)]); }, out[0], op);
                 }},
                options.timeout);
}

SimHccl::WorkPtr SimHccl::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  // Splits count rows; none means equal ones. As offsets in elements, one more than there are ranks.
  const auto offsets = [&](const at::Tensor& tensor, const std::vector<int64_t>& splits) {
    const int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1;
    TORCH_CHECK(splits.empty() ? rows % size_ == 0 : splits.size() == at_rank(size_), "HCCL HcclAlltoAllV: splits of ",
                tensor.sizes());
    std::vector<int64_t> begin = {0};
    const int64_t per_row = rows > 0 ? tensor.numel() / rows : 0;
    for (int rank = 0; rank < size_; ++rank) {
      begin.push_back(begin.back() + per_row * (splits.empty() ? rows / size_ : splits[at_rank(rank)]));
    }
    TORCH_CHECK(begin.back() == tensor.numel(), "HCCL HcclAlltoAllV: the splits do not add up to ", tensor.sizes());
    return begin;
  };
  return launch({"HcclAlltoAllV",
                 c10d::OpType::ALLTOALL_BASE,
                 false,
                 {input},
                 {output},
                 [from = offsets(input, input_splits), to = offsets(output, output_splits)](
                     Round& round, const Buffers& in, const Buffers& out) {
                   const auto mine = [&](int r) { return slice(in[0], from[at_rank(r)], from[at_rank(r) + 1]); };
                   const auto theirs = [&](int r) { return slice(out[0], to[at_rank(r)], to[at_rank(r) + 1]); };
                   copy(mine(round.rank()), theirs(round.rank()));
                   all_to_all(round, mine, theirs);
                 }},
                options.timeout);
}

SimHccl::WorkPtr SimHccl::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  TORCH_CHECK(outputs.size() == at_rank(size_) && inputs.size() == at_rank(size_),
              "HCCL HcclAlltoAllV: one tensor per rank");
  return launch({"HcclAlltoAllV", c10d::OpType::ALLTOALL, false, inputs, outputs,
                 [](Round& round, const Buffers& in, const Buffers& out) {
                   copy(whole(in[at_rank(round.rank())]), whole(out[at_rank(round.rank())]));
                   all_to_all(
                       round, [&](int rank) { return whole(in[at_rank(rank)]); },
                       [&](int rank) { return whole(out[at_rank(rank)]); });
                 }},
                options.timeout);
}

// Both sides of a message carry the same tag.
SimHccl::WorkPtr SimHccl::send(Tensors& tensors, int to, int) {
  return launch({"HcclSend",
                 c10d::OpType::SEND,
                 false,
                 {only("HcclSend", tensors)},
                 {},
                 [to](Round& round, const Buffers& in, const Buffers&) {
                   round.exchange({{to, in[0].data, in[0].bytes()}}, {});
                 }},
                timeout_);
}

SimHccl::WorkPtr SimHccl::recv(Tensors& tensors, int from, int) {
  return launch({"HcclRecv",
                 c10d::OpType::SEND,
                 false,
                 {},
                 {only("HcclRecv", tensors)},
                 [from](Round& round, const Buffers&, const Buffers& out) {
                   round.exchange({}, {{from, out[0].data, out[0].bytes()}});
                 }},
                timeout_);
}

SimHccl::WorkPtr SimHccl::barrier(const c10d::BarrierOptions& options) {
  return launch({"HcclBarrier",
                 c10d::OpType::BARRIER,
                 false,
                 {},
                 {},
                 [](Round& round, const Buffers&, const Buffers&) {
                   std::vector<char> sent(1), received(at_rank(round.size()));
                   all_to_all(
                       round, [&](int) { return Bytes{sent.data(), 1}; },
                       [&](int rank) { return Bytes{&received[at_rank(rank)], 1}; });
                 }},
                options.timeout);
}

}  // namespace pacer::simnpu
