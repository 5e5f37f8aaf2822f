// A k-d tree whose nodes carry bounds of the h of their points: c-transforms min_j (cost(x, y_j) + h_j) and the arcs of
// least reduced cost without any matrix, for the distances of metrics.hpp in low dimension.
//
// A node knows its least h, and a plane below all of them: optimal potentials are steep where mass moves far, and
// |x - y|^2 plus a plane has its minimum over a box in closed form. Norms have a bound by their dual norm.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

#include "metrics.hpp"
#include "parallel.hpp"

namespace gibbsot {

// Splits points at medians of the widest axis into cells of at most `most` points; label[i] is the cell of point i.
// Returns the number of cells. All cells but the last of a split have exactly `most` points.
template <std::size_t D>
std::int64_t median_cells(const double* points, std::size_t n, std::size_t most, std::int64_t* label) {
    std::vector<std::int32_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::vector<std::pair<std::size_t, std::size_t>> stack{{0, n}};
    std::int64_t cells = 0;
    const auto at = [&](std::int32_t i, std::size_t a) { return points[static_cast<std::size_t>(i) * D + a]; };
    while (!stack.empty()) {
        const auto [begin, end] = stack.back();
        stack.pop_back();
        if (end - begin <= most) {
            for (std::size_t k = begin; k < end; ++k) label[order[k]] = cells;
            ++cells;
            continue;
        }
        std::size_t widest = 0;
        double width = -1;
        for (std::size_t a = 0; a < D; ++a) {
            double low = at(order[begin], a), high = low;
            for (std::size_t k = begin; k < end; ++k) {
                low = std::min(low, at(order[k], a));
                high = std::max(high, at(order[k], a));
            }
            if (high - low > width) {
                width = high - low;
                widest = a;
            }
        }
        const std::size_t half = ((end - begin) / 2 + most - 1) / most * most;
        const auto first = order.begin() + static_cast<std::ptrdiff_t>(begin);
        std::nth_element(first, first + static_cast<std::ptrdiff_t>(half),
                         order.begin() + static_cast<std::ptrdiff_t>(end), [&](std::int32_t i, std::int32_t j) {
                             return at(i, widest) < at(j, widest) || (at(i, widest) == at(j, widest) && i < j);
                         });
        stack.push_back({begin + half, end});
        stack.push_back({begin, begin + half});
    }
    return cells;
}

template <std::size_t D>
class KdTree {
public:
    KdTree(const double* points, std::size_t n) : order_(n) {
        std::iota(order_.begin(), order_.end(), 0);
        build(points, 0, n);
        h_.assign(n + kLeaf, 0.0);  // kernels read whole leaves
        for (std::size_t a = 0; a < D; ++a) {
            points_[a].resize(n + kLeaf);
            for (std::size_t k = 0; k < n; ++k) points_[a][k] = points[static_cast<std::size_t>(order_[k]) * D + a];
        }
    }

    std::size_t size() const { return order_.size(); }
    // The points in the order of the tree: neighbours stand close together.
    const std::vector<std::int32_t>& order() const { return order_; }

    // h may be infinite: the point is left out. Nodes are fitted in threads, each for itself.
    void set_h(const double* h, std::size_t threads = 1) {
        for (std::size_t k = 0; k < order_.size(); ++k) h_[k] = h[order_[k]];
        for (std::size_t v = nodes_.size(); v-- > 0;) {
            Node& node = nodes_[v];
            if (node.right == 0)
                node.least = *std::min_element(h_.begin() + node.begin, h_.begin() + node.end);
            else
                node.least = std::min(nodes_[v + 1].least, nodes_[static_cast<std::size_t>(node.right)].least);
        }
        constexpr std::size_t chunk = 2048;
        parallel_for((nodes_.size() + chunk - 1) / chunk, threads, [&] {
            return [&](std::size_t c) {
                for (std::size_t v = c * chunk; v < std::min((c + 1) * chunk, nodes_.size()); ++v) fit(nodes_[v]);
            };
        });
    }

    // The k least sums below `bound` for n points x, least first; -1 and infinity where there are fewer. The points
    // should come in an order in which neighbours are close: the answers to one are the first guesses for the next.
    template <class Metric>
    void nearest(const Metric& metric, const double* x, const std::int32_t* queries, std::size_t n, const double* bound, std::size_t k,
                 std::int64_t* indices, double* values) const {
        std::vector<std::int32_t> guess;
        std::vector<std::pair<double, std::int32_t>> list(k);
        for (std::size_t t = 0; t < n; ++t) {
            const auto r = static_cast<std::size_t>(queries[t]);
            const double* point = x + r * D;
            Search search{point, list.data(), k, 0, bound != nullptr ? bound[r] : kInfinite};
            // A bound from the last answer's points; they are met again in the tree.
            if (guess.size() == k) {
                double worst = -kInfinite;
                for (const std::int32_t index : guess) worst = std::max(worst, sum(metric, point, index));
                worst += std::abs(worst) * 1e-12 + std::numeric_limits<double>::min();
                search.limit = std::min(search.limit, worst);
            }
            descend(metric, search, 0, least_sum(metric, point, nodes_[0]));
            guess.clear();
            for (std::size_t c = 0; c < k; ++c) {
                const bool there = c < search.count;
                indices[r * k + c] = there ? order_[static_cast<std::size_t>(list[c].second)] : -1;
                values[r * k + c] = there ? list[c].first : kInfinite;
                if (there) guess.push_back(list[c].second);
            }
        }
    }

    // Calls visit(index, sum) for every point whose sum is below the bound. It returns whether to go on.
    template <class Metric, class Visit>
    bool within(const Metric& metric, const double* x, double bound, Visit&& visit, std::size_t v = 0) const {
        const Node& node = nodes_[v];
        if (!(least_sum(metric, x, node) < bound + kRounding * std::abs(bound))) return true;
        if (node.right != 0)
            return within(metric, x, bound, visit, v + 1) &&
                   within(metric, x, bound, visit, static_cast<std::size_t>(node.right));
        for (std::int32_t index = node.begin; index < node.end; ++index) {
            const double value = sum(metric, x, index);
            if (value < bound && !visit(order_[static_cast<std::size_t>(index)], value)) return false;
        }
        return true;
    }

private:
    static constexpr double kInfinite = std::numeric_limits<double>::infinity();
    static constexpr std::size_t kLeaf = 8;
    static constexpr std::size_t kFitted = 1024;  // points of the largest node that has a plane
    static constexpr double kRidge = 1e-2;           // of the variance along the widest axis
    static constexpr double kRounding = 0x1p-48;  // sixteen units in the last place, of all terms of a bound

    struct Node {
        double low[D], high[D], centre[D];
        double least;
        double slope[D], offset;  // h >= offset + slope (y - centre), also after rounding
        std::int32_t begin, end;
        std::int32_t right;  // the left child follows; 0 in a leaf
    };
    struct Search {
        const double* point;
        std::pair<double, std::int32_t>* list;
        std::size_t k, count;
        double limit;  // only smaller sums count
    };

    void build(const double* points, std::size_t begin, std::size_t end) {
        const std::size_t v = nodes_.size();
        nodes_.push_back({});
        Node node{};
        node.begin = static_cast<std::int32_t>(begin);
        node.end = static_cast<std::int32_t>(end);
        std::size_t widest = 0;
        for (std::size_t a = 0; a < D; ++a) {
            node.low[a] = kInfinite;
            node.high[a] = -kInfinite;
            for (std::size_t k = begin; k < end; ++k) {
                const double c = points[static_cast<std::size_t>(order_[k]) * D + a];
                node.low[a] = std::min(node.low[a], c);
                node.high[a] = std::max(node.high[a], c);
            }
            node.centre[a] = node.low[a] + (node.high[a] - node.low[a]) / 2;
            if (node.high[a] - node.low[a] > node.high[widest] - node.low[widest]) widest = a;
        }
        if (end - begin > kLeaf) {
            const std::size_t middle = begin + (end - begin) / 2;
            const auto first = order_.begin();
            std::nth_element(first + static_cast<std::ptrdiff_t>(begin), first + static_cast<std::ptrdiff_t>(middle),
                             first + static_cast<std::ptrdiff_t>(end), [&](std::int32_t i, std::int32_t j) {
                                 const double p = points[static_cast<std::size_t>(i) * D + widest],
                                              q = points[static_cast<std::size_t>(j) * D + widest];
                                 return p < q || (p == q && i < j);
                             });
            build(points, begin, middle);
            node.right = static_cast<std::int32_t>(nodes_.size());
            build(points, middle, end);
        }
        nodes_[v] = node;
    }

    // The plane of a node that has not too many points: its slopes are a least-squares fit of h.
    void fit(Node& node) {
        const auto begin = static_cast<std::size_t>(node.begin), end = static_cast<std::size_t>(node.end);
        std::fill(node.slope, node.slope + D, 0.0);
        node.offset = node.least;
        if (end - begin > kFitted) return;
        double mean = 0, largest = 0, middle[D] = {};
        for (std::size_t k = begin; k < end; ++k) {
            mean += h_[k];
            largest = std::max(largest, std::abs(h_[k]));
            for (std::size_t a = 0; a < D; ++a) middle[a] += points_[a][k];
        }
        if (!(largest < kInfinite)) return;
        mean /= static_cast<double>(end - begin);
        for (double& m : middle) m /= static_cast<double>(end - begin);
        double gram[D][D] = {}, product[D] = {};
        for (std::size_t k = begin; k < end; ++k) {
            double d[D];
            for (std::size_t a = 0; a < D; ++a) {
                d[a] = points_[a][k] - middle[a];
                product[a] += d[a] * (h_[k] - mean);
                for (std::size_t b = 0; b <= a; ++b) gram[a][b] += d[a] * d[b];
            }
        }
        solve(gram, product, node.slope);
        double slack = largest;
        for (std::size_t a = 0; a < D; ++a) {
            slack += std::abs(node.slope[a]) * (node.high[a] - node.low[a]);
            const double grain = kRounding * (std::abs(node.low[a]) + std::abs(node.high[a]) + std::abs(node.slope[a]));
            slack += grain * grain / kRounding;  // the minimum of a parabola is found to within the grain of its axis
        }
        double offset = kInfinite;
        for (std::size_t k = begin; k < end; ++k) {
            double above = h_[k];
            for (std::size_t a = 0; a < D; ++a) above -= node.slope[a] * (points_[a][k] - node.centre[a]);
            offset = std::min(offset, above);
        }
        node.offset = offset - kRounding * slack;
    }

    // Solves the system of a fit by Cholesky's method; slopes are zero if they are not finite. A ridge keeps them moderate
    // where coordinates depend on each other, as those of points on a surface do: then axis by axis would count twice.
    static void solve(double (&gram)[D][D], double (&x)[D], double (&slope)[D]) {
        double widest = 0;
        for (std::size_t a = 0; a < D; ++a) widest = std::max(widest, gram[a][a]);
        for (std::size_t a = 0; a < D; ++a) {
            for (std::size_t b = 0; b <= a; ++b) {
                double rest = gram[a][b] + (a == b ? kRidge * widest : 0.0);
                for (std::size_t c = 0; c < b; ++c) rest -= gram[a][c] * gram[b][c];
                gram[a][b] = a == b ? std::sqrt(rest) : rest / gram[b][b];
            }
            for (std::size_t c = 0; c < a; ++c) x[a] -= gram[a][c] * x[c];
            x[a] /= gram[a][a];
        }
        bool finite = true;
        for (std::size_t a = D; a-- > 0;) {
            for (std::size_t c = a + 1; c < D; ++c) x[a] -= gram[c][a] * x[c];
            x[a] /= gram[a][a];
            finite = finite && std::isfinite(x[a]);
        }
        if (finite) std::copy(x, x + D, slope);
    }

    // A lower bound of the sums of a node's points.
    template <class Metric>
    static double least_sum(const Metric& metric, const double* x, const Node& node) {
        constexpr bool squared = std::is_same_v<Metric, SquaredEuclidean>;
        double gap[D], plane = node.offset;
        for (std::size_t a = 0; a < D; ++a) {
            const double y = std::clamp(squared ? x[a] - node.slope[a] / 2 : x[a], node.low[a], node.high[a]);
            const double rise = node.slope[a] * ((squared ? y : x[a]) - node.centre[a]);
            gap[a] = x[a] - y;
            plane += squared ? rise : rise - kRounding * std::abs(rise);
        }
        const double distance = metric.template cost<D>(gap);
        if constexpr (squared) {
            return distance * (1 - kRounding) + plane;
        } else {
            // |x - y| + s (y - x) >= (1 - |s|) |x - y|
            const double rest = 1 - kRounding - metric.template dual<D>(node.slope);
            return std::max(distance + node.least, rest > 0 ? plane + rest * distance : -kInfinite);
        }
    }
    template <class Metric>
    double sum(const Metric& metric, const double* x, std::int32_t index) const {
        double d[D];
        for (std::size_t a = 0; a < D; ++a) d[a] = x[a] - points_[a][static_cast<std::size_t>(index)];
        return metric.template cost<D>(d) + h_[static_cast<std::size_t>(index)];
    }

    // least: a lower bound of the sums of node v
    template <class Metric>
    void descend(const Metric& metric, Search& search, std::size_t v, double least) const {
        const Node& node = nodes_[v];
        if (!(least < search.limit + kRounding * std::abs(search.limit))) return;
        if (node.right == 0) {
            double values[kLeaf];
            bool below = false;
            for (std::size_t l = 0; l < kLeaf; ++l) {
                values[l] = sum(metric, search.point, node.begin + static_cast<std::int32_t>(l));
                below |= values[l] < search.limit;
            }
            for (std::int32_t index = node.begin; below && index < node.end; ++index) {
                const double value = values[index - node.begin];
                if (!(value < search.limit)) continue;
                std::size_t at = search.count < search.k ? search.count++ : search.k - 1;
                for (; at > 0 && value < search.list[at - 1].first; --at) search.list[at] = search.list[at - 1];
                search.list[at] = {value, index};
                if (search.count == search.k) search.limit = std::min(search.limit, search.list[search.k - 1].first);
            }
            return;
        }
        const std::size_t left = v + 1, right = static_cast<std::size_t>(node.right);
        const double first = least_sum(metric, search.point, nodes_[left]),
                     second = least_sum(metric, search.point, nodes_[right]);
        if (first <= second) {
            descend(metric, search, left, first);
            descend(metric, search, right, second);
        } else {
            descend(metric, search, right, second);
            descend(metric, search, left, first);
        }
    }

    std::vector<std::int32_t> order_;
    std::vector<Node> nodes_;
    std::array<std::vector<double>, D> points_;  // by coordinates, in the order of the tree
    std::vector<double> h_;
};

}  // namespace gibbsot
