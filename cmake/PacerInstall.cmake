# `make install` and find_package(Pacer): the program, the rooms as libraries, their headers, the shipped files.
include(CMakePackageConfigHelpers)

get_property(rooms GLOBAL PROPERTY PACER_ROOM_TARGETS)
get_filename_component(pacer_torch_prefix "${Torch_DIR}/../../.." ABSOLUTE)
set(pacer_config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Pacer")

# What has to be built before an installation; tests are not.
get_property(plugins GLOBAL PROPERTY PACER_PLUGIN_TARGETS)
add_custom_target(pacer_installed DEPENDS pacer ${rooms} ${plugins})

set_target_properties(pacer PROPERTIES INSTALL_RPATH
  "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}/pacer/torch/lib;${pacer_torch_prefix}/lib")
install(TARGETS pacer COMPONENT pacer)
install(TARGETS ${rooms} EXPORT PacerTargets COMPONENT pacer)
# Where pacer/device/plugin_loader.h looks for them, whatever the system calls its library folder.
install(TARGETS ${plugins} LIBRARY DESTINATION lib/pacer/plugins COMPONENT pacer)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/pacer" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT pacer
  FILES_MATCHING PATTERN "*.h")
install(EXPORT PacerTargets NAMESPACE Pacer:: DESTINATION "${pacer_config_dir}" COMPONENT pacer)
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/PacerConfig.cmake.in" "${PROJECT_BINARY_DIR}/PacerConfig.cmake"
  INSTALL_DESTINATION "${pacer_config_dir}")
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/PacerConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/PacerConfig.cmake" "${PROJECT_BINARY_DIR}/PacerConfigVersion.cmake"
  DESTINATION "${pacer_config_dir}" COMPONENT pacer)

# Where pacer/base/resources.h looks for them.
install(PROGRAMS "${PROJECT_SOURCE_DIR}/tools/fetch.sh" DESTINATION "${CMAKE_INSTALL_DATADIR}/pacer/tools" COMPONENT pacer)
install(FILES "${PROJECT_SOURCE_DIR}/tools/versions.sh" DESTINATION "${CMAKE_INSTALL_DATADIR}/pacer/tools" COMPONENT pacer)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/recipes" "${PROJECT_SOURCE_DIR}/data"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/pacer" COMPONENT pacer)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/pacer" COMPONENT pacer)

# A LibTorch that setup fetched is copied along, so that the source folder can go; one of the user's own stays where it is.
if(PACER_TORCH_IS_OWN)
  foreach(part lib include share)
    install(DIRECTORY "${pacer_torch_prefix}/${part}" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pacer/torch" COMPONENT torch
      PATTERN "*python*.so*" EXCLUDE)
  endforeach()
endif()

if(PACER_BUILD_TESTS)
  add_test(NAME package.Consumer COMMAND "${CMAKE_COMMAND}" -D "BUILD=${PROJECT_BINARY_DIR}"
    -D "SOURCE=${PROJECT_SOURCE_DIR}/tests/consumer" -D "EXAMPLES=${PROJECT_SOURCE_DIR}/examples" -P "${PROJECT_SOURCE_DIR}/tests/consumer/check.cmake")
  set_tests_properties(package.Consumer PROPERTIES TIMEOUT 600 ENVIRONMENT "OMP_WAIT_POLICY=passive")
endif()
