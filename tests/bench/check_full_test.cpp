// The shipped small-a64 against the dense reference, as `pacer bench dspark_train --case small-a64 --check` does it.
#include <gtest/gtest.h>

#include "pacer/bench/run.h"

namespace pacer::bench {
namespace {

TEST(BenchCheckFull, SmallA64AgreesWithTheDenseReferenceInBothDtypes) {
  for (const std::string dtype : {"f32", "bf16"}) {
    Request request;
    request.bench = "dspark_train";
    request.cases = {"small-a64"};
    request.dtypes = {dtype};
    request.in_process = true;
    request.settings.check = true;
    request.settings.warmup = 0, request.settings.steps = 1;
    run_benches(request, [](const OrderedJson& line) {
      EXPECT_FALSE(line.contains("status")) << line.dump();
      EXPECT_TRUE(line["work"].contains("check")) << line.dump();
    });
  }
}

}  // namespace
}  // namespace pacer::bench
