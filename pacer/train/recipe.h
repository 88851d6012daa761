// What a training run is told: plain values with their defaults. What is allowed stands in schema.cpp, in one place.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pacer::train {

struct ModelSection {
  std::string target;
  std::string dtype = "bf16";
};

struct DraftSection {
  std::string method = "dspark";
  int64_t layers = 2;
  int64_t block_size = 5;
  bool sample_from_anchor = true;
  std::vector<int64_t> taps;
  std::string markov = "vanilla";
  int64_t markov_rank = 64;
  bool confidence = true;
  bool confidence_with_markov = true;
  int64_t vocabulary = 0;
  std::optional<int64_t> mask_token_id;
  bool warm_start = true;
  std::vector<int64_t> sliding_window;
  std::string dtype = "bf16";
};

struct DataSection {
  std::string train;
  std::optional<std::string> validation;
  int64_t validation_rows = 0;
  int64_t max_length = 2048;
  int64_t sequences = 8;
  int64_t anchors = 24;
  int64_t anchors_at_once = 0;
  int64_t accumulation = 1;
};

struct FeaturesSection {
  int64_t memory_mb = 1024;
  int64_t rows_together = 0;
  std::string kernels = "library";  // or "decoding"
};

struct OptimizerSection {
  double learning_rate = 6e-4;
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  double clip = 1.0;
  std::map<std::string, double> rates, decays;

  std::string matrix = "adamw";  // or "muon": what updates matrices, and what the others
  std::string rest = "adamw";
  std::map<std::string, std::string> routes;
  std::optional<double> matrix_learning_rate, matrix_weight_decay;
  double momentum = 0.95;
  bool nesterov = true;
  std::string momentum_dtype = "f32";
  std::string update_scale = "match_rms_adamw";
  std::string newton_schulz = "automatic";
  std::string newton_schulz_dtype = "bf16";
  std::string coefficients = "polar-express";
  std::vector<int64_t> restarts = {2};
};

struct LossSection {
  double ce = 0.1, l1 = 0.9, confidence = 1.0;
  std::string labels = "hard";
  double decay_gamma = 4.0;
  std::string weights = "decay";
  double dpace_alpha = 0.5;
  std::string normalisation = "supervised_weight";
  bool renormalised_teacher = false;
  int64_t tile_mb = 0;
};

struct ScheduleSection {
  std::optional<int64_t> steps;
  std::optional<double> epochs;
  std::optional<double> time_budget_s;
  std::string budget_clock = "wall";
  std::optional<int64_t> warmup_steps;
  double warmup_ratio = 0.04;
  std::string shape = "cosine";
  double floor = 0.0;
};

struct ValidationSection {
  int64_t every = 0;
  int64_t rows = 0;
};

struct CheckpointSection {
  int64_t every = 0;
  int64_t epochs = 0;
  int64_t keep_last = 2;
  bool keep_best = true;
};

struct LoggingSection {
  int64_t every = 10;
  bool tensorboard = true;
};

// How many processes train together, and how. Without sizes one process trains alone.
struct ParallelSection {
  std::optional<int64_t> replicate, shard;
  bool exact = false;
  std::string accumulation = "reduce_each";
  bool free_weights = false;
  std::string unshard = "broadcast";
  std::string message_dtype = "f32";
  bool overlap = true;
  std::string collectives = "auto";  // or "host"
  int64_t generator_stride = 0;
  double timeout_s = 600;

  bool wanted() const { return replicate || shard; }
  int64_t rows() const { return replicate.value_or(1); }
  int64_t shards() const { return shard.value_or(1); }
  int64_t ranks() const { return rows() * shards(); }
};

struct LanguageModelSection {
  std::optional<std::string> text;
  std::string start = "scratch";  // or "weights"
  int64_t length = 128;
  double held_out = 0.1;
  int64_t layers = 5, hidden = 288, intermediate = 768;
  int64_t heads = 6, kv_heads = 6;
};

struct Recipe {
  std::string method = "draft";
  ModelSection model;
  DraftSection draft;
  DataSection data;
  LanguageModelSection language_model;
  FeaturesSection features;
  OptimizerSection optimizer;
  LossSection loss;
  ScheduleSection schedule;
  ValidationSection validation;
  CheckpointSection checkpoint;
  LoggingSection logging;
  ParallelSection parallel;
  int64_t seed = 1;
  int64_t threads = 0;
  std::string device = "auto";
  std::string kernel_impl = "auto", attention_impl = "auto";
};

// A recipe that has passed every check, and where each value came from.
struct ResolvedRecipe {
  Recipe recipe;
  std::map<std::string, std::string> origins;  // key -> "default" | "recipe.yaml:12:9" | "override"
};

}  // namespace pacer::train
