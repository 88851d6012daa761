// What a pass costs by its number of rows, as it was last measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace pacer::decode {

// The median of the latest few measurements for each number of rows: one disturbed pass moves nothing. Measurements
// that are old by the number of others made since are dropped when a new one of the same number of rows comes in.
class RowCosts {
 public:
  void add(int64_t rows, double cost);  // rows >= 1
  bool empty() const { return measured_.empty(); }
  int64_t measurements(int64_t rows) const;  // that the figure for `rows` rests on

  // Between measured numbers of rows: a straight line. Above the largest: the line goes on; from a single measured
  // number it rises by a twentieth per row, until something better is known. Below the smallest: that one's figure.
  // Throws Error{bug} when nothing was measured.
  double cost(int64_t rows) const;

 private:
  struct Recent {
    std::vector<double> costs;  // the oldest is overwritten
    size_t next = 0;
    int64_t last = 0;
    double median = 0.0;
  };
  std::map<int64_t, Recent> measured_;
  int64_t made_ = 0;
};

}  // namespace pacer::decode
