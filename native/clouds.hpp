// Optimal plans from a few points to clouds of points by squared Euclidean distances, and the means of what is sent.
#pragma once

#include <algorithm>
#include <vector>

#include "dense_simplex.hpp"

namespace gibbsot {

// Clouds with their points one after the other.
struct CloudView {
    const double* points;   // row by row
    const double* columns;  // the same, each cloud transposed, its rows filled up to whole cache lines
    const std::int64_t* offsets;  // of the clouds in `columns`
    const double* weights;
    const std::int64_t* starts;
    std::size_t dimension;
    std::size_t begin(std::size_t b) const { return static_cast<std::size_t>(starts[b]); }
    std::size_t size(std::size_t b) const { return static_cast<std::size_t>(starts[b + 1] - starts[b]); }
};

// -2 <x, y> for some rows x of X and `Vectors` vectors of points y of a cloud, from column j on.
template <std::size_t Rows, std::size_t Vectors>
void inner_block(const double* X, const double* columns, std::size_t stride, std::size_t d, std::size_t j, double* C) {
    constexpr std::size_t W = kLanes<double>;
    Vec<double> sum[Rows][Vectors] = {};
    for (std::size_t k = 0; k < d; ++k)
        for (std::size_t v = 0; v < Vectors; ++v) {
            const Vec<double> y = load(columns + k * stride + j + v * W);
            for (std::size_t r = 0; r < Rows; ++r) sum[r][v] += splat(X[r * d + k]) * y;
        }
    for (std::size_t r = 0; r < Rows; ++r)
        for (std::size_t v = 0; v < Vectors; ++v) store(C + r * stride + j + v * W, splat(-2.0) * sum[r][v]);
}

// -2 <x, y> for rows x of X and the points y of a cloud: the squares of x and y change no plan. Each product is one sum in
// the order of the coordinates, so that it is the same wherever the cloud is solved. The stride is that of whole cache lines.
inline void inner_costs(const double* X, std::size_t rows, const double* columns, std::size_t stride, std::size_t d,
                        double* C) {
    constexpr std::size_t W = kLanes<double>;
    std::size_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        std::size_t j = 0;
        for (; j + 3 * W <= stride; j += 3 * W) inner_block<4, 3>(X + i * d, columns, stride, d, j, C + i * stride);
        for (; j < stride; j += W) inner_block<4, 1>(X + i * d, columns, stride, d, j, C + i * stride);
    }
    for (; i < rows; ++i)
        for (std::size_t j = 0; j < stride; j += W) inner_block<1, 1>(X + i * d, columns, stride, d, j, C + i * stride);
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
    const std::size_t stride = padded<double>(m);
    std::vector<double> C(rows * stride), g(m), mass(plan.capacity);
    inner_costs(X, rows, clouds.columns + clouds.offsets[b], stride, d, C.data());
    const CostView view{C.data(), rows, m, stride};
    DenseAnswer answer{plan.f, g.data(), plan.i, plan.j, mass.data(), plan.capacity};
    solve_dense(view, p, q, plan.from, answer, pause);
    if (std::any_of(p, p + rows, [](double x) { return !(x > 0); })) complete_dual(view, p, q, plan.f, g.data());
    plan.value = answer.value;
    std::fill(plan.sent, plan.sent + rows * d, 0.0);
    for (std::size_t k = 0; k < static_cast<std::size_t>(answer.entries); ++k) {
        double* to = plan.sent + static_cast<std::size_t>(plan.i[k]) * d;
        const double* y = clouds.points + (first + static_cast<std::size_t>(plan.j[k])) * d;
        for (std::size_t c = 0; c < d; ++c) to[c] += mass[k] * y[c];
    }
}

}  // namespace gibbsot
