target_link_libraries(pacer_train PRIVATE yaml-cpp)
