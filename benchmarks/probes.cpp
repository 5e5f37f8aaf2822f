// The limits of this machine: additions with minima in registers, and reading memory. engine.py compiles this file.
#include <chrono>

#include "simd.hpp"

using namespace gibbsot;

namespace {

template <class Work>
inline double seconds(Work work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Makes the compiler treat a value as modified, so that it cannot remove a loop.
template <class V>
inline void forget(V& v) {
#if defined(__x86_64__) && defined(__AVX512F__)
    asm volatile("" : "+v"(v));
#elif defined(__x86_64__)
    asm volatile("" : "+x"(v));
#elif defined(__aarch64__)
    asm volatile("" : "+w"(v));
#else
    volatile V keep = v;
    v = keep;
#endif
}

// Pairs of an addition and a minimum per second, in registers.
template <class T>
double add_min_peak(std::size_t rounds) {
    constexpr std::size_t N = 10;
    Vec<T> acc[N], x = splat(T(1));
    for (std::size_t i = 0; i < N; ++i) acc[i] = splat(static_cast<T>(i));
    const double time = seconds([&] {
        for (std::size_t r = 0; r < rounds; ++r) {
            for (std::size_t i = 0; i < N; ++i) {
                forget(x);
                acc[i] = minimum(acc[i], x + x);
            }
        }
    });
    for (std::size_t i = 0; i < N; ++i) forget(acc[i]);
    return static_cast<double>(rounds * N * kLanes<T>) / time;
}

// Bytes per second of reading n entries once.
template <class T>
double read_bandwidth(const T* data, std::size_t n) {
    constexpr std::size_t N = 4;
    Vec<T> acc[N];
    for (auto& a : acc) a = splat(kInf<T>);
    const double time = seconds([&] {
        for (std::size_t i = 0; i + N * kLanes<T> <= n; i += N * kLanes<T>)
            for (std::size_t k = 0; k < N; ++k) acc[k] = minimum(acc[k], load(data + i + k * kLanes<T>));
    });
    for (auto& a : acc) forget(a);
    return static_cast<double>(n * sizeof(T)) / time;
}

}  // namespace

extern "C" double add_min_peak_float32(std::size_t rounds) { return add_min_peak<float>(rounds); }
extern "C" double read_bandwidth_float32(const float* data, std::size_t n) { return read_bandwidth(data, n); }
