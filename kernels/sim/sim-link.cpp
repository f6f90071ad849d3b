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

void link::submit(size_t bytes, bool urgent, std::function<void()> move, std::function<void()> done) {
    sums.bytes += bytes;
    sums.transfers++;
    {
        std::lock_guard<std::mutex> lock(mutex);
        (urgent ? urgent_jobs : jobs).push_back({ clock::now(), bytes, std::move(move), std::move(done) });
    }
    changed.notify_all();
}

void link::transfer(size_t bytes, const std::function<void()> & move) {
    std::promise<void> ended;
    submit(bytes, false, move, [&] { ended.set_value(); });
    ended.get_future().wait();
}

void link::carry_out(const job & j) {
    const auto busy    = std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(j.bytes/bytes_s));
    const auto latency = std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(latency_s));

    // The latency of a transfer overlaps with the ones before it, as requests are queued.
    free_at = std::max(free_at, j.given + latency) + busy;
    sums.busy_ns += uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(busy).count());
    j.move();
    std::this_thread::sleep_until(free_at);
    j.done();
}

void link::run() {
    // Timers wake up to 50 us late by default, as much as a tile takes.
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);

    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
        changed.wait(lock, [&] { return ends || !urgent_jobs.empty() || !jobs.empty(); });
        auto & from = urgent_jobs.empty() ? jobs : urgent_jobs;
        if (from.empty()) {
            return;
        }
        const job next = std::move(from.front());
        from.pop_front();
        lock.unlock();
        carry_out(next);
        lock.lock();
    }
}

} // namespace rkv_sim
