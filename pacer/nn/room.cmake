# Loops over rows are written for the vectoriser. Kernels are compiled once per instruction set and chosen at run time;
# contraction is off in the plain row kernels so that they mean the same on every processor.
function(pacer_nn_flags file)
  # Appended: the room's own flags (OpenMP) are there already.
  set_property(SOURCE "${PROJECT_SOURCE_DIR}/pacer/nn/${file}" APPEND PROPERTY COMPILE_OPTIONS -O3 ${ARGN})
endfunction()

# GCC 13 and 14 take the growth of a vector<bool> in LibTorch's custom_function.h for a copy out of bounds at -O3.
pacer_nn_flags(rms_norm.cpp -Wno-array-bounds -Wno-stringop-overflow)
pacer_nn_flags(rope.cpp -ffp-contract=off -Wno-array-bounds -Wno-stringop-overflow)
pacer_nn_flags(swiglu.cpp -ffp-contract=off -Wno-psabi -Wno-array-bounds -Wno-stringop-overflow)
pacer_nn_flags(causal_attention.cpp -ffp-contract=off)
pacer_nn_flags(leading_sums.cpp -ffp-contract=off)
pacer_nn_flags(row_kernels_plain.cpp -ffp-contract=off)
pacer_nn_flags(quant_kernels_plain.cpp -ffp-contract=off)
# The lanes of lanes.h are wider than the registers of some sets; nothing of them crosses a call (-Wpsabi).
pacer_nn_flags(block_attention_rows_plain.cpp -Wno-psabi)
pacer_nn_flags(vocab_loss_rows_plain.cpp -Wno-psabi)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(pacer_nn_avx2 -mavx2 -mfma)
  set(pacer_nn_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl)
  pacer_nn_flags(row_kernels_avx2.cpp ${pacer_nn_avx2})
  pacer_nn_flags(quant_kernels_avx2.cpp ${pacer_nn_avx2} -mf16c)
  # GCC 12 takes the undefined operand inside its own intrinsics for an uninitialised value of ours.
  set(pacer_nn_gcc12 -Wno-uninitialized -Wno-maybe-uninitialized)
  pacer_nn_flags(row_kernels_avx512.cpp ${pacer_nn_avx512} -mfma ${pacer_nn_gcc12})
  pacer_nn_flags(row_kernels_avx512bf16.cpp ${pacer_nn_avx512} -mfma -mavx512bf16 ${pacer_nn_gcc12})
  pacer_nn_flags(quant_kernels_avx512.cpp ${pacer_nn_avx512} -mfma -mavx512vnni ${pacer_nn_gcc12})
  pacer_nn_flags(block_attention_rows_avx2.cpp -Wno-psabi ${pacer_nn_avx2})
  pacer_nn_flags(vocab_loss_rows_avx2.cpp -Wno-psabi ${pacer_nn_avx2})
  pacer_nn_flags(block_attention_rows_avx512.cpp -Wno-psabi ${pacer_nn_avx512} -mprefer-vector-width=512)
  pacer_nn_flags(vocab_loss_rows_avx512.cpp -Wno-psabi ${pacer_nn_avx512} -mprefer-vector-width=512)
  pacer_nn_flags(vocab_loss_product_avx512.cpp ${pacer_nn_avx512} ${pacer_nn_gcc12})
  pacer_nn_flags(vocab_loss_product_avx512bf16.cpp ${pacer_nn_avx512} -mavx512bf16 ${pacer_nn_gcc12})
  set(pacer_nn_unused row_kernels_no_x86.cpp quant_kernels_no_x86.cpp)
else()
  set(pacer_nn_unused row_kernels_avx2.cpp row_kernels_avx512.cpp row_kernels_avx512bf16.cpp quant_kernels_avx2.cpp
                      quant_kernels_avx512.cpp)
endif()
foreach(file IN LISTS pacer_nn_unused)
  set_source_files_properties("${PROJECT_SOURCE_DIR}/pacer/nn/${file}" PROPERTIES HEADER_FILE_ONLY ON)
endforeach()
