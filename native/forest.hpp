// A strongly feasible basis from any list of arcs: the arcs that carry flow in the right direction stay.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "wide.hpp"

namespace gibbsot {

// An arc from a row to a column, both as nodes of a basis.
struct Edge {
    std::int32_t row, column, arc;
};

// Hangs all nodes of an empty basis. The edges make a forest; those that close a cycle are left out. Flows follow from
// the leaves up. An edge whose flow would be negative, or zero and away from the root, is cut, and what then hangs on
// nothing gets an artificial arc. `as_flow` turns exact flows into those of the basis; `reach` is told of every node
// and the node from which it is reached, if any, before anything is cut. A tree that contains one of `tops` hangs from it,
// the others from where fewest edges without flow lead away from the root. So a basis that was strongly feasible stays as
// it was, if the weights are the same.
template <std::size_t K, class Tree, class AsFlow, class Reach>
class Forest {
public:
    using Index = typename Tree::Index;

    Forest(Tree& basis, const std::vector<Edge>& edges, const ExactWeights<K>& weights, AsFlow as_flow, Reach reach,
           const std::vector<Index>& tops = {})
        : basis_(basis), as_flow_(as_flow), begin_(nodes() + 1), links_(2 * edges.size()), up_(nodes()), net_(nodes()) {
        link(edges);
        search(reach, tops);
        if (tops.empty()) {
            const std::vector<Index> sinks = sinks_of(weights);
            if (!sinks.empty()) search(reach, sinks);
        }
        set_weights(weights);
        sum();
        hang();
    }

private:
    struct Link {
        Index node, arc;
    };
    static std::size_t at(Index v) { return static_cast<std::size_t>(v); }
    std::size_t nodes() const { return at(basis_.root()); }

    // The edges of each node: those of v are links_ from begin_[v] on, up to those of the next node.
    void link(const std::vector<Edge>& edges) {
        for (const Edge& e : edges) {
            ++begin_[at(e.row)];
            ++begin_[at(e.column)];
        }
        std::uint32_t sum = 0;
        for (std::uint32_t& x : begin_) sum += std::exchange(x, sum);
        std::vector<std::uint32_t> end(begin_);
        for (const Edge& e : edges) {
            links_[end[at(e.row)]++] = {e.column, e.arc};
            links_[end[at(e.column)]++] = {e.row, e.arc};
        }
    }

    // Breadth first from every node that was not reached: up_ and order_, parents before children.
    void search(Reach reach, const std::vector<Index>& tops) {
        std::vector<char> reached(nodes());
        std::fill(up_.begin(), up_.end(), Link{Tree::kNone, Tree::kNone});
        order_.resize(nodes());
        std::size_t count = 0;
        const auto visit = [&](Index v, Index from) {
            reached[at(v)] = 1;
            order_[count++] = v;
            reach(v, from);
        };
        for (std::size_t t = 0; t < tops.size() + nodes(); ++t) {
            const Index top = t < tops.size() ? tops[t] : static_cast<Index>(t - tops.size());
            if (reached[at(top)]) continue;
            visit(top, Tree::kNone);
            for (std::size_t k = count - 1; k < count; ++k) {
                const Index v = order_[k];
                for (std::uint32_t l = begin_[at(v)]; l < begin_[at(v) + 1]; ++l) {
                    const Link link = links_[l];
                    if (reached[at(link.node)]) continue;
                    up_[at(link.node)] = {v, link.arc};
                    visit(link.node, v);
                }
            }
        }
    }

    void set_weights(const ExactWeights<K>& weights) {
        const std::size_t rows = at(basis_.rows());
        std::copy(weights.a.begin(), weights.a.end(), net_.begin());
        for (std::size_t j = 0; j < weights.b.size(); ++j) net_[rows + j] = -weights.b[j];
    }

    // Better tops of the trees that search() found: in each tree that has edges without flow that lead away from its top, a
    // row behind the last of them. In a tree that was strongly feasible with another top all of them are on the way to that
    // one, and it is behind the last, together with this row.
    std::vector<Index> sinks_of(const ExactWeights<K>& weights) {
        set_weights(weights);
        for (std::size_t k = order_.size(); k-- > 0;)
            if (const Index v = order_[k], above = up_[at(v)].node; above != Tree::kNone) net_[at(above)] += net_[at(v)];
        std::vector<Index> found;
        std::vector<char> wanted(nodes());  // columns, of which a row below with flow is wanted
        Index last = Tree::kNone;
        // from the last tree to the first, and in each from its last node to its top
        for (std::size_t k = order_.size(); k-- > 0;) {
            const Index v = order_[k];
            if (up_[at(v)].node == Tree::kNone) {
                last = Tree::kNone;
            } else if (last == Tree::kNone && !basis_.is_row(v) && net_[at(v)].zero()) {
                last = v;
                wanted[at(v)] = 1;
            }
        }
        for (const Index v : order_) {
            const Index above = up_[at(v)].node;
            if (above == Tree::kNone || !wanted[at(above)] || !is_positive(net_[at(v)])) continue;
            wanted[at(above)] = 0;
            found.push_back(v);
        }
        return found;
    }

    // The net supply of every subtree; subtrees whose arc cannot stay are cut off.
    void sum() {
        for (std::size_t k = order_.size(); k-- > 0;) {
            const Index v = order_[k], above = up_[at(v)].node;
            if (above == Tree::kNone) continue;
            const bool supplies = is_positive(net_[at(v)]);
            if (basis_.is_row(v) ? supplies || net_[at(v)].zero() : !supplies && !net_[at(v)].zero())
                net_[at(above)] += net_[at(v)];
            else
                up_[at(v)].node = Tree::kNone;
        }
    }

    // Writes the trees that sum() left into the basis, each below the root by one artificial arc.
    //
    // Before: net_[v] is the exact net supply of the subtree of v, and the arc from v to up_[v].node carries its size in
    // the direction of row to column: it is >= 0 for a row and < 0 for a column that has a parent. So every arc above a
    // column carries something, which is what strong feasibility asks for (zero flow only on arcs that lead up).
    //
    // Only the artificial arc of a top can point the wrong way: a tree with a surplus or without any leads to the root
    // from a row, one that lacks something from the root to a column. Where the top is of the other kind, its children
    // are visited in breadth-first order. One that carries more than the top's net becomes the top in its place: the arc
    // between them is turned around and keeps the difference, which is positive, and the child, of the other kind than
    // the top, has the top's net. One that carries as much or less is cut off as a tree of its own, and the top's net
    // comes nearer to zero by it. The top's own weight has the sign that its kind asks for, so in the end its net has that
    // sign (or is zero, for a row), or a child has taken its place.
    //
    // After: every node has a parent, flows are >= 0, those of columns' arcs > 0, and the net of a tree is that of its
    // artificial arc. No arc that is kept has changed its flow, but for the one that was turned around.
    void hang() {
        std::vector<Index> instead(nodes(), Tree::kNone);  // of a top: the child that becomes the top
        for (const Index v : order_) {
            const Index above = up_[at(v)].node;
            if (above == Tree::kNone || up_[at(above)].node != Tree::kNone || instead[at(above)] != Tree::kNone) continue;
            Wide<K>& net = net_[at(above)];
            if (basis_.is_row(above) != net.negative() || net_[at(v)].zero()) continue;
            if (size(net) < size(net_[at(v)])) {
                instead[at(above)] = v;
            } else {
                up_[at(v)].node = Tree::kNone;
                net -= net_[at(v)];
            }
        }
        for (const Index v : order_) {
            const Index above = up_[at(v)].node;
            const Wide<K> flow = size(net_[at(v)]);
            if (above == Tree::kNone && instead[at(v)] == Tree::kNone) {
                basis_.hang(v, basis_.root(), Tree::kNone, as_flow_(flow));
            } else if (above == Tree::kNone) {
                const Index child = instead[at(v)];
                basis_.hang(child, basis_.root(), Tree::kNone, as_flow_(flow));
                basis_.hang(v, child, up_[at(child)].arc, as_flow_(size(net_[at(child)]) - flow));
            } else if (instead[at(above)] != v) {
                basis_.hang(v, above, up_[at(v)].arc, as_flow_(flow));
            }
        }
    }
    static Wide<K> size(const Wide<K>& x) { return x.negative() ? -x : x; }

    Tree& basis_;
    AsFlow as_flow_;
    std::vector<std::uint32_t> begin_;
    std::vector<Link> links_, up_;
    std::vector<Wide<K>> net_;
    std::vector<Index> order_;
};

// The edges of a basis.
template <class Tree>
std::vector<Edge> edges_of(const Tree& basis) {
    std::vector<Edge> edges;
    for (std::int32_t v = 0; v < basis.root(); ++v) {
        const auto& node = basis[v];
        if (node.arc == Tree::kNone) continue;
        edges.push_back(basis.is_row(v) ? Edge{v, node.parent, node.arc} : Edge{node.parent, v, node.arc});
    }
    return edges;
}

}  // namespace gibbsot
