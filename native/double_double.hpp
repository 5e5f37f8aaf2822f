// Sums and products with twice the digits of a double.
#pragma once

#include <cmath>

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

// What rounding and underflow may have taken from a sum whose terms have absolute values that add up to `absolute`.
inline double sum_error(double absolute, double relative) {
    return absolute > 0 ? absolute * relative * 1.01 + 0x1p-1070 : 0;
}
// Bounds of a number that is known to within `error`.
inline double rounded_down(double x, double error) { return x - (std::abs(x) * kUlp + error); }
inline double rounded_up(double x, double error) { return x + (std::abs(x) * kUlp + error); }

}  // namespace gibbsot
