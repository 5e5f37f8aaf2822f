// Chains whose models are mixtures of components, and the gradients of their values for components and memberships.
//
// `Mixtures` in mixtures.py is the specification. Components, memberships and potentials are integers, multiples
// of quanta, with so few bits that sums of their products are exact in double precision. So results do not depend on
// the order of the terms: not on threads, blocks or vector widths.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "sweep.hpp"

namespace gibbsot {

// Measures that are computed together: a component is read once for all of them.
inline constexpr std::size_t kMeasures = 4;

// K rows of m integers, padded to whole cache lines.
class Rows {
public:
    Rows(std::size_t count, std::size_t m, std::size_t line)
        : count_(count), stride_(padded<double>(m)), data_(count * stride_, line) {}

    std::size_t count() const { return count_; }
    std::size_t stride() const { return stride_; }
    std::size_t size() const { return count_ * stride_; }
    double* operator[](std::size_t k) { return data_.get() + k * stride_; }
    const double* operator[](std::size_t k) const { return data_.get() + k * stride_; }

private:
    std::size_t count_, stride_;
    Buffer<double> data_;
};

// P_b = sum_k W_bk D_k for a block, and for its kMeasures rows of memberships.
inline void mix(const Rows& D, const double* W, Rows& P) {
    for (std::size_t i = 0; i < D.stride(); i += kLanes<double>) {
        Vec<double> sum[kMeasures] = {};
        for (std::size_t k = 0; k < D.count(); ++k) {
            const Vec<double> component = load(D[k] + i);
            for (std::size_t b = 0; b < kMeasures; ++b) sum[b] = sum[b] + splat(W[b * D.count() + k]) * component;
        }
        for (std::size_t b = 0; b < kMeasures; ++b) store(P[b] + i, sum[b]);
    }
}

// G_k += sum_b W_bk U_b.
inline void add_products(const double* W, const Rows& U, Rows& G) {
    for (std::size_t k = 0; k < G.count(); ++k) {
        Vec<double> weight[kMeasures];
        for (std::size_t b = 0; b < kMeasures; ++b) weight[b] = splat(W[b * G.count() + k]);
        for (std::size_t i = 0; i < G.stride(); i += kLanes<double>) {
            Vec<double> sum = load(G[k] + i);
            for (std::size_t b = 0; b < kMeasures; ++b) sum = sum + weight[b] * load(U[b] + i);
            store(G[k] + i, sum);
        }
    }
}

// out_bk = <U_b, D_k>.
inline void inner_products(const Rows& D, const Rows& U, double* out) {
    for (std::size_t k = 0; k < D.count(); ++k) {
        Vec<double> sum[kMeasures] = {};
        for (std::size_t i = 0; i < D.stride(); i += kLanes<double>) {
            const Vec<double> component = load(D[k] + i);
            for (std::size_t b = 0; b < kMeasures; ++b) sum[b] = sum[b] + component * load(U[b] + i);
        }
        for (std::size_t b = 0; b < kMeasures; ++b) {
            double lanes[kLanes<double>], total = 0;
            store(lanes, sum[b]);
            for (const double lane : lanes) total += lane;
            out[b * D.count() + k] = total;
        }
    }
}

// The nearest integer, ties to even, of a number below 2^51.
inline double nearest_integer(double x) {
    constexpr double shift = 0x1.8p52;
    return (x + shift) - shift;
}

// The sums over all measures, to which threads add theirs.
struct ComponentSums {
    std::int64_t* total;
    std::size_t K, m;
    std::size_t most;  // measures whose sum is exact in double precision
    std::mutex lock{};

    void add(Rows& part) {
        const std::lock_guard guard(lock);
        for (std::size_t k = 0; k < K; ++k)
            for (std::size_t i = 0; i < m; ++i) total[k * m + i] += static_cast<std::int64_t>(part[k][i]);
        std::fill(part[0], part[0] + part.size(), 0.0);
    }
};

// Measures as sparse rows, with their memberships and chains.
template <class T>
struct MixtureChains {
    std::size_t n;
    const double *memberships, *weighted;  // weighted: null if there is no gradient for the components
    const std::int64_t *starts, *columns;  // of the supports
    const double* weights;
    const std::uint64_t* ids;
    const double* temperatures;
    std::size_t temperature_step;  // 0 if there is one temperature for all
    double quantum;                // of potentials
    T* h;
    std::int64_t* sweep;
    double *values, *gradients;  // gradients: for the memberships
};

// Advances the chains of blocks of measures, in one thread.
template <class T, CostOperator Operator>
class MixtureWorker {
public:
    MixtureWorker(Operator M, const Plan& plan, const Rows& D, const MixtureChains<T>& chains, ComponentSums& sums)
        : M_(std::move(M)), plan_(plan), D_(D), chains_(chains), sums_(sums), work_(M_),
          P_(kMeasures, M_.row_count(), 5), U_(kMeasures, M_.row_count(), 13),
          products_(chains.weighted ? D.count() : 0, M_.row_count(), 21), p_(M_.row_count()), u_(M_.row_count()),
          q_(M_.column_count()), h_(M_.column_count()), temperatures_(plan.sweeps), history_(plan.sweeps),
          memberships_(kMeasures * D.count()), weighted_(kMeasures * D.count()), gradients_(kMeasures * D.count()) {}
    ~MixtureWorker() { flush(); }
    MixtureWorker(const MixtureWorker&) = delete;
    MixtureWorker& operator=(const MixtureWorker&) = delete;

    void operator()(std::size_t block) {
        const std::size_t first = block * kMeasures, count = std::min(kMeasures, chains_.n - first), K = D_.count();
        take(chains_.memberships, first, count, memberships_);
        mix(D_, memberships_.data(), P_);
        for (std::size_t b = 0; b < count; ++b) advance(first + b, P_[b], U_[b]);
        for (std::size_t b = count; b < kMeasures; ++b) std::fill(U_[b], U_[b] + U_.stride(), 0.0);
        inner_products(D_, U_, gradients_.data());
        std::copy(gradients_.data(), gradients_.data() + count * K, chains_.gradients + first * K);
        if (chains_.weighted == nullptr) return;
        if (added_ + kMeasures > sums_.most) flush();
        take(chains_.weighted, first, count, weighted_);
        add_products(weighted_.data(), U_, products_);
        added_ += kMeasures;
    }

private:
    // The rows of a block; those beyond the last measure are zero.
    void take(const double* rows, std::size_t first, std::size_t count, std::vector<double>& block) const {
        const std::size_t K = D_.count();
        std::fill(block.begin(), block.end(), 0.0);
        std::copy(rows + first * K, rows + (first + count) * K, block.begin());
    }

    // Runs the chain of one measure with model P; U are its potentials as integers.
    void advance(std::size_t j, const double* P, double* U) {
        const std::size_t begin = static_cast<std::size_t>(chains_.starts[j]),
                          end = static_cast<std::size_t>(chains_.starts[j + 1]);
        double total = 0;
        for (std::size_t i = 0; i < p_.size(); ++i) total += P[i];
        for (std::size_t i = 0; i < p_.size(); ++i) p_[i] = static_cast<T>(P[i] / total);
        std::fill(q_.begin(), q_.end(), T(0));
        for (std::size_t e = begin; e < end; ++e) {
            const auto column = static_cast<std::size_t>(chains_.columns[e]);
            q_[column] = static_cast<T>(chains_.weights[e]);
            h_[column] = chains_.h[e];
        }
        std::fill(temperatures_.begin(), temperatures_.end(), chains_.temperatures[j * chains_.temperature_step]);
        const std::int64_t before = chains_.sweep[j];
        double energy;
        run_chain(M_, plan_,
                  Chain<T>{p_.data(), q_.data(), temperatures_.data(), chains_.ids[j], h_.data(), chains_.sweep + j,
                           u_.data(), nullptr, nullptr, history_.data(), &energy},
                  work_);
        chains_.values[j] = history_[static_cast<std::size_t>(chains_.sweep[j] - before) - 1];
        for (std::size_t e = begin; e < end; ++e) {
            const T h = h_[static_cast<std::size_t>(chains_.columns[e])];
            if (h < kInf<T>) chains_.h[e] = h;
        }
        for (std::size_t i = 0; i < u_.size(); ++i)
            U[i] = nearest_integer(static_cast<double>(u_[i]) / chains_.quantum);
    }

    void flush() {
        if (added_ > 0) sums_.add(products_);
        added_ = 0;
    }

    Operator M_;
    const Plan& plan_;
    const Rows& D_;
    const MixtureChains<T>& chains_;
    ComponentSums& sums_;
    Workspace<T> work_;
    Rows P_, U_, products_;
    std::size_t added_ = 0;  // measures in products_
    std::vector<T> p_, u_, q_, h_;
    std::vector<double> temperatures_, history_, memberships_, weighted_, gradients_;
};

}  // namespace gibbsot
