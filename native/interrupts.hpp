// What ends a long computation without the GIL: Ctrl-C, a flag, or the time.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

#include "arrays.hpp"

namespace gibbsot {

// A flag that ends the computations of the threads that watch it.
class StopFlag {
public:
    void set() { *flag_ = true; }
    bool is_set() const { return *flag_; }
    void watch() { watched = flag_; }

    static inline thread_local std::shared_ptr<const std::atomic<bool>> watched;

private:
    std::shared_ptr<std::atomic<bool>> flag_ = std::make_shared<std::atomic<bool>>(false);
};

// Lets the main thread see Ctrl-C during a long computation without the GIL, and the others stop with it. Made in the
// thread that was called from Python.
class Interrupt {
public:
    void operator()() {
        if (stopped_ || (watched_ && *watched_)) throw std::runtime_error("interrupted");
        if (std::this_thread::get_id() != thread_) return;
        nb::gil_scoped_acquire acquire;
        if (PyErr_CheckSignals() == 0) return;
        stopped_ = true;
        throw nb::python_error();
    }

private:
    std::thread::id thread_ = std::this_thread::get_id();
    std::shared_ptr<const std::atomic<bool>> watched_ = StopFlag::watched;
    std::atomic<bool> stopped_{false};
};

// Asks whether a computation without the GIL is to end: because of a flag or of the time. Ctrl-C throws.
class Deadline {
public:
    Deadline(double seconds, const StopFlag& stop) : seconds_(seconds), stop_(stop) {}
    bool operator()() {
        interrupt_();
        const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin_;
        return stop_.is_set() || elapsed.count() > seconds_;
    }

private:
    Interrupt interrupt_;
    double seconds_;
    const StopFlag& stop_;
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

inline void check_length(std::size_t got, std::size_t expected) {
    if (got != expected) fail("expected an array of length ", expected, ", got ", got);
}

}  // namespace gibbsot
