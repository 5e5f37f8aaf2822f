// c-transforms, that is (min, +) products, with a dense cost matrix that a whole batch shares.
//
// The matrix is stored by columns: column j is the row Mt + j * stride of costs M_ij, padded with +inf. A problem reads
// only the columns of its own support, in place.
#pragma once

#include <algorithm>

#include "simd.hpp"

namespace gibbsot {

template <class T>
struct DenseMatrix {
    const T* data;
    std::size_t stride;  // also the padded number of rows
    const T* column(std::size_t j) const { return data + j * stride; }
};

// Columns are processed N at a time, so that g and U are read once per block: N is 8, or 4 where 8 columns would not
// stay in the first-level cache from one half of the sweep to the other.
inline constexpr std::size_t kNearBytes = 32 * 1024;

// least[c] = min_i (M_ij + x_i) for the columns j = columns[c], c < N
template <std::size_t N, class T>
inline void least_of_columns(const DenseMatrix<T>& M, const std::uint32_t* columns, const T* x, T* least) {
    constexpr std::size_t chains = 8 / N;  // eight independent minima hide their latency
    constexpr std::size_t step = chains * kLanes<T>;
    const T* col[N];
    Vec<T> acc[N][chains];
    for (std::size_t c = 0; c < N; ++c) {
        col[c] = M.column(columns[c]);
        for (auto& chain : acc[c]) chain = splat(kInf<T>);
    }
    std::size_t i = 0;
    for (; i + step <= M.stride; i += step)
        for (std::size_t k = 0; k < chains; ++k) {
            const Vec<T> xi = load(x + i + k * kLanes<T>);
            for (std::size_t c = 0; c < N; ++c) acc[c][k] = minimum(acc[c][k], load(col[c] + i + k * kLanes<T>) + xi);
        }
    for (; i < M.stride; i += kLanes<T>)
        for (std::size_t c = 0; c < N; ++c) acc[c][0] = minimum(acc[c][0], load(col[c] + i) + load(x + i));
    for (std::size_t c = 0; c < N; ++c) {
        for (std::size_t k = 1; k < chains; ++k) acc[c][0] = minimum(acc[c][0], acc[c][k]);
        least[c] = lowest<T>(acc[c][0]);
    }
}

// out_i = min(out_i, M_ij + y_c) over the columns j = columns[c], c < N
template <std::size_t N, class T>
inline void lower_by_columns(const DenseMatrix<T>& M, const std::uint32_t* columns, const T* y, T* out) {
    const T* col[N];
    Vec<T> yc[N];
    for (std::size_t c = 0; c < N; ++c) {
        col[c] = M.column(columns[c]);
        yc[c] = splat(y[c]);
    }
    for (std::size_t i = 0; i < M.stride; i += kLanes<T>) {
        Vec<T> least = load(out + i);
        for (std::size_t c = 0; c < N; ++c) least = minimum(least, load(col[c] + i) + yc[c]);
        store(out + i, least);
    }
}

// Calls work.template operator()<N>(first) for all n columns in blocks of N.
template <class T, class Work>
inline void for_column_blocks(const DenseMatrix<T>& M, std::size_t n, Work work) {
    std::size_t k = 0;
    if (8 * M.stride * sizeof(T) <= kNearBytes)
        for (; k + 8 <= n; k += 8) work.template operator()<8>(k);
    for (; k + 4 <= n; k += 4) work.template operator()<4>(k);
    for (; k < n; ++k) work.template operator()<1>(k);
}

template <class T>
inline void dense_columns(const DenseMatrix<T>& M, const std::uint32_t* columns, std::size_t n, const T* x, T* least) {
    for_column_blocks(M, n, [&]<std::size_t N>(std::size_t k) { least_of_columns<N>(M, columns + k, x, least + k); });
}

template <class T>
inline void dense_rows(const DenseMatrix<T>& M, const std::uint32_t* columns, std::size_t n, const T* y, T* out) {
    std::fill(out, out + M.stride, kInf<T>);
    for_column_blocks(M, n, [&]<std::size_t N>(std::size_t k) { lower_by_columns<N>(M, columns + k, y + k, out); });
}

// Both transforms in one pass: each block of columns computes its least[], between(k, N) computes y from it, and out is
// lowered by y while the columns are still in the cache.
template <class T, class Between>
inline void dense_both(const DenseMatrix<T>& M, const std::uint32_t* columns, std::size_t n, const T* x, T* least,
                       const T* y, T* out, Between between) {
    std::fill(out, out + M.stride, kInf<T>);
    for_column_blocks(M, n, [&]<std::size_t N>(std::size_t k) {
        least_of_columns<N>(M, columns + k, x, least + k);
        between(k, N);
        lower_by_columns<N>(M, columns + k, y + k, out);
    });
}

}  // namespace gibbsot
