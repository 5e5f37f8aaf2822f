// The monotone plan between two measures on the line, in exact arithmetic, and its cost.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "double_double.hpp"
#include "sort.hpp"
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
        const bool sorted = std::is_sorted(x, x + n);
        if (uniform_) {
            points_.assign(x, x + n);
            if (!sorted) sorter_.sort(points_);
            return;
        }
        records_.resize(n);
        std::size_t count = 0;
        for (std::size_t k = 0; k < n; ++k) {
            records_[count] = {x[k], weights[k]};
            count += weights[k] > 0 ? 1 : 0;
        }
        records_.resize(count);
        if (!sorted) weighted_sorter_.sort(records_);
        points_.resize(count);
        weights_.resize(count);
        for (std::size_t k = 0; k < count; ++k) {
            points_[k] = records_[k].point;
            weights_[k] = records_[k].weight;
        }
    }
    bool uniform() const { return uniform_; }
    std::size_t size() const { return points_.size(); }
    double operator[](std::size_t k) const { return points_[k]; }
    const std::vector<double>& weights() const { return weights_; }
    void make_weights() {
        if (uniform_) weights_.assign(points_.size(), 1.0);
    }

    // Where each weight ends, in a unit of which the total has from 2^61 to 2^62; without weights if there is none.
    //
    // Parts below the unit are summed apart, in units of 2^-32 of it, so that an end is too low by less than 1 + n 2^-32.
    const std::vector<std::uint64_t>& make_ends() {
        ends_.clear();
        const double total = sum(weights_.data(), weights_.size());
        if (!(total > 0x1p-400 && total < 0x1p400) || weights_.size() >= kMostEnds) return ends_;
        const double unit = std::ldexp(1.0, 61 - std::ilogb(total));
        ends_.resize(weights_.size());
        std::uint64_t whole = 0, rest = 0;
        for (std::size_t k = 0; k < ends_.size(); ++k) {
            const double weight = weights_[k] * unit;
            const auto units = static_cast<std::int64_t>(weight);
            whole += static_cast<std::uint64_t>(units);
            rest += static_cast<std::uint64_t>(static_cast<std::int64_t>((weight - static_cast<double>(units)) * 0x1p32));
            ends_[k] = whole + (rest >> 32);
        }
        return ends_;
    }
    // The ends for a total that is smaller, lower by less than two units each.
    void shrink_ends(std::uint64_t total) {
        const std::uint64_t factor = quotient(total, ends_.back());
        for (std::uint64_t& end : ends_) end = high_product(end, factor);
        ends_.back() = total;
    }

private:
    static constexpr std::size_t kMostEnds = std::size_t{1} << 31;

    // 2^64 a / b rounded down, for a < b < 2^63.
    static std::uint64_t quotient(std::uint64_t a, std::uint64_t b) {
        std::uint64_t found = 0;
        for (int k = 0; k < 64; ++k) {
            a <<= 1;
            found <<= 1;
            if (a >= b) {
                a -= b;
                found |= 1;
            }
        }
        return found;
    }

    // The upper half of a product, in halves of 32 bits.
    static std::uint64_t high_product(std::uint64_t x, std::uint64_t y) {
        constexpr std::uint64_t kLow = 0xffffffffu;
        const std::uint64_t a = x >> 32, b = x & kLow, c = y >> 32, d = y & kLow;
        const std::uint64_t middle = a * d + (b * d >> 32), other = b * c + (middle & kLow);
        return a * c + (middle >> 32) + (other >> 32);
    }

    bool uniform_ = true;
    std::vector<double> points_, weights_;
    std::vector<std::uint64_t> ends_;
    std::vector<WeightedPoint> records_;
    Sorter<double> sorter_;
    Sorter<WeightedPoint> weighted_sorter_;
};

// The sum of two numbers that are not negative, to within 2^-104 of itself.
inline DoubleDouble plus(const DoubleDouble& a, double b) {
    const DoubleDouble s = DoubleDouble::sum(a.high, b);
    return DoubleDouble::sum(s.high, s.low + a.low);
}

// Of the value: what rounded cumulative weights may change, and those in whole units, after which others are tried.
inline constexpr double kShifted = 1e-12, kShiftedUnits = 2e-14;

// A sum of products that are not negative, with the rounding errors of all operations.
struct LineSum {
    double high = 0, low = 0;
    bool apart = false;  // whether two points that mass moves between differ

    void add(double share, double distance, double cost) {
        const DoubleDouble term = DoubleDouble::product(share, cost), sum = DoubleDouble::sum(high, term.high);
        high = sum.high;
        low += sum.low + term.low;
        apart |= (distance > 0) & (share > 0);
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

// The same with cumulative weights that have twice the digits, which is faster; shares are to be divided by `total`.
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

// The same with cumulative weights in whole units, which is faster still; shares are to be divided by `total`. Returns
// whether the weights are in a range where that is possible.
//
// A cumulative weight is off by less than kOff units of 2^-61 of the total: 1.5 by parts below the unit, as much by those of
// the total, and 2 where the total is brought to that of the other side. So the flows are those of the monotone plan between
// measures X' and Y' whose distribution functions differ from those of the given X and Y by no more, and of quantiles
//     int |X - X'| dt = int |F - F'| dx <= kOff 2^-61 (largest - least point).
// With all points in an interval of length D, |x - y|^k changes by at most k D^(k - 1) times that, on both sides.
template <class Add>
bool merge_units(LineSide& x, LineSide& y, Add add, LineSum& sum, double& total) {
    const std::vector<std::uint64_t>&row_ends = x.make_ends(), &ends = y.make_ends();
    if (row_ends.empty() || ends.empty()) return false;
    const std::uint64_t both = std::min(row_ends.back(), ends.back());
    if (row_ends.back() > both) x.shrink_ends(both);
    if (ends.back() > both) y.shrink_ends(both);
    const std::size_t m1 = row_ends.size(), m2 = ends.size();
    std::size_t i = 0, j = 0;
    std::uint64_t last = 0;
    LineSum own;  // in registers
    while (i < m1 && j < m2) {  // which side ends first cannot be foreseen: no branch depends on it
        const std::uint64_t a = row_ends[i], b = ends[j], row = a < b ? 1 : 0, next = b ^ ((a ^ b) & (0 - row));
        add(own, static_cast<double>(static_cast<std::int64_t>(next - last)), i, j);
        last = next;
        i += row;
        j += 1 - row;
    }
    sum = own;
    total = static_cast<double>(static_cast<std::int64_t>(both));
    return true;
}

inline constexpr double kOff = 5;

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
bool line_bounds(LineSide& x, LineSide& y, double exponent, Power power, double accuracy, LineBounds& out) {
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
        const double width = std::max(x[m1 - 1], y[m2 - 1]) - std::min(x[0], y[0]);
        const bool units = merge_units(x, y, add, sum, divisor);
        shifted = 2.1 * kOff * 0x1p-61 * exponent * power(width);
        if (!units || !(shifted * divisor <= kShiftedUnits * sum.high)) {
            sum = {};
            double moved = 0;
            if (merge_rounded(x, y, add, sum, divisor, moved)) {
                shifted = moved * power(width);
            } else {
                sum = {};
                divisor = 1;
                shifted = 0;
                merge_exactly(x, y, add, sum);
            }
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
    if (power == 1) return line_bounds(x, y, power, [](double d) { return d; }, accuracy, out);
    if (power == 2) return line_bounds(x, y, power, [](double d) { return d * d; }, accuracy, out);
    return line_bounds(x, y, power, [power](double d) { return std::pow(d, power); }, accuracy, out);
}

}  // namespace gibbsot
