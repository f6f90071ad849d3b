# What rolling-kv adds to the HIP backend, which compiles the CUDA backend's files. Included by ggml/src/ggml-hip/CMakeLists.txt.
include(${CMAKE_CURRENT_LIST_DIR}/ggml-cuda-sources.cmake)
list(APPEND GGML_SOURCES_ROCM ${RKV_CUDA_SOURCES})
