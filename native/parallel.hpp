// Threads over independent parts: problems of a batch, searches in a tree. Parts do not depend on the number of threads,
// and so no result does.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <future>
#include <vector>

namespace gibbsot {

// Calls make() once in each thread, and the function that it returns once for each of 0 .. n - 1. While the calling thread
// waits for others it calls poll() every 50 ms; what poll() throws must end the others, too.
template <class Make, class Poll>
void parallel_for(std::size_t n, std::size_t threads, Make make, Poll poll) {
    std::atomic<std::size_t> next{0};
    const auto body = [&] {
        auto work = make();
        for (std::size_t i = next++; i < n; i = next++) work(i);
    };
    std::vector<std::future<void>> others;  // get() rethrows an exception of the thread
    for (std::size_t t = 1; t < threads && t < n; ++t) others.push_back(std::async(std::launch::async, body));
    body();
    for (auto& other : others)
        while (other.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) poll();
    for (auto& other : others) other.get();
}
template <class Make>
void parallel_for(std::size_t n, std::size_t threads, Make make) {
    parallel_for(n, threads, make, [] {});
}

}  // namespace gibbsot
