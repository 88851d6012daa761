target_link_libraries(pacer_base PUBLIC nlohmann_json::nlohmann_json Threads::Threads)
set(pacer_compiler_name "${CMAKE_CXX_COMPILER_ID}")
if(pacer_compiler_name STREQUAL "GNU")
  set(pacer_compiler_name "g++")
endif()
set_source_files_properties("${PROJECT_SOURCE_DIR}/pacer/base/version.cpp" PROPERTIES COMPILE_DEFINITIONS
  "PACER_VERSION=\"${PROJECT_VERSION}\";PACER_COMPILER=\"${pacer_compiler_name} ${CMAKE_CXX_COMPILER_VERSION}\"")
set_source_files_properties("${PROJECT_SOURCE_DIR}/pacer/base/resources.cpp" PROPERTIES COMPILE_DEFINITIONS
  "PACER_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
# Vector code for the bulk of random numbers; without contraction its bits are the same on every machine.
set_source_files_properties("${PROJECT_SOURCE_DIR}/pacer/base/random_normal.cpp" PROPERTIES COMPILE_OPTIONS
  "-O3;-ffp-contract=off;-fno-math-errno;-fno-trapping-math")
