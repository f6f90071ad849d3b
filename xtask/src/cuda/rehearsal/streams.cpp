// Streams, events and graphs. See runtime.h.

#include "runtime.h"

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t * s, unsigned int) {
    const std::lock_guard<std::recursive_mutex> lock(rt().mutex);
    *s = new CUstream_st;
    rt().streams.insert(*s);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    const std::lock_guard<std::recursive_mutex> lock(rt().mutex);
    rt().streams.erase(s);
    delete s;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    if (of(s).graph) {
        return said(cudaErrorStreamCaptureUnsupported);
    }
    wait_until(of(s).until);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t * e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t * e, unsigned int) {
    const std::lock_guard<std::recursive_mutex> lock(rt().mutex);
    rt().add("events");
    *e = new CUevent_st;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) { delete e; return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    e->graph = of(s).graph;
    e->until = of(s).until;
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    if (e->graph) {
        return said(cudaErrorStreamCaptureUnsupported);
    }
    wait_until(e->until);
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) { return e->graph || now() < e->until ? cudaErrorNotReady : cudaSuccess; }
cudaError_t cudaEventElapsedTime(float * ms, cudaEvent_t from, cudaEvent_t to) {
    *ms = float((to->until - from->until)*1e3);
    return cudaEventQuery(to);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned int) {
    of(s).until = std::max(of(s).until, e->until);
    return said(of(s).graph == e->graph ? cudaSuccess : cudaErrorStreamCaptureIsolation);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void * data) {
    {
        const std::lock_guard<std::recursive_mutex> lock(rt().mutex);
        rt().add("host functions");
    }
    return give(s, 0, [=] { fn(data); });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
    if (of(s).graph) {
        return said(cudaErrorStreamCaptureUnsupported);
    }
    of(s).graph = new CUgraph_st;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t * graph) {
    const std::lock_guard<std::recursive_mutex> lock(rt().mutex);
    *graph = of(s).graph;
    of(s).graph = nullptr;
    rt().add((*graph)->work.empty() ? "graphs captured without work" : "graphs captured");
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus * status) {
    *status = of(s).graph ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long) {
    *exec = new CUgraphExec_st{ graph->work };
    return cudaSuccess;
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo * info) {
    exec->work = graph->work;
    info->result = cudaGraphExecUpdateSuccess;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) {
    const std::lock_guard<std::recursive_mutex> lock(rt().mutex);
    rt().add("graph launches");
    if (of(s).graph) {
        return said(cudaErrorStreamCaptureUnsupported);
    }
    for (const auto & work : exec->work) {
        work();
    }
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) { delete graph; return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { delete exec; return cudaSuccess; }

} // extern "C"
