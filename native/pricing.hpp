// The arcs of least reduced cost in the rows of a dense matrix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "simd.hpp"

namespace gibbsot {

// min_j (c_j + x_j) over n entries
inline double least_sum(const double* c, const double* x, std::size_t n) {
    constexpr std::size_t W = kLanes<double>;
    std::size_t j = 0;
    double least = kInf<double>;
    if (n >= W && n < 4 * W) {
        Vec<double> acc = load(c) + load(x);
        for (j = W; j + W <= n; j += W) acc = minimum(acc, load(c + j) + load(x + j));
        least = lowest<double>(acc);
    } else if (n >= W) {
        Vec<double> acc[4];
        for (std::size_t k = 0; k < 4; ++k) acc[k] = load(c + k * W) + load(x + k * W);
        for (j = 4 * W; j + 4 * W <= n; j += 4 * W)
            for (std::size_t k = 0; k < 4; ++k) acc[k] = minimum(acc[k], load(c + j + k * W) + load(x + j + k * W));
        for (; j + W <= n; j += W) acc[0] = minimum(acc[0], load(c + j) + load(x + j));
        least = lowest<double>(minimum(minimum(acc[0], acc[1]), minimum(acc[2], acc[3])));
    }
    for (; j < n; ++j) least = std::min(least, c[j] + x[j]);
    return least;
}

// Some arcs of every row that are near the least: of each class of columns, which have equal indices modulo kClasses, the
// one of least c_j + x_j. They are found in one pass, and most pivots need no others.
class NearArcs {
public:
    static constexpr std::size_t kClasses = 16;

    explicit NearArcs(std::size_t rows) : column_(rows * kClasses), cost_(rows * kClasses) {}

    // Finds the arcs of row i among at least kClasses columns.
    void find(std::size_t i, const double* c, const double* x, std::size_t n) {
        constexpr std::size_t W = kLanes<double>, V = kClasses / W;
        Vec<double> least[V], first[V];  // the sum, and the first column of the group of kClasses that has it
        for (std::size_t v = 0; v < V; ++v) {
            least[v] = load(c + v * W) + load(x + v * W);
            first[v] = Vec<double>{};
        }
        std::size_t j = kClasses;
        for (; j + kClasses <= n; j += kClasses) {
            const Vec<double> here = splat(static_cast<double>(j));
            for (std::size_t v = 0; v < V; ++v) {
                const Vec<double> sum = load(c + j + v * W) + load(x + j + v * W);
                first[v] = sum < least[v] ? here : first[v];
                least[v] = minimum(least[v], sum);
            }
        }
        double sums[kClasses], groups[kClasses];
        for (std::size_t v = 0; v < V; ++v) {
            store(sums + v * W, least[v]);
            store(groups + v * W, first[v]);
        }
        for (std::size_t l = 0; l < kClasses; ++l) {
            const bool rest = j + l < n && c[j + l] + x[j + l] < sums[l];
            const std::size_t k = (rest ? j : static_cast<std::size_t>(groups[l])) + l;
            column_[i * kClasses + l] = static_cast<std::int32_t>(k);
            cost_[i * kClasses + l] = c[k];
        }
    }

    // The least c_j + x_j among the arcs of row i.
    double least_of(std::size_t i, const double* x) const {
        double sums[kClasses];
        for (std::size_t l = 0; l < kClasses; ++l) sums[l] = sum(i, l, x);
        double least = sums[0];
        for (std::size_t l = 1; l < kClasses; ++l) least = std::min(least, sums[l]);
        return least;
    }
    // The column that has it.
    std::size_t column_of(std::size_t i, const double* x, double least) const {
        std::size_t l = 0;
        while (l + 1 < kClasses && sum(i, l, x) != least) ++l;
        return static_cast<std::size_t>(column_[i * kClasses + l]);
    }

private:
    double sum(std::size_t i, std::size_t l, const double* x) const {
        return cost_[i * kClasses + l] + x[column_[i * kClasses + l]];
    }

    std::vector<std::int32_t> column_;
    std::vector<double> cost_;
};

}  // namespace gibbsot
