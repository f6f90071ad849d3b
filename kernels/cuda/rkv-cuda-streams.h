#pragma once

// A context's computing stream, and a stream of its own for copies; events are made beforehand.

#include "rkv-cuda-buffer.h"
#include "rkv-cuda-kernels.cuh"
#include "rkv-cuda-waits.h"
#include "rkv-stream-ring.h"

#include "common.cuh"

#include <vector>

class rkv_cuda_streams : public rkv::stream_queue {
public:
    explicit rkv_cuda_streams(ggml_backend_cuda_context & ctx) : ctx(ctx), counts(rkv_cuda_counts_of(ctx.device)) {}

    ~rkv_cuda_streams() override {
        ggml_cuda_set_device(ctx.device);
        for (cudaEvent_t e : events) {
            CUDA_CHECK(cudaEventDestroy(e));
        }
        if (copies) {
            CUDA_CHECK(cudaStreamDestroy(copies));
        }
    }

    bool make_events(size_t n) override {
        ggml_cuda_set_device(ctx.device);
        if (!copies && cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking) != cudaSuccess) {
            (void) cudaGetLastError();
            return false;
        }
        while (events.size() < n) {
            cudaEvent_t e;
            if (cudaEventCreateWithFlags(&e, cudaEventDisableTiming) != cudaSuccess) {
                (void) cudaGetLastError();
                return false;
            }
            events.push_back(e);
        }
        return waits.make();
    }

    void record(rkv::stream_lane lane, size_t event) override { CUDA_CHECK(cudaEventRecord(events[event], of(lane))); }
    void wait(rkv::stream_lane lane, size_t event) override {
        const bool for_copy = lane == rkv::STREAM_COMPUTE;
        if (for_copy) {
            waits.before(of(lane));
        }
        CUDA_CHECK(cudaStreamWaitEvent(of(lane), events[event], 0));
        if (for_copy) {
            waits.after(of(lane));
        }
    }

    void copy(char * dst, const rkv::ring_rows & rows) override {
        count(rows);
        if (rows.stride == rows.width) {
            CUDA_CHECK(cudaMemcpyAsync(dst, rows.src, rows.bytes(), cudaMemcpyHostToDevice, copies));
        } else {
            CUDA_CHECK(cudaMemcpy2DAsync(dst, rows.width, rows.src, rows.stride, rows.width, rows.rows, cudaMemcpyHostToDevice, copies));
        }
    }

    void pull(char * dst, const rkv::ring_rows & rows) override {
        count(rows);
        rkv_cuda_pull_rows({ dst, rows.src, int64_t(rows.stride), int64_t(rows.width), int64_t(rows.rows) }, compute());
    }

    void synchronize() override {
        ggml_cuda_set_device(ctx.device);
        CUDA_CHECK(cudaStreamSynchronize(compute()));
        if (copies) {
            CUDA_CHECK(cudaStreamSynchronize(copies));
        }
    }

    cudaStream_t compute() { return ctx.stream(ctx.device, 0); }

    rkv_cuda_waits waits; // of the computing stream, for copies

private:
    ggml_backend_cuda_context & ctx;
    rkv_cuda_counts &           counts;
    cudaStream_t                copies = nullptr;
    std::vector<cudaEvent_t>    events;

    cudaStream_t of(rkv::stream_lane lane) { return lane == rkv::STREAM_COPY ? copies : compute(); }

    void count(const rkv::ring_rows & rows) {
        counts.bytes_to_device += rows.bytes();
        counts.copies_to_device++;
    }
};
