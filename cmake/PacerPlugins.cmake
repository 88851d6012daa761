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
endfunction()

file(GLOB pacer_plugin_folders CONFIGURE_DEPENDS LIST_DIRECTORIES true RELATIVE "${PROJECT_SOURCE_DIR}/plugins"
  "${PROJECT_SOURCE_DIR}/plugins/*")
foreach(folder IN LISTS pacer_plugin_folders)
  if(IS_DIRECTORY "${PROJECT_SOURCE_DIR}/plugins/${folder}")
    pacer_plugin(${folder})
  endif()
endforeach()
