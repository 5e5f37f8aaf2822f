// The k smallest of M_ij + x_j over j for each row i, or of M_ij + x_i over i for each column j.
// A dense matrix is read once, distances of points are computed once. The matrix of a grid is never formed, and only the grid lines that can contain one of
// the k smallest sums are evaluated.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "operators.hpp"

namespace gibbsot {

// The k smallest values so far in ascending order, with their indices.
template <class T>
class SmallestK {
public:
    explicit SmallestK(std::size_t k) : values_(k), indices_(k) { clear(); }

    void clear() {
        std::fill(values_.begin(), values_.end(), kInf<T>);
        std::fill(indices_.begin(), indices_.end(), -1);
    }
    T worst() const { return values_.back(); }
    void offer(T value, std::size_t index) {
        if (!(value < worst())) return;
        std::size_t at = values_.size() - 1;
        for (; at > 0 && value < values_[at - 1]; --at) {
            values_[at] = values_[at - 1];
            indices_[at] = indices_[at - 1];
        }
        values_[at] = value;
        indices_[at] = static_cast<std::int64_t>(index);
    }
    void write(std::int64_t* out) const { std::copy(indices_.begin(), indices_.end(), out); }

private:
    std::vector<T> values_;
    std::vector<std::int64_t> indices_;  // -1 where fewer than k values are finite
};

// Offers the n padded sums first[i] + second[i] + shift, with indices first_index + i.
template <class T>
inline void offer_sums(SmallestK<T>& list, const T* first, const T* second, T shift, std::size_t n,
                       std::size_t first_index) {
    constexpr std::size_t most = 4 * kLineLanes<T>;
    for (std::size_t begin = 0; begin < n; begin += most) {
        const std::size_t end = std::min(n, begin + most);
        Vec<T> least = splat(kInf<T>);
        for (std::size_t i = begin; i < end; i += kLanes<T>)
            least = minimum(least, (load(first + i) + load(second + i)) + splat(shift));
        if (!(lowest<T>(least) < list.worst())) continue;
        for (std::size_t i = begin; i < end; ++i) list.offer((first[i] + second[i]) + shift, first_index + i);
    }
}

// x over the rows, padded with +inf; out is columns x k
template <class Source, class T>
void nearest_of_columns(const Source& M, std::size_t columns, const T* x, std::size_t k, std::int64_t* out) {
    SmallestK<T> list(k);
    std::vector<std::uint32_t> order(columns);
    std::iota(order.begin(), order.end(), std::uint32_t{0});
    for_column_blocks(M, order.data(), columns, [&](std::size_t j, const auto& col) {
        for (std::size_t c = 0; c < col.size(); ++c) {
            list.clear();
            offer_sums(list, col[c], x, T(0), M.stride, 0);
            list.write(out + (j + c) * k);
        }
    });
}

// x over the columns; out is rows x k. Rows are processed one cache line at a
// time, so that each line of the matrix is read once.
template <class T>
void nearest_of_rows(const DenseMatrix<T>& M, std::size_t rows, std::size_t columns, const T* x, std::size_t k,
                     std::int64_t* out) {
    constexpr std::size_t W = kLineLanes<T>;
    std::vector<SmallestK<T>> lists(W, SmallestK<T>(k));
    alignas(kLine) T worst[W];
    for (std::size_t i = 0; i < rows; i += W) {
        for (auto& list : lists) list.clear();
        std::fill(worst, worst + W, kInf<T>);
        for (std::size_t j = 0; j < columns; ++j) {
            if (!(x[j] < kInf<T>)) continue;
            const T* costs = M.column(j) + i;
            Vec<T> hits{};
            for (std::size_t l = 0; l < W; l += kLanes<T>) {
                const Vec<T> better = load(costs + l) + splat(x[j]) < load(worst + l) ? splat(T(-1)) : Vec<T>{};
                hits = minimum(hits, better);
            }
            if (!(lowest<T>(hits) < 0)) continue;
            for (std::size_t l = 0; l < W; ++l) {
                lists[l].offer(costs[l] + x[j], j);
                worst[l] = lists[l].worst();
            }
        }
        for (std::size_t l = 0; l < W && i + l < rows; ++l) lists[l].write(out + (i + l) * k);
    }
}

// x over the grid of the matrices' columns, its last axis padded with +inf; out is (points of the rows' grid) x k
template <class T>
void nearest_on_grid(const std::vector<MatrixView<T>>& axes, const T* x, std::size_t k, std::int64_t* out) {
    Shape rows, columns;
    for (const auto& axis : axes) {
        rows.push_back(axis.rows);
        columns.push_back(axis.columns);
    }
    const GridLayout<T> from(columns);
    const std::size_t last = axes.size() - 1, side = columns[last], width = padded<T>(side);
    Buffer<T> costs(rows[last] * width);
    std::fill(costs.get(), costs.get() + rows[last] * width, kInf<T>);
    for (std::size_t i = 0; i < rows[last]; ++i)
        for (std::size_t j = 0; j < side; ++j) costs[i * width + j] = axes[last](i, j);

    const auto least = [&](const T* line) { return *std::min_element(line, line + side); };
    std::vector<T> least_x(from.rows), base(from.rows), bound(from.rows);
    for (std::size_t c = 0; c < from.rows; ++c) least_x[c] = least(x + c * from.stride);
    std::vector<std::size_t> order(from.rows);
    std::iota(order.begin(), order.end(), std::size_t{0});
    SmallestK<T> list(k);
    for (std::size_t r = 0; r < product(rows, 0, last); ++r) {
        for (std::size_t c = 0; c < from.rows; ++c) {
            std::size_t i = r, j = c;
            base[c] = T(0);
            for (std::size_t a = last; a-- > 0; i /= rows[a], j /= columns[a])
                base[c] += axes[a](i % rows[a], j % columns[a]);
            bound[c] = base[c] + least_x[c];
            if (!(bound[c] < kInf<T>)) bound[c] = kInf<T>;  // NaN has no order, and std::sort needs one
        }
        // lines with the smallest bounds first, so that the loop below can stop early
        std::sort(order.begin(), order.end(), [&](std::size_t c, std::size_t d) { return bound[c] < bound[d]; });
        for (std::size_t i = 0; i < rows[last]; ++i) {
            const T* line = costs.get() + i * width;
            const T least_cost = least(line);
            list.clear();
            for (const std::size_t c : order) {
                if (!(bound[c] + least_cost < list.worst())) break;
                offer_sums(list, line, x + c * from.stride, base[c], width, c * side);
            }
            list.write(out + (r * rows[last] + i) * k);
        }
    }
}

}  // namespace gibbsot
