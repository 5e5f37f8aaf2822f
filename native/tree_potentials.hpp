// Potentials that make the arcs of a forest tight, as unevaluated sums of two doubles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "double_double.hpp"

namespace gibbsot {

// Numbers high + low, one after the other.
struct DoubleDoubles {
    double *high, *low;
    DoubleDouble operator[](std::size_t k) const { return {high[k], low[k]}; }
    void set(std::size_t k, const DoubleDouble& x) const {
        high[k] = x.high;
        low[k] = x.low;
    }
};

// The arcs lead from rows i to columns j and contain no cycle. In every tree the row of the weighted median of f, as it was
// before, keeps its potential, and the others follow: f_i + g_j is the cost of each arc.
inline void follow_forest(const std::int64_t* i, const std::int64_t* j, const double* cost_high, const double* cost_low,
                          std::size_t arcs, const double* weight, std::size_t rows, std::size_t columns, DoubleDoubles f,
                          DoubleDoubles g) {
    struct Link {
        std::size_t node, arc;
    };
    const std::size_t nodes = rows + columns;
    std::vector<std::size_t> begin(nodes + 1);
    const auto tail = [&](std::size_t k) { return static_cast<std::size_t>(i[k]); };
    const auto head = [&](std::size_t k) { return rows + static_cast<std::size_t>(j[k]); };
    for (std::size_t k = 0; k < arcs; ++k) {
        ++begin[tail(k)];
        ++begin[head(k)];
    }
    std::size_t sum = 0;
    for (std::size_t& x : begin) sum += std::exchange(x, sum);
    std::vector<Link> links(sum);
    std::vector<std::size_t> end(begin);
    for (std::size_t k = 0; k < arcs; ++k) {
        links[end[tail(k)]++] = {head(k), k};
        links[end[head(k)]++] = {tail(k), k};
    }
    std::vector<std::size_t> order, members;
    std::vector<char> mark(nodes);  // 1: in a tree that was found, 2: has its potential
    order.reserve(nodes);
    // All nodes of the tree of `top`, parents first; visit(node, parent, arc) for all but the top.
    const auto walk = [&](std::size_t top, char value, auto visit) {
        order.assign(1, top);
        mark[top] = value;
        for (std::size_t k = 0; k < order.size(); ++k)
            for (std::size_t l = begin[order[k]]; l < begin[order[k] + 1]; ++l) {
                const Link& link = links[l];
                if (mark[link.node] == value) continue;
                mark[link.node] = value;
                order.push_back(link.node);
                visit(link.node, order[k], link.arc);
            }
    };
    for (std::size_t first = 0; first < rows; ++first) {
        if (mark[first] != 0) continue;
        walk(first, 1, [](std::size_t, std::size_t, std::size_t) {});
        members.clear();
        double total = 0, before = 0;
        for (const std::size_t v : order)
            if (v < rows) {
                members.push_back(v);
                total += weight[v];
            }
        std::sort(members.begin(), members.end(), [&](std::size_t a, std::size_t b) {
            return f.high[a] < f.high[b] || (f.high[a] == f.high[b] && a < b);
        });
        std::size_t k = 0;
        while (k + 1 < members.size() && (before += weight[members[k]]) < total / 2) ++k;
        walk(members[k], 2, [&](std::size_t v, std::size_t above, std::size_t arc) {
            const DoubleDouble from = above < rows ? f[above] : g[above - rows];
            DoubleDouble own{cost_high[arc], cost_low[arc]};
            own += DoubleDouble{-from.high, -from.low};
            if (v < rows)
                f.set(v, own);
            else
                g.set(v - rows, own);
        });
    }
}

}  // namespace gibbsot
