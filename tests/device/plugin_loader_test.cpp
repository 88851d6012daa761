#include "pacer/device/plugin_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>

#include "pacer/base/error.h"
#include "pacer/device/back_ends.h"
#include "pacer/device/runtime.h"
#include "tests/support/files.h"

namespace pacer::device {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
    return error.what();
  }
  return "";
}

class PluginLoader : public testing::Test {
 protected:
  PluginLoader() { use(PACER_FAKE_PLUGINS); }
  ~PluginLoader() override { ::unsetenv("PACER_PLUGIN_DIR"); }
  static void use(const fs::path& folder) { ::setenv("PACER_PLUGIN_DIR", folder.c_str(), 1); }
};

TEST_F(PluginLoader, TellsAnAbsentLibraryFromABrokenOne) {
  EXPECT_EQ(open_plugin("nothing"), nullptr);
  const std::string library = std::string(PACER_FAKE_PLUGINS) + "/libpacer_";
  EXPECT_THAT(message([] { open_plugin("broken"); }),
              testing::AllOf(HasSubstr(library + "broken.so"), HasSubstr("pacer_test_nobody_defines_this")));
  EXPECT_THAT(message([] { open_plugin("empty"); }),
              testing::AllOf(HasSubstr(library + "empty.so"), HasSubstr("has no function pacer_device_plugin")));
  EXPECT_THAT(message([] { open_plugin("old"); }), HasSubstr("version " + std::to_string(kPluginInterface + 1)));
}

TEST_F(PluginLoader, OpensOnceAndListsNames) {
  const Plugin* plugin = open_plugin("present");
  ASSERT_NE(plugin, nullptr);
  EXPECT_EQ(plugin, open_plugin("present"));
  EXPECT_STREQ(plugin->product, "present");
  EXPECT_THAT(plugin_names(), testing::IsSupersetOf({"absent", "broken", "failing", "present"}));
}

TEST_F(PluginLoader, AbsentSoftwareIsANoteAndBrokenSoftwareAnErrorEachTime) {
  const Availability absent = examine("absent");
  EXPECT_FALSE(absent.there());
  EXPECT_THAT(absent.note, HasSubstr("libvendor.so"));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(message([] { examine("failing"); }),
                testing::AllOf(HasSubstr("\"failing\""), HasSubstr("vendor_open")));
  }
  EXPECT_THAT(message([] { Runtime::open("absent:0"); }), HasSubstr("libvendor.so"));
}

// Under its real name, so that `auto` meets it.
TEST_F(PluginLoader, AutoNeverHidesABrokenBackEnd) {
  const test::TemporaryFolder folder;
  fs::create_symlink(fs::path(PACER_FAKE_PLUGINS) / "libpacer_failing.so", folder.path() / "libpacer_npu.so");
  use(folder.path());
  EXPECT_THAT(message([] { Runtime::open("auto"); }), HasSubstr("vendor_open"));
  EXPECT_EQ(Runtime::open("cpu").product(), "cpu");
}

TEST_F(PluginLoader, AnAbsentBackEndIsPassedOverByAutoWithItsReason) {
  const test::TemporaryFolder folder;
  fs::create_symlink(fs::path(PACER_FAKE_PLUGINS) / "libpacer_absent.so", folder.path() / "libpacer_npu.so");
  use(folder.path());
  EXPECT_EQ(Runtime::open("auto").product(), "cpu");
  EXPECT_THAT(message([] { Runtime::open("npu"); }), HasSubstr("libvendor.so"));
}

// In a process of their own: a foreign back end stays.
using PluginProcess = PluginLoader;

TEST_F(PluginProcess, CountsVisibleDevicesAndRefusesASecondForeignBackEnd) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto checks = [] {
    ::setenv("PACER_TEST_VISIBLE", "", 1);
    if (examine("present").there() || examine("present").note.find("leaves none") == std::string::npos) std::exit(1);
    ::setenv("PACER_TEST_VISIBLE", "1", 1);
    if (examine("present").devices != std::vector<int>{1}) std::exit(2);
    for (const std::string product : {"absent", "cuda"}) {
      if (message([&] { examine(product); }).find("runs on \"present\" already") == std::string::npos) std::exit(3);
    }
    if (Runtime::open("auto").product() != "cpu") std::exit(4);
    std::exit(0);
  };
  EXPECT_EXIT(checks(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace pacer::device
