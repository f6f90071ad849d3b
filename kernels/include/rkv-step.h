#pragma once

// rolling-kv: what a cache tells a device about the step that is about to run.

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Cells of one stream.
struct rkv_step_stream {
    uint32_t written_begin; // every cell that the step writes lies in [written_begin, written_end)
    uint32_t written_end;
    uint32_t live_end;      // no cell at or above is in use
};

// One cache. Written by the thread that submits a step, before it does; read by a device when the step is submitted.
struct rkv_step {
    uint32_t                       n_stream;
    const struct rkv_step_stream * streams; // [n_stream]
};

// What a device that stages tiles is asked for when a context is made.
enum rkv_schedule {
    RKV_SCHEDULE_AUTO = 0,
    RKV_SCHEDULE_RING = 1, // tiles are copied ahead of their readers, across layers and steps
    RKV_SCHEDULE_OP   = 2, // a layer's tiles are copied once its attention has begun
};

// Who attends to the tail in steps of few queries (decode, drafts). Longer ones always go over the link.
enum rkv_tail_engine {
    RKV_TAIL_ENGINE_AUTO   = 0, // what steps show to be faster
    RKV_TAIL_ENGINE_STREAM = 1, // the device, which brings the tail's tiles to its memory
    RKV_TAIL_ENGINE_HOST   = 2, // the host, where the tail lies
    RKV_TAIL_ENGINE_HYBRID = 3, // both, so that they end together
};

struct rkv_staging_params {
    enum rkv_schedule schedule;
    uint32_t          depth;      // slots; 0: chosen from the free device memory and the link
    uint32_t          copy_cells; // cells of a copy, rounded down to whole tiles; 0: chosen the same way
    enum rkv_tail_engine engine;
    uint32_t          host_threads; // of the host engine; 0: as many as the context computes with
};

struct rkv_host_engine_api;

// The tails of the layers that one device computes.
struct rkv_staging_need {
    uint32_t tile_cells;
    uint64_t k_row_bytes; // of the layer whose rows of K are the longest
    uint64_t v_row_bytes; // of V; 0 where V is a part of K's rows
    uint64_t cells_layer; // cells of the longest tail of one layer and stream
    uint64_t cells_all;   // cells of all tails
    const struct rkv_host_engine_api * host; // the CPU backend's host engine, or NULL
};

// What was chosen, and what staging did since the context was made.
struct rkv_staging_totals {
    double   link_bytes_s;    // bandwidth of the link as it was measured, bytes per second
    double   link_latency_s;  // of one copy, seconds
    uint64_t steps;
    uint64_t depth;           // slots
    uint64_t copy_cells;      // cells of a copy at the most
    uint64_t slot_bytes;
    uint64_t device_bytes;    // of all slots
    uint64_t tiles_early;     // copies of tiles ahead of their layer, but for rows that the step itself wrote
    uint64_t tiles_late;      // those that began once their layer's attention had begun
    uint64_t tiles_kept;      // of the early ones, those made while the step before still ran
    uint64_t tiles_discarded; // those made ahead for nothing
    uint64_t bytes;           // of all copies
    uint64_t bytes_late;      // of those that waited for their layer's attention to begin
    uint64_t stalls;          // times that attention waited for a tile
    uint64_t stall_ns;
    uint64_t idle_ns;         // in which the compute queue had nothing to do
    uint64_t graph_launches;  // parts of steps that were launched as captured graphs, of a device that captures
    uint64_t device_ns;       // of a device whose time is reckoned: how much of it has passed since the context was made
    uint64_t host_steps;      // steps in which the host attended to tiles
    uint64_t host_tiles;      // tiles of all attention nodes that it attended to
    uint64_t host_bytes;      // K and V that it read
    uint64_t host_down;       // bytes of queries and masks that went to it
    uint64_t host_up;         // bytes of partials that came back
    uint64_t host_wait_ns;    // that attention waited for it
    uint64_t host_changes;    // times that another split was chosen
    double   host_bytes_s;    // its rate as it was measured, bytes of K and V per second; 0: it did nothing
    double   host_share;      // of the tail, as it was chosen last
};

// What crossed a device's link since the device was made.
struct rkv_link_totals {
    uint64_t bytes_to_device;
    uint64_t bytes_to_host;
    uint64_t copies_to_device;
    uint64_t copies_to_host;
    uint64_t busy_ns; // that the copies to the device took by the link's bandwidth
};

// Names of functions that the registry of such a device has.
#define RKV_TAIL_BUFT_PROC      "rkv_tail_buffer_type" // ggml_backend_buffer_type_t (ggml_backend_dev_t): host memory that it reads tiles from
#define RKV_TAIL_TYPES_PROC "rkv_tail_types"         // anything: its tails may have other types than their windows
#define RKV_STAGING_SET_PROC    "rkv_staging_set"    // bool (ggml_backend_t, const struct rkv_staging_params *, const struct
                                                     // rkv_staging_need *): takes the slots; false: no memory for them
#define RKV_STAGING_TOTALS_PROC "rkv_staging_totals" // void (ggml_backend_t, struct rkv_staging_totals *)
#define RKV_LINK_TOTALS_PROC    "rkv_link_totals"    // void (ggml_backend_dev_t, struct rkv_link_totals *)
#define RKV_GATHER_PROC         "rkv_gathers"        // a mark: for a long batch it puts all cells of one layer into its compute buffer

#ifdef __cplusplus
}
#endif
