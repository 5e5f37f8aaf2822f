// The monotone plan between two measures on the line, in exact arithmetic, and its cost.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "double_double.hpp"
#include "wide.hpp"

namespace gibbsot {

// The path of m1 + m2 - 1 cells from the first pair of points to the last, and the share of the total in each cell.
// Points come in their order on the line; weights may be zero, but not all.
template <std::size_t K>
void monotone_path(const double* p, std::size_t m1, const double* q, std::size_t m2, std::int64_t* i, std::int64_t* j,
                   double* share) {
    const ExactWeights<K> weights(p, m1, q, m2);
    std::size_t r = 0, c = 0;
    Wide<K> a = weights.a[0], b = weights.b[0];
    for (std::size_t k = 0; k + 1 < m1 + m2; ++k) {
        i[k] = static_cast<std::int64_t>(r);
        j[k] = static_cast<std::int64_t>(c);
        const bool row = a <= b;
        const Wide<K> flow = row ? a : b;
        share[k] = weights.share(flow);
        a -= flow;
        b -= flow;
        if (c + 1 == m2 || (row && r + 1 < m1)) {
            if (++r < m1) a = weights.a[r];
        } else {
            b = weights.b[++c];
        }
    }
}

// One side of a problem on the line: points with weight in their order, and whether the weights are all the same.
class LineSide {
public:
    // weights may be null: all the same
    void set(const double* x, const double* weights, std::size_t n) {
        uniform_ = weights == nullptr || std::all_of(weights, weights + n, [&](double w) { return w == weights[0]; });
        points_.clear();
        weights_.clear();
        if (uniform_) {
            points_.assign(x, x + n);
            if (!std::is_sorted(points_.begin(), points_.end())) std::sort(points_.begin(), points_.end());
            return;
        }
        points_.reserve(n);
        weights_.reserve(n);
        const auto push = [&](double point, double weight) {
            points_.push_back(point);
            weights_.push_back(weight);
        };
        if (std::is_sorted(x, x + n)) {
            if (std::all_of(weights, weights + n, [](double w) { return w > 0; })) {
                points_.assign(x, x + n);
                weights_.assign(weights, weights + n);
                return;
            }
            for (std::size_t k = 0; k < n; ++k)
                if (weights[k] > 0) push(x[k], weights[k]);
            return;
        }
        pairs_.clear();
        for (std::size_t k = 0; k < n; ++k)
            if (weights[k] > 0) pairs_.emplace_back(x[k], weights[k]);
        std::sort(pairs_.begin(), pairs_.end());
        for (const auto& [point, weight] : pairs_) push(point, weight);
    }
    bool uniform() const { return uniform_; }
    std::size_t size() const { return points_.size(); }
    double operator[](std::size_t k) const { return points_[k]; }
    const std::vector<double>& weights() const { return weights_; }
    void make_weights() {
        if (uniform_) weights_.assign(points_.size(), 1.0);
    }

private:
    bool uniform_ = true;
    std::vector<double> points_, weights_;
    std::vector<std::pair<double, double>> pairs_;
};

// The sum of two numbers that are not negative, to within 2^-104 of itself.
inline DoubleDouble plus(const DoubleDouble& a, double b) {
    const DoubleDouble s = DoubleDouble::sum(a.high, b);
    return DoubleDouble::sum(s.high, s.low + a.low);
}

inline constexpr double kShifted = 1e-12;  // of the value: what rounded cumulative weights may change

// A sum of products that are not negative, with the rounding errors of all operations.
struct LineSum {
    double high = 0, low = 0;
    bool apart = false;  // whether two points that mass moves between differ

    void add(double share, double distance, double cost) {
        const DoubleDouble term = DoubleDouble::product(share, cost), sum = DoubleDouble::sum(high, term.high);
        high = sum.high;
        low += sum.low + term.low;
        apart = apart || distance > 0;
    }
};

// Calls add(sum, share, i, j) for the cells of the monotone plan, with flows in exact integers.
template <class Add>
void merge_exactly(const LineSide& x, const LineSide& y, Add add, LineSum& sum) {
    const std::size_t m1 = x.size(), m2 = y.size();
    with_words(x.weights(), y.weights(), [&]<std::size_t K>() {
        const ExactWeights<K> weights(x.weights().data(), m1, y.weights().data(), m2);
        std::size_t i = 0, j = 0;
        Wide<K> a = weights.a[0], b = weights.b[0];
        while (i < m1 && j < m2) {
            const bool row = a <= b, column = b <= a;
            const Wide<K> flow = row ? a : b;
            add(sum, weights.share(flow), i, j);
            if (!row) a -= flow;
            if (!column) b -= flow;
            if (row && ++i < m1) a = weights.a[i];
            if (column && ++j < m2) b = weights.b[j];
        }
    });
}

// The same with cumulative weights that have twice the digits, which is much faster; shares are to be divided by `total`.
//
// A cumulative weight of n terms is off by at most n 2^-103 of the total, one that is scaled to the total of the other side
// by twice that and 2^-102. So the computed flows are those of a monotone plan between measures whose quantile functions are
// the given ones but for steps that are moved by so much: on at most `moved` of the total mass, the points that are paired
// may be others. Returns whether the weights are in a range where nothing overflows or vanishes.
template <class Add>
bool merge_rounded(const LineSide& x, const LineSide& y, Add add, LineSum& sum, double& total, double& moved) {
    const std::size_t m1 = x.size(), m2 = y.size();
    const double *p = x.weights().data(), *q = y.weights().data();
    // cumulative weights of both sides first: two chains of additions that do not wait for each other, nor the merge for them
    std::vector<DoubleDouble> row_ends(m1), ends(m2);
    DoubleDouble P, Q;
    const auto next_row = [&](std::size_t i) { row_ends[i] = P = plus(P, p[i]); };
    const auto next_column = [&](std::size_t j) { ends[j] = Q = plus(Q, q[j]); };
    const std::size_t both = std::min(m1, m2);
    for (std::size_t k = 0; k < both; ++k) {
        next_row(k);
        next_column(k);
    }
    for (std::size_t i = both; i < m1; ++i) next_row(i);
    for (std::size_t j = both; j < m2; ++j) next_column(j);
    const DoubleDouble ratio = P.over(Q);
    if (!(P.high > 0x1p-400 && P.high < 0x1p400 && Q.high > 0x1p-400 && Q.high < 0x1p400)) return false;
    const auto scaled = [&](const DoubleDouble& z) {
        const DoubleDouble high = DoubleDouble::product(z.high, ratio.high);
        return DoubleDouble::sum(high.high, high.low + (z.high * ratio.low + z.low * ratio.high));
    };
    const auto less = [](const DoubleDouble& a, const DoubleDouble& b) {
        return a.high < b.high || (a.high == b.high && a.low < b.low);
    };
    for (DoubleDouble& end : ends) end = scaled(end);
    std::size_t i = 0, j = 0;
    DoubleDouble last;
    while (i < m1 && j < m2) {
        const bool row = !less(ends[j], row_ends[i]);
        const DoubleDouble next = row ? row_ends[i] : ends[j];
        const double flow = (next.high - last.high) + (next.low - last.low);
        if (flow > 0) {
            add(sum, flow, i, j);
            last = next;
        }
        if (row)
            ++i;
        else
            ++j;
    }
    const double n = static_cast<double>(m1 + m2);
    total = P.high;
    moved = 8 * n * (n * 0x1p-103 + 0x1p-102);
    return true;
}

// Bounds of the cost of the monotone plan, which is the least: for a convex cost of x - y no plan costs less, in exact
// arithmetic. So one sum, rounded in both directions, is the proof. Returns whether it is one: nothing has overflowed,
// and what has vanished is far below the last digit.
//
// Of n terms the errors of the sum are at most n u S, and their own sum is off by 2 n u of that. Shares are within 2 u of
// the exact ones, and their total within u. `accuracy` is the relative error of a cost.
struct LineBounds {
    double value = 0, lower = 0, upper = 0;
};

template <class Power>
bool line_bounds(LineSide& x, LineSide& y, Power power, double accuracy, LineBounds& out) {
    const std::size_t m1 = x.size(), m2 = y.size();
    const auto add = [&](LineSum& sum, double share, std::size_t i, std::size_t j) {
        const double distance = std::abs(x[i] - y[j]);
        sum.add(share, distance, power(distance));
    };
    LineSum sum;
    double divisor = 1, shifted = 0;  // the second: what rounded cumulative weights may change
    if (x.uniform() && y.uniform() && static_cast<double>(m1) * static_cast<double>(m2) < 0x1p53) {
        if (m1 == m2) {
            LineSum lanes[4];  // which do not wait for each other
            std::size_t k = 0;
            for (; k + 4 <= m1; k += 4)
                for (std::size_t l = 0; l < 4; ++l) add(lanes[l], 1, k + l, k + l);
            for (; k < m1; ++k) add(lanes[0], 1, k, k);
            for (const LineSum& lane : lanes) {
                sum.add(1, lane.apart ? 1 : 0, lane.high);
                sum.low += lane.low;
            }
            divisor = static_cast<double>(m1);
        } else {
            std::size_t i = 0, j = 0;
            std::uint64_t a = m2, b = m1;  // what is left of a row and of a column, of m1 m2 in all
            while (i < m1 && j < m2) {
                const std::uint64_t flow = std::min(a, b);
                add(sum, static_cast<double>(flow), i, j);
                a -= flow;
                b -= flow;
                if (a == 0) {
                    ++i;
                    a = m2;
                }
                if (b == 0) {
                    ++j;
                    b = m1;
                }
            }
            divisor = static_cast<double>(m1) * static_cast<double>(m2);
        }
    } else {
        x.make_weights();
        y.make_weights();
        double moved = 0;
        if (!merge_rounded(x, y, add, sum, divisor, moved)) {
            sum = {};
            divisor = 1;
            merge_exactly(x, y, add, sum);
        } else {
            shifted = moved * power(std::max(x[m1 - 1], y[m2 - 1]) - std::min(x[0], y[0]));
        }
    }
    const DoubleDouble mean = DoubleDouble::sum(sum.high, sum.low).over({divisor, 0});
    const double n = static_cast<double>(m1 + m2);
    double value = mean.value();
    if (shifted > kShifted * value) {  // a value far below the largest cost: flows in exact integers
        sum = {};
        merge_exactly(x, y, add, sum);
        value = DoubleDouble::sum(sum.high, sum.low).value();
        shifted = 0;
    }
    out.value = value;
    if (value == 0 && !sum.apart) {
        out.lower = out.upper = 0;
        return true;
    }
    const double error = (1.6 * kUlp + (n * kUlp) * (n * kUlp) + 0x1p-90) * value * 1.01 + shifted;
    out.lower = rounded_down(value, error, accuracy);
    out.upper = rounded_up(value, error, accuracy);
    return sum.high > 0x1p-500 && value > 0x1p-500 && sum.high < 0x1p1000 && out.lower > 0;
}

// The same for a power of the distance.
inline bool line_bounds(LineSide& x, LineSide& y, double power, double accuracy, LineBounds& out) {
    if (power == 1) return line_bounds(x, y, [](double d) { return d; }, accuracy, out);
    if (power == 2) return line_bounds(x, y, [](double d) { return d * d; }, accuracy, out);
    return line_bounds(x, y, [power](double d) { return std::pow(d, power); }, accuracy, out);
}

}  // namespace gibbsot
