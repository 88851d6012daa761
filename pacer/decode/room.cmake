# Loops over the vocabulary are written for the vectoriser; the lanes are wider than some registers, and nothing of them
# crosses a call (-Wpsabi).
set_source_files_properties("${PROJECT_SOURCE_DIR}/pacer/decode/sampling.cpp" PROPERTIES COMPILE_OPTIONS "-O3;-Wno-psabi")
