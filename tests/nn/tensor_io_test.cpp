#include "pacer/nn/tensor_io.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>

#include "pacer/base/error.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace pacer::nn {
namespace {

TEST(TensorIo, WritesAndReadsBack) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "x.safetensors";
  const at::Tensor a = at::randn({3, 5}), b = at::randn({7}).to(at::kBFloat16);
  formats::write_safetensors(path, {{"a", view_of(a)}, {"b", view_of(b)}});
  const auto source = formats::open_safetensors(path);
  EXPECT_TRUE(test::same_bits(load_tensor(source, "a", at::kFloat), a));
  EXPECT_TRUE(test::same_bits(load_tensor(source, "b", at::kBFloat16), b));
  EXPECT_TRUE(test::same_bits(load_tensor(source, "a", at::kBFloat16), a.to(at::kBFloat16)));
  EXPECT_TRUE(test::same_bits(copy_tensor(source->tensor("b"), "here"), b));
}

TEST(TensorIo, MapsWhereTheTypeIsTheFilesAndKeepsTheSourceAlive) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "x.safetensors";
  const at::Tensor a = at::randn({64});
  formats::write_safetensors(path, {{"a", view_of(a)}});
  auto source = formats::open_safetensors(path);
  const void* in_file = source->tensor("a").bytes.data();
  const at::Tensor loaded = load_tensor(source, "a", at::kFloat);
  EXPECT_EQ(loaded.const_data_ptr(), in_file);
  const std::weak_ptr<formats::TensorSource> watch = source;
  source.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_TRUE(test::same_bits(loaded, a));
}

TEST(TensorIo, ViewsOnlyWholeTensors) { EXPECT_THROW(view_of(at::randn({4, 4}).t()), Error); }

}  // namespace
}  // namespace pacer::nn
