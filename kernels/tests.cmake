# Tests of rolling-kv in the upstream tree. Included by tests/CMakeLists.txt.
set(RKV_DIR ${CMAKE_CURRENT_LIST_DIR})

function(rkv_add_test name)
    add_executable(${name} ${ARGN})
    target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/ggml/src
        ${RKV_DIR}/include ${RKV_DIR}/src ${RKV_DIR}/cuda ${RKV_DIR}/tests)
    target_link_libraries(${name} PRIVATE llama-common)
endfunction()

# What of the CUDA backend runs without a device.
set(RKV_CUDA_HOST ${RKV_DIR}/cuda/rkv-cuda-node.cpp ${RKV_DIR}/src/rkv-attn-args.cpp)

rkv_add_test(test-rkv-ahead ${RKV_DIR}/tests/test-rkv-ahead.cpp)
target_include_directories(test-rkv-ahead PRIVATE ${PROJECT_SOURCE_DIR}/ggml/src/ggml-cpu)
# What the kernel asks for ahead, for each width of its vectors.
set(RKV_ASKS_FLAGS_base)
set(RKV_ASKS_FLAGS_avx2   -mavx2 -mfma -mf16c -mbmi2)
set(RKV_ASKS_FLAGS_avx512 ${RKV_ASKS_FLAGS_avx2} -mavx512f -mavx512cd -mavx512bw -mavx512dq -mavx512vl)
set(RKV_ASKS_FLAGS_vnni   ${RKV_ASKS_FLAGS_avx512} -mavx512vnni)
foreach(width base avx2 avx512 vnni)
    add_library(rkv-asks-${width} OBJECT ${RKV_DIR}/tests/test-rkv-asks.cpp ${RKV_DIR}/src/rkv-attn-ahead.cpp ${RKV_DIR}/src/rkv-attn-narrow.cpp
        ${RKV_DIR}/src/rkv-attn-narrow-q8.cpp ${RKV_DIR}/src/rkv-attn-narrow-scores.cpp ${RKV_DIR}/src/rkv-attn-narrow-values.cpp
        ${RKV_DIR}/src/rkv-attn-unpack.cpp)
    target_include_directories(rkv-asks-${width} PRIVATE ${PROJECT_SOURCE_DIR}/ggml/src ${PROJECT_SOURCE_DIR}/ggml/src/ggml-cpu
        ${RKV_DIR}/include ${RKV_DIR}/src ${RKV_DIR}/tests)
    target_link_libraries(rkv-asks-${width} PRIVATE ggml-base)
    target_compile_options(rkv-asks-${width} PRIVATE -include ${RKV_DIR}/tests/rkv-test-asks.h)
    rkv_add_test(test-rkv-asks-${width} ${RKV_DIR}/tests/test-rkv-asks-main.cpp $<TARGET_OBJECTS:rkv-asks-${width}>)
    string(TOUPPER ${width} needs)
    if (CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        target_compile_options(rkv-asks-${width} PRIVATE ${RKV_ASKS_FLAGS_${width}})
        target_compile_definitions(test-rkv-asks-${width} PRIVATE RKV_ASKS_${needs})
    elseif (NOT width STREQUAL base)
        target_compile_definitions(test-rkv-asks-${width} PRIVATE RKV_ASKS_ELSEWHERE)
    endif()
endforeach()

rkv_add_test(test-rkv-archs ${RKV_DIR}/tests/test-rkv-archs.cpp)
rkv_add_test(test-rkv-attn  ${RKV_DIR}/tests/test-rkv-attn.cpp ${RKV_DIR}/tests/test-rkv-attn-rig.cpp)
rkv_add_test(test-rkv-numa  ${RKV_DIR}/tests/test-rkv-numa.cpp ${RKV_DIR}/src/rkv-numa.cpp)
rkv_add_test(test-rkv-pieces ${RKV_DIR}/tests/test-rkv-pieces.cpp ${RKV_DIR}/src/rkv-graph-pieces.cpp)
rkv_add_test(test-rkv-rope  ${RKV_DIR}/tests/test-rkv-rope.cpp)
rkv_add_test(test-rkv-sim   ${RKV_DIR}/tests/test-rkv-sim.cpp)
rkv_add_test(test-rkv-cuda  ${RKV_DIR}/tests/test-rkv-cuda.cpp ${RKV_DIR}/tests/test-rkv-cuda-host.cpp ${RKV_DIR}/tests/test-rkv-attn-rig.cpp ${RKV_CUDA_HOST})
rkv_add_test(test-rkv-stream-ring ${RKV_DIR}/tests/test-rkv-stream-ring.cpp ${RKV_DIR}/tests/test-rkv-lanes.cpp ${RKV_DIR}/tests/test-rkv-small-cache.cpp
    ${RKV_DIR}/tests/test-rkv-cuda-host.cpp
    ${RKV_CUDA_HOST} ${RKV_DIR}/src/rkv-collect.cpp ${RKV_DIR}/src/rkv-ring.cpp ${RKV_DIR}/src/rkv-stream-ring.cpp)
rkv_add_test(test-rkv-device ${RKV_DIR}/tests/test-rkv-device.cpp ${RKV_DIR}/tests/test-rkv-attn-device.cpp ${RKV_DIR}/tests/test-rkv-attn-rig.cpp)
rkv_add_test(bench-rkv-attn ${RKV_DIR}/tests/bench-rkv-attn.cpp)
