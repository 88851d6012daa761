// The large model whose text is to be produced: frozen, with taps and a KV cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/device/runtime.h"
#include "pacer/target/config.h"

namespace pacer::target {

// Sequences laid end to end without padding. Sequence s owns rows [starts[s], starts[s+1]). Tokens are always in host
// memory; what a target makes of them is on its device.
struct TokenBatch {
  at::Tensor ids;               // [T] i64
  at::Tensor positions;         // [T] i64; with a cache: cache length .. cache length + T - 1
  std::vector<int64_t> starts;  // S + 1 offsets, 0 first, T last

  static TokenBatch single(const std::vector<int64_t>& ids, int64_t first_position = 0);
  static TokenBatch packed(const std::vector<std::vector<int64_t>>& sequences);  // positions restart at 0
  int64_t sequences() const { return static_cast<int64_t>(starts.size()) - 1; }
  int64_t rows() const { return ids.size(0); }
};

// Which hidden states to keep. Layer i is an output id: the residual stream after layer i, before any following norm;
// -1 is the embedding output. The last layer may not be tapped.
using Taps = std::vector<int64_t>;

struct TargetOutput {
  at::Tensor tapped;  // [T, m, H] in model dtype, undefined without taps
  at::Tensor last;    // [T, H] after the final norm; head(last) gives logits
};

// Keys and values of one sequence; capacity grows in blocks. Not thread-safe.
class KvCache {
 public:
  virtual ~KvCache() = default;
  virtual int64_t length() const = 0;
  // Forgets everything from `length` on. Throws Error{bug} when it is longer than what is there.
  virtual void crop(int64_t length) = 0;
  virtual std::unique_ptr<KvCache> clone() const = 0;
  virtual uint64_t bytes() const = 0;
};

// What is computed with a row never changes its bits up to so many rows of a sequence in one call. More than a verified
// block has, so that a prompt reads the weights once for many of its rows.
constexpr int64_t kExactRows = 64;

// What a model is computed in.
//   f32, bf16  weights and rows
//   stored     matrices as a .gguf file holds them, rows in f32: Q8_0, Q4_0 and Q4_1 from their blocks, with rows
//   rounded
//              to 16 bits per 32 inputs; F32 in f32; every other type as bf16. Decided for each matrix.
//   stored_int8  the same with rows rounded to 8 bits: several rows cost half as much, and logits are as far from those
//              of f32 as bf16's are
enum class Precision { f32, bf16, stored, stored_int8 };
Precision parse_precision(const std::string& word);  // "f32", "bf16", "stored", "stored-int8"; throws Error{usage}

class Target {
 public:
  // path: a Hugging Face folder or a .gguf file.
  // Throws Error{format} for an architecture, tensor or setting that is not supported; nothing is guessed. Error{usage}
  // for a folder with Precision::stored, or a dtype other than at::kFloat and at::kBFloat16. Where Pacer's own kernels
  // do not apply (pacer/device/kernels.h) a model of LibTorch's operators; it has no stored weights: Error{usage}.
  static std::unique_ptr<Target> load(const std::filesystem::path& path, Precision precision, device::Runtime& runtime);
  static std::unique_ptr<Target> load(const std::filesystem::path& path, at::ScalarType dtype,
                                      device::Runtime& runtime);
  virtual ~Target() = default;

  virtual const ModelConfig& config() const = 0;
  virtual c10::Device device() const;        // of all tensors that it gives; host memory unless a target says otherwise
  virtual at::ScalarType dtype() const = 0;  // of rows: hidden states and taps
  virtual bool has_stored_weights() const { return false; }  // Precision::stored

  virtual std::unique_ptr<KvCache> new_cache(int64_t capacity_hint = 0) const = 0;

  // Causal forward. Without caches every sequence stands alone; with caches, sequence s continues caches[s], which
  // grows by its rows. Rows of different sequences never see each other.
  //
  // Decoding promise: with caches, a call whose sequences have at most kExactRows rows each gives every row the same
  // bits alone as among other rows (sum orders per row do not depend on the number of rows), so plain and speculative
  // greedy texts are equal. Longer calls (prefill, training features) use the fastest library path; with stored weights
  // they run in pieces of kExactRows, so that the promise holds for them too.
  virtual TargetOutput forward(const TokenBatch& batch, const Taps& taps,
                               const std::vector<KvCache*>& caches) const = 0;
  TargetOutput forward(const TokenBatch& batch, const Taps& taps) const { return forward(batch, taps, {}); }

  // Logits of rows: [n, H] model dtype -> [n, V] f32. The same promise for n <= kExactRows.
  virtual at::Tensor logits(const at::Tensor& last) const = 0;

  // Rows of the embedding: ids [n] i64 in host memory -> [n, H] model dtype.
  virtual at::Tensor embed(const at::Tensor& ids) const;

  // With stored weights the next three are dense copies made for the call.
  virtual at::Tensor embedding_weight() const = 0;  // [V, H] model dtype, frozen
  virtual at::Tensor head_weight() const = 0;       // [V, H] model dtype, frozen; the embedding when tied

  // A weight by its Hugging Face name ("model.layers.3.mlp.up_proj.weight"), for warm starts. Throws Error{format}.
  virtual at::Tensor weight(const std::string& name) const = 0;

  // Weights in memory, with the packed copies that the first decoding call and the first logits make. Mapped weights
  // count as well, although other processes share their pages.
  virtual uint64_t weight_bytes() const = 0;
};

}  // namespace pacer::target
