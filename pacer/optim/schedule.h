// Learning rate of a step in closed form: nothing is chained, so a resumed run cannot drift.
#pragma once

#include <cstdint>
#include <string>

namespace pacer::optim {

enum class ScheduleShape { cosine, linear, constant };

struct Schedule {
  double peak = 0;     // learning rate at the end of the warm-up
  int64_t steps = 0;   // T, optimizer steps of the whole run
  int64_t warmup = 0;  // w, steps of linear warm-up; 0 <= w < T
  double floor = 0;    // share of the peak that the decay approaches, [0, 1]
  ScheduleShape shape = ScheduleShape::cosine;

  // Step n = 1 .. T. Up to w: peak * n / w. After it, with t = n - w - 1 and u = t / (T - w):
  //   cosine    peak * (floor + (1 - floor) * (1 + cos(pi u)) / 2)      (Loshchilov and Hutter 2017, one cycle)
  //   linear    peak * (floor + (1 - floor) * (1 - u))
  //   constant  peak
  // Throws Error{bug} for a step outside of 1 .. T.
  double at(int64_t step) const;
};

// Throws Error{usage} naming what is wrong: steps < 1, warm-up not below steps, floor outside of [0, 1], peak <= 0.
void check_schedule(const Schedule& schedule);

ScheduleShape parse_shape(const std::string& name);  // "cosine" | "linear" | "constant"; throws Error{usage}

}  // namespace pacer::optim
