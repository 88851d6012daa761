// What a back end can and cannot do, as data: code asks this table and never which vendor it runs on.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

namespace pacer::device {

enum class Capability {
  host_memory,         // tensors lie in memory that the host may read and write: Pacer's own kernels apply
  streams,             // work is queued on streams and may still run when a call has returned
  float64,             // tensors and arithmetic of dtype float64
  int64_indices,       // index_select, gather, scatter and embedding accept int64 indices
  zero_size_launches,  // operators on tensors without elements
  bfloat16_gru,        // at::gru in bfloat16
  bfloat16_logsumexp,  // at::logsumexp in bfloat16
  flash_attention,     // a fused at::scaled_dot_product_attention
  event_timing,        // the time between two events
  graph_capture,       // recording launches and replaying them
  reduce_float64,      // collectives that add or compare float64; so for the next two
  reduce_bool,
  reduce_uint8,
  single_rank_collectives,  // collectives of a group of one rank
  coalesced_collectives,    // several collectives started as one
  split_groups,             // splitting a group without a new rendezvous
};

enum class Collective { all_reduce, reduce, reduce_scatter, all_gather, broadcast, gather, scatter, all_to_all };

// All values in the order above, and their names as in the enumeration ("event_timing", "all_reduce").
const std::vector<Capability>& all_capabilities();
const std::vector<Collective>& all_collectives();
std::string name_of(Capability capability);
std::string name_of(Collective collective);

struct Capabilities {
  std::set<Capability> present;                                // what is not listed is absent
  std::map<Collective, std::set<at::ScalarType>> collectives;  // dtypes that each one accepts
  // Most columns of a vocabulary-sized row that one operator may reduce over; 0: no limit. Some devices compute
  // reductions in an on-chip buffer that a whole row does not fit into.
  int64_t most_reduced_columns = 0;

  bool has(Capability capability) const { return present.count(capability) != 0; }
  bool has(Collective collective, at::ScalarType dtype) const {
    const auto found = collectives.find(collective);
    return found != collectives.end() && found->second.count(dtype) != 0;
  }
};

}  // namespace pacer::device
