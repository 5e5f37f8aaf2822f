// The k smallest of M_ij + x_j over j for each row i, or of M_ij + x_i over i for each column j.
// A dense matrix is read once, distances of points are computed once. The matrix of a grid is never formed: the least
// sums of its planes and lines, which are c-transforms along the other axes, tell which of them have the k smallest.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "operators.hpp"

namespace gibbsot {

// The k smallest values so far in ascending order, with their indices.
template <class T>
class SmallestK {
public:
    explicit SmallestK(std::size_t k) : values_(k), indices_(k) { clear(); }

    // Only values below the limit count from now on.
    void clear(T limit = kInf<T>) {
        std::fill(values_.begin(), values_.end(), limit);
        std::fill(indices_.begin(), indices_.end(), -1);
    }
    // As clear. What the list contains now has the values value(index), so only what is no larger than these counts.
    template <class Value>
    void restart(Value value) {
        T limit = -kInf<T>;
        for (const std::int64_t index : indices_)
            limit = std::max(limit, index < 0 ? kInf<T> : value(static_cast<std::size_t>(index)));
        clear(std::nextafter(limit, kInf<T>));
    }
    T worst() const { return values_.back(); }
    const std::vector<T>& values() const { return values_; }
    const std::vector<std::int64_t>& indices() const { return indices_; }
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

// Offers the n padded sums first[i] + second[i] + inner + outer, with indices first_index + i.
template <class T>
inline void offer_sums(SmallestK<T>& list, const T* first, const T* second, T inner, T outer, std::size_t n,
                       std::size_t first_index) {
    constexpr std::size_t most = 4 * kLineLanes<T>;
    for (std::size_t begin = 0; begin < n; begin += most) {
        const std::size_t end = std::min(n, begin + most);
        Vec<T> least = splat(kInf<T>);
        for (std::size_t i = begin; i < end; i += kLanes<T>)
            least = minimum(least, ((load(first + i) + load(second + i)) + splat(inner)) + splat(outer));
        if (!(lowest<T>(least) < list.worst())) continue;
        for (std::size_t i = begin; i < end; ++i) list.offer(((first[i] + second[i]) + inner) + outer, first_index + i);
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
            offer_sums(list, col[c], x, T(0), T(0), M.stride, 0);
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

// The matrix of an axis with rows that are padded with +inf to whole cache lines.
template <class T>
struct PaddedAxis {
    explicit PaddedAxis(const MatrixView<T>& D)
        : rows(D.rows), columns(D.columns), stride(padded<T>(D.columns)), data(rows * stride) {
        std::fill(data.get(), data.get() + rows * stride, kInf<T>);
        for (std::size_t i = 0; i < rows; ++i)
            for (std::size_t j = 0; j < columns; ++j) data[i * stride + j] = D(i, j);
    }
    const T* row(std::size_t i) const { return data.get() + i * stride; }

    std::size_t rows, columns, stride;
    Buffer<T> data;
};

// x over the grid of the matrices' columns; out is (points of the rows' grid) x k. Indices of columns are c0, c1, c2 and
// those of rows i0, i1, i2; grids with fewer axes have one plane, or one plane with one line.
template <class T>
class GridNearest {
public:
    GridNearest(std::vector<MatrixView<T>> axes, const T* x) : axes_(three(std::move(axes))), x_(x) {
        const auto& [D0, D1, D2] = axes_;
        const std::size_t planes = D0.columns, lines = D1.columns, side = D2.columns;
        ProductBounds<T> bounds;
        bounds.reserve(D2.rows, side);
        bounds.reserve(D1.rows, lines);
        // lines_[c0][i2][c1] = min over c2, from x in the order [c2][c1]
        Buffer<T> turned(std::max(side * D1.stride, lines * D0.stride));
        lines_ = Buffer<T>(planes * D2.rows * D1.stride);
        std::fill(turned.get(), turned.get() + turned.size(), kInf<T>);
        for (std::size_t c0 = 0; c0 < planes; ++c0) {
            for (std::size_t c1 = 0; c1 < lines; ++c1)
                for (std::size_t c2 = 0; c2 < side; ++c2) turned[c2 * D1.stride + c1] = x[(c0 * lines + c1) * D2.stride + c2];
            minplus(D2.rows, side, D1.stride, D2.row(0), D2.stride, turned.get(), D1.stride,
                    lines_.get() + c0 * D2.rows * D1.stride, D1.stride, bounds);
        }
        // planes_[i2][i1][c0] = min over c1, from the above in the order [c1][c0]
        planes_ = Buffer<T>(D2.rows * D1.rows * D0.stride);
        std::fill(turned.get(), turned.get() + turned.size(), kInf<T>);
        for (std::size_t i2 = 0; i2 < D2.rows; ++i2) {
            for (std::size_t c0 = 0; c0 < planes; ++c0)
                for (std::size_t c1 = 0; c1 < lines; ++c1) turned[c1 * D0.stride + c0] = lines_[line(c0, i2) + c1];
            minplus(D1.rows, lines, D0.stride, D1.row(0), D1.stride, turned.get(), D0.stride,
                    planes_.get() + i2 * D1.rows * D0.stride, D0.stride, bounds);
        }
    }

    void operator()(std::size_t k, std::int64_t* out) {
        const auto& [D0, D1, D2] = axes_;
        SmallestK<T> planes(k), lines(k), points(k);  // those of the last point bound those of the next
        for (std::size_t i0 = 0; i0 < D0.rows; ++i0)
            for (std::size_t i1 = 0; i1 < D1.rows; ++i1)
                for (std::size_t i2 = 0; i2 < D2.rows; ++i2, out += k) {
                    const T *to_planes = D0.row(i0), *to_lines = D1.row(i1), *to_points = D2.row(i2);
                    const T* least = planes_.get() + (i2 * D1.rows + i1) * D0.stride;
                    planes.restart([&](std::size_t c) { return to_planes[c] + least[c]; });
                    offer_sums(planes, to_planes, least, T(0), T(0), D0.stride, 0);
                    // the k smallest sums are in those k lines whose least sums are smallest, and these in such planes
                    lines.restart([&](std::size_t c) {
                        const std::size_t c0 = c / D1.columns, c1 = c % D1.columns;
                        return (to_lines[c1] + lines_[line(c0, i2) + c1]) + to_planes[c0];
                    });
                    for_best(planes, lines, [&](std::size_t c0) {
                        offer_sums(lines, to_lines, lines_.get() + line(c0, i2), to_planes[c0], T(0), D1.stride,
                                   c0 * D1.columns);
                    });
                    points.restart([&](std::size_t c) {
                        const std::size_t c2 = c % D2.columns, c1 = c / D2.columns % D1.columns;
                        const T sum = to_points[c2] + x_[c / D2.columns * D2.stride + c2];
                        return (sum + to_lines[c1]) + to_planes[c / D2.columns / D1.columns];
                    });
                    for_best(lines, points, [&](std::size_t c) {
                        offer_sums(points, to_points, x_ + c * D2.stride, to_lines[c % D1.columns],
                                   to_planes[c / D1.columns], D2.stride, c * D2.columns);
                    });
                    points.write(out);
                }
    }

private:
    static std::array<PaddedAxis<T>, 3> three(std::vector<MatrixView<T>> axes) {
        static constexpr T zero = 0;
        while (axes.size() < 3) axes.insert(axes.begin(), MatrixView<T>{&zero, 1, 1, 1, 1});
        return {PaddedAxis<T>(axes[0]), PaddedAxis<T>(axes[1]), PaddedAxis<T>(axes[2])};
    }
    std::size_t line(std::size_t c0, std::size_t i2) const { return (c0 * axes_[2].rows + i2) * axes_[1].stride; }

    // Calls work(index) for what the first list has, until the second needs no more.
    template <class Work>
    static void for_best(const SmallestK<T>& first, const SmallestK<T>& second, Work work) {
        for (std::size_t n = 0; n < first.values().size() && first.values()[n] < second.worst(); ++n)
            work(static_cast<std::size_t>(first.indices()[n]));
    }

    std::array<PaddedAxis<T>, 3> axes_;
    const T* x_;  // lines padded with +inf
    Buffer<T> lines_{0}, planes_{0};
};

}  // namespace gibbsot
