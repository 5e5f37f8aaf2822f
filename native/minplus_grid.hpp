// c-transforms with a cost that is a sum over the axes of a grid: one small (min, +) matrix product per axis.
//
//     min_j (M_ij + x_j) = min_a' (A_aa' + min_b' (B_bb' + x_a'b'))          (two axes)
//
// Each product is blocked as in a BLAS: a register tile of rows x vectors, with the loop over k inside.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "buffer.hpp"
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
    constexpr std::size_t wide = 2;  // vectors per tile
    const std::size_t blocks = (rows + kTileRows - 1) / kTileRows;
    auto panel = [&]<std::size_t Vs>(std::size_t column) {
        std::size_t row = 0;
        for (std::size_t block = 0; block < blocks; ++block) {
            const std::size_t height = (rows - row + blocks - block - 1) / (blocks - block);  // blocks of nearly equal height
            const T* a = A + row * lda;
            T* c = C + row * ldc + column;
            [&]<std::size_t... R>(std::index_sequence<R...>) {
                static_cast<void>(
                    ((height == R + 1 && (minplus_tile<R + 1, Vs>(depth, a, lda, B + column, ldb, c, ldc), true)) ||
                     ...));
            }(std::make_index_sequence<kTileRows>{});
            row += height;
        }
    };
    std::size_t column = 0;
    for (; column + wide * kLanes<T> <= width; column += wide * kLanes<T>) panel.template operator()<wide>(column);
    for (; column < width; column += kLanes<T>) panel.template operator()<1>(column);
}

using Shape = std::vector<std::size_t>;

inline std::size_t product(const Shape& shape, std::size_t first, std::size_t last) {
    std::size_t n = 1;
    for (std::size_t a = first; a < last; ++a) n *= shape[a];
    return n;
}

// How a grid is stored: the last axis is padded to whole cache lines, with +inf or with weight zero.
template <class T>
struct GridLayout {
    explicit GridLayout(Shape sides)
        : shape(std::move(sides)), rows(product(shape, 0, shape.size() - 1)), stride(stride_of(shape.back())) {}

    // Entries from one row to the next. A large even number of lines would map the rows of a panel onto few sets of the
    // cache.
    static std::size_t stride_of(std::size_t side) {
        const std::size_t lines = padded<T>(side) / kLineLanes<T>;
        return (lines >= 8 && lines % 2 == 0 ? lines + 1 : lines) * kLineLanes<T>;
    }

    // Copies between a contiguous array and the padded storage; the padding is not changed.
    void pack(const T* x, T* stored) const {
        for (std::size_t r = 0; r < rows; ++r, x += shape.back()) std::copy(x, x + shape.back(), stored + r * stride);
    }
    void unpack(const T* stored, T* x) const {
        for (std::size_t r = 0; r < rows; ++r)
            x = std::copy(stored + r * stride, stored + r * stride + shape.back(), x);
    }

    std::size_t points() const { return rows * shape.back(); }
    std::size_t capacity() const { return rows * stride; }

    Shape shape;
    std::size_t rows, stride;
};

// A strided view of a matrix.
template <class T>
struct MatrixView {
    const T* data;
    std::size_t rows, columns, row_step, column_step;
    T operator()(std::size_t i, std::size_t k) const { return data[i * row_step + k * column_step]; }
    MatrixView transposed() const { return {data, columns, rows, column_step, row_step}; }
};

// The c-transform along all axes in one direction: from x on the grid of the columns to out on the grid of the rows.
template <class T>
class GridTransform {
public:
    // Matrices that are set later must not be larger than these.
    explicit GridTransform(const std::vector<MatrixView<T>>& matrices)
        : from_(Shape{1}), to_(Shape{1}),
          last_(matrices.back().columns * GridLayout<T>::stride_of(matrices.back().rows), 13) {
        for (const auto& D : matrices) matrices_.emplace_back(D.rows * D.columns);
        set(matrices);
    }

    void set(const std::vector<MatrixView<T>>& matrices) {
        Shape from, to;
        for (std::size_t a = 0; a < matrices.size(); ++a) {
            const MatrixView<T>& D = matrices[a];
            to.push_back(D.rows);
            from.push_back(D.columns);
            for (std::size_t i = 0; i < D.rows; ++i)
                for (std::size_t k = 0; k < D.columns; ++k) matrices_[a][i * D.columns + k] = D(i, k);
        }
        from_ = GridLayout<T>(std::move(from));
        to_ = GridLayout<T>(std::move(to));
        const MatrixView<T>& last = matrices.back();
        for (std::size_t k = 0; k < last.columns; ++k) {
            T* row = last_.get() + k * to_.stride;
            for (std::size_t i = 0; i < last.rows; ++i) row[i] = last(i, k);
            std::fill(row + last.rows, row + to_.stride, kInf<T>);
        }
    }

    const GridLayout<T>& from() const { return from_; }
    const GridLayout<T>& to() const { return to_; }

    // The size of the largest intermediate result; operator() needs scratch space for two of them.
    std::size_t scratch() const {
        std::size_t most = 0;
        Shape shape = from_.shape;
        for (std::size_t a = shape.size(); a-- > 0;) {
            shape[a] = to_.shape[a];
            most = std::max(most, GridLayout<T>(shape).capacity());
        }
        return most;
    }

    void operator()(const T* x, T* out, T* scratch) const {
        const std::size_t last = to_.shape.size() - 1, ld = to_.stride, width = padded<T>(to_.shape[last]);
        T* const other = scratch + this->scratch();
        T* result = last == 0 ? out : scratch;
        minplus(from_.rows, from_.shape[last], width, x, from_.stride, last_.get(), ld, result, ld);
        for (std::size_t a = last; a-- > 0;) {
            const std::size_t rows = to_.shape[a], columns = from_.shape[a];
            const std::size_t outer = product(from_.shape, 0, a), inner = product(to_.shape, a + 1, last);
            const T* in = result;
            result = a == 0 ? out : in == scratch ? other : scratch;
            for (std::size_t o = 0; o < outer; ++o)
                for (std::size_t i = 0; i < inner; ++i)
                    minplus(rows, columns, width, matrices_[a].get(), columns, in + (o * columns * inner + i) * ld,
                            inner * ld, result + (o * rows * inner + i) * ld, inner * ld);
        }
    }

private:
    std::vector<Buffer<T>> matrices_;  // row by row
    GridLayout<T> from_, to_;
    Buffer<T> last_;  // the last axis' matrix transposed and padded
};

}  // namespace gibbsot
