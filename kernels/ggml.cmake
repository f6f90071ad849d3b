# What rolling-kv adds to ggml. Included at the end of ggml/src/CMakeLists.txt.
set(RKV_DIR ${CMAKE_CURRENT_LIST_DIR})

target_sources(ggml-base PRIVATE
    ${RKV_DIR}/src/rkv-backend.cpp
    ${RKV_DIR}/src/rkv-built.cpp
    ${RKV_DIR}/src/rkv-fault.cpp
)
target_include_directories(ggml-base PUBLIC $<BUILD_INTERFACE:${RKV_DIR}/include>)

# CPU variants: the loader picks the best one whose every feature the running machine reports, and falls back to the
# plain one. There is none with AMX: some virtual machines report it and then trap on its first instruction.
if (GGML_BACKEND_DL AND GGML_SYSTEM_ARCH STREQUAL "x86")
    ggml_add_cpu_backend_variant(haswell  SSE42 AVX F16C FMA AVX2 BMI2)
    ggml_add_cpu_backend_variant(skylakex SSE42 AVX F16C FMA AVX2 BMI2 AVX512)
    ggml_add_cpu_backend_variant(zen4     SSE42 AVX F16C FMA AVX2 BMI2 AVX512 AVX512_VBMI AVX512_VNNI AVX512_BF16)
elseif (GGML_BACKEND_DL AND GGML_SYSTEM_ARCH STREQUAL "ARM" AND CMAKE_SYSTEM_NAME MATCHES "Linux")
    ggml_add_cpu_backend_variant(armv8.2_1 DOTPROD)
    ggml_add_cpu_backend_variant(armv8.2_2 DOTPROD FP16_VECTOR_ARITHMETIC)
endif()
