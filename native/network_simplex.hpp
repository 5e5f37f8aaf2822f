// A transshipment problem with its present basis, exact flows, potentials with twice the digits, and couplings.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "contraction.hpp"
#include "double_double.hpp"

namespace gibbsot {

// Rows and columns lie at nodes: several may share one, and a node may have none. Flows are doubles until rounding has
// misplaced some mass; then they are exact.
class NetworkSimplex {
public:
    using Index = Network::Index;
    using Stop = NetworkEngine::Stop;

    struct Side {
        std::vector<Index> node;
        std::vector<double> weight;
    };

    NetworkSimplex(Network network, Side rows, Side columns)
        : network_(std::move(network)), rows_(std::move(rows)), columns_(std::move(columns)) {}
    NetworkSimplex(const NetworkSimplex&) = delete;
    NetworkSimplex& operator=(const NetworkSimplex&) = delete;

    std::size_t nodes() const { return network_.nodes; }
    std::size_t links() const { return network_.links.size(); }
    std::size_t rows() const { return rows_.node.size(); }
    std::size_t columns() const { return columns_.node.size(); }
    std::int64_t pivots() const { return pivots_ + (engine_ ? engine_->pivots : 0); }
    bool hidden() const { return engine_->hidden; }

    // A first basis: the spanning forest of some links, or if there are none one that coarser networks suggest.
    void start(std::vector<Index> chosen, double artificial, const Stop& stop) {
        with_words(rows_.weight, columns_.weight, [&]<std::size_t K>() {
            const Exact<K> exact(*this);
            if (chosen.empty()) {
                std::vector<double> net(nodes());
                for (std::size_t v = 0; v < nodes(); ++v) net[v] = exact.weights.share(exact.net[v]);
                chosen = coarse_forest(network_, net, stop);
            }
            make<K>(exact, chosen, artificial, false);
        });
    }
    bool optimise(std::int64_t most, double tolerance, double relative, const Stop& stop) {
        return engine_->optimise(most, tolerance, relative, stop);
    }
    void refresh() { engine_->refresh(); }
    void set_artificial(double cost) {
        engine_->artificial = cost;
        engine_->refresh();
    }
    // Whether the exact flows of the basis are feasible and none is artificial. If not, flows are exact from now on, and
    // the present basis is a feasible one.
    bool settle() {
        bool settled = false;
        with_words(rows_.weight, columns_.weight, [&]<std::size_t K>() {
            const Exact<K> exact(*this);
            bool feasible = true, carried = true;
            for_flows<K>(exact, [&](Index v, const Wide<K>& flow) {
                if (flow.negative()) feasible = false;
                if (engine_->link(v) < 0 && !flow.zero()) carried = false;
            });
            settled = feasible && carried;
            if (!settled && !exact_) make<K>(exact, tree_links(), engine_->artificial, true);
        });
        return settled;
    }
    double value() const {
        return total([&](Index v) { return engine_->link(v) < 0 ? 0.0 : tree_cost(v); });
    }
    double artificial_flow() const {
        return total([&](Index v) { return engine_->link(v) < 0 ? 1.0 : 0.0; });
    }

    // Of the arc of each node to its parent: tail and head, the number of nodes for the root; the number of its link, -1 if
    // it is artificial; and its exact flow as a share of the total.
    void tree(std::int64_t* tail, std::int64_t* head, std::int64_t* link, double* share) const {
        for (std::size_t v = 0; v < nodes(); ++v) {
            const auto node = static_cast<Index>(v);
            const Index parent = engine_->parent(node);
            const bool up = engine_->leads_up(node);
            tail[v] = up ? node : parent;
            head[v] = up ? parent : node;
            link[v] = engine_->link(node);
        }
        with_words(rows_.weight, columns_.weight, [&]<std::size_t K>() {
            const Exact<K> exact(*this);
            for_flows<K>(exact, [&](Index v, const Wide<K>& flow) { share[v] = exact.weights.share(flow); });
        });
    }

    // Potentials y with y_tail - y_head equal to the length of each link of the basis, as sums of two doubles; then lowered
    // where a link is violated by more than their rounding: y_tail = length + y_head, until none is, or there were many.
    // Returns a bound of the largest violation that is left, rounding included.
    double potentials(double* high, double* low) const {
        constexpr double kRounding = 0x1p-98;  // of sums of two doubles, relative to the terms
        const std::vector<Index> order = engine_->preorder();
        const auto get = [&](Index v) { return DoubleDouble{high[v], low[v]}; };
        const auto set = [&](Index v, const DoubleDouble& x) {
            high[v] = x.high;
            low[v] = x.low;
        };
        for (const Index v : order) {
            const Index parent = engine_->parent(v);
            DoubleDouble own{engine_->y(v), 0};
            if (engine_->link(v) >= 0) {
                own = get(parent);
                own += engine_->leads_up(v) ? tree_cost(v) : -tree_cost(v);
            }
            set(v, own);
        }
        std::vector<std::size_t> begin(nodes() + 2);
        for (const auto& link : network_.links) {
            ++begin[static_cast<std::size_t>(link.tail) + 2];
            ++begin[static_cast<std::size_t>(link.head) + 2];
        }
        std::partial_sum(begin.begin(), begin.end(), begin.begin());
        std::vector<Index> at_node(2 * links());
        for (std::size_t k = 0; k < links(); ++k) {
            at_node[begin[static_cast<std::size_t>(network_.links[k].tail) + 1]++] = static_cast<Index>(k);
            at_node[begin[static_cast<std::size_t>(network_.links[k].head) + 1]++] = static_cast<Index>(k);
        }
        // How much y of one end exceeds the length plus y of the other, and what rounding may hide.
        const auto violation = [&](Index from, Index to, double length) -> std::pair<double, double> {
            if (std::isinf(length)) return {-kInfinite, 0.0};
            DoubleDouble over = get(from);
            over += DoubleDouble{-high[to], -low[to]};
            over += -length;
            return {over.value(), kRounding * (std::abs(high[from]) + std::abs(high[to]) + std::abs(length))};
        };
        // lowest first, as in Dijkstra's algorithm: a tree that time cut short violates many links
        std::priority_queue<std::pair<double, Index>, std::vector<std::pair<double, Index>>, std::greater<>> queue;
        const auto lower = [&](Index from, Index to, double length) {
            const auto [over, rounding] = violation(from, to, length);
            if (over <= 2 * rounding) return;
            DoubleDouble own = get(to);
            own += length;
            set(from, own);
            queue.emplace(own.high, from);
        };
        for (const auto& link : network_.links) {
            lower(link.tail, link.head, link.forward);
            lower(link.head, link.tail, link.backward);
        }
        for (std::size_t left = 100 * nodes() + 1000; left > 0 && !queue.empty(); --left) {
            const auto [lowest, v] = queue.top();
            queue.pop();
            if (lowest > high[v]) continue;  // lowered again
            for (std::size_t k = begin[static_cast<std::size_t>(v)]; k < begin[static_cast<std::size_t>(v) + 1]; ++k) {
                const auto& link = network_[at_node[k]];
                if (link.head == v)
                    lower(link.tail, v, link.forward);
                else
                    lower(link.head, v, link.backward);
            }
        }
        double most = 0;
        for (const auto& link : network_.links)
            for (const auto& [over, rounding] : {violation(link.tail, link.head, link.forward),
                                                 violation(link.head, link.tail, link.backward)})
                if (over + rounding > 0) most = std::max(most, over + 2 * rounding);
        return most;
    }

    // A coupling along the flow: rows, columns and shares, exact until they are rounded in the end. What a node sends to
    // itself stays; the rest of what has arrived leaves in the order of arrival.
    void coupling(std::vector<std::int64_t>& row, std::vector<std::int64_t>& column, std::vector<double>& share) const {
        with_words(rows_.weight, columns_.weight, [&]<std::size_t K>() { decompose<K>(row, column, share); });
    }

private:
    static constexpr double kInfinite = std::numeric_limits<double>::infinity();

    // The weights in exact arithmetic, and the net supply of each node.
    template <std::size_t K>
    struct Exact {
        explicit Exact(const NetworkSimplex& self)
            : weights(self.rows_.weight.data(), self.rows(), self.columns_.weight.data(), self.columns()),
              net(self.nodes()) {
            for (std::size_t i = 0; i < self.rows(); ++i) net[at(self.rows_.node[i])] += weights.a[i];
            for (std::size_t j = 0; j < self.columns(); ++j) net[at(self.columns_.node[j])] -= weights.b[j];
        }
        ExactWeights<K> weights;
        std::vector<Wide<K>> net;
    };
    static std::size_t at(Index v) { return static_cast<std::size_t>(v); }

    template <std::size_t K>
    void make(const Exact<K>& exact, const std::vector<Index>& chosen, double artificial, bool exact_flows) {
        if (engine_) pivots_ += engine_->pivots;
        exact_ = exact_flows;
        if (exact_flows)
            engine_ = std::make_unique<NetworkEngineOf<Wide<K>>>(
                network_, chosen, exact.net, [](const Wide<K>& x) { return x; }, artificial);
        else
            engine_ = std::make_unique<NetworkEngineOf<double>>(
                network_, chosen, exact.net, [&](const Wide<K>& x) { return exact.weights.share(x); }, artificial);
    }
    std::vector<Index> tree_links() const {
        std::vector<Index> found;
        for (std::size_t v = 0; v < nodes(); ++v)
            if (const Index k = engine_->link(static_cast<Index>(v)); k >= 0) found.push_back(k);
        return found;
    }
    double tree_cost(Index v) const {
        return network_[engine_->link(v)].from(engine_->leads_up(v) ? v : engine_->parent(v));
    }
    // Calls set(v, flow) for the arc of each node, from the leaves up; a flow against its arc is negative.
    template <std::size_t K, class Set>
    void for_flows(const Exact<K>& exact, Set set) const {
        std::vector<Wide<K>> net = exact.net;
        const std::vector<Index> order = engine_->preorder();
        for (std::size_t k = order.size(); k-- > 0;) {
            const Index v = order[k], parent = engine_->parent(v);
            if (at(parent) < nodes()) net[at(parent)] += net[at(v)];
            set(v, engine_->leads_up(v) ? net[at(v)] : -net[at(v)]);
        }
    }
    template <class Factor>
    double total(Factor factor) const {
        double sum = 0;
        if (!exact_) {
            for (std::size_t v = 0; v < nodes(); ++v)
                sum += engine_->flow(static_cast<Index>(v)) * factor(static_cast<Index>(v));
            return sum;
        }
        with_words(rows_.weight, columns_.weight, [&]<std::size_t K>() {
            const Exact<K> exact(*this);
            for_flows<K>(exact, [&](Index v, const Wide<K>& flow) { sum += exact.weights.share(flow) * factor(v); });
        });
        return sum;
    }

    template <std::size_t K>
    void decompose(std::vector<std::int64_t>& row, std::vector<std::int64_t>& column, std::vector<double>& share) const {
        const Exact<K> exact(*this);
        struct Parcel {
            Index row, next;
            Wide<K> mass;
        };
        struct Queue {
            Index first = -1, last = -1;
        };
        struct Out {
            Index node, next;
            Wide<K> flow;
        };
        std::vector<Parcel> parcels;
        std::vector<Queue> queue(nodes());
        const auto append = [&](Index v, Index parcel, Index last) {
            if (queue[at(v)].last < 0)
                queue[at(v)].first = parcel;
            else
                parcels[at(queue[at(v)].last)].next = parcel;
            queue[at(v)].last = last;
        };
        std::vector<Out> outs;
        std::vector<Index> first_out(nodes(), -1), missing(nodes());
        for_flows<K>(exact, [&](Index v, const Wide<K>& flow) {
            if (engine_->link(v) < 0 || !is_positive(flow)) return;
            const Index parent = engine_->parent(v), from = engine_->leads_up(v) ? v : parent,
                        to = engine_->leads_up(v) ? parent : v;
            outs.push_back({to, first_out[at(from)], flow});
            first_out[at(from)] = static_cast<Index>(outs.size() - 1);
            ++missing[at(to)];
        });
        std::vector<std::vector<Index>> wanted(nodes());
        for (std::size_t i = 0; i < rows(); ++i) {
            if (!is_positive(exact.weights.a[i])) continue;
            parcels.push_back({static_cast<Index>(i), -1, exact.weights.a[i]});
            append(rows_.node[i], static_cast<Index>(parcels.size() - 1), static_cast<Index>(parcels.size() - 1));
        }
        for (std::size_t j = 0; j < columns(); ++j)
            if (is_positive(exact.weights.b[j])) wanted[at(columns_.node[j])].push_back(static_cast<Index>(j));
        // Takes so much from the front of a node's queue: give(parcel, mass) for each part.
        const auto take = [&](Index v, Wide<K> mass, auto give) {
            while (is_positive(mass) && queue[at(v)].first >= 0) {
                const Index parcel = queue[at(v)].first;
                const bool whole = parcels[at(parcel)].mass <= mass;
                const Wide<K> part = whole ? parcels[at(parcel)].mass : mass;
                if (whole) {
                    queue[at(v)].first = parcels[at(parcel)].next;
                    if (queue[at(v)].first < 0) queue[at(v)].last = -1;
                } else {
                    parcels[at(parcel)].mass -= part;
                }
                mass -= part;
                give(parcel, part, whole);
            }
        };
        std::vector<Index> ready;
        for (std::size_t v = 0; v < nodes(); ++v)
            if (missing[v] == 0) ready.push_back(static_cast<Index>(v));
        for (std::size_t k = 0; k < ready.size(); ++k) {
            const Index v = ready[k];
            for (const Index j : wanted[at(v)])
                take(v, exact.weights.b[at(j)], [&](Index parcel, const Wide<K>& part, bool) {
                    row.push_back(parcels[at(parcel)].row);
                    column.push_back(j);
                    share.push_back(exact.weights.share(part));
                });
            Index largest = first_out[at(v)];  // gets what is left, without looking at it
            for (Index o = first_out[at(v)]; o >= 0; o = outs[at(o)].next)
                if (outs[at(largest)].flow < outs[at(o)].flow) largest = o;
            for (Index o = first_out[at(v)]; o >= 0; o = outs[at(o)].next) {
                if (o == largest) continue;
                const Index to = outs[at(o)].node;
                take(v, outs[at(o)].flow, [&](Index parcel, const Wide<K>& part, bool whole) {
                    if (!whole) {
                        parcels.push_back({parcels[at(parcel)].row, -1, part});
                        parcel = static_cast<Index>(parcels.size() - 1);
                    }
                    parcels[at(parcel)].next = -1;
                    append(to, parcel, parcel);
                });
            }
            if (largest >= 0 && queue[at(v)].first >= 0) {
                append(outs[at(largest)].node, queue[at(v)].first, queue[at(v)].last);
                queue[at(v)] = {};
            }
            for (Index o = first_out[at(v)]; o >= 0; o = outs[at(o)].next)
                if (--missing[at(outs[at(o)].node)] == 0) ready.push_back(outs[at(o)].node);
        }
    }

    Network network_;
    Side rows_, columns_;
    std::unique_ptr<NetworkEngine> engine_;
    bool exact_ = false;
    std::int64_t pivots_ = 0;
};

}  // namespace gibbsot
