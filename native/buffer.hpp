// Zeroed storage that starts at a chosen cache line of a page.
//
// A load that follows a store at the same offset in another page waits for it, because the processor compares the low
// twelve bits of the address first. Buffers that a kernel reads and writes in turn therefore start at different lines.
// This saves a fifth of the time of a c-transform on a small grid.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "simd.hpp"

namespace gibbsot {

template <class T>
class Buffer {
public:
    explicit Buffer(std::size_t n, std::size_t line = 0)
        : size_(n), line_(line), storage_(n + kSlack), data_(start()) {}
    Buffer(const Buffer& other) : Buffer(other.size_, other.line_) {
        std::copy(other.data_, other.data_ + size_, data_);
    }
    Buffer& operator=(const Buffer&) = delete;
    Buffer(Buffer&&) noexcept = default;
    Buffer& operator=(Buffer&&) noexcept = default;

    std::size_t size() const { return size_; }
    T* get() { return data_; }
    const T* get() const { return data_; }
    T& operator[](std::size_t i) { return data_[i]; }

private:
    static constexpr std::size_t kPage = 4096;
#if defined(GIBBSOT_SANITIZE)
    // exactly n entries, so that the address sanitizer sees an access beyond them
    static constexpr std::size_t kSlack = 0;

    T* start() { return storage_.data(); }
#else
    static constexpr std::size_t kSlack = 2 * kPage / sizeof(T);

    T* start() {
        const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
        return storage_.data() + ((kPage - address % kPage) + line_ % (kPage / kLine) * kLine) / sizeof(T);
    }
#endif

    std::size_t size_, line_;
    std::vector<T> storage_;
    T* data_;
};

}  // namespace gibbsot
