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

// Distances as SciPy defines them: coordinates are added one after the other, so that results do not depend on the
// vector width.
struct SquaredSum {
    static double add(double sum, double d) { return sum + d * d; }
    static double last(double sum) { return sum; }
};
struct RootOfSquares {
    static double add(double sum, double d) { return sum + d * d; }
    static double last(double sum) { return std::sqrt(sum); }
};
struct AbsoluteSum {
    static double add(double sum, double d) { return sum + std::abs(d); }
    static double last(double sum) { return sum; }
};
struct AbsoluteMaximum {
    static double add(double sum, double d) { return std::max(sum, std::abs(d)); }
    static double last(double sum) { return sum; }
};

// A matrix whose rows begin at cache lines and are padded with infinite costs.
class PaddedMatrix {
public:
    void resize(std::size_t rows, std::size_t columns) {
        rows_ = rows;
        columns_ = columns;
        stride_ = padded<double>(columns);
        const std::size_t needed = rows * stride_ + kLine / sizeof(double);
        if (storage_.size() < needed) storage_.resize(needed);
        data_ = storage_.data() + (kLine - reinterpret_cast<std::uintptr_t>(storage_.data()) % kLine) / sizeof(double);
        for (std::size_t i = 0; i < rows; ++i) std::fill(row(i) + columns, row(i) + stride_, kInf<double>);
    }
    double* row(std::size_t i) { return data_ + i * stride_; }
    CostView view() const { return {data_, rows_, columns_, stride_, stride_}; }

    // The distances between rows of X and of Y, which have d coordinates.
    template <class Metric>
    void fill(const double* X, const double* Y, std::size_t d) {
        by_axis_.resize(d * columns_);
        for (std::size_t j = 0; j < columns_; ++j)
            for (std::size_t a = 0; a < d; ++a) by_axis_[a * columns_ + j] = Y[j * d + a];
        for (std::size_t i = 0; i < rows_; ++i) {
            double* out = row(i);
            std::fill(out, out + columns_, 0.0);
            for (std::size_t a = 0; a < d; ++a) {
                const double x = X[i * d + a];
                const double* y = by_axis_.data() + a * columns_;
                for (std::size_t j = 0; j < columns_; ++j) out[j] = Metric::add(out[j], x - y[j]);
            }
            for (std::size_t j = 0; j < columns_; ++j) out[j] = Metric::last(out[j]);
        }
    }
    void copy(const double* C) {
        for (std::size_t i = 0; i < rows_; ++i) std::copy(C + i * columns_, C + (i + 1) * columns_, row(i));
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

    std::size_t rows_ = 0, columns_ = 0, stride_ = 0;
    std::vector<double> storage_, by_axis_;
    double* data_ = nullptr;
};

// The sum of weights, zero where they are no valid ones: finite, none negative, with a positive sum.
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

// Solves a problem whose costs are those of the matrix.
template <class Pause>
void solve_packed(PaddedMatrix& matrix, const double* p, const double* q, bool unit, DenseAnswer& answer, Pause pause,
                  PackedNumbers& out) {
    const CostView C = matrix.view();
    const double none = std::numeric_limits<double>::quiet_NaN();
    out = {none, none, none, none, none, none, mass_of(p, C.rows), mass_of(q, C.columns), 0, PackedNumbers::kRefused};
    if (!(out.p > 0 && out.q > 0) || !matrix.valid()) return;
    bool stopped = false;
    const auto paused = [&] { return stopped = pause(); };
    const Support support(C, p, q);
    std::vector<double> gathered;
    const bool whole = support.rows.size() == C.rows && support.columns.size() == C.columns;
    solve_support(whole ? C : gather(C, support, gathered), support, {}, answer, paused);
    out.value = answer.value;
    out.lower = answer.lower;
    out.upper = answer.upper;
    out.scale = answer.scale;
    out.entries = static_cast<double>(answer.entries);
    out.state = stopped ? PackedNumbers::kStopped : answer.feasible ? PackedNumbers::kSolved : PackedNumbers::kRefused;
    scale_numbers(p, C.rows, unit, out);
}

}  // namespace gibbsot
