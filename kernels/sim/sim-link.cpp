#include "sim-link.h"

#include <algorithm>
#include <future>
#include <sys/prctl.h>

namespace rkv_sim {

link::link(double bytes_s, double latency_s) : bytes_s(bytes_s), latency_s(latency_s), thread([this] { run(); }) {}

link::~link() {
    {
        std::lock_guard<std::mutex> lock(mutex);
        ends = true;
    }
    changed.notify_all();
    thread.join();
}

void link::submit(size_t bytes, const std::function<void()> & move, std::function<void()> done) {
    const auto busy    = std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(bytes/bytes_s));
    const auto latency = std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(latency_s));
    move();

    sums.bytes += bytes;
    sums.transfers++;
    sums.busy_ns += uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(busy).count());
    {
        // The latency of a transfer overlaps with the ones before it, as requests are queued.
        std::lock_guard<std::mutex> lock(mutex);
        free_at = std::max(free_at, clock::now() + latency) + busy;
        in_flight.push_back({ free_at, std::move(done) });
    }
    changed.notify_all();
}

void link::transfer(size_t bytes, const std::function<void()> & move) {
    std::promise<void> ended;
    submit(bytes, move, [&] { ended.set_value(); });
    ended.get_future().wait();
}

void link::run() {
    // Timers wake up to 50 us late by default, as much as a tile takes.
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);

    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
        changed.wait(lock, [&] { return ends || !in_flight.empty(); });
        if (in_flight.empty()) {
            return;
        }
        pending next = std::move(in_flight.front());
        in_flight.pop_front();
        lock.unlock();
        std::this_thread::sleep_until(next.end);
        next.done();
        lock.lock();
    }
}

} // namespace rkv_sim
