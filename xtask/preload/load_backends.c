// Loads ggml's backend modules before main(). test-llama-archs is written for backends that are linked in: without
// this it finds no device, runs nothing and reports success.

void ggml_backend_load_all(void);

__attribute__((constructor)) static void load_backends(void) {
    ggml_backend_load_all();
}
