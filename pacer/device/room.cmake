# Back ends are opened at run time.
target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS})

if(PACER_BUILD_TESTS)
  set_source_files_properties("${PROJECT_SOURCE_DIR}/tests/device/plugin_loader_test.cpp"
    "${PROJECT_SOURCE_DIR}/tests/device/reports_test.cpp" PROPERTIES COMPILE_DEFINITIONS
    "PACER_FAKE_PLUGINS=\"${PROJECT_BINARY_DIR}/fake_plugins\"")
endif()
