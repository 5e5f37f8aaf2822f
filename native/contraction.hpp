// Where the network simplex starts: a spanning tree that was optimal on coarser networks.
//
// A network is contracted along its shortest links, and again, until few nodes are left. The optimal tree of a coarse
// network, with the links that were contracted, is a spanning tree of the finer one, and every spanning tree is a basis if
// links lead both ways. So long detours are repaired where trees are small, and the finest network needs short ones only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "network.hpp"

namespace gibbsot {

// A coarser network, and what its parts are in the finer one.
struct Contracted {
    Network network;
    std::vector<Network::Index> cluster;  // of each node
    std::vector<Network::Index> inner;    // the links inside clusters: a spanning tree of each
    std::vector<Network::Index> finer;    // of each coarse link: the link that it stands for
};

// Work whose steps are many and short: stop(), which throws at Ctrl-C, is asked every few ten milliseconds.
class SlowWork {
public:
    explicit SlowWork(const NetworkEngine::Stop& stop) : stop_(stop) {}
    void ask() {
        if (++steps_ % kSteps == 0) stop_();
    }

private:
    static constexpr std::size_t kSteps = 1 << 20;
    const NetworkEngine::Stop& stop_;
    std::size_t steps_ = 0;
};

// Contracts pairs of nodes along short links, and then the nodes that are left with a neighbour. The length between two
// clusters is that of the shortest way between their first nodes by links inside them and one between. Coarse links lead
// both ways, so that negative lengths, which only networks without cycles have, count as zero.
inline Contracted contract(const Network& fine, const std::vector<Network::Index>& by_length,
                           const NetworkEngine::Stop& stop) {
    using Index = Network::Index;
    const auto at = [](Index v) { return static_cast<std::size_t>(v); };
    Contracted made;
    made.cluster.assign(fine.nodes, -1);
    std::vector<double> inside(fine.nodes);  // the way to the first node of the cluster
    const auto length_of = [](const Network::Link& link) { return std::max(0.0, link.shorter()); };
    Index count = 0;
    for (const Index k : by_length) {
        const Network::Link& link = fine[k];
        if (made.cluster[at(link.tail)] >= 0 || made.cluster[at(link.head)] >= 0 || link.tail == link.head) continue;
        made.cluster[at(link.tail)] = made.cluster[at(link.head)] = count++;
        inside[at(link.head)] = length_of(link);
        made.inner.push_back(k);
    }
    const Index pairs = count;
    for (const Index k : by_length) {
        const Network::Link& link = fine[k];
        const Index tail = made.cluster[at(link.tail)], head = made.cluster[at(link.head)];
        if ((tail < 0) == (head < 0)) continue;
        const Index from = head < 0 ? link.tail : link.head, to = head < 0 ? link.head : link.tail;
        if (made.cluster[at(from)] >= pairs) continue;
        made.cluster[at(to)] = made.cluster[at(from)];
        inside[at(to)] = inside[at(from)] + length_of(link);
        made.inner.push_back(k);
    }
    for (Index& own : made.cluster)
        if (own < 0) own = count++;
    made.network.nodes = at(count);
    struct Candidate {
        Index tail, head, link;
        double length;
    };
    std::vector<Candidate> every;
    every.reserve(fine.links.size());
    for (std::size_t k = 0; k < fine.links.size(); ++k) {
        const Network::Link& link = fine.links[k];
        const Index tail = made.cluster[at(link.tail)], head = made.cluster[at(link.head)];
        if (tail == head) continue;
        every.push_back({std::min(tail, head), std::max(tail, head), static_cast<Index>(k),
                         inside[at(link.tail)] + length_of(link) + inside[at(link.head)]});
    }
    SlowWork work(stop);
    std::sort(every.begin(), every.end(), [&](const Candidate& a, const Candidate& b) {
        work.ask();
        if (a.tail != b.tail) return a.tail < b.tail;
        if (a.head != b.head) return a.head < b.head;
        return a.length < b.length || (a.length == b.length && a.link < b.link);
    });
    for (std::size_t k = 0; k < every.size(); ++k) {
        if (k > 0 && every[k].tail == every[k - 1].tail && every[k].head == every[k - 1].head) continue;
        made.network.links.push_back({every[k].tail, every[k].head, every[k].length, every[k].length});
        made.finer.push_back(every[k].link);
    }
    return made;
}

// The links of a spanning forest that is nearly optimal if all lead both ways; stop() ends it sooner.
inline std::vector<Network::Index> coarse_forest(const Network& network, const std::vector<double>& net,
                                                 const NetworkEngine::Stop& stop) {
    using Index = Network::Index;
    constexpr std::size_t kFew = 64, kPivots = 50;  // nodes that need no coarser network; pivots for each node at most
    constexpr double kRelative = 1e-12;             // reduced costs that are so small may be rounding
    std::vector<Index> by_length(network.links.size());
    std::iota(by_length.begin(), by_length.end(), Index{0});
    SlowWork work(stop);
    std::sort(by_length.begin(), by_length.end(), [&](Index a, Index b) {
        work.ask();
        const double first = network[a].shorter(), second = network[b].shorter();
        return first < second || (first == second && a < b);
    });
    // those that close a cycle are left out: in a tree none is
    if (network.nodes <= kFew || network.links.size() < network.nodes || stop()) return by_length;
    Contracted coarse = contract(network, by_length, stop);
    if (coarse.network.links.empty()) return coarse.inner;
    std::vector<double> sums(coarse.network.nodes);
    for (std::size_t v = 0; v < net.size(); ++v) sums[static_cast<std::size_t>(coarse.cluster[v])] += net[v];
    const std::vector<Index> forest = coarse_forest(coarse.network, sums, stop);
    NetworkEngineOf<double> engine(coarse.network, forest, sums, [](double x) { return x; }, 0.0);
    engine.optimise(static_cast<std::int64_t>(kPivots * coarse.network.nodes), 0.0, kRelative, stop);
    std::vector<Index> found = coarse.inner;
    for (std::size_t v = 0; v < coarse.network.nodes; ++v)
        if (const Index k = engine.link(static_cast<Index>(v)); k >= 0)
            found.push_back(coarse.finer[static_cast<std::size_t>(k)]);
    return found;
}

}  // namespace gibbsot
