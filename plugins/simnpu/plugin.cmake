# Parts that the tests also compile by themselves: mathematics without a device.
set(pacer_plugin_test_sources memory/region.cpp memory/history.cpp)
# The real device's way to its fused operators, which finds the simulated ones here.
target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/plugins/npu/fused.cpp")
