// Exact flows: fixed-point numbers of K words, and the weights of a problem in such units.
//
// With P = sum(p) and Q = sum(q) the supplies p_i Q and the demands q_j P are integers in a common unit and have equal
// sums, so that the flows of a basis are exact, whatever the weights.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace gibbsot {

// An integer of 64 K bits in two's complement.
template <std::size_t K>
struct Wide {
    std::array<std::uint64_t, K> word{};  // lowest first

    bool negative() const { return word[K - 1] >> 63; }
    bool zero() const {
        for (const auto w : word)
            if (w != 0) return false;
        return true;
    }
    Wide& operator+=(const Wide& other) {
        std::uint64_t carry = 0;
        for (std::size_t k = 0; k < K; ++k) {
            const std::uint64_t sum = word[k] + other.word[k], total = sum + carry;
            carry = static_cast<std::uint64_t>(sum < word[k]) | static_cast<std::uint64_t>(total < sum);
            word[k] = total;
        }
        return *this;
    }
    Wide operator-() const {
        Wide result;
        std::uint64_t carry = 1;
        for (std::size_t k = 0; k < K; ++k) {
            result.word[k] = ~word[k] + carry;
            carry = carry != 0 && result.word[k] == 0 ? 1 : 0;
        }
        return result;
    }
    Wide& operator-=(const Wide& other) { return *this += -other; }
    friend Wide operator-(Wide a, const Wide& b) { return a -= b; }
    friend bool operator<(const Wide& a, const Wide& b) {  // of non-negative numbers
        for (std::size_t k = K; k-- > 0;)
            if (a.word[k] != b.word[k]) return a.word[k] < b.word[k];
        return false;
    }
    friend bool operator<=(const Wide& a, const Wide& b) { return !(b < a); }

    // Adds factor * 2^shift, shift >= 0; bits beyond the last word are lost.
    void add_shifted(std::uint64_t factor, std::size_t shift) {
        Wide term;
        const std::size_t at = shift / 64, bits = shift % 64;
        if (at < K) term.word[at] = factor << bits;
        if (bits > 0 && at + 1 < K) term.word[at + 1] = factor >> (64 - bits);
        *this += term;
    }
    // this * factor * 2^shift of a non-negative number.
    Wide times(std::uint64_t factor, std::size_t shift) const {
        Wide result;
        for (std::size_t k = 0; k < K; ++k) {
            if (word[k] == 0) continue;
            // 64 x 64 bits in halves of 32
            const std::uint64_t a = word[k] & 0xffffffffu, b = word[k] >> 32, c = factor & 0xffffffffu,
                                d = factor >> 32;
            result.add_shifted(a * c, 64 * k + shift);
            result.add_shifted(a * d, 64 * k + shift + 32);
            result.add_shifted(b * c, 64 * k + shift + 32);
            result.add_shifted(b * d, 64 * k + shift + 64);
        }
        return result;
    }
    // The leading 62 bits of a positive number as the exact sum of two doubles, in units of 2^exponent.
    struct Leading {
        double high, low;
        int exponent;
    };
    Leading leading() const {
        std::size_t k = K - 1;
        while (k > 1 && word[k] == 0) --k;
        // the bits from the first one on; where the upper word is empty, those of the lower one are all there are
        const bool one = word[k] == 0;
        const std::uint64_t first = one ? word[k - 1] : word[k], next = one ? 0 : word[k - 1];
        const int zeros = std::countl_zero(first);
        const std::uint64_t bits = (zeros > 0 ? first << zeros | next >> (64 - zeros) : first) >> 2;
        const auto high = static_cast<double>(static_cast<std::int64_t>(bits));
        const auto low = static_cast<double>(static_cast<std::int64_t>(bits) - static_cast<std::int64_t>(high));
        return {high, low, 64 * (static_cast<int>(k) - (one ? 1 : 0)) - zeros + 2};
    }
};

inline void keep_positive(double& x) { x = std::max(x, std::numeric_limits<double>::min()); }
template <std::size_t K>
void keep_positive(Wide<K>&) {}
inline bool is_positive(double x) { return x > 0; }
template <std::size_t K>
bool is_positive(const Wide<K>& x) {
    return !x.negative() && !x.zero();
}

// A non-negative double as factor * 2^exponent.
struct Scaled {
    std::uint64_t factor;
    int exponent;
    explicit Scaled(double x) {
        const auto stored = std::bit_cast<std::uint64_t>(x);
        const int e = static_cast<int>(stored >> 52);
        factor = (stored & 0xfffffffffffffu) | (e > 0 ? std::uint64_t{1} << 52 : 0);
        exponent = std::max(e, 1) - 1075;
        if (factor != 0) {
            const int zeros = std::countr_zero(factor);
            factor >>= zeros;
            exponent += zeros;
        }
    }
};

// The exponents of the lowest and of the highest bit of weights and of their sum.
struct BitRange {
    int low = 1 << 20, high = -(1 << 20);
    BitRange(const double* x, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
            if (!(x[i] > 0) || (i > 0 && x[i] == x[i - 1])) continue;
            const Scaled s(x[i]);
            low = std::min(low, s.exponent);
            high = std::max(high, s.exponent + static_cast<int>(std::bit_width(s.factor)));
        }
        high += static_cast<int>(std::bit_width(n));
    }
    int bits() const { return high - low; }
};

// Calls run<K>() with as many words as hold the flows of a problem exactly; the most is enough for all doubles.
template <class Run>
decltype(auto) with_words(const std::vector<double>& p, const std::vector<double>& q, Run run) {
    const int bits = std::max(BitRange(p.data(), p.size()).bits(), BitRange(q.data(), q.size()).bits());
    const int words = (bits + 2 + 31) / 32;
    if (words <= 2) return run.template operator()<2>();
    if (words <= 4) return run.template operator()<4>();
    if (words <= 8) return run.template operator()<8>();
    return run.template operator()<68>();
}

// The positive weights of both sides as supplies p_i Q and demands q_j P.
template <std::size_t K>
class ExactWeights {
public:
    ExactWeights(const double* p, std::size_t m1, const double* q, std::size_t m2) {
        const BitRange range_p(p, m1), range_q(q, m2);
        bits = std::max(range_p.bits(), range_q.bits());
        for (std::size_t i = 0; i < m1; ++i) total_p += p[i];
        for (std::size_t j = 0; j < m2; ++j) total_q += q[j];
        const Wide<K> P = total(p, m1, range_p.low), Q = total(q, m2, range_q.low);
        a.reserve(m1);
        b.reserve(m2);
        // weights are often equal to those before them
        for (std::size_t i = 0; i < m1; ++i)
            a.push_back(i > 0 && p[i] == p[i - 1] ? Wide<K>(a.back()) : scale(Q, p[i], range_p.low));
        for (std::size_t j = 0; j < m2; ++j)
            b.push_back(j > 0 && q[j] == q[j - 1] ? Wide<K>(b.back()) : scale(P, q[j], range_q.low));
        for (const auto& x : a) all += x;
        mass_ = all.leading();
        inverse_ = 1 / mass_.high;
    }

    // A flow as a share of the total, to within 1.02 * 2^-53 of itself if that is a normal number: the leading bits of both
    // are off by 2^-61, and the quotient of these is rounded once, after a step of Newton's method.
    double share(const Wide<K>& flow) const {
        if (flow.negative()) return -share(-flow);
        if (flow.zero()) return 0;
        const typename Wide<K>::Leading x = flow.leading();
        const double near = x.high * inverse_;
        const double rest = (std::fma(-near, mass_.high, x.high) + x.low) - near * mass_.low;
        const double quotient = std::fma(rest, inverse_, near);  // between 1/2 and 2
        const int exponent = x.exponent - mass_.exponent;
        if (std::abs(exponent) > 1000) return std::ldexp(quotient, exponent);
        return quotient * std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52);
    }

    std::vector<Wide<K>> a, b;
    Wide<K> all;
    double total_p = 0, total_q = 0;
    int bits = 0;  // of a sum of weights

private:
    typename Wide<K>::Leading mass_;
    double inverse_;

    static Wide<K> total(const double* x, std::size_t n, int unit) {
        Wide<K> sum;
        for (std::size_t i = 0; i < n; ++i)
            if (x[i] > 0) {
                const Scaled s(x[i]);
                sum.add_shifted(s.factor, static_cast<std::size_t>(s.exponent - unit));
            }
        return sum;
    }
    static Wide<K> scale(const Wide<K>& sum, double x, int unit) {
        if (!(x > 0)) return {};
        const Scaled s(x);
        return sum.times(s.factor, static_cast<std::size_t>(s.exponent - unit));
    }
};

// The flows of a tree from its weights: calls set(v, flow) for every node but the root. Returns whether none is
// negative. `order` has parents before children.
template <std::size_t K, class Tree, class Set>
bool exact_flows(const Tree& tree, const std::vector<typename Tree::Index>& order, const ExactWeights<K>& weights,
                 Set set) {
    using Index = typename Tree::Index;
    std::vector<Wide<K>> net(order.size());
    const auto rows = static_cast<std::size_t>(tree.rows());
    for (std::size_t i = 0; i < weights.a.size(); ++i) net[i] = weights.a[i];
    for (std::size_t j = 0; j < weights.b.size(); ++j) net[rows + j] = -weights.b[j];
    bool feasible = true;
    for (std::size_t k = order.size(); k-- > 1;) {
        const Index v = order[k];
        const Wide<K>& own = net[static_cast<std::size_t>(v)];
        net[static_cast<std::size_t>(tree[v].parent)] += own;
        const Wide<K> flow = tree.is_row(v) ? own : -own;
        if (flow.negative()) feasible = false;
        set(v, flow);
    }
    return feasible;
}

}  // namespace gibbsot
