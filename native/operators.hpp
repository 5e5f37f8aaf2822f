// The interface of a cost to the sampler: its two c-transforms, and how its vectors are stored.
//
// Both sides of a problem are stored padded to whole cache lines. DenseOperator stores only the columns of the problem's
// support, GridOperator the box around it. Signs are such that both transforms are minima: U_i = min_j (M_ij + h_j), and
// N_j = min_i (M_ij + n_i), which is -L for n = -g.
#pragma once

#include <algorithm>
#include <concepts>
#include <utility>
#include <vector>

#include "buffer.hpp"
#include "minplus_dense.hpp"
#include "minplus_graph.hpp"
#include "minplus_grid.hpp"

namespace gibbsot {

template <class Operator>
concept CostOperator = requires(Operator& M, const Operator& constant, const typename Operator::value_type* in,
                                typename Operator::value_type* out, void (*run)(std::size_t, std::size_t, std::size_t),
                                void (*between)(std::size_t, std::size_t)) {
    // the number of points, and the largest storage that any support needs
    { constant.row_count() } -> std::same_as<std::size_t>;
    { constant.column_count() } -> std::same_as<std::size_t>;
    { constant.row_capacity() } -> std::same_as<std::size_t>;
    { constant.column_capacity() } -> std::same_as<std::size_t>;
    { constant.scratch_capacity() } -> std::same_as<std::size_t>;
    // the columns that take part: those with weight in q, or those where h is finite, or all
    M.set_support(in);
    M.set_columns(in);
    M.set_columns();
    // the storage of the current columns, and the range of column indices that contains them
    { constant.row_length() } -> std::same_as<std::size_t>;
    { constant.column_length() } -> std::same_as<std::size_t>;
    { constant.column_first() } -> std::same_as<std::size_t>;
    { constant.column_last() } -> std::same_as<std::size_t>;
    // from an array over the points to storage, and back
    constant.pack_rows(in, out);
    constant.unpack_rows(in, out);
    constant.pack_columns(in, out);
    constant.unpack_columns(in, out);
    // calls run(from, to, n) for n consecutive entries at index `from` of the random numbers and at `to` in storage;
    // arrange_columns first brings the random numbers of the columns into an order that has such runs
    constant.for_row_runs(run);
    constant.for_column_runs(std::size_t{}, std::size_t{}, run);
    constant.arrange_columns(out);
    // the c-transforms; the last argument is scratch space
    constant.transform_to_rows(in, out, out);
    constant.transform_to_columns(in, out, out);
    // both: to the columns, then between(first, n) computes h for n entries, then to the rows
    constant.transform_both(in, out, in, out, out, between);
    // the transform to the columns that take no part
    constant.transform_to_other_columns(in, out, out, out);
};

// Source is DenseMatrix, PointMatrix or GraphMatrix.
template <class Source>
class DenseOperator {
public:
    using T = typename Source::value_type;
    using value_type = T;

    DenseOperator(Source matrix, std::size_t rows, std::size_t columns)
        : M_(std::move(matrix)), rows_(rows), columns_(columns), order_(columns) {}

    std::size_t row_count() const { return rows_; }
    std::size_t column_count() const { return columns_; }
    std::size_t row_capacity() const { return M_.stride; }
    std::size_t column_capacity() const { return padded<T>(columns_); }
    std::size_t scratch_capacity() const { return 0; }

    void set_support(const T* q) {
        choose([q](std::size_t j) { return q[j] > 0; });
    }
    void set_columns(const T* h = nullptr) {
        choose([h](std::size_t j) { return h == nullptr || h[j] < kInf<T>; });
    }

    std::size_t row_length() const { return M_.stride; }
    std::size_t column_length() const { return padded<T>(support_); }
    std::size_t column_first() const { return order_[0]; }
    std::size_t column_last() const { return order_[support_ - 1] + 1; }

    void pack_rows(const T* x, T* stored) const { std::copy(x, x + rows_, stored); }
    void unpack_rows(const T* stored, T* x) const { std::copy(stored, stored + rows_, x); }
    void pack_columns(const T* x, T* stored) const {
        for (std::size_t k = 0; k < support_; ++k) stored[k] = x[order_[k]];
    }
    void unpack_columns(const T* stored, T* x) const {
        for (std::size_t k = 0; k < support_; ++k) x[order_[k]] = stored[k];
    }

    template <class Work>
    void for_row_runs(Work work) const {
        work(0, 0, M_.stride);
    }
    template <class Work>
    void for_column_runs(std::size_t first, std::size_t n, Work work) const {
        work(first, first, n);
    }
    void arrange_columns(T* noise) const {
        for (std::size_t k = 0; k < support_; ++k) noise[k] = noise[order_[k]];
    }

    void transform_to_rows(const T* h, T* U, T*) const { dense_rows(M_, order_.data(), support_, h, U); }
    void transform_to_columns(const T* n, T* N, T*) const { dense_columns(M_, order_.data(), support_, n, N); }

    template <class Between>
    void transform_both(const T* n, T* N, const T* h, T* U, T*, Between between) const {
        dense_both(M_, order_.data(), support_, n, N, h, U, between);
    }

    void transform_to_other_columns(const T* n, T* stored, T* N, T*) const {
        dense_columns(M_, order_.data() + support_, columns_ - support_, n, stored);
        for (std::size_t k = support_; k < columns_; ++k) N[order_[k]] = stored[k - support_];
    }

private:
    // Puts the chosen columns first, then the others.
    template <class Chosen>
    void choose(Chosen chosen) {
        support_ = 0;
        for (std::size_t j = 0; j < columns_; ++j)
            if (chosen(j)) order_[support_++] = static_cast<std::uint32_t>(j);
        std::size_t rest = support_;
        for (std::size_t j = 0; j < columns_; ++j)
            if (!chosen(j)) order_[rest++] = static_cast<std::uint32_t>(j);
    }

    Source M_;
    std::size_t rows_, columns_, support_ = 0;
    std::vector<std::uint32_t> order_;
};

// Only the box around the support of q takes part in the sweeps.
template <class T>
class GridOperator {
public:
    using value_type = T;

    explicit GridOperator(std::vector<MatrixView<T>> axes)
        : axes_(std::move(axes)), all_(whole()), box_(all_), starts_(starts()), to_rows_(views(all_)),
          to_columns_(transposed(views(all_))), to_all_columns_(transposed(views(all_))) {}

    std::size_t row_count() const { return to_rows_.to().points(); }
    std::size_t column_count() const { return to_all_columns_.to().points(); }
    std::size_t row_capacity() const { return to_rows_.to().capacity(); }
    std::size_t column_capacity() const { return to_all_columns_.to().capacity(); }
    std::size_t scratch_capacity() const { return std::max(to_rows_.scratch(), to_all_columns_.scratch()); }

    void set_support(const T* q) {
        const Box box = around(q);
        if (box == box_) return;
        box_ = box;
        starts_ = starts();
        to_rows_.set(views(box));
        to_columns_.set(transposed(views(box)));
    }
    void set_columns(const T* = nullptr) {}  // the box is the whole grid from construction on

    std::size_t row_length() const { return to_rows_.to().capacity(); }
    std::size_t column_length() const { return to_rows_.from().capacity(); }
    std::size_t column_first() const { return starts_.front(); }
    std::size_t column_last() const { return starts_.back() + box_.sides.back(); }

    void pack_rows(const T* x, T* stored) const { to_rows_.to().pack(x, stored); }
    void unpack_rows(const T* stored, T* x) const { to_rows_.to().unpack(stored, x); }
    template <class Work>
    void for_row_runs(Work work) const {
        const GridLayout<T>& grid = to_rows_.to();
        const std::size_t side = grid.shape.back();
        for (std::size_t r = 0; r < grid.rows; ++r) work(r * side, r * grid.stride, padded<T>(side));
    }
    template <class Work>
    void for_column_runs(std::size_t, std::size_t, Work work) const {
        for_box_rows([&](std::size_t column, std::size_t to) { work(column, to, padded<T>(box_.sides.back())); });
    }
    void arrange_columns(T*) const {}

    void pack_columns(const T* x, T* stored) const {
        for_box_rows(
            [&](std::size_t column, std::size_t to) { std::copy(x + column, x + column + box_.sides.back(), stored + to); });
    }
    void unpack_columns(const T* stored, T* x) const {
        for_box_rows(
            [&](std::size_t column, std::size_t to) { std::copy(stored + to, stored + to + box_.sides.back(), x + column); });
    }

    void transform_to_rows(const T* h, T* U, T* scratch) const { to_rows_(h, U, scratch); }
    void transform_to_columns(const T* n, T* N, T* scratch) const { to_columns_(n, N, scratch); }

    template <class Between>
    void transform_both(const T* n, T* N, const T* h, T* U, T* scratch, Between between) const {
        transform_to_columns(n, N, scratch);
        between(0, column_length());
        transform_to_rows(h, U, scratch);
    }

    void transform_to_other_columns(const T* n, T* stored, T* N, T* scratch) const {
        if (box_ == all_) return;
        to_all_columns_(n, stored, scratch);
        to_all_columns_.to().unpack(stored, N);
    }

private:
    using Transform = GridTransform<T>;

    struct Box {
        Shape origin, sides;
        bool operator==(const Box&) const = default;
    };

    Box whole() const {
        Box box;
        for (const auto& axis : axes_) {
            box.origin.push_back(0);
            box.sides.push_back(axis.columns);
        }
        return box;
    }

    Box around(const T* q) const {
        const std::size_t last = axes_.size() - 1, side = all_.sides[last];
        Shape low = all_.sides, high(axes_.size(), 0);
        const auto extend = [&](std::size_t a, std::size_t first, std::size_t end) {
            low[a] = std::min(low[a], first);
            high[a] = std::max(high[a], end);
        };
        const auto positive = [](T w) { return w > 0; };
        for (std::size_t r = 0; r < product(all_.sides, 0, last); ++r) {
            const T* row = q + r * side;
            const auto first = static_cast<std::size_t>(std::find_if(row, row + side, positive) - row);
            if (first == side) continue;
            std::size_t end = side;
            while (!positive(row[end - 1])) --end;
            extend(last, first, end);
            std::size_t rest = r;
            for (std::size_t a = last; a-- > 0; rest /= all_.sides[a])
                extend(a, rest % all_.sides[a], rest % all_.sides[a] + 1);
        }
        if (high[last] == 0) return all_;  // no support
        for (std::size_t a = 0; a <= last; ++a) high[a] -= low[a];
        return {low, high};
    }

    // The column of the whole grid at which each row of the box starts.
    std::vector<std::size_t> starts() const {
        const std::size_t last = axes_.size() - 1;
        std::vector<std::size_t> result;
        for (std::size_t r = 0; r < product(box_.sides, 0, last); ++r) {
            std::size_t rest = r, column = box_.origin[last], step = all_.sides[last];
            for (std::size_t a = last; a-- > 0; rest /= box_.sides[a], step *= all_.sides[a])
                column += (box_.origin[a] + rest % box_.sides[a]) * step;
            result.push_back(column);
        }
        return result;
    }

    // Calls work(column, offset) for the start of each row of the box, with its offset in storage.
    template <class Work>
    void for_box_rows(Work work) const {
        for (std::size_t r = 0; r < starts_.size(); ++r) work(starts_[r], r * to_rows_.from().stride);
    }

    std::vector<MatrixView<T>> views(const Box& box) const {
        std::vector<MatrixView<T>> cut = axes_;
        for (std::size_t a = 0; a < cut.size(); ++a) {
            cut[a].data += box.origin[a] * cut[a].column_step;
            cut[a].columns = box.sides[a];
        }
        return cut;
    }

    static std::vector<MatrixView<T>> transposed(std::vector<MatrixView<T>> matrices) {
        for (auto& matrix : matrices) matrix = matrix.transposed();
        return matrices;
    }

    std::vector<MatrixView<T>> axes_;
    Box all_, box_;
    std::vector<std::size_t> starts_;
    Transform to_rows_, to_columns_, to_all_columns_;
};

}  // namespace gibbsot
