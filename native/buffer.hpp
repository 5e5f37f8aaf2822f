// Zeroed storage that starts at a chosen line of a page.
//
// A load that follows a store at the same place of another page waits for it (the processor compares the low twelve
// bits first). Buffers that a kernel reads and writes in turn therefore start at different lines: a fifth of the time
// of a small grid's product hangs on it.
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
        : size_(n), line_(line), storage_(n + 2 * kPage / sizeof(T)), data_(place()) {}
    Buffer(const Buffer& other) : Buffer(other.size_, other.line_) {
        std::copy(other.data_, other.data_ + size_, data_);
    }
    Buffer& operator=(const Buffer&) = delete;
    Buffer(Buffer&&) noexcept = default;
    Buffer& operator=(Buffer&&) noexcept = default;

    T* get() { return data_; }
    const T* get() const { return data_; }
    T& operator[](std::size_t i) { return data_[i]; }

private:
    static constexpr std::size_t kPage = 4096;

    T* place() {
        const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
        return storage_.data() + ((kPage - address % kPage) + line_ % (kPage / kLine) * kLine) / sizeof(T);
    }

    std::size_t size_, line_;
    std::vector<T> storage_;
    T* data_;
};

}  // namespace gibbsot
