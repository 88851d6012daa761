// Needs a symbol that nobody has.
extern "C" int pacer_test_nobody_defines_this();
extern "C" __attribute__((visibility("default"))) const void* pacer_device_plugin();
const void* pacer_device_plugin() {
  static const int value = pacer_test_nobody_defines_this();
  return &value;
}
