// Optimal plans from a few points to clouds of points by squared Euclidean distances, and the means of what is sent.
#pragma once

#include <vector>

#include "dense_simplex.hpp"

namespace gibbsot {

// Clouds with their points one after the other.
struct CloudView {
    const double* points;   // row by row
    const double* columns;  // the same, each cloud transposed
    const double* weights;
    const std::int64_t* starts;
    std::size_t dimension;
    std::size_t begin(std::size_t b) const { return static_cast<std::size_t>(starts[b]); }
    std::size_t size(std::size_t b) const { return static_cast<std::size_t>(starts[b + 1] - starts[b]); }
};

// -2 <x, y> for rows x of X and the points y of a cloud: the squares of x and y change no plan. Each product is one sum in
// the order of the coordinates, so that it is the same wherever the cloud is solved.
inline void inner_costs(const double* X, std::size_t rows, const double* columns, std::size_t m, std::size_t d, double* C,
                        std::size_t stride) {
    constexpr std::size_t kWidth = 32;
    for (std::size_t i = 0; i < rows; ++i) {
        const double* x = X + i * d;
        std::size_t j = 0;
        for (; j + kWidth <= m; j += kWidth) {
            double sum[kWidth] = {};
            for (std::size_t k = 0; k < d; ++k)
                for (std::size_t l = 0; l < kWidth; ++l) sum[l] += x[k] * columns[k * m + j + l];
            for (std::size_t l = 0; l < kWidth; ++l) C[i * stride + j + l] = -2 * sum[l];
        }
        for (; j < m; ++j) {
            double sum = 0;
            for (std::size_t k = 0; k < d; ++k) sum += x[k] * columns[k * m + j];
            C[i * stride + j] = -2 * sum;
        }
    }
}

// One plan: its value without the squares, potentials f of all rows, and by rows the sums of the masses times the points
// that they reach.
struct CloudPlan {
    double* f;
    double* sent;
    DenseBasis from;
    std::int32_t *i, *j;
    std::size_t capacity;
    double value = 0;
};

template <class Pause>
void plan_to_cloud(const double* X, const double* p, std::size_t rows, const CloudView& clouds, std::size_t b,
                   CloudPlan& plan, Pause pause) {
    const std::size_t m = clouds.size(b), d = clouds.dimension, first = clouds.begin(b);
    const double* q = clouds.weights + first;
    std::vector<double> C(rows * m), g(m), mass(plan.capacity);
    inner_costs(X, rows, clouds.columns + first * d, m, d, C.data(), m);
    const CostView view{C.data(), rows, m, m};
    DenseAnswer answer{plan.f, g.data(), plan.i, plan.j, mass.data(), plan.capacity};
    solve_dense(view, p, q, plan.from, answer, pause);
    complete_dual(view, p, q, plan.f, g.data());
    plan.value = answer.value;
    std::fill(plan.sent, plan.sent + rows * d, 0.0);
    for (std::size_t k = 0; k < static_cast<std::size_t>(answer.entries); ++k) {
        double* to = plan.sent + static_cast<std::size_t>(plan.i[k]) * d;
        const double* y = clouds.points + (first + static_cast<std::size_t>(plan.j[k])) * d;
        for (std::size_t c = 0; c < d; ++c) to[c] += mass[k] * y[c];
    }
}

}  // namespace gibbsot
