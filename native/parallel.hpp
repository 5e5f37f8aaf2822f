// Threads over the problems of a batch, never inside one: a problem's result does not depend on the number of threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <future>
#include <vector>

namespace gibbsot {

// Calls make() once in each thread, and the function that it returns once for each of 0 .. n - 1.
template <class Make>
void parallel_for(std::size_t n, std::size_t threads, Make make) {
    std::atomic<std::size_t> next{0};
    const auto body = [&] {
        auto work = make();
        for (std::size_t i = next++; i < n; i = next++) work(i);
    };
    std::vector<std::future<void>> others;  // get() rethrows an exception of the thread
    for (std::size_t t = 1; t < threads && t < n; ++t) others.push_back(std::async(std::launch::async, body));
    body();
    for (auto& other : others) other.get();
}

}  // namespace gibbsot
