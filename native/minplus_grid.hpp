// (min, +) products with a cost that is a sum over the axes of a grid: one small matrix product an axis.
//
//     min_j (M_ij + x_j) = min_a' (A_aa' + min_b' (B_bb' + x_a'b'))          (two axes)
//
// Each axis is a (min, +) matrix product in the manner of a BLAS: a register tile of rows x vectors, the sum over k inside.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "simd.hpp"

namespace gibbsot {

#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr std::size_t kTileRows = 8;  // 16 accumulators of 32 registers
#else
inline constexpr std::size_t kTileRows = 4;  // 8 of 16
#endif

// C[r, :] = min_k (A[r, k] + B[k, :]) for R rows and V vectors
template <std::size_t R, std::size_t V, class T>
inline void minplus_tile(std::size_t depth, const T* A, std::size_t lda, const T* B, std::size_t ldb, T* C,
                         std::size_t ldc) {
    constexpr std::size_t W = kLanes<T>;
    Vec<T> acc[R][V];
    for (std::size_t r = 0; r < R; ++r)
        for (std::size_t v = 0; v < V; ++v) acc[r][v] = splat(kInf<T>);
    for (std::size_t k = 0; k < depth; ++k) {
        Vec<T> b[V];
        for (std::size_t v = 0; v < V; ++v) b[v] = load(B + k * ldb + v * W);
        for (std::size_t r = 0; r < R; ++r) {
            const Vec<T> a = splat(A[r * lda + k]);
            for (std::size_t v = 0; v < V; ++v) acc[r][v] = minimum(acc[r][v], a + b[v]);
        }
    }
    for (std::size_t r = 0; r < R; ++r)
        for (std::size_t v = 0; v < V; ++v) store(C + r * ldc + v * W, acc[r][v]);
}

// C (rows x width) = A (rows x depth) (min, +) B (depth x width); width is a multiple of the line
template <class T>
inline void minplus(std::size_t rows, std::size_t depth, std::size_t width, const T* A, std::size_t lda, const T* B,
                    std::size_t ldb, T* C, std::size_t ldc) {
    constexpr std::size_t wide = 2;  // vectors a tile
    const std::size_t blocks = (rows + kTileRows - 1) / kTileRows;
    auto panel = [&]<std::size_t Vs>(std::size_t column) {
        std::size_t row = 0;
        for (std::size_t block = 0; block < blocks; ++block) {
            const std::size_t height = (rows - row + blocks - block - 1) / (blocks - block);  // even shares
            const T* a = A + row * lda;
            T* c = C + row * ldc + column;
            [&]<std::size_t... R>(std::index_sequence<R...>) {
                ((height == R + 1 && (minplus_tile<R + 1, Vs>(depth, a, lda, B + column, ldb, c, ldc), true)) || ...);
            }(std::make_index_sequence<kTileRows>{});
            row += height;
        }
    };
    std::size_t column = 0;
    for (; column + wide * kLanes<T> <= width; column += wide * kLanes<T>) panel.template operator()<wide>(column);
    for (; column < width; column += kLanes<T>) panel.template operator()<1>(column);
}

// The product along all axes, in one direction: x on the grid `from` gives out on the grid `to`. Grids are stored with
// the last axis padded to whole lines, the padding +inf.
template <class T>
class GridProduct {
public:
    // matrices[a] is to[a] x from[a], row by row
    GridProduct(const std::vector<const T*>& matrices, std::vector<std::size_t> to, std::vector<std::size_t> from)
        : matrices_(matrices), to_(std::move(to)), from_(std::move(from)) {
        const std::size_t out = to_.back(), in = from_.back();
        last_.assign(in * stride(out), kInf<T>);
        for (std::size_t i = 0; i < out; ++i)
            for (std::size_t k = 0; k < in; ++k) last_[k * stride(out) + i] = matrices_.back()[i * in + k];
    }

    // Entries from one row of a stored grid to the next. An even number of lines would map the rows of a tall tile onto
    // few sets of the cache.
    static std::size_t stride(std::size_t side) {
        const std::size_t lines = padded<T>(side) / kLineLanes<T>;
        return (lines >= 4 && lines % 2 == 0 ? lines + 1 : lines) * kLineLanes<T>;
    }

    static std::size_t stored(const std::vector<std::size_t>& shape) { return rows(shape) * stride(shape.back()); }

    static std::size_t rows(const std::vector<std::size_t>& shape) {
        std::size_t n = 1;
        for (std::size_t a = 0; a + 1 < shape.size(); ++a) n *= shape[a];
        return n;
    }

    // Entries that the intermediate results need, in each of the two scratch buffers.
    std::size_t scratch() const {
        std::size_t most = 0;
        std::vector<std::size_t> shape = from_;
        for (std::size_t a = shape.size(); a-- > 0;) {
            shape[a] = to_[a];
            most = std::max(most, stored(shape));
        }
        return most;
    }

    void operator()(const T* x, T* out, T* scratch_a, T* scratch_b) const {
        const std::size_t width = padded<T>(to_.back()), ld = stride(to_.back());
        const std::size_t last = to_.size() - 1;
        T* result = last == 0 ? out : scratch_a;
        minplus(rows(from_), from_.back(), width, x, stride(from_.back()), last_.data(), ld, result, ld);
        std::size_t middle = 1;  // product of the sides between this axis and the last
        for (std::size_t a = last; a-- > 0;) {
            const T* in = result;
            result = a == 0 ? out : in == scratch_a ? scratch_b : scratch_a;
            std::size_t outer = 1;
            for (std::size_t b = 0; b < a; ++b) outer *= from_[b];
            for (std::size_t o = 0; o < outer; ++o)
                for (std::size_t m = 0; m < middle; ++m)
                    minplus(to_[a], from_[a], width, matrices_[a], from_[a], in + (o * from_[a] * middle + m) * ld,
                            middle * ld, result + (o * to_[a] * middle + m) * ld, middle * ld);
            middle *= to_[a];
        }
    }

private:
    std::vector<const T*> matrices_;
    std::vector<std::size_t> to_, from_;
    std::vector<T> last_;  // the last axis' matrix transposed and padded
};

}  // namespace gibbsot
