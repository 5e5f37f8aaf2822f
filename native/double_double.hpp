// Sums and products with twice the digits of a double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace gibbsot {

struct DoubleDouble {
    double high = 0, low = 0;

    static DoubleDouble sum(double a, double b) {
        const double s = a + b, t = s - a;
        return {s, (a - (s - t)) + (b - t)};
    }
    static DoubleDouble product(double a, double b) {
        const double x = a * b;
        return {x, std::fma(a, b, -x)};
    }
    DoubleDouble& operator+=(const DoubleDouble& x) {
        const DoubleDouble s = sum(high, x.high), t = sum(low, x.low);
        const DoubleDouble u = sum(s.high, s.low + t.high);
        return *this = sum(u.high, u.low + t.low);
    }
    DoubleDouble& operator+=(double x) { return *this += DoubleDouble{x, 0}; }
    // this / x
    DoubleDouble over(const DoubleDouble& x) const {
        const double first = high / x.high;
        DoubleDouble rest = *this;
        rest += product(-first, x.high);
        rest += product(-first, x.low);
        return sum(first, rest.high / x.high);
    }
    double value() const { return high + low; }
};

inline constexpr double kUlp = 0x1p-52;

// The sum of some numbers, block by block; infinite where it overflows.
inline double sum(const double* x, std::size_t n) {
    constexpr std::size_t kLane = 8, kBlock = 128;
    DoubleDouble total;
    for (std::size_t begin = 0; begin < n; begin += kBlock) {
        double lanes[kLane] = {};
        const std::size_t end = std::min(n, begin + kBlock);
        for (std::size_t k = begin; k < end; ++k) lanes[k % kLane] += x[k];
        for (const double lane : lanes) total += lane;
    }
    return std::isfinite(total.value()) ? total.value() : std::numeric_limits<double>::infinity();
}

// A number, and a bound of what rounding and underflow may have taken from it.
struct Estimate {
    DoubleDouble value;
    double error;
};

// The power of two that brings the largest of some numbers near one, or near what powers of two allow.
inline double unit_of(const double* x, std::size_t n) {
    double largest = 0;
    for (std::size_t k = 0; k < n; ++k) largest = std::max(largest, std::abs(x[k]));
    return largest > 0 ? std::ldexp(1.0, std::clamp(std::ilogb(largest), -1000, 1000)) : 1;
}

// sum(w x) / sum(w) of positive weights.
inline Estimate weighted_mean(const double* w, const double* x, std::size_t n) {
    const double unit = unit_of(x, n), down_w = 1 / unit_of(w, n), down_x = 1 / unit;
    DoubleDouble sum, mass;
    double absolute = 0;
    for (std::size_t k = 0; k < n; ++k) {
        const double weight = w[k] * down_w;
        const DoubleDouble term = DoubleDouble::product(weight, x[k] * down_x);
        sum += term;
        mass += weight;
        absolute += std::abs(term.high);
    }
    const DoubleDouble mean = sum.over(mass);
    const double rounding = 0x1p-90 * absolute / mass.high + 0x1p-1060;
    // both doubles of the mean, and this error itself, are rounded once more where they leave the normal numbers
    const double error = 1.01 * static_cast<double>(n) * rounding * unit + 3 * std::numeric_limits<double>::denorm_min();
    const bool zero = std::all_of(x, x + n, [](double z) { return z == 0; });
    return {{mean.high * unit, mean.low * unit}, zero ? 0 : error};
}

// Bounds of a number that is known to within `error`.
inline double rounded_down(double x, double error) { return x - (std::abs(x) * kUlp + error); }
inline double rounded_up(double x, double error) { return x + (std::abs(x) * kUlp + error); }

}  // namespace gibbsot
