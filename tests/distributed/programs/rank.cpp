// A program that some launcher starts as several ranks: meets the others, adds a number, and fails where it is told to.
//
//   distributed_rank FOLDER [RANK-THAT-FAILS]
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/parallel/launch_environment.h"
#include "pacer/parallel/world.h"

int main(int argc, char** argv) {
  try {
    pacer::parallel::World world(pacer::parallel::read_launch_environment(), {.timeout = std::chrono::seconds(30)});
    at::Tensor sum = at::full({1}, 1 << world.rank(), at::kLong);
    world.all().sum(sum, "test").wait();
    if (argc > 2 && std::to_string(world.rank()) == argv[2]) {
      throw pacer::Error(pacer::ErrorKind::resources, "rank " + std::to_string(world.rank()) + " is out of paper");
    }
    pacer::write_file(std::filesystem::path(argv[1]) / std::to_string(world.rank()),
                      std::to_string(sum.item<int64_t>()));
    world.all().barrier("test");
    return 0;
  } catch (const pacer::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    pacer::parallel::write_error_file(error.what(), error.exit_code());
    return error.exit_code();
  }
}
