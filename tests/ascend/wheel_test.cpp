// The Ascend plugins against the real package torch-npu, without the vendor's software: they compile against its
// headers, link, load, and what they need of it is there. What a device does is not shown here.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "pacer/base/error.h"
#include "pacer/device/back_ends.h"
#include "pacer/device/plugin_loader.h"
#include "plugins/npu/fused_schemas.h"
#include "tests/support/files.h"

namespace pacer::device {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

bool open_globally(const fs::path& library) { return ::dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr; }

TEST(AscendWheel, PluginsCompileLinkAndLoad) {
  PACER_PACKAGE_OR_SKIP(package, "torch-npu");
  if (!open_globally("libpython3.11.so.1.0")) GTEST_SKIP() << "the wheel needs libpython3.11.so.1.0";
  const fs::path npu = package / "torch_npu";
  const test::TemporaryFolder out;
  const std::string command = "\"" + (test::source_dir() / "tools" / "check_npu.sh").string() +
                              "\" \"" PACER_TORCH "\" \"" + npu.string() + "\" \"" + out.path().string() + "\"";
  ASSERT_EQ(std::system(command.c_str()), 0);

  // Stand-ins first, by their full names: the loader then has what libtorch_npu.so asks for.
  for (const char* name : {"acl_tdt_channel", "ascendcl", "hccl", "acl_op_compiler", "ge_runner", "graph"}) {
    ASSERT_TRUE(open_globally(out.path() / "stubs" / (std::string("lib") + name + ".so"))) << ::dlerror();
  }
  ASSERT_TRUE(open_globally(fs::path(PACER_TORCH) / "lib" / "libtorch_python.so")) << ::dlerror();
  ::setenv("PACER_PLUGIN_DIR", (out.path() / "plugins").c_str(), 1);
  ::setenv("PACER_TORCH_NPU", (npu / "lib" / "libtorch_npu.so").c_str(), 1);

  const Plugin* plugin = open_plugin("npu");
  ASSERT_NE(plugin, nullptr);
  EXPECT_STREQ(plugin->product, "npu");
  EXPECT_FALSE(c10::impl::hasDeviceGuardImpl(c10::DeviceType::PrivateUse1)) << "opening a plugin registers nothing";
  // The library loads and registers its device; then Python is asked for torch_npu, which is not installed here.
  try {
    examine("npu");
    ADD_FAILURE() << "started without torch_npu in Python";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("\"npu\""), HasSubstr("Python cannot import")));
  }
  EXPECT_TRUE(c10::impl::hasDeviceGuardImpl(c10::DeviceType::PrivateUse1));
  EXPECT_EQ(c10::DeviceTypeName(c10::DeviceType::PrivateUse1, /*lower_case=*/true), "npu");
  EXPECT_EQ(plugin->device_count(), 0);

  // The library declares its operators as soon as it is open: as the simulator does, and so that Pacer can call them.
  for (const char* declared : {pacer::npu::kRmsNormSchema, pacer::npu::kSwigluSchema, pacer::npu::kRotaryMulSchema,
                               pacer::npu::kFusionAttentionSchema}) {
    const c10::FunctionSchema schema = torch::jit::parseSchema(std::string("npu::") + declared);
    const auto found = c10::Dispatcher::singleton().findSchema(schema.operator_name());
    ASSERT_TRUE(found) << declared;
    EXPECT_EQ(found->schema(), schema);
  }
  ASSERT_NE(plugin->operators, nullptr);
  EXPECT_NE(plugin->operators->rms_norm, nullptr);
  EXPECT_NE(plugin->operators->swiglu, nullptr);
  EXPECT_NE(plugin->operators->attention, nullptr);

  const Plugin* collectives = open_plugin(plugin->collectives);
  ASSERT_NE(collectives, nullptr);
  EXPECT_NE(collectives->make_backend, nullptr);
  // No device to shut down: the vendor's exit handlers have nothing to work on.
  std::fflush(nullptr);
  std::_Exit(testing::Test::HasFailure() ? 1 : 0);
}

TEST(AscendAdvice, NamesWhatToDoAboutTheRuntimesCodes) {
  ::setenv("PACER_PLUGIN_DIR", PACER_PLUGINS, 1);
  const Plugin* plugin = open_plugin("npu");
  ASSERT_NE(plugin, nullptr);
  EXPECT_THAT(plugin->advice("EZ9999: error code is 507015"), HasSubstr("ASCEND_LAUNCH_BLOCKING=1"));
  EXPECT_THAT(plugin->advice("NPU out of memory. Tried to allocate"), HasSubstr("data.sequences"));
  EXPECT_EQ(plugin->advice("something else"), "");
  ::unsetenv("PACER_PLUGIN_DIR");
}

TEST(AscendAbsent, WithoutTorchNpuIsANoteAndAWrongPathAnError) {
  ::setenv("PACER_PLUGIN_DIR", PACER_PLUGINS, 1);
  ::unsetenv("PACER_TORCH_NPU");
  const Plugin* plugin = open_plugin("npu");
  ASSERT_NE(plugin, nullptr);
  const Loaded loaded = plugin->load();
  EXPECT_FALSE(loaded.present);
  EXPECT_THAT(loaded.note, HasSubstr("libtorch_npu.so"));
  ::setenv("PACER_TORCH_NPU", "/no/such/libtorch_npu.so", 1);
  EXPECT_THROW(plugin->load(), std::exception);
  ::unsetenv("PACER_TORCH_NPU");
  ::unsetenv("PACER_PLUGIN_DIR");
}

TEST(CollectivesWithoutHeaders, SayHowToGetThem) {
  ::setenv("PACER_PLUGIN_DIR", PACER_PLUGINS, 1);
  for (const std::string name : {"hccl", "nccl"}) {
    const Plugin* plugin = open_plugin(name);
    ASSERT_NE(plugin, nullptr) << name;
    try {
      plugin->make_backend({}, 0, 1, std::chrono::milliseconds(1));
      GTEST_SKIP() << name << " was built with its headers";
    } catch (const std::exception& refusal) {
      EXPECT_THAT(refusal.what(), HasSubstr("build it again with -DPACER_"));
    }
  }
  ::unsetenv("PACER_PLUGIN_DIR");
}

}  // namespace
}  // namespace pacer::device
