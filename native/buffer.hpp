// Zeroed storage whose first entry starts a cache line.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "simd.hpp"

namespace gibbsot {

template <class T>
class Buffer {
public:
    explicit Buffer(std::size_t n) : storage_(n + kLineLanes<T>) {
        void* start = storage_.data();
        std::size_t space = storage_.size() * sizeof(T);
        data_ = static_cast<T*>(std::align(kLine, n * sizeof(T), start, space));
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    Buffer(Buffer&&) noexcept = default;
    Buffer& operator=(Buffer&&) noexcept = default;

    T* get() { return data_; }
    const T* get() const { return data_; }
    T& operator[](std::size_t i) { return data_[i]; }

private:
    std::vector<T> storage_;
    T* data_;
};

}  // namespace gibbsot
