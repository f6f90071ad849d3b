# What rolling-kv adds to each variant of the CPU backend. Included by ggml/src/ggml-cpu/CMakeLists.txt, once a variant.
list(APPEND GGML_CPU_SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-attn-ahead.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-attn-args.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-attn-blocks.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-attn-mask.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-attn-merge.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-attn-narrow-q8.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-attn-narrow-scores.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-attn-narrow-values.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-attn-narrow.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-attn-op.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-attn-parts.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-attn-tiles.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-attn-unpack.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-attn-wide.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-cpu-proc.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-cpu-rope.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-cpu-set-rows.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-host-engine.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/rkv-numa.cpp
)
target_include_directories(${GGML_CPU_NAME} PRIVATE ${CMAKE_CURRENT_LIST_DIR}/src)
