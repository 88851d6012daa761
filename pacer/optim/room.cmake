# Elementwise loops that must vectorise and must not fuse: with a multiply and an add rounded separately every instruction
# set gives the same bits. sqrt sets no errno, or it could not be vectorised.
set_source_files_properties("${PROJECT_SOURCE_DIR}/pacer/optim/kernels.cpp" PROPERTIES
  COMPILE_OPTIONS "-O3;-ffp-contract=off;-fno-math-errno;-fno-trapping-math")
