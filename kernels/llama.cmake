# What rolling-kv adds to libllama. Included at the end of src/CMakeLists.txt.
set(RKV_DIR ${CMAKE_CURRENT_LIST_DIR})

set(RKV_LLAMA_SOURCES
    ${RKV_DIR}/src/rkv-abi.cpp
    ${RKV_DIR}/src/rkv-decode.cpp
    ${RKV_DIR}/src/rkv-graph.cpp
    ${RKV_DIR}/src/rkv-kv-rows.cpp
    ${RKV_DIR}/src/rkv-kv-split.cpp
    ${RKV_DIR}/src/rkv-local.cpp
    ${RKV_DIR}/src/rkv-locality.cpp
    ${RKV_DIR}/src/rkv-pages.cpp
    ${RKV_DIR}/src/rkv-plan.cpp
    ${RKV_DIR}/src/rkv-planner-step.cpp
    ${RKV_DIR}/src/rkv-planner.cpp
    ${RKV_DIR}/src/rkv-probe-copy.cpp
    ${RKV_DIR}/src/rkv-probe-graph.cpp
    ${RKV_DIR}/src/rkv-probe.cpp
    ${RKV_DIR}/src/rkv-report.cpp
    ${RKV_DIR}/src/rkv-ring.cpp
    ${RKV_DIR}/src/rkv-residency.cpp
    ${RKV_DIR}/src/rkv-rope-info.cpp
    ${RKV_DIR}/src/rkv-rope-seen.cpp
    ${RKV_DIR}/src/rkv-shift-guard.cpp
    ${RKV_DIR}/src/rkv-shift-path.cpp
    ${RKV_DIR}/src/rkv-shift.cpp
    ${RKV_DIR}/src/rkv-shim-context.cpp
    ${RKV_DIR}/src/rkv-shim-guard.cpp
    ${RKV_DIR}/src/rkv-shim-memory.cpp
    ${RKV_DIR}/src/rkv-shim-model.cpp
    ${RKV_DIR}/src/rkv-shim-ring.cpp
    ${RKV_DIR}/src/rkv-shim-sampler.cpp
    ${RKV_DIR}/src/rkv-shim-sim.cpp
    ${RKV_DIR}/src/rkv-shim-state.cpp
    ${RKV_DIR}/src/rkv-shim-text.cpp
    ${RKV_DIR}/src/rkv-staging.cpp
    ${RKV_DIR}/src/rkv-state-file.cpp
    ${RKV_DIR}/src/rkv-tail-type.cpp
)

target_sources(llama PRIVATE ${RKV_LLAMA_SOURCES})
target_include_directories(llama PUBLIC ${RKV_DIR}/include PRIVATE ${RKV_DIR}/src)

# One object per file of ours, so that editing one recompiles one.
set_source_files_properties(${RKV_LLAMA_SOURCES} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)

include(${RKV_DIR}/sim.cmake)
