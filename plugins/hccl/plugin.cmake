# The headers of the installed package torch_npu (the folder with include/torch_npu); without them a library that says so.
set(PACER_TORCH_NPU_DIR "" CACHE PATH "Folder of the package torch_npu, for collectives on Ascend NPUs")
set(hccl_left_out hccl.cpp)
if(EXISTS "${PACER_TORCH_NPU_DIR}/include/torch_npu/csrc/distributed/ProcessGroupHCCL.hpp")
  set(hccl_left_out no_hccl.cpp)
  # As system headers: torch_npu's own warn. c10d's are included by their short names there. torch_npu's two symbols are
  # found in its library, which is loaded before.
  target_include_directories(${target} SYSTEM PRIVATE "${PACER_TORCH_NPU_DIR}/include"
    "${TORCH_INSTALL_PREFIX}/include/torch/csrc/distributed")
  target_compile_definitions(${target} PRIVATE USE_DISTRIBUTED)
elseif(PACER_TORCH_NPU_DIR)
  message(FATAL_ERROR "PACER_TORCH_NPU_DIR=${PACER_TORCH_NPU_DIR} has no include/torch_npu/csrc/distributed")
endif()
set_source_files_properties("${PROJECT_SOURCE_DIR}/plugins/hccl/${hccl_left_out}" PROPERTIES HEADER_FILE_ONLY TRUE)
