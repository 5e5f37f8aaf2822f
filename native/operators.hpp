// What the sampler needs of a cost: its two products, and how its vectors are stored.
//
// Both sides of a problem are stored padded to whole cache lines. DenseOperator keeps only the columns of the problem's
// support; GridOperator keeps whole grids. Signs are such that everything is a minimum:
// U = rows(h) with U_i = min_j (M_ij + h_j), and N = columns(n) with N_j = min_i (M_ij + n_i) is -L when n is -g.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "buffer.hpp"
#include "minplus_dense.hpp"
#include "minplus_grid.hpp"

namespace gibbsot {

template <class T>
class DenseOperator {
public:
    DenseOperator(DenseMatrix<T> matrix, std::size_t rows, std::size_t columns)
        : M_(matrix), rows_(rows), columns_(columns), order_(columns) {}

    std::size_t row_count() const { return rows_; }
    std::size_t column_count() const { return columns_; }
    std::size_t row_room() const { return M_.stride; }
    std::size_t column_room() const { return padded<T>(columns_); }
    std::size_t scratch_room() const { return 0; }

    // The support first, then the other columns.
    void set_support(const T* q) {
        support_ = 0;
        for (std::size_t j = 0; j < columns_; ++j)
            if (q[j] > 0) order_[support_++] = static_cast<std::uint32_t>(j);
        std::size_t rest = support_;
        for (std::size_t j = 0; j < columns_; ++j)
            if (!(q[j] > 0)) order_[rest++] = static_cast<std::uint32_t>(j);
    }

    std::size_t row_length() const { return M_.stride; }
    std::size_t column_length() const { return padded<T>(support_); }

    void pack_rows(const T* x, T* stored) const { std::copy(x, x + rows_, stored); }
    void unpack_rows(const T* stored, T* x) const { std::copy(stored, stored + rows_, x); }
    void pack_columns(const T* x, T* stored) const {
        for (std::size_t k = 0; k < support_; ++k) stored[k] = x[order_[k]];
    }
    void unpack_columns(const T* stored, T* x) const {
        for (std::size_t k = 0; k < support_; ++k) x[order_[k]] = stored[k];
    }

    void rows(const T* h, T* U, T*) const { dense_rows(M_, order_.data(), support_, h, U); }
    void columns(const T* n, T* N, T*) const { dense_columns(M_, order_.data(), support_, n, N); }

    template <class Between>
    void both(const T* n, T* N, const T* h, T* U, T*, Between between) const {
        dense_both(M_, order_.data(), support_, n, N, h, U, between);
    }

    // N for the columns outside the support, which the sweeps never read.
    void complete(const T* n, T* stored, T* N) const {
        dense_columns(M_, order_.data() + support_, columns_ - support_, n, stored);
        for (std::size_t k = support_; k < columns_; ++k) N[order_[k]] = stored[k - support_];
    }

private:
    DenseMatrix<T> M_;
    std::size_t rows_, columns_, support_ = 0;
    std::vector<std::uint32_t> order_;
};

template <class T>
class GridOperator {
public:
    using Shape = std::vector<std::size_t>;

    // matrices[a] is rows[a] x columns[a], row by row
    GridOperator(const std::vector<const T*>& matrices, Shape rows, Shape columns)
        : transposed_(transpose(matrices, rows, columns)),
          row_shape_(rows),
          column_shape_(columns),
          to_rows_(matrices, rows, columns),
          to_columns_(pointers(transposed_), columns, rows) {}

    std::size_t row_count() const { return Product::rows(row_shape_) * row_shape_.back(); }
    std::size_t column_count() const { return Product::rows(column_shape_) * column_shape_.back(); }
    std::size_t row_room() const { return Product::stored(row_shape_); }
    std::size_t column_room() const { return Product::stored(column_shape_); }
    std::size_t scratch_room() const { return 2 * scratch_half(); }

    void set_support(const T*) {}
    std::size_t row_length() const { return row_room(); }
    std::size_t column_length() const { return column_room(); }

    void pack_rows(const T* x, T* stored) const { pack(x, stored, row_shape_); }
    void unpack_rows(const T* stored, T* x) const { unpack(stored, x, row_shape_); }
    void pack_columns(const T* x, T* stored) const { pack(x, stored, column_shape_); }
    void unpack_columns(const T* stored, T* x) const { unpack(stored, x, column_shape_); }

    void rows(const T* h, T* U, T* scratch) const { to_rows_(h, U, scratch, scratch + scratch_half()); }
    void columns(const T* n, T* N, T* scratch) const { to_columns_(n, N, scratch, scratch + scratch_half()); }

    template <class Between>
    void both(const T* n, T* N, const T* h, T* U, T* scratch, Between between) const {
        columns(n, N, scratch);
        between(0, column_length());
        rows(h, U, scratch);
    }

    void complete(const T*, T*, T*) const {}

private:
    using Product = GridProduct<T>;

    static std::vector<std::vector<T>> transpose(const std::vector<const T*>& matrices, const Shape& rows,
                                                 const Shape& columns) {
        std::vector<std::vector<T>> result;
        for (std::size_t a = 0; a < rows.size(); ++a) {
            std::vector<T> matrix(rows[a] * columns[a]);
            for (std::size_t i = 0; i < rows[a]; ++i)
                for (std::size_t j = 0; j < columns[a]; ++j) matrix[j * rows[a] + i] = matrices[a][i * columns[a] + j];
            result.push_back(std::move(matrix));
        }
        return result;
    }

    static std::vector<const T*> pointers(const std::vector<std::vector<T>>& matrices) {
        std::vector<const T*> result;
        for (const auto& matrix : matrices) result.push_back(matrix.data());
        return result;
    }

    std::size_t scratch_half() const { return std::max(to_rows_.scratch(), to_columns_.scratch()); }

    static void pack(const T* x, T* stored, const Shape& shape) {
        const std::size_t side = shape.back(), ld = Product::stride(side);
        for (std::size_t r = 0; r < Product::rows(shape); ++r) std::copy(x + r * side, x + (r + 1) * side, stored + r * ld);
    }
    static void unpack(const T* stored, T* x, const Shape& shape) {
        const std::size_t side = shape.back(), ld = Product::stride(side);
        for (std::size_t r = 0; r < Product::rows(shape); ++r)
            std::copy(stored + r * ld, stored + r * ld + side, x + r * side);
    }

    std::vector<std::vector<T>> transposed_;
    Shape row_shape_, column_shape_;
    Product to_rows_, to_columns_;
};

}  // namespace gibbsot
