#include "rkv-shim-guard.h"

#include "llama-context.h"
#include "llama-io.h"
#include "llama-memory.h"

#include "ggml-backend.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

using rkv::error_set;
using rkv::guarded;

namespace {

// A transposed V gives thousands of pieces of a few bytes, so what crosses the border is gathered first.
constexpr size_t CHUNK_BYTES = 1 << 20;

class chunk_writer : public llama_io_write_i {
  public:
    chunk_writer(rkv_state_sink_t sink, void * user_data) : sink(sink), user_data(user_data), chunk(CHUNK_BYTES) {}

    void write(const void * src, size_t size) override {
        const auto * bytes = (const uint8_t *) src;
        while (size > 0) {
            const size_t n = room(size);
            std::memcpy(chunk.data() + used, bytes, n);
            advance(n);
            bytes += n;
            size  -= n;
        }
    }

    void write_tensor(ggml_tensor * tensor, size_t offset, size_t size) override {
        while (size > 0) {
            const size_t n = room(size);
            ggml_backend_tensor_get(tensor, chunk.data() + used, offset, n);
            advance(n);
            offset += n;
            size   -= n;
        }
    }

    size_t n_bytes() override { return total; }

    void flush() {
        if (used > 0 && !sink(user_data, chunk.data(), used)) {
            throw std::runtime_error("the state could not be written");
        }
        used = 0;
    }

  private:
    size_t room(size_t size) {
        if (used == chunk.size()) {
            flush();
        }
        return std::min(size, chunk.size() - used);
    }

    void advance(size_t n) {
        used  += n;
        total += n;
    }

    rkv_state_sink_t     sink;
    void *               user_data;
    std::vector<uint8_t> chunk;
    size_t               used  = 0;
    size_t               total = 0;
};

class chunk_reader : public llama_io_read_i {
  public:
    chunk_reader(rkv_state_source_t source, void * user_data) : source(source), user_data(user_data), chunk(CHUNK_BYTES) {}

    void read(void * dst, size_t size) override {
        if (!source(user_data, dst, size)) {
            throw std::runtime_error("the state ends too early");
        }
        total += size;
    }

    void read_tensor(ggml_tensor * tensor, size_t offset, size_t size) override {
        while (size > 0) {
            const size_t n = std::min(size, chunk.size());
            read(chunk.data(), n);
            ggml_backend_tensor_set(tensor, chunk.data(), offset, n);
            offset += n;
            size   -= n;
        }
    }

    size_t n_bytes() override { return total; }

  private:
    rkv_state_source_t   source;
    void *               user_data;
    std::vector<uint8_t> chunk;
    size_t               total = 0;
};

// Cells whose shift or copy is still queued do not hold yet what their positions say.
llama_memory_i & settled_memory(llama_context * ctx) {
    llama_memory_i * memory = ctx->get_memory();
    if (memory == nullptr) {
        throw std::runtime_error("this model keeps no state");
    }
    ctx->synchronize();
    ctx->memory_update(false);
    return *memory;
}

} // namespace

enum rkv_status rkv_state_write(llama_context * ctx, llama_seq_id seq, rkv_state_sink_t sink, void * user_data, uint64_t * n_bytes) {
    return guarded(rkv::work::computes, [&] {
        const llama_memory_i & memory = settled_memory(ctx);
        chunk_writer           io(sink, user_data);
        memory.state_write(io, seq);
        io.flush();
        *n_bytes = io.n_bytes();
        return RKV_OK;
    });
}

enum rkv_status rkv_state_read(llama_context * ctx, llama_seq_id seq, rkv_state_source_t source, void * user_data, uint64_t * n_bytes) {
    return guarded(rkv::work::computes, [&] {
        llama_memory_i & memory = settled_memory(ctx);
        chunk_reader     io(source, user_data);
        memory.state_read(io, seq);
        *n_bytes = io.n_bytes();
        return RKV_OK;
    });
}
