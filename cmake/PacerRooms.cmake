# One static library per room, one test program per room, one ctest entry per test suite.

# A LibTorch process costs 0.2 s to start, so cases are not separate processes; suite names are read from the sources,
# which also works before anything is built. A suite whose name ends in Full runs only in the configuration Full
# (ctest -C Full, `make test-full`).
function(pacer_add_suites program room)
  foreach(source IN LISTS ARGN)
    file(STRINGS "${source}" lines REGEX "^(TEST|TEST_F|TEST_P|TYPED_TEST|RC_GTEST_PROP|RC_GTEST_FIXTURE_PROP)\\(")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^[A-Z_]+\\( *([A-Za-z0-9_]+).*" "\\1" suite "${line}")
      list(APPEND suites "${suite}")
    endforeach()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
  endforeach()
  list(REMOVE_DUPLICATES suites)
  foreach(suite IN LISTS suites)
    set(configuration)
    set(seconds 600)
    if(suite MATCHES "Full$")
      set(configuration CONFIGURATIONS Full)
      set(seconds 7200)
    endif()
    add_test(NAME "${room}.${suite}" COMMAND ${program} "--gtest_filter=${suite}.*:*/${suite}.*:${suite}/*" ${configuration})
    # The list of skipped cases ends the output only when none failed; matching it anywhere would hide a failure.
    set_tests_properties("${room}.${suite}" PROPERTIES
      ENVIRONMENT "OMP_WAIT_POLICY=passive;OMP_NUM_THREADS=2"
      SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\][^\n]*\n*$"
      TIMEOUT ${seconds})
  endforeach()
endfunction()

# pacer_room(NAME yes|no): pacer/NAME/*.cpp becomes the library pacer_NAME; tests/NAME/*.cpp its test program.
function(pacer_room room links_torch)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/pacer/${room}/*.cpp")
  set(target pacer_${room})
  if(NOT sources)
    return()
  endif()
  add_library(${target} STATIC ${sources})
  add_library(Pacer::${room} ALIAS ${target})
  # at::parallel_for is a template over OpenMP pragmas: compiled without the flag it runs on one thread and says nothing.
  foreach(source IN LISTS sources)
    file(STRINGS "${source}" parallel REGEX "at::parallel_for" LIMIT_COUNT 1)
    if(parallel)
      set_property(SOURCE "${source}" APPEND PROPERTY COMPILE_OPTIONS -fopenmp)
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${room})
  # A room without torch sees only such rooms, so that its tests and its users do not load LibTorch.
  if(links_torch)
    target_link_libraries(${target} PUBLIC ${PACER_ROOMS_ABOVE} PRIVATE $<BUILD_INTERFACE:pacer_warnings>)
    target_link_libraries(${target} PUBLIC $<BUILD_INTERFACE:pacer_torch> $<INSTALL_INTERFACE:Pacer::torch>)
  else()
    target_link_libraries(${target} PUBLIC ${PACER_TORCH_FREE_ROOMS_ABOVE} PRIVATE $<BUILD_INTERFACE:pacer_warnings>)
    set(PACER_TORCH_FREE_ROOMS_ABOVE ${PACER_TORCH_FREE_ROOMS_ABOVE} ${target} PARENT_SCOPE)
  endif()
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  # Room-specific libraries and per-file flags live beside the sources.
  include("${PROJECT_SOURCE_DIR}/pacer/${room}/room.cmake" OPTIONAL)
  set(PACER_ROOMS_ABOVE ${PACER_ROOMS_ABOVE} ${target} PARENT_SCOPE)
  set_property(GLOBAL APPEND PROPERTY PACER_ROOM_TARGETS ${target})

  if(PACER_BUILD_TESTS)
    file(GLOB_RECURSE tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/${room}/*.cpp")
    if(tests)
      add_executable(${room}_test ${tests})
      target_link_libraries(${room}_test PRIVATE ${target} pacer_test_support pacer_warnings)
      if(links_torch)
        target_link_libraries(${room}_test PRIVATE pacer_test_support_torch)
      endif()
      pacer_add_suites(${room}_test ${room} ${tests})
    endif()
  endif()
endfunction()
