#include "rkv-state-file.h"

#include "rkv-report.h"

#include "llama-context.h"
#include "llama-impl.h"
#include "llama-kv-cache.h"
#include "llama-model.h"

#include "ggml-backend.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

namespace {

constexpr char   MAGIC[8]    = { 'r', 'k', 'v', 's', 'e', 'a', 'l', '1' };
constexpr size_t CHUNK_BYTES = 1 << 20;

struct seal {
    char     magic[8];
    uint64_t n_bytes;  // before the seal
    uint64_t contents; // digest of them
    uint64_t origin;   // digest of the model and of how its cache stores rows
};

// Multiply and rotate, 8 bytes at a time (the mixing step of FNV-1a, on words; offset and prime are FNV's for 64 bits).
class digest {
  public:
    void add(const void * data, size_t n) {
        const auto * bytes = (const uint8_t *) data;
        for (; n >= 8; bytes += 8, n -= 8) {
            uint64_t word;
            memcpy(&word, bytes, 8);
            mix(word);
        }
        uint64_t rest = n;
        memcpy((uint8_t *) &rest + 1, bytes, n);
        mix(rest);
    }

    template <typename T> void add_value(T value) { add(&value, sizeof(value)); }

    uint64_t value() const { return state ^ (state >> 29); }

  private:
    void mix(uint64_t word) {
        state = (state ^ word)*0x100000001b3ull;
        state = state << 23 | state >> 41;
    }

    uint64_t state = 0xcbf29ce484222325ull;
};

struct closer {
    void operator()(FILE * file) const { fclose(file); }
};
using file_ptr = std::unique_ptr<FILE, closer>;

bool digest_of(FILE * file, uint64_t n_bytes, uint64_t & res) {
    std::vector<uint8_t> chunk(CHUNK_BYTES);
    digest d;
    while (n_bytes > 0) {
        const size_t n = size_t(std::min<uint64_t>(n_bytes, chunk.size()));
        if (fread(chunk.data(), 1, n, file) != n) {
            return false;
        }
        d.add(chunk.data(), n);
        n_bytes -= n;
    }
    res = d.value();
    return true;
}

uint64_t origin_of(llama_context & ctx) {
    const llama_model & model = ctx.get_model();

    digest d;
    const std::string arch = model.arch_name();
    d.add(arch.data(), arch.size());

    // a few bytes of the middle of each tensor tell models of one shape apart
    uint8_t sample[64];
    for (const auto & [name, tensor] : model.tensors_by_name) {
        d.add(name.data(), name.size());
        d.add_value(int32_t(tensor->type));
        d.add(tensor->ne, sizeof(tensor->ne));
        const size_t n = std::min(sizeof(sample), ggml_nbytes(tensor));
        if (tensor->buffer) {
            ggml_backend_tensor_get(tensor, sample, (ggml_nbytes(tensor) - n)/2, n);
            d.add(sample, n);
        }
    }

    for (const llama_kv_cache * cache : rkv_memory_caches(llama_get_memory(&ctx))) {
        cache->rkv_visit([&](const rkv_layer_view & view) {
            d.add_value(view.il);
            d.add_value(int32_t(view.k->type));
            d.add_value(int32_t(view.v ? view.v->type : -1));
            if (view.tail->k && view.tail->k->type != view.k->type) {
                d.add_value(int32_t(view.tail->k->type));
            }
            if (view.tail->v && view.tail->v->type != view.v->type) {
                d.add_value(int32_t(view.tail->v->type));
            }
            d.add_value(uint64_t(view.k->ne[0]));
        });
    }
    return d.value();
}

int64_t size_of(FILE * file) {
    return fseek(file, 0, SEEK_END) == 0 ? int64_t(ftell(file)) : -1;
}

// Reads the seal at the end of a file. False when there is none.
bool read_seal(FILE * file, seal & s) {
    const int64_t size = size_of(file);
    if (size < int64_t(sizeof(seal)) || fseek(file, long(size - int64_t(sizeof(seal))), SEEK_SET) != 0 ||
        fread(&s, sizeof(s), 1, file) != 1) {
        return false;
    }
    return memcmp(s.magic, MAGIC, sizeof(MAGIC)) == 0 && s.n_bytes == uint64_t(size) - sizeof(seal);
}

} // namespace

size_t rkv_state_file_seal(llama_context & ctx, const char * path, size_t n_bytes) {
    if (n_bytes == 0) {
        return 0;
    }
    seal s = {};
    memcpy(s.magic, MAGIC, sizeof(MAGIC));
    s.n_bytes = n_bytes;
    s.origin  = origin_of(ctx);

    file_ptr file(fopen(path, "r+b"));
    if (!file || !digest_of(file.get(), n_bytes, s.contents) || fseek(file.get(), 0, SEEK_END) != 0 ||
        fwrite(&s, sizeof(s), 1, file.get()) != 1 || fflush(file.get()) != 0) {
        LLAMA_LOG_ERROR("%s: the seal of %s could not be written; the file cannot be relied on\n", __func__, path);
        return 0;
    }
    return n_bytes;
}

bool rkv_state_file_is_sound(llama_context & ctx, const char * path) {
    file_ptr file(fopen(path, "rb"));
    if (!file) {
        return true; // llama.cpp says so itself
    }
    seal s;
    if (!read_seal(file.get(), s)) {
        if (ctx.get_cparams().rkv.tile == 0) {
            return true;
        }
        LLAMA_LOG_ERROR("%s: %s has no seal: it was cut short, or written by an unpatched llama.cpp, which a context with a window does not take; nothing was changed\n",
                __func__, path);
        return false;
    }
    uint64_t contents = 0;
    rewind(file.get());
    if (!digest_of(file.get(), s.n_bytes, contents) || contents != s.contents) {
        LLAMA_LOG_ERROR("%s: %s is damaged: its contents are not those that were saved; nothing was changed\n", __func__, path);
        return false;
    }
    if (s.origin != origin_of(ctx)) {
        LLAMA_LOG_ERROR("%s: %s was saved with another model, or with another type of KV cache; nothing was changed\n", __func__, path);
        return false;
    }
    return true;
}
