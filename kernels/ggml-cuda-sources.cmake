# Our files of the CUDA backend, and where they look for headers.
file(GLOB RKV_CUDA_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/cuda/*.cu ${CMAKE_CURRENT_LIST_DIR}/cuda/*.cpp)
list(APPEND RKV_CUDA_SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-attn-args.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-balance.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-collect.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-graph-pieces.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-host-node.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-plan.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-ring.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-stream-ring.cpp
)
include_directories(${CMAKE_CURRENT_LIST_DIR}/src ${CMAKE_CURRENT_LIST_DIR}/cuda ${CMAKE_CURRENT_LIST_DIR}/../ggml/src/ggml-cuda)
