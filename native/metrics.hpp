// Costs of a difference of two points, for searches in space: norms and their powers.
//
// cost<D>(d) is the cost of the difference d, which grows with the size of every coordinate. A norm also has the dual
// norm of a slope s: |d| - s d >= (1 - dual<D>(s)) |d|.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace gibbsot {

struct SquaredEuclidean {
    template <std::size_t D>
    static double cost(const double* d) {
        double squares = 0;
        for (std::size_t a = 0; a < D; ++a) squares += d[a] * d[a];
        return squares;
    }
};

struct Euclidean {
    template <std::size_t D>
    static double cost(const double* d) {
        return std::sqrt(SquaredEuclidean::cost<D>(d));
    }
    template <std::size_t D>
    static double dual(const double* slope) {
        return cost<D>(slope);
    }
};

struct Cityblock {
    template <std::size_t D>
    static double cost(const double* d) {
        double sum = 0;
        for (std::size_t a = 0; a < D; ++a) sum += std::abs(d[a]);
        return sum;
    }
    template <std::size_t D>
    static double dual(const double* slope) {
        double largest = 0;
        for (std::size_t a = 0; a < D; ++a) largest = std::max(largest, std::abs(slope[a]));
        return largest;
    }
};

struct Chebyshev {
    template <std::size_t D>
    static double cost(const double* d) {
        return Cityblock::dual<D>(d);
    }
    template <std::size_t D>
    static double dual(const double* slope) {
        return Cityblock::cost<D>(slope);
    }
};

// The p-norm to the power q, both at least one; p may be infinite. It has no planes below it.
struct NormPower {
    double p, q;

    template <std::size_t D>
    double cost(const double* d) const {
        const double norm = this->norm<D>(d);
        return q == 1 ? norm : q == 2 ? norm * norm : std::pow(norm, q);
    }
    template <std::size_t D>
    static double dual(const double*) {
        return std::numeric_limits<double>::infinity();
    }

private:
    template <std::size_t D>
    double norm(const double* d) const {
        if (p == 1) return Cityblock::cost<D>(d);
        if (p == 2) return Euclidean::cost<D>(d);
        const double largest = Chebyshev::cost<D>(d);
        if (!(largest > 0) || std::isinf(p)) return largest;
        double sum = 0;
        for (std::size_t a = 0; a < D; ++a) sum += std::pow(std::abs(d[a]) / largest, p);
        return largest * std::pow(sum, 1 / p);
    }
};

}  // namespace gibbsot
