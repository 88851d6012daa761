#include "pacer/device/capabilities.h"

#include "pacer/base/error.h"

namespace pacer::device {

const std::vector<Capability>& all_capabilities() {
  static const std::vector<Capability> all = {Capability::host_memory,
                                              Capability::streams,
                                              Capability::float64,
                                              Capability::int64_indices,
                                              Capability::zero_size_launches,
                                              Capability::bfloat16_gru,
                                              Capability::bfloat16_logsumexp,
                                              Capability::flash_attention,
                                              Capability::event_timing,
                                              Capability::graph_capture,
                                              Capability::reduce_float64,
                                              Capability::reduce_bool,
                                              Capability::reduce_uint8,
                                              Capability::single_rank_collectives,
                                              Capability::coalesced_collectives,
                                              Capability::split_groups};
  return all;
}

const std::vector<Collective>& all_collectives() {
  static const std::vector<Collective> all = {Collective::all_reduce, Collective::reduce,    Collective::reduce_scatter,
                                              Collective::all_gather, Collective::broadcast, Collective::gather,
                                              Collective::scatter,    Collective::all_to_all};
  return all;
}

std::string name_of(Capability capability) {
  switch (capability) {
    case Capability::host_memory:
      return "host_memory";
    case Capability::streams:
      return "streams";
    case Capability::float64:
      return "float64";
    case Capability::int64_indices:
      return "int64_indices";
    case Capability::zero_size_launches:
      return "zero_size_launches";
    case Capability::bfloat16_gru:
      return "bfloat16_gru";
    case Capability::bfloat16_logsumexp:
      return "bfloat16_logsumexp";
    case Capability::flash_attention:
      return "flash_attention";
    case Capability::event_timing:
      return "event_timing";
    case Capability::graph_capture:
      return "graph_capture";
    case Capability::reduce_float64:
      return "reduce_float64";
    case Capability::reduce_bool:
      return "reduce_bool";
    case Capability::reduce_uint8:
      return "reduce_uint8";
    case Capability::single_rank_collectives:
      return "single_rank_collectives";
    case Capability::coalesced_collectives:
      return "coalesced_collectives";
    case Capability::split_groups:
      return "split_groups";
  }
  throw Error(ErrorKind::bug, "name_of: unknown capability");
}

std::string name_of(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::reduce:
      return "reduce";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::all_gather:
      return "all_gather";
    case Collective::broadcast:
      return "broadcast";
    case Collective::gather:
      return "gather";
    case Collective::scatter:
      return "scatter";
    case Collective::all_to_all:
      return "all_to_all";
  }
  throw Error(ErrorKind::bug, "name_of: unknown collective");
}

}  // namespace pacer::device
