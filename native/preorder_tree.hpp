// The basis of a small transportation problem: a spanning tree whose nodes are kept in preorder.
//
// The conventions are those of basis.hpp. A subtree is a range of the preorder: its potentials are shifted and its nodes
// moved without following links. A move displaces the nodes between the old and the new position, which is cheap up to
// some thousands of nodes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "wide.hpp"

namespace gibbsot {

template <class Flow>
class PreorderTree {
public:
    using Index = std::int32_t;
    static constexpr Index kNone = -1;

    struct Node {
        Index parent = kNone;
        Index size = 1;     // nodes of the subtree
        Index arc = kNone;  // of the arc to the parent; kNone for an artificial arc
        Flow flow{};
    };

    PreorderTree(std::size_t rows, std::size_t columns)
        : rows_(static_cast<Index>(rows)), root_(static_cast<Index>(rows + columns)), nodes_(rows + columns + 1),
          y_(rows + columns + 8), order_(rows + columns + 1), at_(rows + columns + 1), moved_(rows + columns + 1),
          from_i_(rows + columns + 1), from_j_(rows + columns + 1) {}

    Index rows() const { return rows_; }
    Index root() const { return root_; }
    bool is_row(Index v) const { return v < rows_; }
    const Node& operator[](Index v) const { return nodes_[index(v)]; }
    // With some more numbers behind those of the columns, for kernels that read whole cache lines.
    const double* y() const { return y_.data(); }
    double y(Index v) const { return y_[index(v)]; }
    std::int64_t pivots() const { return pivots_; }
    // The nodes from the root down, parents before children.
    const std::vector<Index>& preorder() const { return order_; }

    // No node has a parent.
    void clear() { std::fill(nodes_.begin(), nodes_.end(), Node{}); }

    // Makes v a child; the rest is set by finish().
    void hang(Index v, Index parent, Index arc, const Flow& flow) { nodes_[index(v)] = {parent, 1, arc, flow}; }

    // Preorder, sizes of all subtrees and potentials after the last hang(); cost(v) is that of the arc above v.
    template <class Cost>
    void finish(Cost cost) {
        std::vector<Index> child(nodes_.size(), kNone), next(nodes_.size(), kNone);
        for (Index v = 0; v < root_; ++v) {
            Index& first = child[index(nodes_[index(v)].parent)];
            next[index(v)] = first;
            first = v;
        }
        std::vector<Index>& stack = moved_;
        std::size_t depth = 0, k = 0;
        stack[depth++] = root_;
        while (depth > 0) {
            const Index v = stack[--depth];
            order_[k++] = v;
            for (Index w = child[index(v)]; w != kNone; w = next[index(w)]) stack[depth++] = w;
        }
        for (k = order_.size(); k-- > 0;) {
            const Node& node = nodes_[index(order_[k])];
            at_[index(order_[k])] = static_cast<Index>(k);
            if (k > 0) nodes_[index(node.parent)].size += node.size;
        }
        refresh(cost);
    }

    // Potentials anew from the costs of the tree's arcs, without the rounding errors of the pivots.
    template <class Cost>
    void refresh(Cost cost) {
        y_[index(root_)] = 0;
        for (std::size_t k = 1; k < order_.size(); ++k) {
            const Index v = order_[k];
            const double above = y_[index(nodes_[index(v)].parent)], c = cost(v);
            y_[index(v)] = is_row(v) ? above + c : above - c;
        }
    }

    // Brings the arc from row i to column j into the basis; `reduced` is its reduced cost, negative.
    void pivot(Index i, Index j, Index arc, double reduced) {
        // Rows below i and columns below j lose flow. Of equal ones the last one on the cycle leaves, seen from the join
        // in the direction of the flow.
        const Side side_i = climb<false>(i, j, from_i_.data()), side_j = climb<true>(j, i, from_j_.data());
        const bool row_side = side_j.length == 0 || (side_i.length > 0 && side_i.least < side_j.least);
        const Side& side = row_side ? side_i : side_j;
        const Index* path = row_side ? from_i_.data() : from_j_.data();
        const Index* other = row_side ? from_j_.data() : from_i_.data();
        const Index length = side.length, length_other = row_side ? side_j.length : side_i.length, last = side.out;
        const Index above = row_side ? j : i, size = node(path[last]).size;
        const Flow pushed = side.least;
        const double by = row_side ? reduced : -reduced;
        if (is_positive(pushed)) {
            push(path, length, pushed);
            push(other, length_other, pushed);
        }
        const bool below = 2 * size <= root_ + 1;
        const Index start = move(path, last, above, length_other == 0 ? path[length - 1] : kNone, below ? by : 0);
        if (!below) {
            add(0, start, -by);
            add(start + size, root_ + 1, -by);
        }
        for (Index k = last + 1; k < length; ++k) node(path[k]).size -= size;
        for (Index k = 0; k < length_other; ++k) node(other[k]).size += size;
        // turn the path around
        Node entering{above, size, arc, pushed};
        for (Index k = 0; k <= last; ++k) {
            const Node old = std::exchange(node(path[k]), entering);
            entering = {path[k], size - old.size, old.arc, old.flow};
        }
        ++pivots_;
    }

private:
    // A path up to the join: its nodes, the least flow of those that lose some, and where that is.
    struct Side {
        Index length = 0, out = 0;
        Flow least{};
    };

    static std::size_t index(Index v) { return static_cast<std::size_t>(v); }
    Node& node(Index v) { return nodes_[index(v)]; }

    // Writes the nodes from v up to where the subtree contains w, without that one. Every other one loses flow, the first
    // included.
    template <bool LastOfEquals>
    Side climb(Index v, Index w, Index* path) const {
        Side side;
        const Index position = at_[index(w)];
        const auto contains = [&](Index x) {
            return static_cast<std::uint32_t>(position - at_[index(x)]) < static_cast<std::uint32_t>(nodes_[index(x)].size);
        };
        if (contains(v)) return side;
        side.least = nodes_[index(v)].flow;
        for (;;) {
            const Node& own = nodes_[index(v)];
            const bool less = LastOfEquals ? own.flow <= side.least : own.flow < side.least;
            side.least = less ? own.flow : side.least;
            side.out = less ? side.length : side.out;
            path[side.length++] = v;
            v = own.parent;
            if (contains(v)) break;
            path[side.length++] = v;
            v = nodes_[index(v)].parent;
            if (contains(v)) break;
        }
        return side;
    }

    void push(const Index* path, Index length, const Flow& pushed) {
        for (Index k = 0; k < length; k += 2) node(path[k]).flow -= pushed;
        for (Index k = 1; k < length; k += 2) node(path[k]).flow += pushed;
    }

    // Moves the subtree of path[last] below `above`, with path[0] on top, and adds to its potentials; sizes are those from
    // before. If `above` is an ancestor, `child` is its child on the path. Returns the new position of the top.
    //
    // The invariant before and after: order_ is a preorder, in which the subtree of v is the range of its size from at_[v]
    // on, and at_ is the inverse of order_. Parents and sizes are stale in between; pivot() mends them along the two paths.
    //
    // Where the range goes, with as few nodes displaced as a preorder allows: if `above` comes after it, right behind
    // `above`; if the subtree of `above` ends before it, right behind that subtree; if `above` is an ancestor, to the
    // nearer end of what remains of the subtree of `child`, which is the part of the subtree of `above` around it.
    //
    // The order inside: path[0] and its subtree, then for each further node of the path what its subtree had before and
    // behind that of the node before it. The former begins with the node itself, which thereby becomes the last child of
    // the one before it. Positions of nodes of the path are read before they are written: a node lies outside the
    // subtrees of those before it.
    Index move(const Index* path, Index last, Index above, Index child, double by) {
        const Index size = node(path[last]).size, begin = at_[index(path[last])], end = begin + size;
        Index* order = order_.data();
        Index* at = at_.data();
        double* y = y_.data();
        const Index position = at[above], behind = position + node(above).size;
        Index start;
        if (position >= end) {
            start = position + 1 - size;
        } else if (behind <= begin) {
            start = behind;
        } else {
            const Index left = at[child], right = left + node(child).size;
            start = begin - left < right - end ? left : right - size;
        }
        Index* from = moved_.data();
        std::copy(order + begin, order + end, from);
        if (start < begin) {
            for (Index k = begin; k-- > start;) at[order[k + size] = order[k]] = k + size;
        } else if (start > begin) {
            for (Index k = end; k < start + size; ++k) at[order[k - size] = order[k]] = k - size;
        }
        Index to = start;
        const auto write = [&](Index first, Index past) {
            for (Index k = first; k < past; ++k) {
                const Index v = from[k - begin];
                order[to] = v;
                at[v] = to++;
                y[v] += by;
            }
        };
        Index inner_begin = at[path[0]], inner_end = inner_begin + node(path[0]).size;
        write(inner_begin, inner_end);
        for (Index k = 1; k <= last; ++k) {
            const Index first = at[path[k]], past = first + node(path[k]).size;
            write(first, inner_begin);
            write(inner_end, past);
            inner_begin = first;
            inner_end = past;
        }
        return start;
    }

    void add(Index begin, Index end, double d) {
        for (Index k = begin; k < end; ++k) y_[index(order_[index(k)])] += d;
    }

    Index rows_, root_;
    std::vector<Node> nodes_;
    std::vector<double> y_;
    std::vector<Index> order_, at_, moved_, from_i_, from_j_;
    std::int64_t pivots_ = 0;
};

}  // namespace gibbsot
