// A network simplex for transshipment problems: mass moves along the links of a network, through any of its nodes.
//
// The optimum is that of transport with shortest-path costs, without the distances of all pairs. There are no capacities,
// so a basis is a spanning tree (basis.hpp), and where links lead both ways every spanning tree carries some flow.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "basis.hpp"
#include "wide.hpp"

namespace gibbsot {

// Links between nodes, with a length for each direction; an infinite one forbids it.
struct Network {
    using Index = std::int32_t;
    struct Link {
        Index tail, head;
        double forward, backward;

        // The length from one of the ends to the other.
        double from(Index v) const { return v == tail ? forward : backward; }
        double shorter() const { return std::min(forward, backward); }
    };
    std::size_t nodes = 0;
    std::vector<Link> links;

    const Link& operator[](Index k) const { return links[static_cast<std::size_t>(k)]; }
};

inline bool is_negative(double x) { return x < 0; }
template <std::size_t K>
bool is_negative(const Wide<K>& x) {
    return x.negative();
}
template <class Supply>
Supply size_of(const Supply& x) {
    return is_negative(x) ? -x : x;
}

// Hangs all nodes of an empty basis. The links make a forest; those that close a cycle are left out. Flows follow from the
// leaves up, by the net supplies of the subtrees. A link is cut that may not lead where its flow goes, or that has no flow
// and may not lead towards the root. What then hangs on nothing gets an artificial arc: the basis is strongly feasible.
// `as_flow` turns supplies into flows of the basis.
template <class Supply, class Tree, class AsFlow>
void hang_forest(Tree& basis, const Network& network, const std::vector<Network::Index>& chosen,
                 std::vector<Supply> net, AsFlow as_flow) {
    using Index = Network::Index;
    struct Step {
        Index node, link;
    };
    const auto at = [](Index v) { return static_cast<std::size_t>(v); };
    std::vector<std::size_t> begin(network.nodes + 2);
    for (const Index k : chosen) {
        ++begin[at(network[k].tail) + 2];
        ++begin[at(network[k].head) + 2];
    }
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    std::vector<Step> steps(2 * chosen.size());
    for (const Index k : chosen) {
        const Network::Link& link = network[k];
        steps[begin[at(link.tail) + 1]++] = {link.head, k};
        steps[begin[at(link.head) + 1]++] = {link.tail, k};
    }
    std::vector<Step> up(network.nodes, {Tree::kNone, Tree::kNone});
    std::vector<char> reached(network.nodes);
    std::vector<Index> order;
    order.reserve(network.nodes);
    for (std::size_t top = 0; top < network.nodes; ++top) {
        if (reached[top]) continue;
        reached[top] = 1;
        order.push_back(static_cast<Index>(top));
        for (std::size_t k = order.size() - 1; k < order.size(); ++k) {
            const Index v = order[k];
            for (std::size_t s = begin[at(v)]; s < begin[at(v) + 1]; ++s) {
                const Step& step = steps[s];
                if (reached[at(step.node)]) continue;
                reached[at(step.node)] = 1;
                up[at(step.node)] = {v, step.link};
                order.push_back(step.node);
            }
        }
    }
    for (std::size_t k = order.size(); k-- > 0;) {
        const Index v = order[k], above = up[at(v)].node, link = up[at(v)].link;
        const Supply& own = net[at(v)];
        const bool leads_up = !is_negative(own);
        if (above != Tree::kNone && std::isfinite(network[link].from(leads_up ? v : above))) {
            net[at(above)] += own;
            basis.hang(v, above, Tree::number(link, leads_up), as_flow(size_of(own)));
        } else {
            basis.hang(v, basis.root(), Tree::number(Tree::kNone, leads_up), as_flow(size_of(own)));
        }
    }
}

// A basis and its pivots, whatever the type of the flows.
class NetworkEngine {
public:
    using Index = Network::Index;
    using Stop = std::function<bool()>;
    virtual ~NetworkEngine() = default;

    // Pivots until no reduced cost is below -tolerance, and below -relative times its terms, which would be rounding
    // (true), or until `most` pivots are done or stop(), which is asked every few milliseconds, says so (false). A shift
    // of potentials takes digits that only refresh() brings back: until then reduced costs far below the largest shift do
    // not count.
    virtual bool optimise(std::int64_t most, double tolerance, double relative, const Stop& stop) = 0;
    // Potentials without the rounding errors of the pivots.
    virtual void refresh() = 0;
    virtual double y(Index v) const = 0;
    virtual Index parent(Index v) const = 0;  // the number of nodes for the root
    virtual Index link(Index v) const = 0;    // to the parent; -1 if artificial
    virtual bool leads_up(Index v) const = 0;
    virtual std::vector<Index> preorder() = 0;  // without the root
    virtual double flow(Index v) const = 0;     // in doubles; 0 where flows are exact

    double artificial = 0;  // the cost of an artificial arc
    std::int64_t pivots = 0;
    double largest_shift = 0;  // since potentials were refreshed
    bool hidden = false;       // whether the last optimise() passed over links because of it
};

template <class Flow>
class NetworkEngineOf final : public NetworkEngine {
public:
    using Tree = Basis<Flow, true>;

    template <class Supply, class AsFlow>
    NetworkEngineOf(const Network& network, const std::vector<Index>& chosen, std::vector<Supply> net, AsFlow as_flow,
                    double artificial_cost)
        : network_(network), basis_(network.nodes, 0) {
        artificial = artificial_cost;
        hang_forest(basis_, network, chosen, std::move(net), as_flow);
        basis_.finish([&](Index v) { return tree_cost(v); }, [&](Index v) { return gauge(v); });
    }

    bool optimise(std::int64_t most, double tolerance, double relative, const Stop& stop) override {
        hidden = false;
        for (std::int64_t count = 0; count < most; ++count) {
            if (count % 1000 == 0 && stop()) return false;
            const Entering entering = find_entering_link(tolerance, relative);
            if (entering.link == network_.links.size()) return true;
            const Network::Link& link = network_.links[entering.link];
            const Index from = entering.backward ? link.head : link.tail, to = entering.backward ? link.tail : link.head;
            basis_.pivot(from, to, static_cast<Index>(entering.link), entering.reduced);
            largest_shift = std::max(largest_shift, -entering.reduced);
            ++pivots;
        }
        return false;
    }

    void refresh() override {
        largest_shift = 0;
        basis_.refresh([&](Index v) { return tree_cost(v); }, [&](Index v) { return gauge(v); });
    }
    double y(Index v) const override { return basis_.y(v); }
    Index parent(Index v) const override { return basis_[v].parent; }
    Index link(Index v) const override { return basis_[v].arc >> 1; }
    bool leads_up(Index v) const override { return basis_.leads_up(v); }
    std::vector<Index> preorder() override {
        const std::vector<Index>& order = basis_.preorder();
        return {order.begin() + 1, order.end()};
    }
    double flow(Index v) const override {
        if constexpr (std::is_same_v<Flow, double>)
            return basis_[v].flow;
        else
            return 0.0;
    }

private:
    static constexpr double kDrift = 0x1p-50;
    static constexpr std::size_t kBlock = 4;
    struct Entering {
        std::size_t link;  // the number of links if there is none
        double reduced;
        bool backward;
    };

    // The pivot rule: LEMON's block search, as in simplex.hpp; the better direction of a link counts. The blocks are short,
    // so that links near the last ones enter next: from a tree of coarser networks detours are local.
    Entering find_entering_link(double tolerance, double relative) {
        const std::size_t n = network_.links.size();
        const double drift = kDrift * largest_shift;
        Entering entering{n, -tolerance, false};
        std::size_t k = next_;
        for (std::size_t left = n; left > 0 && entering.link == n;) {
            const std::size_t some = std::min({kBlock, left, n - k});
            for (std::size_t end = k + some; k < end; ++k) {
                const Network::Link& link = network_.links[k];
                const double tail = basis_.y(link.tail), head = basis_.y(link.head), fall = tail - head;
                const double forward = link.forward - fall, backward = link.backward + fall;
                const double reduced = std::min(forward, backward);
                if (reduced < entering.reduced && reduced < -relative * (std::abs(tail) + std::abs(head))) {
                    if (reduced < -drift)
                        entering = {k, reduced, backward < forward};
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
    double tree_cost(Index v) const {
        const auto& node = basis_[v];
        return node.arc < 0 ? artificial : network_[node.arc >> 1].from(basis_.leads_up(v) ? v : node.parent);
    }
    double gauge(Index v) const { return basis_.leads_up(v) ? -artificial : artificial; }

    const Network& network_;
    Tree basis_;
    std::size_t next_ = 0;
};

}  // namespace gibbsot
