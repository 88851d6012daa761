// The works of `pacer bench`: sizes and steps, read from data/bench/workloads.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "pacer/base/json.h"
#include "pacer/target/config.h"

namespace pacer::bench {

// One case: its own fields over the defaults of its bench. Every getter throws Error{format} naming file, bench, case
// and field when the field is missing or of another type.
class Work {
 public:
  Work(std::string place, std::string bench, std::string name, OrderedJson fields, OrderedJson models, uint64_t seed)
      : place_(std::move(place)),
        bench_(std::move(bench)),
        name_(std::move(name)),
        fields_(std::move(fields)),
        models_(std::move(models)),
        seed_(seed) {}

  const std::string& bench() const { return bench_; }
  const std::string& name() const { return name_; }
  uint64_t seed() const { return seed_; }

  bool has(const std::string& field) const { return fields_.contains(field); }
  int64_t integer(const std::string& field) const;
  double number(const std::string& field) const;
  std::string text(const std::string& field) const;
  bool flag(const std::string& field) const;
  std::vector<int64_t> integers(const std::string& field) const;
  int64_t integer_or(const std::string& field, int64_t otherwise) const {
    return has(field) ? integer(field) : otherwise;
  }

  // The sizes of the model that `field` names. architecture: in place of the model's own, with its q and k norms.
  // Throws Error{format} listing the models that there are.
  target::ModelConfig model(const std::string& field, const std::string& architecture = {}) const;

 private:
  const OrderedJson& at(const std::string& field) const;

  std::string place_, bench_, name_;
  OrderedJson fields_, models_;
  uint64_t seed_;
};

class Works {
 public:
  // Throws Error{format} for a file that is not of this kind.
  static Works read(const std::filesystem::path& file);
  // data/bench/workloads.json of this installation.
  static std::filesystem::path default_file();

  std::vector<std::string> benches() const;                        // in the order of the file
  std::vector<std::string> cases(const std::string& bench) const;  // throws as work()

  // Throws Error{usage} for a name that does not exist, with the names that do.
  Work work(const std::string& bench, const std::string& name) const;

 private:
  const OrderedJson& bench(const std::string& name) const;

  std::string place_;
  OrderedJson json_;
};

}  // namespace pacer::bench
