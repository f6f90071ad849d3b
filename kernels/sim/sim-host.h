#pragma once

// The host's side of a device: it attends to tiles where they lie while the device attends to the others. Query and mask go down, partials
// come up, nothing else moves.

#include "sim-clock.h"
#include "sim-device.h"
#include "sim-queue.h"

#include "rkv-host-api.h"

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

namespace rkv_sim {

class host_side;
class carrier;

// A mask that several nodes of a step share. It goes down once.
struct host_mask {
    explicit host_mask(const ggml_tensor * from);

    const ggml_tensor * from; // where the device has it
    std::vector<char>   bytes;
    ggml_tensor         tensor;
};
using host_masks = std::vector<std::shared_ptr<host_mask>>;

// One attention node's tiles for the host, during one step.
struct host_work {
    host_work(host_side & owner, const ggml_tensor * node, std::vector<rkv_host_tile> tiles, host_masks & masks);
    ~host_work();

    host_side &                owner;
    std::vector<rkv_host_tile> tiles;
    std::vector<uint64_t>      bytes;      // [tiles] K and V in use
    ggml_tensor                node;       // as the host sees it
    const ggml_tensor *        from_query; // where the device has it
    std::vector<char>          query_bytes;
    ggml_tensor                query;
    std::shared_ptr<host_mask> mask;       // NULL: none
    bool                       brings_mask = false;
    rkv_host_job *             job = nullptr;
    timeline                   up;         // tiles whose partials are on the device
    std::vector<reckoned>      there;      // [tiles] when, where time is reckoned
    std::unique_ptr<std::atomic<bool>[]> taken; // [tiles] a thread of the node asked for it

    uint64_t down_bytes() const { return query_bytes.size() + (brings_mask ? mask->bytes.size() : 0); }
    uint64_t up_bytes() const;  // of one tile
    uint64_t all_bytes() const; // that the host reads
};

struct host_totals {
    std::atomic<uint64_t> tiles{ 0 }, bytes{ 0 }, down{ 0 }, up{ 0 }, wait_ns{ 0 }, busy_ns{ 0 };
};

class host_side {
public:
    host_side(device & d, device_clock & clock, uint64_t seed);
    ~host_side();

    // `functions`: the CPU backend's; NULL: it has none.
    void use(const rkv_host_engine_api * functions) { api = functions; }

    // The node's tiles for a step that was not begun yet; `masks` of the step so far. Throws std::bad_alloc.
    std::unique_ptr<host_work> plan(const ggml_tensor * node, std::vector<rkv_host_tile> tiles, host_masks & masks, int n_threads);

    // The node begins.
    void begin(host_work & w);

    // Waits until a tile's partials are on the device. `link`: that tiles come over as well, or NULL.
    void wait(host_work & w, size_t tile, carrier * link, rkv_tile_partials & partials);

    const host_totals & totals() const { return sums; }

private:
    friend struct host_work;

    device &                     d;
    device_clock &               clock;
    const rkv_host_engine_api *  api = nullptr;
    rkv_host_engine *            engine = nullptr;
    reckoned                     free_at{ 0 }; // of the host's threads, where time is reckoned
    host_totals                  sums;
    queue                        lane;

    void begin_in_time(host_work & w);
    void begin_by_clock(host_work & w);

    // Reckons the time at which the device has a tile's partials; returns the nanoseconds that it waited.
    uint64_t pass(const host_work & w, size_t tile, carrier * link);
};

} // namespace rkv_sim
