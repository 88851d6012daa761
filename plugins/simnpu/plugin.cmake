# Parts that the tests also compile by themselves: mathematics without a device.
set(pacer_plugin_test_sources memory/region.cpp memory/history.cpp)
