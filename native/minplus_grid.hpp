// c-transforms with a cost that is a sum over the axes of a grid: one small (min, +) matrix product per axis.
//
//     min_j (M_ij + x_j) = min_a' (A_aa' + min_b' (B_bb' + x_a'b'))          (two axes)
//
// Each product is blocked as in a BLAS: a register tile of rows x vectors, with the loop over k inside. For long axes the
// loop leaves out blocks of k whose least possible sum is not below the largest sum of the tile so far. With the
// potentials of transport problems few blocks near the diagonal are left. What is left out could not lower any sum, so
// the result is bit-identical.
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

inline constexpr std::size_t kBlock = 16;        // terms that are left out together
inline constexpr std::size_t kLongDepth = 96;    // terms from which on blocks are left out: python benchmarks/costs.py

template <class T>
inline Vec<T> maximum(Vec<T> a, Vec<T> b) {
    return a < b ? b : a;
}

// sums[r] = min(sums[r], A[r, k] + B[k, :]) over the terms k for R rows and V vectors
template <std::size_t R, std::size_t V, class T>
inline void lower_sums(Vec<T> (&sums)[R][V], std::size_t first, std::size_t last, const T* A, std::size_t lda, const T* B,
                       std::size_t ldb) {
    for (std::size_t k = first; k < last; ++k) {
        Vec<T> b[V];
        for (std::size_t v = 0; v < V; ++v) b[v] = load(B + k * ldb + v * kLanes<T>);
        for (std::size_t r = 0; r < R; ++r) {
            const Vec<T> a = splat(A[r * lda + k]);
            for (std::size_t v = 0; v < V; ++v) sums[r][v] = minimum(sums[r][v], a + b[v]);
        }
    }
}

// What the sums of a tile cannot fall below: bounds of rows of A and of a panel of B.
template <class T>
struct TileBounds {
    const T *blocks_A, *blocks_B;  // the least entry of each block of terms
    const T* rows_A;               // the least entry of each row
    const Vec<T>* lanes_B;         // the least entry of each lane
};

// C[r, :] = min_k (A[r, k] + B[k, :]) for R rows and V vectors
template <std::size_t R, std::size_t V, class T>
inline void minplus_tile(std::size_t depth, const T* A, std::size_t lda, const T* B, std::size_t ldb, T* C, std::size_t ldc,
                         const TileBounds<T>* bounds) {
    Vec<T> sums[R][V];
    for (auto& row : sums)
        for (auto& sum : row) sum = splat(kInf<T>);
    if (bounds == nullptr) {
        lower_sums<R, V>(sums, 0, depth, A, lda, B, ldb);
    } else {
        const std::size_t blocks = (depth + kBlock - 1) / kBlock;
        const auto bound = [&](std::size_t b) { return bounds->blocks_A[b] + bounds->blocks_B[b]; };
        const auto lower = [&](std::size_t b) {
            lower_sums<R, V>(sums, b * kBlock, std::min(depth, (b + 1) * kBlock), A, lda, B, ldb);
            // the largest sum, but for rows and lanes where all are infinite
            Vec<T> top = splat(-kInf<T>);
            for (std::size_t v = 0; v < V; ++v) {
                Vec<T> most = splat(-kInf<T>);
                for (std::size_t r = 0; r < R; ++r)
                    if (bounds->rows_A[r] < kInf<T>) most = maximum<T>(most, sums[r][v]);
                top = maximum<T>(top, bounds->lanes_B[v] < splat(kInf<T>) ? most : splat(-kInf<T>));
            }
            return -lowest<T>(-top);
        };
        std::size_t best = 0;
        T least = bound(0);
        for (std::size_t b = 1; b < blocks; ++b)
            if (const T own = bound(b); own < least) {
                least = own;
                best = b;
            }
        T top = lower(best);
        for (std::size_t b = 0; b < blocks; ++b)
            if (bound(b) < top && b != best) top = lower(b);
    }
    for (std::size_t r = 0; r < R; ++r)
        for (std::size_t v = 0; v < V; ++v) store(C + r * ldc + v * kLanes<T>, sums[r][v]);
}

// Storage for the bounds of a product, for any of the sizes that it was made for.
template <class T>
class ProductBounds {
public:
    void reserve(std::size_t rows, std::size_t depth) {
        if (depth < kLongDepth) return;
        const std::size_t blocks = (depth + kBlock - 1) / kBlock;
        blocks_A_.resize(std::max(blocks_A_.size(), (rows / kTileRows + 1) * blocks));
        rows_A_.resize(std::max(rows_A_.size(), rows));
        blocks_B_.resize(std::max(blocks_B_.size(), blocks));
    }

    // The bounds of `height` rows of A from `row` on, the block-th that is set.
    void set_rows(std::size_t block, std::size_t row, std::size_t height, std::size_t depth, const T* A, std::size_t lda) {
        const std::size_t blocks = (depth + kBlock - 1) / kBlock;
        std::fill(rows_A_.begin() + static_cast<std::ptrdiff_t>(row),
                  rows_A_.begin() + static_cast<std::ptrdiff_t>(row + height), kInf<T>);
        for (std::size_t b = 0; b < blocks; ++b) {
            T least = kInf<T>;
            for (std::size_t r = row; r < row + height; ++r) {
                const T* entries = A + r * lda;
                const T own = *std::min_element(entries + b * kBlock, entries + std::min(depth, (b + 1) * kBlock));
                rows_A_[r] = std::min(rows_A_[r], own);
                least = std::min(least, own);
            }
            blocks_A_[block * blocks + b] = least;
        }
    }

    // The bounds of a panel of V vectors of B.
    template <std::size_t V>
    void set_panel(std::size_t depth, const T* B, std::size_t ldb) {
        for (auto& lane : lanes_B_) lane = splat(kInf<T>);
        for (std::size_t b = 0; b * kBlock < depth; ++b) {
            Vec<T> least[V];
            for (auto& own : least) own = splat(kInf<T>);
            for (std::size_t k = b * kBlock; k < std::min(depth, (b + 1) * kBlock); ++k)
                for (std::size_t v = 0; v < V; ++v) least[v] = minimum(least[v], load(B + k * ldb + v * kLanes<T>));
            Vec<T> all = least[0];
            for (std::size_t v = 0; v < V; ++v) {
                lanes_B_[v] = minimum(lanes_B_[v], least[v]);
                all = minimum(all, least[v]);
            }
            blocks_B_[b] = lowest<T>(all);
        }
    }

    TileBounds<T> of(std::size_t block, std::size_t row, std::size_t depth) const {
        const std::size_t blocks = (depth + kBlock - 1) / kBlock;
        return {blocks_A_.data() + block * blocks, blocks_B_.data(), rows_A_.data() + row, lanes_B_};
    }

private:
    std::vector<T> blocks_A_, blocks_B_, rows_A_;
    Vec<T> lanes_B_[2];
};

// C (rows x width) = A (rows x depth) (min, +) B (depth x width); width is a multiple of the line
template <class T>
inline void minplus(std::size_t rows, std::size_t depth, std::size_t width, const T* A, std::size_t lda, const T* B,
                    std::size_t ldb, T* C, std::size_t ldc, ProductBounds<T>& bounds) {
    constexpr std::size_t wide = 2;  // vectors per tile
    const bool is_long = depth >= kLongDepth;
    const std::size_t blocks = (rows + kTileRows - 1) / kTileRows;
    // Calls work(block, row, height) for blocks of nearly equal height.
    const auto for_blocks = [&](auto work) {
        for (std::size_t block = 0, row = 0, height = 0; block < blocks; ++block, row += height) {
            height = (rows - row + blocks - block - 1) / (blocks - block);
            work(block, row, height);
        }
    };
    auto panel = [&]<std::size_t Vs>(std::size_t column) {
        if (is_long) bounds.template set_panel<Vs>(depth, B + column, ldb);
        for_blocks([&](std::size_t block, std::size_t row, std::size_t height) {
            const T* a = A + row * lda;
            T* c = C + row * ldc + column;
            const TileBounds<T> known = is_long ? bounds.of(block, row, depth) : TileBounds<T>{};
            const TileBounds<T>* const used = is_long ? &known : nullptr;
            [&]<std::size_t... R>(std::index_sequence<R...>) {
                static_cast<void>(
                    ((height == R + 1 && (minplus_tile<R + 1, Vs>(depth, a, lda, B + column, ldb, c, ldc, used), true)) ||
                     ...));
            }(std::make_index_sequence<kTileRows>{});
        });
    };
    if (is_long)
        for_blocks([&](std::size_t block, std::size_t row, std::size_t height) {
            bounds.set_rows(block, row, height, depth, A, lda);
        });
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
    // The matrices must outlive the object.
    explicit GridTransform(std::vector<MatrixView<T>> matrices) : from_(Shape{1}), to_(Shape{1}), last_(0) {
        for (std::size_t a = 0; a < matrices.size(); ++a) copies_.emplace_back(0);
        set(std::move(matrices));
    }
    GridTransform(GridTransform&&) = default;  // a copy would read the matrices of the original

    void set(std::vector<MatrixView<T>> matrices) {
        Shape from, to;
        for (const auto& D : matrices) {
            to.push_back(D.rows);
            from.push_back(D.columns);
        }
        from_ = GridLayout<T>(std::move(from));
        to_ = GridLayout<T>(std::move(to));
        matrices_ = std::move(matrices);
        ready_ = false;
    }

    const GridLayout<T>& from() const { return from_; }
    const GridLayout<T>& to() const { return to_; }

    // The scratch space that operator() needs: for the result of an axis, and from three axes on for that of the next.
    std::size_t scratch() const { return std::min<std::size_t>(from_.shape.size() - 1, 2) * largest(); }

    void operator()(const T* x, T* out, T* scratch) const {
        if (!ready_) prepare();
        const std::size_t last = to_.shape.size() - 1, ld = to_.stride, width = padded<T>(to_.shape[last]);
        T* const other = last < 2 ? nullptr : scratch + largest();
        T* result = last == 0 ? out : scratch;
        minplus(from_.rows, from_.shape[last], width, x, from_.stride, last_.get(), ld, result, ld, bounds_);
        for (std::size_t a = last; a-- > 0;) {
            const std::size_t rows = to_.shape[a], columns = from_.shape[a];
            const std::size_t outer = product(from_.shape, 0, a), inner = product(to_.shape, a + 1, last);
            const T* in = result;
            result = a == 0 ? out : in == scratch ? other : scratch;
            for (std::size_t o = 0; o < outer; ++o)
                for (std::size_t i = 0; i < inner; ++i)
                    minplus(rows, columns, width, matrices_[a].data, matrices_[a].row_step, in + (o * columns * inner + i) * ld,
                            inner * ld, result + (o * rows * inner + i) * ld, inner * ld, bounds_);
        }
    }

private:
    // The size of the largest intermediate result.
    std::size_t largest() const {
        std::size_t most = 0;
        Shape shape = from_.shape;
        for (std::size_t a = shape.size(); a-- > 0;) {
            shape[a] = to_.shape[a];
            most = std::max(most, GridLayout<T>(shape).capacity());
        }
        return most;
    }

    // Brings the matrices into the order in which they are read, when they are first needed.
    void prepare() const {
        const std::size_t last = matrices_.size() - 1;
        bounds_.reserve(from_.rows, from_.shape[last]);
        for (std::size_t a = 0; a < last; ++a) {
            MatrixView<T>& D = matrices_[a];
            bounds_.reserve(D.rows, D.columns);
            if (D.column_step == 1) continue;
            if (copies_[a].size() < D.rows * D.columns) copies_[a] = Buffer<T>(D.rows * D.columns);
            copy(D, copies_[a].get(), D.columns);
            D = {copies_[a].get(), D.rows, D.columns, D.columns, 1};
        }
        const MatrixView<T> D = matrices_[last].transposed();
        if (last_.size() < D.rows * to_.stride) last_ = Buffer<T>(D.rows * to_.stride, 13);
        copy(D, last_.get(), to_.stride);
        for (std::size_t k = 0; k < D.rows; ++k)
            std::fill(last_.get() + k * to_.stride + D.columns, last_.get() + (k + 1) * to_.stride, kInf<T>);
        ready_ = true;
    }

    // By squares that fit into the cache: one of both sides is read or written across its rows.
    static void copy(const MatrixView<T>& D, T* out, std::size_t stride) {
        constexpr std::size_t side = 32;
        for (std::size_t i = 0; i < D.rows; i += side)
            for (std::size_t k = 0; k < D.columns; k += side)
                for (std::size_t r = i; r < std::min(D.rows, i + side); ++r)
                    for (std::size_t c = k; c < std::min(D.columns, k + side); ++c) out[r * stride + c] = D(r, c);
    }

    GridLayout<T> from_, to_;
    // A thread needs its own object: what follows is made, and bounds are written, when the transform is computed.
    mutable bool ready_ = false;
    mutable std::vector<MatrixView<T>> matrices_;
    mutable std::vector<Buffer<T>> copies_;  // row by row, of those that are not stored so
    mutable Buffer<T> last_;                 // the last axis' matrix transposed and padded
    mutable ProductBounds<T> bounds_;
};

}  // namespace gibbsot
