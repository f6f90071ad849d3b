#include "sim-link.h"

#include "sim-thread.h"

#include <algorithm>
#include <future>

namespace rkv_sim {

link::link(double bytes_s, double latency_s, bool at_once)
    : bytes_s(bytes_s), latency_s(latency_s), at_once(at_once), thread([this] { run(); }) {}

link::~link() {
    {
        std::lock_guard<std::mutex> lock(mutex);
        ends = true;
    }
    changed.notify_all();
    thread.join();
}

void link::submit(size_t bytes, bool urgent, std::function<void()> move, std::function<void()> done) {
    count(bytes);
    {
        std::lock_guard<std::mutex> lock(mutex);
        (urgent ? urgent_jobs : jobs).push_back({ clock::now(), bytes, std::move(move), std::move(done) });
    }
    changed.notify_all();
}

void link::count(size_t bytes) {
    sums.bytes += bytes;
    sums.transfers++;
    sums.busy_ns += uint64_t(double(bytes)/bytes_s*1e9);
}

void link::transfer(size_t bytes, const std::function<void()> & move, bool urgent) {
    if (at_once) {
        count(bytes);
        move();
        return;
    }
    std::promise<void> ended;
    submit(bytes, urgent, move, [&] { ended.set_value(); });
    ended.get_future().wait();
}

void link::carry_out(const job & j) {
    const auto busy    = std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(j.bytes/bytes_s));
    const auto latency = std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(latency_s));

    // The latency of a transfer overlaps with the ones before it, as requests are queued.
    free_at = std::max(free_at, j.given + latency) + busy;
    j.move();
    std::this_thread::sleep_until(free_at);
    j.done();
}

void link::run() {
    name_thread("rkv-sim-link");
    act_promptly();

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
