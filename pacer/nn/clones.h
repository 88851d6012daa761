// One loop for several instruction sets, chosen by the loader: for elementwise loops that round every operation, in
// files compiled without contraction, where the set cannot change a bit.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define PACER_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PACER_CLONES
#endif
