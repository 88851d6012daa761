# LibTorch holds Gloo but ships none of its headers: one file sees declarations of what LibTorch's own header names.
set_source_files_properties("${PROJECT_SOURCE_DIR}/pacer/parallel/gloo.cpp" PROPERTIES
  INCLUDE_DIRECTORIES "${PROJECT_SOURCE_DIR}/pacer/parallel/gloo_declarations"
  COMPILE_DEFINITIONS "USE_C10D_GLOO")
