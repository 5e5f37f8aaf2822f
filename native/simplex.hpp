// A network simplex for transportation problems on a list of arcs that grows: arcs are added, the basis stays.
#pragma once

#include <cmath>
#include <numeric>

#include "basis.hpp"
#include "double_double.hpp"

namespace gibbsot {

class ArcSimplex {
public:
    using Tree = Basis<true>;
    using Index = Tree::Index;
    static constexpr Index kNone = Tree::kNone;

    // Positive weights of the rows and of the columns.
    ArcSimplex(const double* a, std::size_t rows, const double* b, std::size_t columns)
        : a_(a, a + rows), b_(b, b + columns), y0_(rows + columns + 1), basis_(rows, columns) {}

    const Tree& basis() const { return basis_; }
    std::size_t arcs() const { return arcs_.size(); }
    double artificial() const { return artificial_; }

    // Arcs from rows i to columns j.
    void add(const std::int64_t* i, const std::int64_t* j, const double* cost, std::size_t n) {
        arcs_.reserve(arcs_.size() + n);
        for (std::size_t k = 0; k < n; ++k) {
            arcs_.push_back({static_cast<Index>(i[k]), basis_.rows() + static_cast<Index>(j[k]), cost[k]});
            largest_ = std::max(largest_, std::abs(cost[k]));
        }
        next_ = arcs_.size() - n;  // prices the new ones first
    }

    // A basis of the greedy plan on reduced costs and of artificial arcs, whose reduced cost is `artificial`.
    // f and g are potentials.
    void start(const double* f, const double* g, double artificial, bool greedy) {
        const std::size_t m1 = a_.size(), m2 = b_.size();
        for (std::size_t i = 0; i < m1; ++i) y0_[i] = f[i];
        for (std::size_t j = 0; j < m2; ++j) y0_[m1 + j] = -g[j];
        y0_[m1 + m2] = 0;
        artificial_ = artificial;
        basis_.clear();
        std::vector<double> left(a_);
        left.insert(left.end(), b_.begin(), b_.end());
        std::vector<char> done(m1 + m2);
        if (greedy) {
            std::vector<std::pair<float, Index>> order(arcs_.size());
            for (std::size_t k = 0; k < arcs_.size(); ++k)
                order[k] = {static_cast<float>(arcs_[k].cost - y0_[at(arcs_[k].tail)] + y0_[at(arcs_[k].head)]),
                            static_cast<Index>(k)};
            std::sort(order.begin(), order.end());
            for (const auto& [reduced, k] : order) {
                const Index u = arcs_[at(k)].tail, v = arcs_[at(k)].head;
                if (done[at(u)] || done[at(v)]) continue;
                const bool row_done = left[at(u)] < left[at(v)];  // of two equals the row stays, with nothing left
                const Index child = row_done ? u : v, parent = row_done ? v : u;
                basis_.hang(child, parent, k, left[at(child)]);
                left[at(parent)] -= left[at(child)];
                done[at(child)] = 1;
            }
        }
        for (std::size_t v = 0; v < m1 + m2; ++v)
            if (!done[v]) basis_.hang(static_cast<Index>(v), basis_.root(), kNone, left[v]);
        basis_.finish([&](Index v) { return tree_cost(v); });
        next_ = 0;
    }

    // Pivots until no arc has a negative reduced cost (true) or `most` pivots are done (false).
    bool optimise(std::int64_t most, double tolerance) {
        const std::size_t n = arcs_.size();
        const std::size_t block = std::max<std::size_t>(16, static_cast<std::size_t>(0.1 * std::sqrt(static_cast<double>(n))));
        const double least = std::max(tolerance, 8 * kUlp * (largest_ + artificial_));  // less is rounding
        std::size_t k = next_ < n ? next_ : 0;
        for (std::int64_t done = 0; done < most; ++done) {
            double best = -least;
            std::size_t found = n, left = n;
            while (left > 0) {
                std::size_t count = std::min({block, left, n - k});
                for (std::size_t end = k + count; k < end; ++k) {
                    const Arc& arc = arcs_[k];
                    const double reduced = arc.cost - basis_.y(arc.tail) + basis_.y(arc.head);
                    if (reduced < best) {
                        best = reduced;
                        found = k;
                    }
                }
                left -= count;
                if (k == n) k = 0;
                if (found < n) break;
            }
            next_ = k;
            if (found == n) return true;
            basis_.pivot(arcs_[found].tail, arcs_[found].head, static_cast<Index>(found), best);
        }
        return false;
    }

    // The flow that artificial arcs still carry.
    double artificial_flow() const {
        double sum = 0;
        for (Index v = basis_[basis_.root()].child; v != kNone; v = basis_[v].next) sum += basis_[v].flow;
        return sum;
    }

    double tree_cost(Index v) const {
        const Index k = basis_[v].arc;
        if (k != kNone) return arcs_[at(k)].cost;
        return artificial_ + (basis_.is_row(v) ? y0_[at(v)] : -y0_[at(v)]);
    }
    double value() const {
        double sum = 0;
        for (Index v = 0; v < basis_.root(); ++v)
            if (basis_[v].arc != kNone) sum += basis_[v].flow * tree_cost(v);
        return sum;
    }
    // New costs of all arcs; the basis stays and is feasible.
    void set_costs(const double* cost) {
        largest_ = 0;
        for (std::size_t k = 0; k < arcs_.size(); ++k) {
            arcs_[k].cost = cost[k];
            largest_ = std::max(largest_, std::abs(cost[k]));
        }
        refresh();
    }
    // New weights; start() makes a basis for them.
    void set_weights(const double* a, const double* b) {
        std::copy(a, a + a_.size(), a_.begin());
        std::copy(b, b + b_.size(), b_.begin());
    }
    // The cost of artificial arcs above the potentials given to start(); the basis stays.
    void set_artificial(double cost) {
        artificial_ = cost;
        refresh();
    }
    // Potentials without the rounding errors of the pivots.
    void refresh() {
        basis_.refresh([&](Index v) { return tree_cost(v); });
    }
    void potentials(double* f, double* g) const {
        for (Index v = 0; v < basis_.rows(); ++v) f[v] = basis_.y(v);
        for (Index v = basis_.rows(); v < basis_.root(); ++v) g[v - basis_.rows()] = -basis_.y(v);
    }
    // The tree's arc at each node: its row and column (-1 for the root), its number (-1 if artificial) and its flow.
    void tree(std::int64_t* i, std::int64_t* j, std::int64_t* arc, double* flow) const {
        for (Index v = 0; v < basis_.root(); ++v) {
            const auto& node = basis_[v];
            const Index row = basis_.is_row(v) ? v : node.parent, column = basis_.is_row(v) ? node.parent : v;
            i[v] = row == basis_.root() ? kNone : row;
            j[v] = column == basis_.root() ? kNone : column - basis_.rows();
            arc[v] = node.arc;
            flow[v] = node.flow;
        }
    }
    // The flow of each node's arc as a share of the total, from exact arithmetic with the weights p and q, of which the
    // basis was found with rounded ones. Returns whether no flow is negative.
    bool exact_shares(const double* p, const double* q, double* share) {
        const std::vector<double> a(p, p + basis_.rows()), b(q, q + basis_.columns());
        const std::size_t words = words_needed(a, b);
        const auto run = [&]<std::size_t K>() {
            const ExactWeights<K> weights(a.data(), a.size(), b.data(), b.size());
            return exact_flows<K>(basis_, basis_.preorder(), weights,
                                  [&](Index v, const Wide<K>& flow) { share[v] = weights.share(flow); });
        };
        if (words <= 2) return run.template operator()<2>();
        if (words <= 4) return run.template operator()<4>();
        return run.template operator()<8>();
    }

private:
    struct Arc {
        Index tail, head;
        double cost;
    };
    static std::size_t at(Index v) { return static_cast<std::size_t>(v); }

    std::vector<double> a_, b_, y0_;
    std::vector<Arc> arcs_;
    Tree basis_;
    double largest_ = 0, artificial_ = 0;
    std::size_t next_ = 0;
};

}  // namespace gibbsot
