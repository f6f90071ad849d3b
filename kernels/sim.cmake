# The simulated device, a backend module. Included at the end of src/CMakeLists.txt: it computes with the CPU backend, which it
# finds through ggml, so it cannot be one of the modules that ggml itself waits for.
file(GLOB RKV_SIM_SOURCES CONFIGURE_DEPENDS ${RKV_DIR}/sim/*.cpp)
add_library(ggml-sim MODULE ${RKV_SIM_SOURCES} ${RKV_DIR}/src/rkv-balance.cpp ${RKV_DIR}/src/rkv-collect.cpp ${RKV_DIR}/src/rkv-host-node.cpp ${RKV_DIR}/src/rkv-plan.cpp ${RKV_DIR}/src/rkv-ring.cpp)
set_target_properties(ggml-sim PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
target_compile_definitions(ggml-sim PRIVATE GGML_BACKEND_DL GGML_BACKEND_BUILD GGML_BACKEND_SHARED)
target_include_directories(ggml-sim PRIVATE ${RKV_DIR}/sim ${RKV_DIR}/src ${PROJECT_SOURCE_DIR}/ggml/src)
target_link_libraries(ggml-sim PRIVATE ggml ggml-base)
add_dependencies(llama ggml-sim)
