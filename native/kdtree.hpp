// A k-d tree whose nodes carry the least h of their points: c-transforms min_j (cost(x, y_j) + h_j) and the arcs of
// least reduced cost without any matrix, for squared and plain Euclidean distances in low dimension.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

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
        points_.resize(n * D);
        h_.assign(n, 0.0);
        for (std::size_t k = 0; k < n; ++k)
            std::copy_n(points + static_cast<std::size_t>(order_[k]) * D, D, points_.data() + k * D);
    }

    std::size_t size() const { return order_.size(); }
    // The points in the order of the tree: neighbours stand close together.
    const std::vector<std::int32_t>& order() const { return order_; }

    // h may be infinite: the point is left out.
    void set_h(const double* h) {
        for (std::size_t k = 0; k < order_.size(); ++k) h_[k] = h[order_[k]];
        for (std::size_t v = nodes_.size(); v-- > 0;) {
            Node& node = nodes_[v];
            if (node.right == 0)
                node.least = *std::min_element(h_.begin() + node.begin, h_.begin() + node.end);
            else
                node.least = std::min(nodes_[v + 1].least, nodes_[static_cast<std::size_t>(node.right)].least);
        }
    }

    // The k least sums below `bound` for n points x, least first; -1 and infinity where there are fewer. The points
    // should come in an order in which neighbours are close: the answers to one are the first guesses for the next.
    template <bool Squared>
    void nearest(const double* x, const std::int32_t* queries, std::size_t n, const double* bound, std::size_t k,
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
                for (const std::int32_t index : guess) worst = std::max(worst, sum<Squared>(point, index));
                worst += std::abs(worst) * 1e-12 + std::numeric_limits<double>::min();
                search.limit = std::min(search.limit, worst);
            }
            descend<Squared>(search, 0, box_distance(point, 0));
            guess.clear();
            for (std::size_t c = 0; c < k; ++c) {
                const bool there = c < search.count;
                indices[r * k + c] = there ? order_[static_cast<std::size_t>(list[c].second)] : -1;
                values[r * k + c] = there ? list[c].first : kInfinite;
                if (there) guess.push_back(list[c].second);
            }
        }
    }

private:
    static constexpr double kInfinite = std::numeric_limits<double>::infinity();
    static constexpr std::size_t kLeaf = 8;

    struct Node {
        double low[D], high[D];
        double least;
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

    double box_distance(const double* x, std::size_t v) const {
        double sum = 0;
        for (std::size_t a = 0; a < D; ++a) {
            const double d = std::max(std::max(nodes_[v].low[a] - x[a], x[a] - nodes_[v].high[a]), 0.0);
            sum += d * d;
        }
        return sum;
    }
    template <bool Squared>
    static double cost(double squared) {
        return Squared ? squared : std::sqrt(squared);
    }
    template <bool Squared>
    double sum(const double* x, std::int32_t index) const {
        double squared = 0;
        for (std::size_t a = 0; a < D; ++a) {
            const double d = x[a] - points_[static_cast<std::size_t>(index) * D + a];
            squared += d * d;
        }
        return cost<Squared>(squared) + h_[static_cast<std::size_t>(index)];
    }

    // distance: squared, from the box of node v
    template <bool Squared>
    void descend(Search& search, std::size_t v, double distance) const {
        const Node& node = nodes_[v];
        if (!(cost<Squared>(distance) + node.least < search.limit)) return;
        if (node.right == 0) {
            for (std::int32_t index = node.begin; index < node.end; ++index) {
                const double value = sum<Squared>(search.point, index);
                if (!(value < search.limit)) continue;
                std::size_t at = search.count < search.k ? search.count++ : search.k - 1;
                for (; at > 0 && value < search.list[at - 1].first; --at) search.list[at] = search.list[at - 1];
                search.list[at] = {value, index};
                if (search.count == search.k) search.limit = std::min(search.limit, search.list[search.k - 1].first);
            }
            return;
        }
        const std::size_t left = v + 1, right = static_cast<std::size_t>(node.right);
        const double to_left = box_distance(search.point, left), to_right = box_distance(search.point, right);
        const double first = cost<Squared>(to_left) + nodes_[left].least,
                     second = cost<Squared>(to_right) + nodes_[right].least;
        if (first <= second) {
            descend<Squared>(search, left, to_left);
            descend<Squared>(search, right, to_right);
        } else {
            descend<Squared>(search, right, to_right);
            descend<Squared>(search, left, to_left);
        }
    }

    std::vector<std::int32_t> order_;
    std::vector<Node> nodes_;
    std::vector<double> points_, h_;
};

}  // namespace gibbsot
