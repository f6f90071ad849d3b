#pragma once

// The threads of a node walk its tiles in step where time is reckoned: none comes to a tile before every one has left those before it.
// Else what the device waits for, and what it does with a tile, would be reckoned in whatever order this machine runs its threads,
// and one run of a program would take another time than the next.

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace rkv_sim {

class turns {
public:
    // A thread comes to a tile. Every thread comes to the same tiles in the same order.
    void enter(int tile) {
        std::unique_lock<std::mutex> lock(mutex);
        const size_t before = rank(tile);
        for (int i = 0; i < YIELDS && n_left < before*n_thread; ++i) {
            lock.unlock();
            std::this_thread::yield();
            lock.lock();
        }
        changed.wait(lock, [&] { return n_left >= before*n_thread; });
    }

    // One of `n` threads has left it, or passed by.
    void leave(int tile, int n) {
        std::lock_guard<std::mutex> lock(mutex);
        rank(tile);
        n_thread = size_t(n);
        if (++n_left % n_thread == 0) {
            changed.notify_all();
        }
    }

private:
    // Times that a thread looks again before it sleeps: the others are mostly about to leave, and to be woken takes longer.
    static constexpr int YIELDS = 200;

    std::mutex              mutex;
    std::condition_variable changed;
    std::vector<int>        tiles;        // that were come to
    size_t                  n_thread = 0; // unknown before the first is left
    size_t                  n_left   = 0; // times that a thread left one

    // How many tiles came before. A thread is at one of the last.
    size_t rank(int tile) {
        const auto it = std::find(tiles.rbegin(), tiles.rend(), tile);
        if (it == tiles.rend()) {
            tiles.push_back(tile);
            return tiles.size() - 1;
        }
        return size_t(tiles.rend() - it) - 1;
    }
};

} // namespace rkv_sim
