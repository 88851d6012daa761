# A fused multiply-add would round scale * integer - minimum once instead of twice, and differ from the reference.
set_source_files_properties("${PROJECT_SOURCE_DIR}/pacer/formats/dequantize.cpp" PROPERTIES
  COMPILE_OPTIONS "-O3;-ffp-contract=off")
