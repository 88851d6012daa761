// LibTorch seeds its generator by chance when no Python does it: every test begins with the same numbers instead,
// whatever ran before it.
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

namespace {

class Seeds : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(20'251'130);
  }
};

// The list of listeners owns it.
const bool added = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new Seeds);
  return true;
}();

}  // namespace
