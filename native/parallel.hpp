// Threads over problems, never inside one: each problem's numbers depend on that problem alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <future>
#include <vector>

namespace gibbsot {

// Calls make() once in each thread, and what it returns with each of 0 .. n - 1 once.
template <class Make>
void parallel_for(std::size_t n, std::size_t threads, Make make) {
    std::atomic<std::size_t> next{0};
    const auto body = [&] {
        auto work = make();
        for (std::size_t i = next++; i < n; i = next++) work(i);
    };
    std::vector<std::future<void>> others;  // a future waits for its thread, and hands on what the thread threw
    for (std::size_t t = 1; t < threads && t < n; ++t) others.push_back(std::async(std::launch::async, body));
    body();
    for (auto& other : others) other.get();
}

}  // namespace gibbsot
