# Elementwise loops that must vectorise and must not fuse: with a multiply and an add rounded separately every instruction
# set gives the same bits. sqrt sets no errno, or it could not be vectorised.
set_source_files_properties("${PROJECT_SOURCE_DIR}/pacer/optim/kernels.cpp" PROPERTIES
  COMPILE_OPTIONS "-O3;-ffp-contract=off;-fno-math-errno;-fno-trapping-math")

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  # GCC 12 takes the undefined operand inside its own intrinsics for an uninitialised value of ours.
  set(pacer_optim_avx512 -O3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -Wno-uninitialized -Wno-maybe-uninitialized)
  set_source_files_properties("${PROJECT_SOURCE_DIR}/pacer/optim/product_kernel_avx512.cpp" PROPERTIES
    COMPILE_OPTIONS "${pacer_optim_avx512}")
  set_source_files_properties("${PROJECT_SOURCE_DIR}/pacer/optim/product_kernel_avx512bf16.cpp" PROPERTIES
    COMPILE_OPTIONS "${pacer_optim_avx512};-mavx512bf16")
endif()
