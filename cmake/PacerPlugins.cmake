# Back ends: every folder plugins/NAME with sources becomes lib/pacer/plugins/libpacer_NAME.so, which the program opens
# at run time (pacer/device/plugin.h). Nothing links a plugin, and a plugin links none of the rooms.
function(pacer_plugin name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/plugins/${name}/*.cpp")
  if(NOT sources)
    return()
  endif()
  set(target pacer_plugin_${name})
  add_library(${target} MODULE ${sources})
  target_link_libraries(${target} PRIVATE pacer_torch pacer_warnings Threads::Threads ${CMAKE_DL_LIBS})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME "pacer_${name}"
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib/pacer/plugins"
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN OFF)
  # Further files, libraries and flags of one plugin stand beside its sources.
  include("${PROJECT_SOURCE_DIR}/plugins/${name}/plugin.cmake" OPTIONAL)
  set_property(GLOBAL APPEND PROPERTY PACER_PLUGIN_TARGETS ${target})

  # tests/NAME is its test program, which opens the plugin through the door like any program. Sources of the plugin that
  # pacer_plugin_test_sources names (in plugin.cmake) are compiled into it as well.
  file(GLOB tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/${name}/*.cpp")
  if(PACER_BUILD_TESTS AND tests)
    list(TRANSFORM pacer_plugin_test_sources PREPEND "${PROJECT_SOURCE_DIR}/plugins/${name}/")
    add_executable(${name}_test ${tests} ${pacer_plugin_test_sources})
    target_link_libraries(${name}_test PRIVATE pacer_device pacer_test_support_torch pacer_test_support pacer_warnings)
    add_dependencies(${name}_test ${target})
    pacer_add_suites(${name}_test ${name} ${tests})
  endif()
endfunction()

file(GLOB pacer_plugin_folders CONFIGURE_DEPENDS LIST_DIRECTORIES true RELATIVE "${PROJECT_SOURCE_DIR}/plugins"
  "${PROJECT_SOURCE_DIR}/plugins/*")
foreach(folder IN LISTS pacer_plugin_folders)
  if(IS_DIRECTORY "${PROJECT_SOURCE_DIR}/plugins/${folder}")
    pacer_plugin(${folder})
  endif()
endforeach()

# The conformance suite once more for each back end that works on any machine.
if(PACER_BUILD_TESTS AND TARGET pacer_plugin_simnpu AND TARGET conformance_test)
  add_dependencies(conformance_test pacer_plugin_simnpu)
  add_test(NAME conformance.simnpu COMMAND conformance_test)
  set_tests_properties(conformance.simnpu PROPERTIES TIMEOUT 600
    ENVIRONMENT "OMP_WAIT_POLICY=passive;OMP_NUM_THREADS=1;PACER_TEST_DEVICE=simnpu")
  # With every rule on, also the ones that are off unless asked for: no int64 indices, and a buffer smaller than a row of
  # logits.
  add_test(NAME conformance.simnpu_int32 COMMAND conformance_test)
  set_tests_properties(conformance.simnpu_int32 PROPERTIES TIMEOUT 600
    ENVIRONMENT "OMP_WAIT_POLICY=passive;OMP_NUM_THREADS=1;PACER_TEST_DEVICE=simnpu;PACER_TEST_SEEDS=2;SIMNPU_SWITCHES=refuse_int64_indices=1,reduced_columns=80")
endif()

# The plain path, which devices compute with, is held to the same golden numbers as the kernels.
if(PACER_BUILD_TESTS)
  foreach(room nn target draft decode)
    if(TARGET ${room}_test)
      set(filter "-*SmolLm2*:*PeakMemory*")
      if(room STREQUAL decode)
        set(filter "*PromptMemory*")  # how a text was divided must not show in its bits
      endif()
      add_test(NAME plain_path.${room} COMMAND ${room}_test "--gtest_filter=${filter}")
      set_tests_properties(plain_path.${room} PROPERTIES TIMEOUT 300
        ENVIRONMENT "OMP_WAIT_POLICY=passive;OMP_NUM_THREADS=1;PACER_KERNEL_IMPL=plain;PACER_ATTENTION_IMPL=plain")
    endif()
  endforeach()
endif()

# Plugins of real devices: what can be shown without the hardware.
if(PACER_BUILD_TESTS)
  file(GLOB ascend_tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/ascend/*.cpp")
  add_executable(ascend_test ${ascend_tests})
  add_dependencies(ascend_test pacer_plugin_npu pacer_plugin_hccl pacer_plugin_nccl)
  target_link_libraries(ascend_test PRIVATE pacer_device pacer_test_support pacer_test_support_torch pacer_warnings)
  target_compile_definitions(ascend_test PRIVATE PACER_TORCH="${TORCH_INSTALL_PREFIX}"
    PACER_PLUGINS="${PROJECT_BINARY_DIR}/lib/pacer/plugins")
  pacer_add_suites(ascend_test ascend ${ascend_tests})
endif()
