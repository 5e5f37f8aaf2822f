// Algorithm 1 of the paper for one problem: many sweeps of the Gibbs sampler, started from h.
//
// `step` in sampler.py is the specification: same random numbers, same order, same results up to rounding.
#pragma once

#include <algorithm>
#include <utility>

#include "operators.hpp"
#include "philox.hpp"

namespace gibbsot {

// The options that all chains of a batch share.
struct Plan {
    std::size_t sweeps;
    std::size_t tau;      // lag of the mixing test in sweeps, 0 for no test
    std::size_t stride;   // sweeps from one test to the next
    double mixing_slope;  // the test holds if V(z) rises by less than this times T per sweep
    bool pinned;          // g of the first row with weight stays 0
    std::uint64_t seed;
};

// One problem: input (p, q, one temperature per sweep, id), state (h, sweep) and output.
template <class T>
struct Chain {
    const T *p, *q;
    const double* temperatures;
    std::uint64_t id;
    T* h;
    std::int64_t* sweep;
    T *U, *L, *g;             // L and g may be null
    double *values, *energy;  // V(z) of every sweep; V(g, h) of the last sweep
};

template <class T>
struct Workspace {
    template <CostOperator Operator>
    explicit Workspace(const Operator& M)
        : p(M.row_capacity(), 3), over_p(M.row_capacity(), 6), U(M.row_capacity(), 47), next_U(M.row_capacity(), 52),
          minus_g(M.row_capacity(), 57), q(M.column_capacity(), 16), over_q(M.column_capacity(), 19),
          h(M.column_capacity(), 26), minus_L(M.column_capacity(), 42),
          drawn(std::max(M.row_count(), M.column_count()) + kGroup + kLineLanes<T>, 61),
          scratch(M.scratch_capacity(), 34) {}

    Buffer<T> p, over_p, U, next_U, minus_g;
    Buffer<T> q, over_q, h, minus_L;
    Buffer<T> drawn, scratch;
};

// One side of a problem in storage order: x = theta T / w - (bound - shift), and +inf where the weight is zero.
template <class T>
struct Side {
    const T *weight, *over_weight;
    T *bound, *x;

    // V is a vector or a scalar. The shifted bound is stored.
    template <class V>
    void sample_at(const T* theta, std::size_t i, T temperature, T shift) const {
        const V zero{};
        const V b = load_as<V>(bound + i) - (shift - zero);
        const V noise = load_as<V>(theta) * ((temperature - zero) * load_as<V>(over_weight + i));
        store(bound + i, b);
        store(x + i, load_as<V>(weight + i) > zero ? noise - b : kInf<T> - zero);
    }

    void sample(const T* theta, std::size_t first, std::size_t n, T temperature, T shift) const {
        std::size_t i = 0;
        for (; i + kLanes<T> <= n; i += kLanes<T>) sample_at<Vec<T>>(theta + i, first + i, temperature, shift);
        for (; i < n; ++i) sample_at<T>(theta + i, first + i, temperature, shift);
    }
};

template <class T>
inline void reciprocals(const T* x, T* over_x, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) over_x[i] = T(1) / x[i];
}

template <class T, CostOperator Operator>
void run_chain(Operator& M, const Plan& plan, const Chain<T>& chain, Workspace<T>& work) {
    M.set_support(chain.q);
    const std::size_t m1 = M.row_length(), m2 = M.column_length();
    T *p = work.p.get(), *q = work.q.get(), *h = work.h.get(), *minus_g = work.minus_g.get();
    T *U = work.U.get(), *next_U = work.next_U.get(), *minus_L = work.minus_L.get(), *drawn = work.drawn.get();

    M.pack_rows(chain.p, p);
    std::fill(q, q + m2, T(0));  // the buffer may contain the support of another problem
    M.pack_columns(chain.q, q);
    reciprocals(p, work.over_p.get(), m1);
    reciprocals(q, work.over_q.get(), m2);
    M.pack_columns(chain.h, h);
    for (std::size_t j = 0; j < m2; ++j)
        if (!(q[j] > 0)) h[j] = kInf<T>;
    const std::size_t pin = static_cast<std::size_t>(std::find_if(p, p + m1, [](T w) { return w > 0; }) - p);

    M.transform_to_rows(h, U, work.scratch.get());
    for (std::size_t s = 0; s < plan.sweeps; ++s) {
        const T temperature = static_cast<T>(chain.temperatures[s]);
        const std::uint32_t stream = static_cast<std::uint32_t>(*chain.sweep) * 2;

        const double level = weighted_sum(p, U, m1);
        const T shift = plan.pinned ? T(0) : static_cast<T>(level);
        exponentials({plan.seed, chain.id, stream}, drawn, 0, M.row_count());
        const Side<T> g{p, work.over_p.get(), U, minus_g};
        M.for_row_runs([&](std::size_t from, std::size_t to, std::size_t n) {
            g.sample(drawn + from, to, n, temperature, shift);
        });
        if (plan.pinned) minus_g[pin] = T(0);

        exponentials({plan.seed, chain.id, stream + 1}, drawn, M.column_first(), M.column_last());
        M.arrange_columns(drawn);
        const Side<T> column{q, work.over_q.get(), minus_L, h};
        const auto sample_h = [&](std::size_t k, std::size_t count) {
            M.for_column_runs(k, count, [&](std::size_t from, std::size_t to, std::size_t n) {
                column.sample(drawn + from, to, n, temperature, T(0));
            });
        };
        const bool last = s + 1 == plan.sweeps;
        if (last) {
            M.transform_to_columns(minus_g, minus_L, work.scratch.get());
            sample_h(0, m2);
        } else {
            M.transform_both(minus_g, minus_L, h, next_U, work.scratch.get(), sample_h);
        }

        ++*chain.sweep;
        chain.values[s] = level - static_cast<double>(shift) + weighted_sum(q, minus_L, m2);
        const bool mixed = plan.tau > 0 && s >= plan.tau && (s + 1) % plan.stride == 0 &&
                           chain.values[s] - chain.values[s - plan.tau] <
                               plan.mixing_slope * static_cast<double>(plan.tau) * temperature;
        if (last || mixed) break;
        std::swap(U, next_U);
    }

    *chain.energy = -weighted_sum(p, minus_g, m1) - weighted_sum(q, h, m2);
    M.unpack_rows(U, chain.U);
    std::fill(chain.h, chain.h + M.column_count(), kInf<T>);
    M.unpack_columns(h, chain.h);
    if (chain.g != nullptr) {
        M.unpack_rows(minus_g, chain.g);
        for (std::size_t i = 0; i < M.row_count(); ++i) chain.g[i] = -chain.g[i];
    }
    if (chain.L != nullptr) {
        M.unpack_columns(minus_L, chain.L);
        M.transform_to_other_columns(minus_g, minus_L, chain.L, work.scratch.get());
        for (std::size_t j = 0; j < M.column_count(); ++j) chain.L[j] = -chain.L[j];
    }
}

}  // namespace gibbsot
