# Loops over rows are written for the vectoriser.
set_source_files_properties("${PROJECT_SOURCE_DIR}/pacer/nn/rms_norm.cpp" "${PROJECT_SOURCE_DIR}/pacer/nn/rope.cpp"
  PROPERTIES COMPILE_OPTIONS "-O3")
