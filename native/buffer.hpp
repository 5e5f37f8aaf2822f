// Zeroed storage whose first entry starts a cache line.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "simd.hpp"

namespace gibbsot {

template <class T>
class Buffer {
public:
    explicit Buffer(std::size_t n) : size_(n), storage_(n + kLineLanes<T>), data_(aligned()) {}
    Buffer(const Buffer& other) : Buffer(other.size_) { std::copy(other.data_, other.data_ + size_, data_); }
    Buffer& operator=(const Buffer&) = delete;
    Buffer(Buffer&&) noexcept = default;
    Buffer& operator=(Buffer&&) noexcept = default;

    T* get() { return data_; }
    const T* get() const { return data_; }
    T& operator[](std::size_t i) { return data_[i]; }

private:
    T* aligned() {
        void* start = storage_.data();
        std::size_t space = storage_.size() * sizeof(T);
        return static_cast<T*>(std::align(kLine, size_ * sizeof(T), start, space));
    }

    std::size_t size_;
    std::vector<T> storage_;
    T* data_;
};

}  // namespace gibbsot
