// The basis of a transportation or a transshipment problem: a spanning tree of its nodes and one artificial root.
//
// The problem has no capacities, so only tree arcs carry flow, and the flow of a tree arc lives at its child node. In a
// transportation problem all arcs lead from a row to a column: the arc of a child that is a row leads up, that of a column
// leads down. In a transshipment problem an arc may lead either way: the lowest bit of its number says so. Potentials
// are stored with the sign that makes a subtree move as one: y_i = f_i for a row, y_j = -g_j for a column, and the
// reduced cost of an arc is c_ij - y_i + y_j.
//
// The tree is kept strongly feasible (Cunningham 1976): every tree arc without flow leads towards the root. Among the
// arcs that block a pivot the last one on the cycle leaves, seen from the join in the direction of the flow; then
// degenerate pivots cannot cycle.
//
// A pivot shifts the potentials of a subtree. In a large tree the subtrees are twenty times longer than the cycles, so
// the tree is divided into connected clusters of some dozens of nodes that carry an offset: a pivot splits one cluster
// and shifts the offsets of the clusters below it. The division is renewed when it has become too fine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "wide.hpp"

namespace gibbsot {

template <class Flow, bool Transshipment = false>
class Basis {
public:
    using Index = std::int32_t;
    static constexpr Index kNone = -1;

    struct Node {
        Index parent, child, next, previous;
        Index size;  // nodes of the subtree
        Index arc;   // of the arc to the parent; kNone for an artificial arc. With transshipment see number()
        Flow flow;
    };

    Basis(std::size_t rows, std::size_t columns)
        : rows_(static_cast<Index>(rows)), root_(static_cast<Index>(rows + columns)), nodes_(rows + columns + 1),
          y_(rows + columns + 1) {
        clear();
    }

    Index rows() const { return rows_; }
    Index root() const { return root_; }
    bool is_row(Index v) const { return v < rows_; }
    // Whether the arc of v leads up to its parent.
    bool leads_up(Index v) const {
        if constexpr (Transshipment)
            return ((*this)[v].arc & 1) != 0;
        else
            return is_row(v);
    }
    // With transshipment the number of an arc as a node has it: its own, kNone if artificial, and the direction.
    static Index number(Index arc, bool up) { return arc * 2 + (up ? 1 : 0); }
    const Node& operator[](Index v) const { return nodes_[static_cast<std::size_t>(v)]; }
    Node& operator[](Index v) { return nodes_[static_cast<std::size_t>(v)]; }
    double y(Index v) const {
        const Potential& p = y_[static_cast<std::size_t>(v)];
        return p.local + clusters_[static_cast<std::size_t>(p.cluster)].offset;
    }

    // No node has a parent.
    void clear() {
        for (Node& node : nodes_) node = {kNone, kNone, kNone, kNone, 1, kNone, Flow{}};
        std::fill(y_.begin(), y_.end(), Potential{});
        clusters_.assign(1, {});
    }

    // Makes v, which has no parent yet, a child; sizes are set by finish().
    void hang(Index v, Index parent, Index arc, const Flow& flow) {
        link(v, parent);
        (*this)[v].arc = arc;
        (*this)[v].flow = flow;
    }

    // Sizes of all subtrees and potentials after the last hang(); cost(v) is the cost of the arc from v to its parent.
    template <class Cost, class Gauge>
    void finish(Cost cost, Gauge gauge) {
        preorder();
        for (const Index v : order_) (*this)[v].size = 1;
        for (std::size_t k = order_.size(); k-- > 1;)
            (*this)[(*this)[order_[k]].parent].size += (*this)[order_[k]].size;
        refresh(cost, gauge);
    }

    // Potentials anew from the costs of the tree's arcs, without the rounding errors of the pivots. gauge(v) is what the
    // root's potential should be if v is the child with the largest tree.
    template <class Cost, class Gauge>
    void refresh(Cost cost, Gauge gauge) {
        preorder();
        flatten();
        // the largest tree below the root is not shifted by the cost of its artificial arc, which may be far larger than
        // its potentials and would take their digits
        Index largest = (*this)[root_].child;
        for (Index v = largest; v != kNone; v = (*this)[v].next)
            if ((*this)[v].size > (*this)[largest].size) largest = v;
        set_y(root_, largest == kNone ? 0.0 : gauge(largest));
        for (std::size_t k = 1; k < order_.size(); ++k) {
            const Index v = order_[k];
            const double above = y((*this)[v].parent), c = cost(v);
            set_y(v, leads_up(v) ? above + c : above - c);
        }
        divide();
    }

    // The nodes from the root down, parents before children.
    const std::vector<Index>& preorder() {
        order_.clear();
        for_subtree(root_, [&](Index v) { order_.push_back(v); });
        return order_;
    }

    template <class Visit>
    void for_subtree(Index top, Visit visit) const {
        Index v = top;
        for (;;) {
            visit(v);
            Index w = (*this)[v].child;
            while (w == kNone) {
                if (v == top) return;
                w = (*this)[v].next;
                v = (*this)[v].parent;
            }
            v = w;
        }
    }

    // Brings the arc from row i to column j into the basis; `reduced` is its reduced cost, negative.
    // Returns the flow that was pushed.
    Flow pivot(Index i, Index j, Index arc, double reduced) {
        // up from both ends to the join, with the least flow that falls on each side
        Index u = i, v = j, out_u = kNone, out_v = kNone;
        while (u != v) {
            const Node& a = (*this)[u];
            const Node& b = (*this)[v];
            if (a.size < b.size) {
                if (leads_up(u) && (out_u == kNone || a.flow < (*this)[out_u].flow)) out_u = u;
                u = a.parent;
            } else {
                if (!leads_up(v) && (out_v == kNone || b.flow <= (*this)[out_v].flow)) out_v = v;
                v = b.parent;
            }
        }
        const Index join = u;
        // a cycle on which nothing falls has no length, and its reduced cost is rounding
        if (Transshipment && out_u == kNone && out_v == kNone) return Flow{};
        const bool row_side = out_v == kNone || (out_u != kNone && (*this)[out_u].flow < (*this)[out_v].flow);
        const Flow pushed = (*this)[row_side ? out_u : out_v].flow;
        if (is_positive(pushed)) {
            const auto change = [&](Index x, bool less) {
                if (less)
                    (*this)[x].flow -= pushed;
                else
                    (*this)[x].flow += pushed;
            };
            for (u = i; u != join; u = (*this)[u].parent) change(u, leads_up(u));
            for (v = j; v != join; v = (*this)[v].parent) change(v, !leads_up(v));
        }
        const Index out = row_side ? out_u : out_v, top = row_side ? i : j, above = row_side ? j : i;
        const Index moved = (*this)[out].size;
        for (u = (*this)[out].parent; u != join; u = (*this)[u].parent) (*this)[u].size -= moved;
        for (v = above; v != join; v = (*this)[v].parent) (*this)[v].size += moved;
        split(out);
        // turn the path from top to out around
        Index parent = above, entering = Transshipment ? number(arc, row_side) : arc, size = moved;
        Flow flow = pushed;
        for (Index x = top;;) {
            Node& node = (*this)[x];
            const Index old_parent = node.parent, old_arc = node.arc, old_size = node.size;
            const Flow old_flow = node.flow;
            if (cluster(x) != cluster(parent) || x == top) move_cluster(cluster(x), cluster(parent));
            unlink(x);
            link(x, parent);
            node.arc = entering;
            node.flow = flow;
            node.size = size;
            if (x == out) break;
            parent = x;
            entering = Transshipment ? old_arc ^ 1 : old_arc;
            flow = old_flow;
            size = moved - old_size;
            x = old_parent;
        }
        shift(top, moved, row_side ? reduced : -reduced);
        ++pivots_;
        if (clusters_.size() > most_clusters_) {
            preorder();
            flatten();
            divide();
        }
        return pushed;
    }

    std::int64_t pivots() const { return pivots_; }

private:
    void link(Index v, Index parent) {
        Node& node = (*this)[v];
        Node& above = (*this)[parent];
        node.parent = parent;
        node.previous = kNone;
        node.next = above.child;
        if (above.child != kNone) (*this)[above.child].previous = v;
        above.child = v;
    }
    void unlink(Index v) {
        const Node& node = (*this)[v];
        if (node.previous != kNone)
            (*this)[node.previous].next = node.next;
        else
            (*this)[node.parent].child = node.next;
        if (node.next != kNone) (*this)[node.next].previous = node.previous;
    }

    // Adds to the potentials of the subtree under top, which is a union of clusters, or takes off from all others where
    // these are fewer.
    void shift(Index top, Index size, double by) {
        const Index c = cluster(top);
        if (2 * size <= root_ + 1)
            shift_clusters(c, kNone, by);
        else
            shift_clusters(cluster(root_), c, -by);
    }

    // Shifts the clusters under `top`, but not those under `without`.
    void shift_clusters(Index top, Index without, double by) {
        const auto at = [&](Index k) -> Cluster& { return clusters_[static_cast<std::size_t>(k)]; };
        const auto allowed = [&](Index k) { return k == without && k != kNone ? at(k).next : k; };
        for (Index k = top;;) {
            at(k).offset += by;
            Index w = allowed(at(k).child);
            while (w == kNone) {
                if (k == top) return;
                w = allowed(at(k).next);
                k = at(k).parent;
            }
            k = w;
        }
    }

    struct Cluster {
        Index parent = kNone, child = kNone, next = kNone, previous = kNone;
        double offset = 0;
    };
    struct Potential {
        double local = 0;
        Index cluster = 0;
    };

    void set_y(Index v, double value) { y_[static_cast<std::size_t>(v)].local = value; }
    Index& cluster(Index v) { return y_[static_cast<std::size_t>(v)].cluster; }

    // All nodes in one cluster without an offset.
    void flatten() {
        for (Index v = 0; v <= root_; ++v) {
            set_y(v, y(v));
            cluster(v) = 0;
        }
        clusters_.assign(1, {});
    }

    // Connected clusters of at least kClusterSize nodes, from the leaves up; after preorder() and flatten().
    void divide() {
        std::vector<Index>& count = counts_;
        count.assign(order_.size(), 1);
        clusters_.assign(1, {});
        for (std::size_t k = order_.size(); k-- > 1;) {
            const Index v = order_[k];
            if (count[static_cast<std::size_t>(v)] < kClusterSize)
                count[static_cast<std::size_t>((*this)[v].parent)] += count[static_cast<std::size_t>(v)];
            else
                count[static_cast<std::size_t>(v)] = kNone;  // the top of a cluster
        }
        for (std::size_t k = 1; k < order_.size(); ++k) {
            const Index v = order_[k], above = cluster((*this)[v].parent);
            if (count[static_cast<std::size_t>(v)] == kNone) {
                cluster(v) = static_cast<Index>(clusters_.size());
                clusters_.emplace_back();
                link_cluster(cluster(v), above);
            } else {
                cluster(v) = above;
            }
        }
        most_clusters_ = 2 * clusters_.size() + order_.size() / 16 + 64;
    }

    // Makes v the top of its cluster: the part below it becomes a cluster of its own.
    void split(Index v) {
        const Index old = cluster(v);
        if (cluster((*this)[v].parent) != old) return;
        const Index made = static_cast<Index>(clusters_.size());
        clusters_.push_back({});
        clusters_.back().offset = clusters_[static_cast<std::size_t>(old)].offset;
        link_cluster(made, old);
        for (Index x = v;;) {
            cluster(x) = made;
            Index w = inner((*this)[x].child, old, made);
            while (w == kNone) {
                if (x == v) return;
                w = inner((*this)[x].next, old, made);
                x = (*this)[x].parent;
            }
            x = w;
        }
    }
    // The first of v and its next siblings that lies in the cluster `old`; the other clusters move under `made`.
    Index inner(Index v, Index old, Index made) {
        for (; v != kNone; v = (*this)[v].next) {
            const Index c = cluster(v);
            if (c == old) return v;
            if (c != made) move_cluster(c, made);
        }
        return kNone;
    }
    void link_cluster(Index k, Index parent) {
        Cluster& own = clusters_[static_cast<std::size_t>(k)];
        Cluster& above = clusters_[static_cast<std::size_t>(parent)];
        own.parent = parent;
        own.previous = kNone;
        own.next = above.child;
        if (above.child != kNone) clusters_[static_cast<std::size_t>(above.child)].previous = k;
        above.child = k;
    }
    void move_cluster(Index k, Index parent) {
        const Cluster& own = clusters_[static_cast<std::size_t>(k)];
        if (own.previous != kNone)
            clusters_[static_cast<std::size_t>(own.previous)].next = own.next;
        else
            clusters_[static_cast<std::size_t>(own.parent)].child = own.next;
        if (own.next != kNone) clusters_[static_cast<std::size_t>(own.next)].previous = own.previous;
        link_cluster(k, parent);
    }

    static constexpr Index kClusterSize = 64;

    Index rows_, root_;
    std::vector<Node> nodes_;
    std::vector<Potential> y_;
    std::vector<Cluster> clusters_;
    std::vector<Index> order_, counts_;
    std::size_t most_clusters_ = 0;
    std::int64_t pivots_ = 0;
};

}  // namespace gibbsot
