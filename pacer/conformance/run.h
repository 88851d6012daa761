// Runs the checks in this process and says what came out.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "pacer/base/json.h"
#include "pacer/conformance/checks.h"

namespace pacer::conformance {

struct Outcome {
  enum class Status { passed, failed, left_out };
  std::string check, shows;
  Status status = Status::passed;
  std::string message;  // why it failed or was left out
  double seconds = 0;
};
const char* name_of(Outcome::Status status);

// One check, with errors of the back end as failures. The choice of kernels is put back afterwards.
Outcome run(const Check& check, device::Runtime& runtime, device::Runtime& host, int seeds = 3, int first_seed = 1);

// All of them, in order; on_outcome sees each as it ends.
std::vector<Outcome> run_all(device::Runtime& runtime, int seeds,
                             const std::function<void(const Outcome&)>& on_outcome);

bool all_passed(const std::vector<Outcome>& outcomes);
OrderedJson to_json(const std::vector<Outcome>& outcomes);

}  // namespace pacer::conformance
