// Problems whose sizes and costs differ, packed one behind the other: points, whose distances are computed here, or matrices.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "dense_simplex.hpp"
#include "simd.hpp"

namespace gibbsot {

// Where a problem lies: its first row and the number of its rows, the same of its columns, and the first entry of its matrix.
struct PackedPlace {
    std::size_t row, rows, column, columns, entry;
};

// Costs of a pair of points from its coordinates, which are added one after the other, so that results do not depend on
// the vector width: distances as SciPy defines them, and minus twice the inner product, which is the squared distance
// without the squares of both points. These change no plan.
struct SquaredSum {
    static double scaled(double y) { return y; }
    template <class V>
    static V add(V sum, V x, V y) {
        const V d = x - y;
        return sum + d * d;
    }
    static double last(double sum) { return sum; }
};
struct RootOfSquares : SquaredSum {
    static double last(double sum) { return std::sqrt(sum); }
};
struct AbsoluteSum {
    static double scaled(double y) { return y; }
    template <class V>
    static V add(V sum, V x, V y) {
        const V d = x - y;
        return sum + (d < V{} ? -d : d);
    }
    static double last(double sum) { return sum; }
};
struct AbsoluteMaximum {
    static double scaled(double y) { return y; }
    template <class V>
    static V add(V sum, V x, V y) {
        const V d = x - y, size = d < V{} ? -d : d;
        return sum < size ? size : sum;
    }
    static double last(double sum) { return sum; }
};
struct InnerProduct {
    static double scaled(double y) { return -2 * y; }
    template <class V>
    static V add(V sum, V x, V y) {
        return sum + x * y;
    }
    static double last(double sum) { return sum; }
};

// Memory from the start of a cache line on, which grows and keeps nothing.
class LineStorage {
public:
    double* resize(std::size_t n) {
        const std::size_t needed = n + kLine / sizeof(double);
        if (storage_.size() < needed) storage_.resize(needed);
        return storage_.data() + (kLine - reinterpret_cast<std::uintptr_t>(storage_.data()) % kLine) / sizeof(double);
    }

private:
    std::vector<double> storage_;
};

// A matrix whose rows begin at cache lines and are padded with infinite costs.
class PaddedMatrix {
public:
    void resize(std::size_t rows, std::size_t columns) {
        rows_ = rows;
        columns_ = columns;
        stride_ = padded<double>(columns);
        data_ = storage_.resize(rows * stride_);
    }
    double* row(std::size_t i) { return data_ + i * stride_; }
    CostView view() const { return {data_, rows_, columns_, stride_, stride_}; }

    // The costs between rows of X and of Y, which have d coordinates.
    template <class Metric>
    void fill(const double* X, const double* Y, std::size_t d) {
        constexpr std::size_t W = kLanes<double>;
        double* by_axis = by_axis_.resize(d * stride_);
        constexpr std::size_t kBlock = kLine / sizeof(double);  // points at a time, which fill a cache line of each axis
        std::size_t first = 0;
        for (; first + kBlock <= columns_; first += kBlock)
            for (std::size_t a = 0; a < d; ++a)
                for (std::size_t l = 0; l < kBlock; ++l)
                    by_axis[a * stride_ + first + l] = Metric::scaled(Y[(first + l) * d + a]);
        for (std::size_t j = first; j < columns_; ++j)
            for (std::size_t a = 0; a < d; ++a) by_axis[a * stride_ + j] = Metric::scaled(Y[j * d + a]);
        for (std::size_t a = 0; a < d; ++a) std::fill(by_axis + a * stride_ + columns_, by_axis + (a + 1) * stride_, 0.0);
        std::size_t i = 0;
        for (; i + 4 <= rows_; i += 4) {
            std::size_t j = 0;
            for (; j + 3 * W <= stride_; j += 3 * W) fill_block<Metric, 4, 3>(X, by_axis, d, i, j);
            for (; j < stride_; j += W) fill_block<Metric, 4, 1>(X, by_axis, d, i, j);
        }
        for (; i < rows_; ++i)
            for (std::size_t j = 0; j < stride_; j += W) fill_block<Metric, 1, 1>(X, by_axis, d, i, j);
        for (i = 0; i < rows_; ++i) {
            for (std::size_t j = 0; j < columns_; ++j) row(i)[j] = Metric::last(row(i)[j]);
            pad(i);
        }
    }
    void copy(const double* C) {
        for (std::size_t i = 0; i < rows_; ++i) {
            std::copy(C + i * columns_, C + (i + 1) * columns_, row(i));
            pad(i);
        }
    }

    // Whether all costs are finite and in the range that is allowed.
    bool valid() {
        double low = kInf<double>, high = -kInf<double>;
        for (std::size_t i = 0; i < rows_; ++i) {
            const auto [least, largest] = extremes(row(i), columns_);
            if (!(least >= -kLargest && largest <= kLargest)) return false;
            low = std::min(low, least);
            high = std::max(high, largest);
        }
        const double size = std::max(-low, high);
        return size == 0 || size >= kLeast;
    }

private:
    // of the largest cost: see `validation.check_range`
    static constexpr double kLargest = 1e-6 * std::numeric_limits<double>::max();
    static constexpr double kLeast = 1e20 * std::numeric_limits<double>::min();

    void pad(std::size_t i) { std::fill(row(i) + columns_, row(i) + stride_, kInf<double>); }

    // The sums of some rows from i on and some vectors of columns from j on, which stay in registers.
    template <class Metric, std::size_t Rows, std::size_t Vectors>
    void fill_block(const double* X, const double* by_axis, std::size_t d, std::size_t i, std::size_t j) {
        constexpr std::size_t W = kLanes<double>;
        Vec<double> sum[Rows][Vectors] = {};
        for (std::size_t a = 0; a < d; ++a)
            for (std::size_t v = 0; v < Vectors; ++v) {
                const Vec<double> y = load(by_axis + a * stride_ + j + v * W);
                for (std::size_t r = 0; r < Rows; ++r) sum[r][v] = Metric::add(sum[r][v], splat(X[(i + r) * d + a]), y);
            }
        for (std::size_t r = 0; r < Rows; ++r)
            for (std::size_t v = 0; v < Vectors; ++v) store(row(i + r) + j + v * W, sum[r][v]);
    }

    std::size_t rows_ = 0, columns_ = 0, stride_ = 0;
    LineStorage storage_, by_axis_;
    double* data_ = nullptr;
};

// The sum of weights, zero where they are not valid: finite, none negative, with a positive sum.
inline double mass_of(const double* weights, std::size_t n) {
    const auto [low, high] = extremes(weights, n);
    if (!(low >= 0 && high < kInf<double>)) return 0;
    const double mass = sum(weights, n);
    return mass < kInf<double> ? mass : 0;
}

// What is known of a packed problem, beside potentials and plan.
struct PackedNumbers {
    enum State { kSolved = 0, kRefused = 1, kStopped = 2 };

    double value, lower, upper, scale;  // for mass one
    double lower_of_mass, upper_of_mass;  // for the mass given: NaN where it is out of range
    double p, q;                          // the masses
    double entries;                       // of the plan
    double state;                         // refused: input that is not valid, or infinite costs that forbid every plan
};
static_assert(sizeof(PackedNumbers) == 10 * sizeof(double));

// Bounds for the weights given from those for mass one, rounded outwards.
inline void scale_numbers(const double* p, std::size_t n, bool unit, PackedNumbers& out) {
    out.lower_of_mass = out.lower;
    out.upper_of_mass = out.upper;
    if (unit) return;
    const Estimate mass = total(p, n);
    out.lower_of_mass = -product_up(mass, -out.lower);
    out.upper_of_mass = product_up(mass, out.upper);
}

// Solves a problem whose costs are those of the matrix, from the arcs of an earlier basis if there are any.
template <class Pause>
void solve_packed(PaddedMatrix& matrix, const double* p, const double* q, bool unit, const DenseBasis& near,
                  DenseAnswer& answer, Pause pause, PackedNumbers& out) {
    const CostView C = matrix.view();
    const double none = std::numeric_limits<double>::quiet_NaN();
    out = {none, none, none, none, none, none, mass_of(p, C.rows), mass_of(q, C.columns), 0, PackedNumbers::kRefused};
    if (!(out.p > 0 && out.q > 0) || !matrix.valid()) return;
    bool stopped = false;
    solve_dense(C, p, q, near, answer, [&] { return stopped = pause(); });
    out.value = answer.value;
    out.lower = answer.lower;
    out.upper = answer.upper;
    out.scale = answer.scale;
    out.entries = static_cast<double>(answer.entries);
    out.state = stopped ? PackedNumbers::kStopped : answer.feasible ? PackedNumbers::kSolved : PackedNumbers::kRefused;
    scale_numbers(p, C.rows, unit, out);
}

// The masses of a plan times the points that they reach, summed by rows. Rows without weight get potentials.
inline void send(CostView C, const double* p, const double* q, const DenseAnswer& answer, const double* Y, std::size_t d,
                 double* sent) {
    if (std::any_of(p, p + C.rows, [](double x) { return !(x > 0); })) complete_dual(C, p, q, answer.f, answer.g);
    std::fill(sent, sent + C.rows * d, 0.0);
    for (std::size_t k = 0; k < static_cast<std::size_t>(answer.entries); ++k) {
        double* to = sent + static_cast<std::size_t>(answer.i[k]) * d;
        const double* y = Y + static_cast<std::size_t>(answer.j[k]) * d;
        for (std::size_t a = 0; a < d; ++a) to[a] += answer.mass[k] * y[a];
    }
}

}  // namespace gibbsot
