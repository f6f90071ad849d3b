#pragma once

// The link between host and device: one transfer at a time in each direction, of a set bandwidth and latency.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace rkv_sim {

struct link_totals {
    std::atomic<uint64_t> bytes{ 0 };
    std::atomic<uint64_t> transfers{ 0 };
    std::atomic<uint64_t> busy_ns{ 0 };
};

// One direction: a copy engine with a thread of its own. It carries out one transfer at a time, in the order in which they are
// given; urgent ones go before the others that wait, as a small copy of another stream does on a card. Ends are reckoned in set
// times: a thread that wakes late delays nothing.
class link {
public:
    // `at_once`: transfers take no time of day.
    link(double bytes_s, double latency_s, bool at_once);
    ~link();

    // `move`, which copies the bytes, and `done`, when the transfer would have ended, are called on the engine's thread.
    void submit(size_t bytes, bool urgent, std::function<void()> move, std::function<void()> done);

    // Counts a transfer that someone else carries out.
    void count(size_t bytes);

    // Submits a transfer and waits.
    void transfer(size_t bytes, const std::function<void()> & move, bool urgent = false);

    const link_totals & totals() const { return sums; }

private:
    using clock = std::chrono::steady_clock;

    struct job {
        clock::time_point     given;
        size_t                bytes;
        std::function<void()> move;
        std::function<void()> done;
    };

    double                  bytes_s;
    double                  latency_s;
    bool                    at_once;
    std::mutex              mutex;
    std::condition_variable changed;
    std::deque<job>         urgent_jobs;
    std::deque<job>         jobs;
    clock::time_point       free_at{};
    bool                    ends = false;
    link_totals             sums;
    std::thread             thread;

    void run();
    void carry_out(const job & j);
};

} // namespace rkv_sim
