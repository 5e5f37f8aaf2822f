// c-transforms, that is (min, +) products, with a cost whose columns can be read: a matrix that a whole batch shares, or
// distances of points that are computed when they are read.
//
// A column has `stride` costs, those beyond the number of rows +inf. A problem reads only the columns of its own support.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "buffer.hpp"
#include "simd.hpp"

namespace gibbsot {

// Stored by columns: column j is the row data + j * stride.
template <class T>
struct DenseMatrix {
    using value_type = T;

    const T* data;
    std::size_t stride;  // also the padded number of rows
    const T* column(std::size_t j) const { return data + j * stride; }
    template <std::size_t N>
    std::array<const T*, N> columns(const std::uint32_t* indices) const {
        std::array<const T*, N> found;
        for (std::size_t c = 0; c < N; ++c) found[c] = column(indices[c]);
        return found;
    }
};

// Squared or plain Euclidean distances, computed in double precision and rounded to T. Columns that were read are valid
// until the next are: a thread needs its own object.
template <class T>
class PointMatrix {
public:
    using value_type = T;

    // X has `rows` points, each with its coordinates one after another, as Y, which must outlive the object.
    PointMatrix(const double* X, std::size_t rows, const double* Y, std::size_t dimensions, bool squared)
        : stride(padded<T>(rows)), Y_(Y), dimensions_(dimensions), squared_(squared), X_(dimensions * stride),
          read_(kMost * stride) {
        std::fill(X_.get(), X_.get() + dimensions * stride, kInf<double>);
        for (std::size_t i = 0; i < rows; ++i)
            for (std::size_t a = 0; a < dimensions; ++a) X_[a * stride + i] = X[i * dimensions + a];
    }

    std::size_t stride;
    template <std::size_t N>
    std::array<const T*, N> columns(const std::uint32_t* indices) const {
        static_assert(N <= kMost);
        std::array<const T*, N> found;
        std::array<const double*, N> y;
        for (std::size_t c = 0; c < N; ++c) {
            found[c] = read_.get() + c * stride;
            y[c] = Y_ + indices[c] * dimensions_;
        }
        for (std::size_t i = 0; i < stride; i += kLanes<double>) {
            Vec<double> sum[N] = {};
            for (std::size_t a = 0; a < dimensions_; ++a) {
                const Vec<double> x = load(X_.get() + a * stride + i);
                for (std::size_t c = 0; c < N; ++c) {
                    const Vec<double> difference = x - splat(y[c][a]);
                    sum[c] = sum[c] + difference * difference;
                }
            }
            for (std::size_t c = 0; c < N; ++c) write(squared_ ? sum[c] : root(sum[c]), read_.get() + c * stride + i);
        }
        return found;
    }

private:
    static constexpr std::size_t kMost = 8;  // columns at a time

    static Vec<double> root(Vec<double> v) {
        double lanes[kLanes<double>];
        store(lanes, v);
        for (double& lane : lanes) lane = std::sqrt(lane);
        return load(lanes);
    }
    static void write(Vec<double> v, T* out) {
        store(out, convert<typename VecOf<T, kLanes<double> * sizeof(T)>::type>(v));
    }

    const double* Y_;
    std::size_t dimensions_;
    bool squared_;
    Buffer<double> X_;  // axis by axis
    mutable Buffer<T> read_;
};

// Columns are processed N at a time, so that g and U are read once per block: N is 8, or 4 where 8 columns would not
// stay in the first-level cache from one half of the sweep to the other.
inline constexpr std::size_t kNearBytes = 32 * 1024;

// least[c] = min_i (M_ij + x_i) for the columns j with the costs col[c], c < N
template <std::size_t N, class T>
inline void least_of_columns(const std::array<const T*, N>& col, std::size_t stride, const T* x, T* least) {
    constexpr std::size_t chains = 8 / N;  // eight independent minima hide their latency
    constexpr std::size_t step = chains * kLanes<T>;
    Vec<T> acc[N][chains];
    for (auto& chains_of_column : acc)
        for (auto& chain : chains_of_column) chain = splat(kInf<T>);
    std::size_t i = 0;
    for (; i + step <= stride; i += step)
        for (std::size_t k = 0; k < chains; ++k) {
            const Vec<T> xi = load(x + i + k * kLanes<T>);
            for (std::size_t c = 0; c < N; ++c) acc[c][k] = minimum(acc[c][k], load(col[c] + i + k * kLanes<T>) + xi);
        }
    for (; i < stride; i += kLanes<T>)
        for (std::size_t c = 0; c < N; ++c) acc[c][0] = minimum(acc[c][0], load(col[c] + i) + load(x + i));
    for (std::size_t c = 0; c < N; ++c) {
        for (std::size_t k = 1; k < chains; ++k) acc[c][0] = minimum(acc[c][0], acc[c][k]);
        least[c] = lowest<T>(acc[c][0]);
    }
}

// out_i = min(out_i, M_ij + y_c) over the columns j with the costs col[c], c < N
template <std::size_t N, class T>
inline void lower_by_columns(const std::array<const T*, N>& col, std::size_t stride, const T* y, T* out) {
    Vec<T> yc[N];
    for (std::size_t c = 0; c < N; ++c) yc[c] = splat(y[c]);
    for (std::size_t i = 0; i < stride; i += kLanes<T>) {
        Vec<T> least = load(out + i);
        for (std::size_t c = 0; c < N; ++c) least = minimum(least, load(col[c] + i) + yc[c]);
        store(out + i, least);
    }
}

// Calls work(k, col) for n columns in blocks of N, where col has the N columns from columns[k] on.
template <class Source, class Work>
inline void for_column_blocks(const Source& M, const std::uint32_t* columns, std::size_t n, Work work) {
    std::size_t k = 0;
    if (8 * M.stride * sizeof(typename Source::value_type) <= kNearBytes)
        for (; k + 8 <= n; k += 8) work(k, M.template columns<8>(columns + k));
    for (; k + 4 <= n; k += 4) work(k, M.template columns<4>(columns + k));
    for (; k < n; ++k) work(k, M.template columns<1>(columns + k));
}

template <class Source, class T>
inline void dense_columns(const Source& M, const std::uint32_t* columns, std::size_t n, const T* x, T* least) {
    for_column_blocks(M, columns, n,
                      [&](std::size_t k, const auto& col) { least_of_columns(col, M.stride, x, least + k); });
}

template <class Source, class T>
inline void dense_rows(const Source& M, const std::uint32_t* columns, std::size_t n, const T* y, T* out) {
    std::fill(out, out + M.stride, kInf<T>);
    for_column_blocks(M, columns, n,
                      [&](std::size_t k, const auto& col) { lower_by_columns(col, M.stride, y + k, out); });
}

// Both transforms in one pass: each block of columns computes its least[], between(k, N) computes y from it, and out is
// lowered by y while the columns are still in the cache.
template <class Source, class T, class Between>
inline void dense_both(const Source& M, const std::uint32_t* columns, std::size_t n, const T* x, T* least, const T* y,
                       T* out, Between between) {
    std::fill(out, out + M.stride, kInf<T>);
    for_column_blocks(M, columns, n, [&](std::size_t k, const auto& col) {
        least_of_columns(col, M.stride, x, least + k);
        between(k, col.size());
        lower_by_columns(col, M.stride, y + k, out);
    });
}

}  // namespace gibbsot
