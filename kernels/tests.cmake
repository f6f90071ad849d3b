# Tests of rolling-kv in the upstream tree. Included by tests/CMakeLists.txt.
set(RKV_DIR ${CMAKE_CURRENT_LIST_DIR})

function(rkv_add_test name)
    add_executable(${name} ${ARGN})
    target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src ${RKV_DIR}/include ${RKV_DIR}/tests)
    target_link_libraries(${name} PRIVATE llama-common)
endfunction()

rkv_add_test(test-rkv-archs ${RKV_DIR}/tests/test-rkv-archs.cpp)
rkv_add_test(test-rkv-attn  ${RKV_DIR}/tests/test-rkv-attn.cpp ${RKV_DIR}/tests/test-rkv-attn-rig.cpp)
rkv_add_test(test-rkv-rope  ${RKV_DIR}/tests/test-rkv-rope.cpp)
rkv_add_test(test-rkv-sim   ${RKV_DIR}/tests/test-rkv-sim.cpp)
rkv_add_test(bench-rkv-attn ${RKV_DIR}/tests/bench-rkv-attn.cpp)
