# What rolling-kv adds to the CUDA backend. Included by ggml/src/ggml-cuda/CMakeLists.txt, before its library is made.
include(${CMAKE_CURRENT_LIST_DIR}/ggml-cuda-sources.cmake)
list(APPEND GGML_SOURCES_CUDA ${RKV_CUDA_SOURCES})
