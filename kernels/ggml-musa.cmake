# What rolling-kv adds to the MUSA backend, which compiles the CUDA backend's files. Included by ggml/src/ggml-musa/CMakeLists.txt.
include(${CMAKE_CURRENT_LIST_DIR}/ggml-cuda-sources.cmake)
list(APPEND GGML_SOURCES_MUSA ${RKV_CUDA_SOURCES})
