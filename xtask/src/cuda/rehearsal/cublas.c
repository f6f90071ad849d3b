// A cuBLAS that computes nothing, beside the runtime that does not either.

int cublasCreate_v2(void ** handle) {
    static int it;
    *handle = &it;
    return 0;
}

const char * cublasGetStatusString(int status) {
    (void) status;
    return "no device";
}

#define SUCCEEDS(name) int name(void) { return 0; }
SUCCEEDS(cublasDestroy_v2)
SUCCEEDS(cublasSetMathMode)
SUCCEEDS(cublasSetStream_v2)
SUCCEEDS(cublasSetWorkspace_v2)
SUCCEEDS(cublasGemmBatchedEx)
SUCCEEDS(cublasGemmEx)
SUCCEEDS(cublasGemmStridedBatchedEx)
SUCCEEDS(cublasSgemmBatched)
SUCCEEDS(cublasSgemmStridedBatched)
SUCCEEDS(cublasSgemm_v2)
SUCCEEDS(cublasStrsmBatched)
