#pragma once

// The C surface under the safe Rust crate.
//
// Every function here catches what llama.cpp throws and answers a status instead; rkv_error_last() then holds the reason.
// A failed GGML_ASSERT on the calling thread becomes RKV_ERR_ASSERT. It is the second fence only: the callers check their
// arguments first, because an object on which an assertion failed half way must not be used again.
//
// Ownership: pointers that are passed in stay the caller's; pointers that come back through an out parameter are the
// caller's to free with the function that is named there. No pointer is kept after the call unless it says so.

#include "rkv.h"

#ifdef __cplusplus
extern "C" {
#endif

enum rkv_status {
    RKV_OK              = 0,
    RKV_ERR_EXCEPTION   = 1, // llama.cpp threw
    RKV_ERR_ASSERT      = 2, // an assertion of llama.cpp failed; what was being worked on is in an unknown state
    RKV_ERR_FAILED      = 3, // llama.cpp said no without a reason; its log lines have it
    RKV_ERR_UNSUPPORTED = 4, // this kind of model, memory or template cannot do it
    RKV_ERR_TOO_SMALL   = 5, // the buffer is too small; the needed size is in the out parameter
    RKV_ERR_NO_MEMORY   = 6, // an allocation failed
};

// Why the last call on this thread did not answer RKV_OK. Never NULL; valid until the next call on this thread.
LLAMA_API const char * rkv_error_last(void);

// Makes assertions that fail inside a function of this header come back as RKV_ERR_ASSERT. Call once, before anything else.
LLAMA_API void rkv_guard_install(void);

// One number over the sizes of the structs that cross this boundary. Whoever was compiled with other headers computes
// another number from their own sizes, and must not go on. The list of structs is rkv-shim-guard.cpp's.
LLAMA_API uint64_t rkv_layout_digest(void);

// Loads the best backend module of each kind from this folder (UTF-8).
LLAMA_API enum rkv_status rkv_backends_load(const char * dir);

// Adds the simulated device that `spec` describes ("mem=512MiB,link=6.4GB/s"; "" for what it is by default), from the module in
// this folder (UTF-8). There is one specification a process: the same one again answers RKV_OK.
LLAMA_API enum rkv_status rkv_sim_add(const char * dir, const char * spec);

//
// models
//

// Facts about a model that llama.h does not tell.
struct rkv_model_info {
    uint32_t n_pos_per_embd;   // positions per token: 1, or 4 for M-RoPE
    uint32_t n_cls_out;        // outputs of the classification head
    uint32_t n_positions;      // rows of a learned table of positions; 0: there is none, and every position is possible
    int32_t  pooling;          // enum llama_pooling_type that the model asks for
    bool     causal;           // attention is causal unless the context asks otherwise
    bool     has_output;       // there is an output matrix, so logits exist
    bool     has_classifier;   // there is a classification head, so RANK pooling means something
    bool     vocab_only;       // only the vocabulary was loaded
    bool     mla;              // K and V share one latent row
    bool     position_buckets; // attention uses relative position buckets (T5)
};

LLAMA_API enum rkv_status rkv_model_load(const char * path, const struct llama_model_params * params, struct llama_model ** out);

// `set_tensor` is called once per tensor, before this returns. `metadata` is only read.
LLAMA_API enum rkv_status rkv_model_init(struct gguf_context * metadata, llama_model_set_tensor_data_t set_tensor, void * user_data,
        const struct llama_model_params * params, struct llama_model ** out);

LLAMA_API enum rkv_status rkv_model_info_get(const struct llama_model * model, struct rkv_model_info * out);

// Asks for tensor `name` to be made with this type when `metadata` is given to rkv_model_init.
LLAMA_API enum rkv_status rkv_metadata_tensor_type_set(struct gguf_context * metadata, const char * name, enum ggml_type type);

//
// contexts
//

// The first layer whose K or V rows cannot be stored in the asked type.
struct rkv_kv_mismatch {
    uint32_t layer;
    uint32_t head_dim;   // elements of one head
    uint32_t block_size; // elements of one block of the type
    bool     is_v;
    bool     found;
};

LLAMA_API enum rkv_status rkv_kv_types_check(const struct llama_model * model, enum ggml_type type_k, enum ggml_type type_v,
        struct rkv_kv_mismatch * out);

// Host memory that a context needs at the very least, in bytes: never more than it really takes, so that a refusal is
// always justified. What lies on a device is not counted.
struct rkv_context_need {
    uint64_t cache_bytes;   // K and V rows, recurrent states
    uint64_t cells_bytes;   // bookkeeping of the cells
    uint64_t compute_bytes; // attention mask, logits and hidden states of one ubatch, output rows
};

LLAMA_API enum rkv_status rkv_context_need_get(const struct llama_model * model, const struct llama_context_params * params,
        struct rkv_context_need * out);

// Free with llama_free.
LLAMA_API enum rkv_status rkv_context_new(struct llama_model * model, const struct llama_context_params * params,
        struct llama_context ** out);

// `answer` is llama_decode's or llama_encode's return value.
LLAMA_API enum rkv_status rkv_context_decode(struct llama_context * ctx, const struct llama_batch * batch, int32_t * answer);
LLAMA_API enum rkv_status rkv_context_encode(struct llama_context * ctx, const struct llama_batch * batch, int32_t * answer);

// A pool of `n_threads` CPU threads, so that a step does not start threads. NULL in `out` when the CPU backend has none.
LLAMA_API enum rkv_status rkv_threadpool_new(int32_t n_threads, ggml_threadpool_t * out);
// The pool must not be attached to a living context any more.
LLAMA_API void            rkv_threadpool_free(ggml_threadpool_t pool);

struct rkv_breakdown_row {
    char     buffer_type[64]; // cut when longer
    char     device[64];      // "" for memory without a device
    bool     is_host;
    uint64_t model_bytes;
    uint64_t context_bytes;
    uint64_t compute_bytes;
};

// Writes at most `n_rows` rows; the number that there are is in `n_out`.
LLAMA_API enum rkv_status rkv_memory_breakdown_get(const struct llama_context * ctx, struct rkv_breakdown_row * rows, size_t n_rows,
        size_t * n_out);

//
// sequences
//

enum rkv_memory_kind {
    RKV_MEMORY_NONE      = 0, // the model keeps nothing between calls
    RKV_MEMORY_KV        = 1, // one cache of cells
    RKV_MEMORY_KV_ISWA   = 2, // two caches of cells, one of them for sliding-window layers
    RKV_MEMORY_RECURRENT = 3, // one state per sequence
    RKV_MEMORY_HYBRID    = 4, // cells and states
    RKV_MEMORY_OTHER     = 5, // a layout of one architecture
};

struct rkv_memory_info {
    enum rkv_memory_kind kind;
    uint32_t             local_digest; // of the local layers and of what they keep; 0: there are none
    uint32_t             n_stream;     // separate buffers of cells; sequences of one stream can share cells
    bool                 can_shift;    // positions can be moved, and the next decode will manage
    bool                 can_divide;   // can_shift, and this shim knows every cell
    bool                 partial_copy; // a part of a sequence can be copied inside one stream
    bool                 flash_attn;   // what was decided when `auto` was asked
};

LLAMA_API enum rkv_status rkv_memory_info_get(struct llama_context * ctx, struct rkv_memory_info * out);

LLAMA_API enum rkv_status rkv_memory_clear(struct llama_context * ctx);
// `done` is false when a part of the sequence cannot be removed; then nothing was removed.
LLAMA_API enum rkv_status rkv_memory_seq_rm  (struct llama_context * ctx, llama_seq_id seq, llama_pos p0, llama_pos p1, bool * done);
LLAMA_API enum rkv_status rkv_memory_seq_cp  (struct llama_context * ctx, llama_seq_id src, llama_seq_id dst, llama_pos p0, llama_pos p1);
LLAMA_API enum rkv_status rkv_memory_seq_keep(struct llama_context * ctx, llama_seq_id seq);
LLAMA_API enum rkv_status rkv_memory_seq_add (struct llama_context * ctx, llama_seq_id seq, llama_pos p0, llama_pos p1, llama_pos delta);

// Divides the positions in [p0, p1) of one sequence by `divisor` >= 1. llama_memory_seq_div records the shift with the
// wrong sign, so that the next decode rotates K away from its new position; this goes through the cells itself.
LLAMA_API enum rkv_status rkv_memory_seq_div (struct llama_context * ctx, llama_seq_id seq, llama_pos p0, llama_pos p1, int32_t divisor);

// Runs the copies and shifts that are still queued, so that the cells hold what their positions say.
LLAMA_API enum rkv_status rkv_memory_update(struct llama_context * ctx);

//
// state
//

// Take or give exactly `size` bytes; false stops the transfer.
typedef bool (*rkv_state_sink_t)  (void * user_data, const void * data, size_t size);
typedef bool (*rkv_state_source_t)(void * user_data, void * data, size_t size);

// `seq` is a sequence, or -1 for everything. Queued copies and shifts are run first.
LLAMA_API enum rkv_status rkv_state_write(struct llama_context * ctx, llama_seq_id seq, rkv_state_sink_t sink, void * user_data,
        uint64_t * n_bytes);

// What the context held for `seq` is gone when this fails.
LLAMA_API enum rkv_status rkv_state_read(struct llama_context * ctx, llama_seq_id seq, rkv_state_source_t source, void * user_data,
        uint64_t * n_bytes);

//
// text
//

// `n_out` is the number of tokens; RKV_ERR_TOO_SMALL when that is above `n_tokens`.
LLAMA_API enum rkv_status rkv_vocab_tokenize(const struct llama_vocab * vocab, const char * text, size_t size, bool add_special,
        bool parse_special, llama_token * tokens, size_t n_tokens, size_t * n_out);

// Bytes, which need not be whole UTF-8 characters. Same rule for `n_out`.
LLAMA_API enum rkv_status rkv_vocab_detokenize(const struct llama_vocab * vocab, const llama_token * tokens, size_t n_tokens,
        bool remove_special, bool unparse_special, char * text, size_t size, size_t * n_out);
LLAMA_API enum rkv_status rkv_vocab_piece(const struct llama_vocab * vocab, llama_token token, bool special, char * text, size_t size,
        size_t * n_out);

// `n_out` bytes without a terminating zero. RKV_ERR_UNSUPPORTED: not one of the templates that llama.cpp knows.
LLAMA_API enum rkv_status rkv_chat_format(const char * chat_template, const struct llama_chat_message * messages, size_t n_messages,
        bool open_answer, char * text, size_t size, size_t * n_out);

//
// samplers
//

// Free with llama_sampler_free unless it was added to a chain. The vocabulary must outlive it.
LLAMA_API enum rkv_status rkv_sampler_grammar_new(const struct llama_vocab * vocab, const char * grammar, const char * root,
        struct llama_sampler ** out);

LLAMA_API enum rkv_status rkv_sampler_apply (struct llama_sampler * sampler, llama_token_data_array * candidates);
LLAMA_API enum rkv_status rkv_sampler_accept(struct llama_sampler * sampler, llama_token token);
LLAMA_API enum rkv_status rkv_sampler_reset (struct llama_sampler * sampler);
LLAMA_API enum rkv_status rkv_sampler_clone (const struct llama_sampler * sampler, struct llama_sampler ** out);
// Whether this one sampler leaves the token a chance.
LLAMA_API enum rkv_status rkv_sampler_allows(struct llama_sampler * sampler, llama_token token, bool * out);

#ifdef __cplusplus
}
#endif
