// A library without the entry function.
extern "C" __attribute__((visibility("default"))) int pacer_test_something_else();
int pacer_test_something_else() { return 0; }
