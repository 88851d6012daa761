#include "pacer/optim/schedule.h"

#include <cmath>
#include <numbers>

#include "pacer/base/error.h"

namespace pacer::optim {

double Schedule::at(int64_t step) const {
  if (step < 1 || step > steps) {
    throw Error(ErrorKind::bug,
                "Schedule::at: step " + std::to_string(step) + " outside of 1 .. " + std::to_string(steps));
  }
  const auto n = static_cast<double>(step), w = static_cast<double>(warmup);
  if (step <= warmup) return peak * n / w;
  const double u = (n - w - 1) / (static_cast<double>(steps) - w);
  switch (shape) {
    case ScheduleShape::constant:
      return peak;
    case ScheduleShape::linear:
      return peak * (floor + (1 - floor) * (1 - u));
    case ScheduleShape::cosine:
      break;
  }
  return peak * (floor + (1 - floor) * 0.5 * (1 + std::cos(std::numbers::pi * u)));
}

void check_schedule(const Schedule& schedule) {
  const auto fail = [](const std::string& what, const std::string& hint) {
    throw Error(ErrorKind::usage, "learning-rate schedule: " + what, hint);
  };
  if (schedule.steps < 1) fail(std::to_string(schedule.steps) + " steps, at least 1", "train for longer");
  if (schedule.warmup < 0 || schedule.warmup >= schedule.steps) {
    fail("warm-up of " + std::to_string(schedule.warmup) + " steps in a run of " + std::to_string(schedule.steps),
         "the warm-up must end before the run does: shorten it or train for longer");
  }
  if (!(schedule.floor >= 0 && schedule.floor <= 1)) {
    fail("floor " + std::to_string(schedule.floor) + ", allowed 0 to 1", "it is a share of the peak, not a rate");
  }
  if (!(schedule.peak > 0)) fail("peak " + std::to_string(schedule.peak) + ", must be above 0", {});
}

ScheduleShape parse_shape(const std::string& name) {
  if (name == "cosine") return ScheduleShape::cosine;
  if (name == "linear") return ScheduleShape::linear;
  if (name == "constant") return ScheduleShape::constant;
  throw Error(ErrorKind::usage, "schedule shape '" + name + "', allowed: cosine, linear, constant");
}

}  // namespace pacer::optim
