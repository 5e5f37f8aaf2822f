// Sums and products with twice the digits of a double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
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

// A sum of products, or of numbers, in units of 2^exponent, with what bounds its error: see `certificate.enclose`.
struct Inner {
    DoubleDouble value;
    double absolute;     // the sum of the absolute terms, rounded
    std::int64_t terms;  // the number of terms that are not zero
    int exponent;
};

// <x, y>, or the sum of x where there is no y. Lanes of at most 32 terms keep the rounding errors of products and sums in a
// double each, which is off by less than 2 * 32^2 u^2 of the absolute terms; lanes are added with twice the digits.
inline Inner inner(const double* x, const double* y, std::size_t n) {
    constexpr std::size_t kLane = 8, kBlock = 256;
    const double unit_x = unit_of(x, n), unit_y = y != nullptr ? unit_of(y, n) : 1;
    const double down_x = 1 / unit_x, down_y = 1 / unit_y;
    Inner found{{}, 0, 0, std::ilogb(unit_x) + std::ilogb(unit_y)};
    double a[kLane], b[kLane];
    for (std::size_t begin = 0; begin < n; begin += kBlock) {
        double high[kLane] = {}, low[kLane] = {}, absolute[kLane] = {}, terms[kLane] = {};
        const std::size_t end = std::min(n, begin + kBlock);
        for (std::size_t at = begin; at < end; at += kLane) {
            const std::size_t count = std::min(kLane, end - at);
            for (std::size_t l = 0; l < kLane; ++l) {
                const double first = l < count ? x[at + l] : 0, second = l < count && y != nullptr ? y[at + l] : 1;
                a[l] = first * down_x;
                b[l] = second * down_y;
                terms[l] += (first != 0 && second != 0) ? 1 : 0;  // also where a factor vanishes now
            }
            for (std::size_t l = 0; l < kLane; ++l) {
                const DoubleDouble term = DoubleDouble::product(a[l], b[l]), sum = DoubleDouble::sum(high[l], term.high);
                high[l] = sum.high;
                low[l] += sum.low + term.low;
                absolute[l] += std::abs(term.high);
            }
        }
        for (std::size_t l = 0; l < kLane; ++l) {
            found.value += DoubleDouble::sum(high[l], low[l]);
            found.absolute += absolute[l];
            found.terms += static_cast<std::int64_t>(terms[l]);
        }
    }
    return found;
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

// Bounds of a number that is known to within `error` and half a unit in the last place, where costs that are not negative
// may be off by `accuracy`, relative to themselves. The difference is rounded once more, and the last factor covers terms
// of second order.
inline double rounded_down(double x, double error, double accuracy = 0) {
    return x - (std::abs(x) * (kUlp + accuracy) * (1 + 0x1p-20) + error);
}
inline double rounded_up(double x, double error, double accuracy = 0) { return -rounded_down(-x, error, accuracy); }

// A sum of numbers that are not negative. The errors of the errors of all additions are lost; mostly there are none.
inline Estimate total(const double* x, std::size_t n) {
    double sum = 0, errors = 0, lost = 0;
    for (std::size_t k = 0; k < n; ++k) {
        const DoubleDouble first = DoubleDouble::sum(sum, x[k]), second = DoubleDouble::sum(errors, first.low);
        sum = first.high;
        errors = second.high;
        lost += std::abs(second.low);
    }
    return {DoubleDouble::sum(sum, errors), 2 * lost};
}

// The product of such a sum and a bound, rounded upwards: to the nearest double that is no less, where the sum is exact.
// NaN if it is too large or too small for that.
inline double product_up(const Estimate& sum, double bound) {
    if (bound == 0 || std::isinf(bound)) return bound;
    const DoubleDouble x = DoubleDouble::product(sum.value.high, bound);
    if (!(std::abs(x.high) > 0x1p-900 && std::abs(x.high) < 0x1p1000)) return std::numeric_limits<double>::quiet_NaN();
    double rest = x.low;
    if (sum.value.low != 0 || sum.error != 0) {
        const double more = sum.value.low * bound;
        rest += more;
        rest += 2 * kUlp * (std::abs(x.low) + std::abs(more)) + 1.01 * sum.error * std::abs(bound) +
                std::numeric_limits<double>::denorm_min();
    }
    const DoubleDouble found = DoubleDouble::sum(x.high, rest);
    return found.low > 0 ? std::nextafter(found.high, std::numeric_limits<double>::infinity()) : found.high;
}

}  // namespace gibbsot
