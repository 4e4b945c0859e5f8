// The threads that all kernels share: a small pool of our own, started on first use.
//
// Work is handed out by an atomic counter. Waiting threads spin for some microseconds and then sleep, so that the phases of
// one search follow each other quickly and idle threads leave the cores to others. A caller that finds the pool busy does
// its work alone. A forked process has a pool of its own.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "simd.hpp"

namespace beamtree {

class ThreadPool {
   public:
    // Never destroyed: its threads may outlive static destruction. A forked child inherits a pool without threads whose
    // locks may be held and waited for by threads that it does not have; it leaves that one alone and starts another.
    static ThreadPool& shared() {
        static std::atomic<ThreadPool*> pool{new ThreadPool(0)};
        ThreadPool* current = pool.load(std::memory_order_acquire);
        if (current->owner_ == getpid()) return *current;
        auto fresh = std::make_unique<ThreadPool>(current->size_);
        if (pool.compare_exchange_strong(current, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
        return *current;
    }

    explicit ThreadPool(int size) : size_(size) {}

    // The number set by resize, else BEAMTREE_THREADS, else the cores this process may use.
    int size() {
        std::lock_guard<std::mutex> lock(settings_);
        if (size_ == 0) size_ = default_size();
        return size_;
    }

    void resize(int threads) {
        std::lock_guard<std::mutex> busy(running_);
        std::lock_guard<std::mutex> lock(settings_);
        stop_workers();
        size_ = threads < 1 ? 1 : threads;
    }

    // Calls body(task, worker) for every task in 0 .. tasks - 1; worker is below size(). The first exception is rethrown.
    template <class Body>
    void run(index_t tasks, Body&& body) {
        const int threads = size();
        std::unique_lock<std::mutex> busy(running_, std::try_to_lock);
        if (threads == 1 || tasks <= 1 || !busy.owns_lock()) {
            for (index_t task = 0; task < tasks; ++task) body(task, 0);
            return;
        }
        start_workers(threads - 1);
        const std::function<void(index_t, int)> job = [&](index_t task, int worker) { body(task, worker); };
        error_ = nullptr;
        job_ = &job;
        done_.store(0, std::memory_order_relaxed);
        publish(tasks);
        work(0);
        while (done_.load(std::memory_order_acquire) != tasks) pause();
        if (error_) std::rethrow_exception(error_);
    }

   private:
    static int default_size() {
        if (const char* text = std::getenv("BEAMTREE_THREADS")) {
            char* end = nullptr;
            long wanted = std::strtol(text, &end, 10);
            if (end != text && *end == '\0' && wanted >= 1 && wanted <= 1024) return static_cast<int>(wanted);
            throw std::invalid_argument(std::string("BEAMTREE_THREADS: expected a whole number from 1 to 1024, got '") +
                                        text + "'");
        }
#if defined(__linux__)
        cpu_set_t cores;
        CPU_ZERO(&cores);
        if (sched_getaffinity(0, sizeof(cores), &cores) == 0 && CPU_COUNT(&cores) > 0) return CPU_COUNT(&cores);
        return 1;
#else
        const unsigned cores = std::thread::hardware_concurrency();
        return cores > 0 ? static_cast<int>(cores) : 1;
#endif
    }

    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }

    // The state that all threads share: how often work was published, how many tasks it has, and the next to hand out.
    // A thread that comes late takes a task of whatever is published by then, or none.
    static constexpr int field = 24;
    static constexpr std::uint64_t field_mask = (1ull << field) - 1;
    static std::uint64_t generation(std::uint64_t state) { return state >> (2 * field); }

    void publish(index_t tasks) {
        {
            std::lock_guard<std::mutex> lock(sleep_);
            std::uint64_t next = generation(state_.load(std::memory_order_relaxed)) + 1;
            state_.store(next << (2 * field) | static_cast<std::uint64_t>(tasks) << field, std::memory_order_release);
        }
        wake_.notify_all();
    }

    void work(int worker) {
        while (true) {
            const std::uint64_t claim = state_.fetch_add(1, std::memory_order_acq_rel);
            const index_t task = static_cast<index_t>(claim & field_mask);
            if (task >= static_cast<index_t>((claim >> field) & field_mask)) return;
            try {
                (*job_)(task, worker);
            } catch (...) {
                std::lock_guard<std::mutex> lock(failure_);
                if (!error_) error_ = std::current_exception();
            }
            done_.fetch_add(1, std::memory_order_release);
        }
    }

    void serve(int worker, std::uint64_t seen) {
        while (true) {
            constexpr int spins = 4000;
            int spin = 0;
            auto changed = [&] { return generation(state_.load(std::memory_order_acquire)) != seen; };
            while (!changed() && spin++ < spins) pause();
            if (!changed()) {
                std::unique_lock<std::mutex> lock(sleep_);
                wake_.wait(lock, changed);
            }
            seen = generation(state_.load(std::memory_order_acquire));
            if (stopping_.load(std::memory_order_acquire)) return;
            work(worker);
        }
    }

    void start_workers(int count) {
        while (static_cast<int>(workers_.size()) < count) {
            int worker = static_cast<int>(workers_.size()) + 1;
            std::uint64_t seen = generation(state_.load());
            workers_.push_back(std::make_unique<std::thread>([this, worker, seen] { serve(worker, seen); }));
        }
    }

    void stop_workers() {
        stopping_.store(true, std::memory_order_release);
        publish(0);
        for (auto& worker : workers_) worker->join();
        workers_.clear();
        stopping_.store(false, std::memory_order_release);
    }

    std::mutex settings_, running_, sleep_, failure_;
    std::condition_variable wake_;
    std::vector<std::unique_ptr<std::thread>> workers_;
    std::atomic<std::uint64_t> state_{0};
    std::atomic<index_t> done_{0};
    std::atomic<bool> stopping_{false};
    const std::function<void(index_t, int)>* job_ = nullptr;
    std::exception_ptr error_;
    int size_;  // 0: not yet known
    const pid_t owner_ = getpid();
};

}  // namespace beamtree
