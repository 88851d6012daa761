# Installs this build below a fresh prefix, builds the consumer against it and runs it; also runs the installed program.
#   cmake -D BUILD=... -D SOURCE=... -D EXAMPLES=... -P check.cmake
set(work "${BUILD}/consumer test")  # with a space, as people have
file(REMOVE_RECURSE "${work}")

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "failed (${status}): ${ARGN}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# LibTorch is found where the build found it; copying half a gigabyte would show nothing more.
run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${work}/prefix" --component pacer)
run("${CMAKE_COMMAND}" -G Ninja -S "${SOURCE}" -B "${work}/build" -Wno-dev "-DCMAKE_PREFIX_PATH=${work}/prefix"
  -DCMAKE_BUILD_TYPE=Release)
run("${CMAKE_COMMAND}" --build "${work}/build")
run("${work}/build/consumer")
message(STATUS "${output}")
if(NOT output MATCHES "2 drafts accepted, then 9")
  message(FATAL_ERROR "the consumer printed: ${output}")
endif()

# The example that users are pointed to, on one rank and on two: it says that the digits are the same.
run("${CMAKE_COMMAND}" -G Ninja -S "${EXAMPLES}/muon_library" -B "${work}/example" -Wno-dev
  "-DCMAKE_PREFIX_PATH=${work}/prefix" -DCMAKE_BUILD_TYPE=Release)
run("${CMAKE_COMMAND}" --build "${work}/example")
foreach(ranks 1 2)
  run("${work}/prefix/bin/pacer" launch -n ${ranks} -- "${work}/example/muon_library")
  string(REGEX MATCHALL "step [0-9]+: loss [^\n]+" said_by_${ranks} "${output}")
endforeach()
message(STATUS "${said_by_1}")
list(LENGTH said_by_1 lines)
if(NOT lines EQUAL 4 OR NOT said_by_1 STREQUAL said_by_2)
  message(FATAL_ERROR "one rank printed: ${said_by_1}\ntwo ranks: ${said_by_2}")
endif()
list(GET said_by_1 0 first)
list(GET said_by_1 3 last)
string(REGEX REPLACE ".*loss " "" first "${first}")
string(REGEX REPLACE ".*loss " "" last "${last}")
if(NOT last LESS first)
  message(FATAL_ERROR "the example did not learn: ${said_by_1}")
endif()

run("${work}/prefix/bin/pacer" --version)
foreach(file fetch.sh versions.sh)
  if(NOT EXISTS "${work}/prefix/share/pacer/tools/${file}")
    message(FATAL_ERROR "tools/${file} is not installed")
  endif()
endforeach()
file(REMOVE_RECURSE "${work}")
