#include "sim-queue.h"

#include "sim-thread.h"

#include <chrono>

namespace rkv_sim {

using clock = std::chrono::steady_clock;

static uint64_t ns_since(clock::time_point from) {
    return uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(clock::now() - from).count());
}

void timeline::signal(uint64_t to) {
    std::lock_guard<std::mutex> lock(mutex);
    if (to > value.load(std::memory_order_relaxed)) {
        value.store(to, std::memory_order_release);
        changed.notify_all();
    }
}

void timeline::join(uint64_t to) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return now() >= to; });
}

uint64_t timeline::wait(uint64_t to) {
    if (now() >= to) {
        return 0;
    }
    const auto from = clock::now();
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return now() >= to; });
    return ns_since(from);
}

void delays::pause() {
    if (longest_s > 0) {
        std::this_thread::sleep_for(std::chrono::duration<double>(std::uniform_real_distribution<double>(0, longest_s)(random)));
    }
}

queue::queue(const char * name, bool prompt, uint64_t seed, double delay_s)
    : delay(seed, delay_s), thread([this, name, prompt] { run(name, prompt); }) {}

queue::~queue() {
    {
        std::lock_guard<std::mutex> lock(mutex);
        ends = true;
    }
    changed.notify_all();
    thread.join();
}

void queue::push(std::function<void()> fn) {
    {
        std::lock_guard<std::mutex> lock(mutex);
        work.push_back(std::move(fn));
        ++pushed;
    }
    changed.notify_all();
}

void queue::drain() {
    std::unique_lock<std::mutex> lock(mutex);
    const uint64_t target = pushed;
    changed.wait(lock, [&] { return done >= target; });
}

void queue::run(const char * name, bool prompt) {
    name_thread(name);
    if (prompt) {
        act_promptly();
    }
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
        const auto from = clock::now();
        changed.wait(lock, [&] { return ends || !work.empty(); });
        idle += ns_since(from);
        if (work.empty()) {
            return;
        }
        std::function<void()> fn = std::move(work.front());
        work.pop_front();
        lock.unlock();

        delay.pause();
        fn();
        fn = nullptr;

        lock.lock();
        ++done;
        changed.notify_all();
    }
}

} // namespace rkv_sim
