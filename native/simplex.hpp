// A network simplex for transportation problems on a list of arcs that grows: arcs are added, the basis stays.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <type_traits>

#include "basis.hpp"
#include "double_double.hpp"
#include "forest.hpp"

namespace gibbsot {

struct Arc {
    std::int32_t tail, head;  // nodes
    double cost;
};
struct ArcList {
    std::vector<Arc> arcs;
    std::size_t fresh = 0;  // the first of the arcs that were added last

    std::size_t size() const { return arcs.size(); }
    const Arc& operator[](std::int32_t k) const { return arcs[static_cast<std::size_t>(k)]; }
};
struct NodeWeights {
    std::vector<double> p, q;
};

// A basis and its pivots, whatever the type of the flows.
class ArcEngine {
public:
    using Index = std::int32_t;
    virtual ~ArcEngine() = default;

    // A basis of the greedy plan on reduced costs and of artificial arcs, whose reduced cost is `artificial`.
    virtual void start(bool greedy) = 0;
    // A basis that keeps the arcs of a list where they carry flow; trees hang from the nodes `tops`.
    virtual void start(const std::vector<Edge>& edges, const NodeWeights& weights, const std::vector<Index>& tops) = 0;
    // Pivots until no arc has a reduced cost below -tolerance, and below -relative times its terms, which would be
    // rounding (true), or `most` pivots are done (false). Calls pause() every few milliseconds' worth of work. A shift of
    // potentials takes digits that only refresh() brings back: until then reduced costs that are far smaller than the
    // largest shift do not count.
    virtual bool optimise(std::int64_t most, double tolerance, double relative, const std::function<void()>& pause) = 0;
    // Potentials without the rounding errors of the pivots.
    virtual void refresh() = 0;
    virtual std::vector<Edge> edges() const = 0;
    // Row, column (-1 for the root) and number (-1 if artificial) of each node's arc.
    virtual void tree(std::int64_t* i, std::int64_t* j, std::int64_t* arc) const = 0;
    virtual double y(Index v) const = 0;
    virtual double value(const NodeWeights& weights) = 0;
    // The flow of each node's arc as a share of the total, from exact arithmetic. Returns whether no flow is negative
    // and none is artificial.
    virtual bool exact_shares(const NodeWeights& weights, double* share) = 0;
    virtual double artificial_flow(const NodeWeights& weights) = 0;

    std::vector<double> y0;  // potentials that reduced costs of artificial arcs refer to
    double artificial = 0;
    std::int64_t pivots = 0;
    double largest_shift = 0;  // since potentials were refreshed
    bool hidden = false;       // whether the last optimise() passed over arcs because of it
};

template <class Flow>
class ArcEngineOf final : public ArcEngine {
public:
    using Tree = Basis<Flow>;
    static constexpr Index kNone = Tree::kNone;

    ArcEngineOf(const ArcList& list, std::vector<Flow> a, std::vector<Flow> b)
        : list_(list), a_(std::move(a)), b_(std::move(b)), basis_(a_.size(), b_.size()) {}

    void start(bool greedy) override {
        const std::size_t n = a_.size() + b_.size();
        basis_.clear();
        std::vector<Flow> left(a_);
        left.insert(left.end(), b_.begin(), b_.end());
        std::vector<char> done(n);
        std::vector<Index> above(n, kNone);  // shortcuts on the way up
        const auto topmost = [&](Index v) {
            while (done[at(v)]) {
                if (above[at(v)] == kNone) above[at(v)] = basis_[v].parent;
                Index& up = above[at(v)];
                if (done[at(up)]) up = above[at(up)] == kNone ? basis_[up].parent : above[at(up)];
                v = up;
            }
            return v;
        };
        if (greedy) {
            std::vector<std::pair<float, Index>> order(list_.size());
            for (std::size_t k = 0; k < order.size(); ++k) {
                const Arc& arc = list_.arcs[k];
                order[k] = {static_cast<float>(arc.cost - y0[at(arc.tail)] + y0[at(arc.head)]), static_cast<Index>(k)};
            }
            std::sort(order.begin(), order.end());
            for (const auto& [reduced, k] : order) {
                const Index u = list_[k].tail, v = list_[k].head;
                if (done[at(u)]) continue;
                if (done[at(v)]) {  // a row with nothing left joins another tree
                    if (is_positive(left[at(u)]) || topmost(v) == u) continue;
                    basis_.hang(u, v, k, left[at(u)]);
                    done[at(u)] = 1;
                    continue;
                }
                const bool row_done = left[at(u)] < left[at(v)];  // of two equals the row stays, with nothing left
                const Index child = row_done ? u : v, parent = row_done ? v : u;
                basis_.hang(child, parent, k, left[at(child)]);
                left[at(parent)] -= left[at(child)];
                done[at(child)] = 1;
            }
        }
        for (std::size_t v = 0; v < n; ++v)
            if (!done[v]) basis_.hang(static_cast<Index>(v), basis_.root(), kNone, left[v]);
        basis_.finish([&](Index v) { return tree_cost(v); }, [&](Index v) { return gauge(v); });
        next_ = 0;
    }

    void start(const std::vector<Edge>& edges, const NodeWeights& weights, const std::vector<Index>& tops) override {
        basis_.clear();
        with_words(weights.p, weights.q, [&]<std::size_t K>() {
            const ExactWeights<K> exact(weights.p.data(), a_.size(), weights.q.data(), b_.size());
            const auto as_flow = [&](const Wide<K>& flow) {
                if constexpr (std::is_same_v<Flow, double>)
                    return exact.share(flow);
                else if constexpr (std::is_same_v<Flow, Wide<K>>)
                    return flow;
                else
                    return Flow{};  // the words of a problem do not change
            };
            Forest<K, Tree, decltype(as_flow), void (*)(Index, Index)>(basis_, edges, exact, as_flow,
                                                                               [](Index, Index) {}, tops);
        });
        basis_.finish([&](Index v) { return tree_cost(v); }, [&](Index v) { return gauge(v); });
        next_ = 0;
    }

    bool optimise(std::int64_t most, double tolerance, double relative, const std::function<void()>& pause) override {
        const std::size_t n = list_.size();
        if (known_ < n) next_ = list_.fresh;  // prices the new ones first
        known_ = n;
        if (next_ >= n) next_ = 0;
        hidden = false;
        for (std::int64_t count = 0; count < most; ++count) {
            const Entering entering = find_entering_arc(tolerance, relative);
            if (entering.arc == n) return true;
            const Arc& arc = list_.arcs[entering.arc];
            basis_.pivot(arc.tail, arc.head, static_cast<Index>(entering.arc), entering.reduced);
            largest_shift = std::max(largest_shift, -entering.reduced);
            if (++pivots % 1000 == 0) pause();
        }
        return false;
    }

    void refresh() override {
        largest_shift = 0;
        basis_.refresh([&](Index v) { return tree_cost(v); }, [&](Index v) { return gauge(v); });
    }
    std::vector<Edge> edges() const override { return edges_of(basis_); }
    void tree(std::int64_t* i, std::int64_t* j, std::int64_t* arc) const override {
        for (Index v = 0; v < basis_.root(); ++v) {
            const auto& node = basis_[v];
            const Index row = basis_.is_row(v) ? v : node.parent, column = basis_.is_row(v) ? node.parent : v;
            i[v] = row == basis_.root() ? kNone : row;
            j[v] = column == basis_.root() ? kNone : column - basis_.rows();
            arc[v] = node.arc;
        }
    }
    double y(Index v) const override { return basis_.y(v); }

    double value(const NodeWeights& weights) override {
        return total(weights, [&](Index v) { return basis_[v].arc == kNone ? 0.0 : tree_cost(v); });
    }
    double artificial_flow(const NodeWeights& weights) override {
        return total(weights, [&](Index v) { return basis_[v].arc == kNone ? 1.0 : 0.0; });
    }
    bool exact_shares(const NodeWeights& weights, double* share) override {
        return with_words(weights.p, weights.q, [&]<std::size_t K>() {
            const ExactWeights<K> exact(weights.p.data(), a_.size(), weights.q.data(), b_.size());
            bool carried = true;
            const bool feasible =
                exact_flows<K>(basis_, basis_.preorder(), exact, [&](Index v, const Wide<K>& flow) {
                    if (share != nullptr) share[v] = exact.share(flow);
                    if (basis_[v].arc == kNone && !flow.zero()) carried = false;
                });
            return feasible && carried;
        });
    }

private:
    static constexpr double kDrift = 0x1p-50;
    struct Entering {
        std::size_t arc;  // the number of arcs if there is none
        double reduced;
    };

    // The pivot rule: LEMON's block search. Arcs are priced in blocks, from where the last search ended; the least reduced
    // cost of the first block that has one which counts enters. A larger block finds a better
    // arc, a smaller one finds it sooner: LEMON's has sqrt(n) of n arcs and ours a tenth of that. With sqrt(n) there are
    // half as many pivots, but they take 1.5 times as long for 50,000 points in the square, and as long for far clouds
    // and images of 256 x 256. Reduced costs that rounding may have made do not count; see optimise().
    Entering find_entering_arc(double tolerance, double relative) {
        const std::size_t n = list_.size();
        const std::size_t block =
            std::max<std::size_t>(16, static_cast<std::size_t>(0.1 * std::sqrt(static_cast<double>(n))));
        const double drift = kDrift * largest_shift;
        Entering entering{n, -tolerance};
        std::size_t k = next_;
        for (std::size_t left = n; left > 0 && entering.arc == n;) {
            const std::size_t some = std::min({block, left, n - k});
            for (std::size_t end = k + some; k < end; ++k) {
                const Arc& arc = list_.arcs[k];
                const double tail = basis_.y(arc.tail), head = basis_.y(arc.head), reduced = arc.cost - tail + head;
                if (reduced < entering.reduced &&
                    reduced < -relative * (std::abs(arc.cost) + std::abs(tail) + std::abs(head))) {
                    if (reduced < -drift)
                        entering = {k, reduced};
                    else
                        hidden = true;
                }
            }
            left -= some;
            if (k == n) k = 0;
        }
        next_ = k;
        return entering;
    }
    static std::size_t at(Index v) { return static_cast<std::size_t>(v); }
    double tree_cost(Index v) const {
        const Index k = basis_[v].arc;
        if (k != kNone) return list_[k].cost;
        return artificial + (basis_.is_row(v) ? y0[at(v)] : -y0[at(v)]);
    }
    double gauge(Index v) const { return basis_.is_row(v) ? -artificial : artificial; }
    // The sum of the flows, as shares of the total, times a factor of each node.
    template <class Factor>
    double total(const NodeWeights& weights, Factor factor) {
        double sum = 0;
        if constexpr (std::is_same_v<Flow, double>) {
            for (Index v = 0; v < basis_.root(); ++v) sum += basis_[v].flow * factor(v);
        } else {
            std::vector<double> share(at(basis_.root()));
            exact_shares(weights, share.data());
            for (Index v = 0; v < basis_.root(); ++v) sum += share[at(v)] * factor(v);
        }
        return sum;
    }

    const ArcList& list_;
    std::vector<Flow> a_, b_;
    Tree basis_;
    std::size_t next_ = 0, known_ = 0;
};

// The arcs of a problem and its present basis. Flows are doubles until rounding has misplaced some mass; then they are
// exact.
class ArcSimplex {
public:
    using Index = ArcEngine::Index;

    // Positive weights of the rows and of the columns.
    ArcSimplex(const double* p, std::size_t rows, const double* q, std::size_t columns)
        : weights_{{p, p + rows}, {q, q + columns}} {
        renew();
    }
    ArcSimplex(const ArcSimplex&) = delete;
    ArcSimplex& operator=(const ArcSimplex&) = delete;

    std::size_t rows() const { return weights_.p.size(); }
    std::size_t columns() const { return weights_.q.size(); }
    std::size_t arcs() const { return list_.size(); }
    std::int64_t pivots() const { return pivots_ + engine_->pivots; }
    double artificial_flow() const { return engine_->artificial_flow(weights_); }
    double value() const { return engine_->value(weights_); }

    // Arcs from rows i to columns j.
    void add(const std::int64_t* i, const std::int64_t* j, const double* cost, std::size_t n) {
        list_.fresh = list_.size();
        if (list_.arcs.capacity() < list_.size() + n) list_.arcs.reserve(list_.size() + n + list_.size() / 16);
        const auto m1 = static_cast<Index>(rows());
        for (std::size_t k = 0; k < n; ++k)
            list_.arcs.push_back({static_cast<Index>(i[k]), m1 + static_cast<Index>(j[k]), cost[k]});
    }
    // A first basis from potentials f and g, and from the arcs of a list that can carry flow, if there are any.
    void start(const double* f, const double* g, double artificial, bool greedy, const std::vector<Edge>& edges,
               const std::vector<Index>& tops) {
        if (exact_) renew();
        engine_->y0.assign(f, f + rows());
        for (std::size_t j = 0; j < columns(); ++j) engine_->y0.push_back(-g[j]);
        engine_->artificial = artificial;
        if (edges.empty())
            engine_->start(greedy);
        else
            engine_->start(edges, weights_, tops);
    }
    Edge edge(std::size_t arc) const {
        return {list_.arcs[arc].tail, list_.arcs[arc].head, static_cast<Index>(arc)};
    }
    bool optimise(std::int64_t most, double tolerance, double relative, const std::function<void()>& pause) {
        return engine_->optimise(most, tolerance, relative, pause);
    }
    void refresh() { engine_->refresh(); }
    bool hidden() const { return engine_->hidden; }
    // Whether the exact flows of the basis are feasible and none is artificial. If not, flows are exact from now on, and
    // the present basis is a feasible one.
    bool settle() {
        if (engine_->exact_shares(weights_, nullptr)) return true;
        if (exact_) return false;
        const double artificial = engine_->artificial;
        const std::vector<double> y = potentials();
        const std::vector<Edge> edges = engine_->edges();
        pivots_ += engine_->pivots;
        exact_ = true;
        with_words(weights_.p, weights_.q, [&]<std::size_t K>() {
            ExactWeights<K> exact(weights_.p.data(), rows(), weights_.q.data(), columns());
            engine_ = std::make_unique<ArcEngineOf<Wide<K>>>(list_, std::move(exact.a), std::move(exact.b));
        });
        engine_->artificial = artificial;
        engine_->y0 = y;
        engine_->start(edges, weights_, {});
        return false;
    }
    // New costs of all arcs; the basis stays and is feasible.
    void set_costs(const double* cost) {
        for (std::size_t k = 0; k < list_.size(); ++k) list_.arcs[k].cost = cost[k];
        engine_->refresh();
    }
    // New weights; those arcs of the basis stay that can.
    void set_weights(const double* p, const double* q, double artificial) {
        const std::vector<double> y = potentials();
        const std::vector<Edge> edges = engine_->edges();
        weights_ = {{p, p + rows()}, {q, q + columns()}};
        renew();
        engine_->artificial = artificial;
        engine_->y0 = y;
        engine_->start(edges, weights_, {});
    }
    // The cost of artificial arcs above the potentials given to start(); the basis stays.
    void set_artificial(double cost) {
        engine_->artificial = cost;
        engine_->refresh();
    }
    void potentials(double* f, double* g) const {
        const auto m1 = static_cast<Index>(rows()), m2 = static_cast<Index>(columns());
        for (Index v = 0; v < m1; ++v) f[v] = engine_->y(v);
        for (Index v = 0; v < m2; ++v) g[v] = -engine_->y(m1 + v);
    }
    void tree(std::int64_t* i, std::int64_t* j, std::int64_t* arc) const { engine_->tree(i, j, arc); }
    void exact_shares(double* share) const { engine_->exact_shares(weights_, share); }

private:
    // An engine with flows in doubles.
    void renew() {
        if (engine_) pivots_ += engine_->pivots;
        std::vector<double> a(weights_.p), b(weights_.q);
        for (std::vector<double>* side : {&a, &b}) {
            DoubleDouble sum;
            for (const double x : *side) sum += x;
            for (double& x : *side) x /= sum.high;
        }
        engine_ = std::make_unique<ArcEngineOf<double>>(list_, std::move(a), std::move(b));
        exact_ = false;
    }
    std::vector<double> potentials() const {
        std::vector<double> y(rows() + columns());
        for (std::size_t v = 0; v < y.size(); ++v) y[v] = engine_->y(static_cast<Index>(v));
        return y;
    }

    NodeWeights weights_;
    ArcList list_;
    std::unique_ptr<ArcEngine> engine_;
    bool exact_ = false;
    std::int64_t pivots_ = 0;
};

}  // namespace gibbsot
