# What rolling-kv adds to llama-common. Included by common/CMakeLists.txt.
target_sources(llama-common PRIVATE
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-bench-options.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-common-args.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-common-fit.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-common-shift.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-local-file.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-options.cpp
)
target_include_directories(llama-common PUBLIC ${CMAKE_CURRENT_LIST_DIR}/src)
