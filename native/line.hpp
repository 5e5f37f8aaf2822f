// The monotone plan between two measures on the line, in exact arithmetic.
#pragma once

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

}  // namespace gibbsot
