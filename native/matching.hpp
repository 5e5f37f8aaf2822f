// Matchings of points in the plane at least cost, where a point may also stay alone at a price of its own.
//
//     min  sum over pairs c(x_i, y_j) + sum over lone rows a_i + sum over lone columns b_j
//     max  sum_i f_i + sum_j g_j  with  f_i + g_j <= c(x_i, y_j),  f_i <= a_i,  g_j <= b_j
//
// Pairs with c >= a_i + b_j are never needed, as f <= a and g <= b prove them: a k-d tree lists the others. Where these are
// many, the search begins with neighbours, and the k-d tree adds pairs that the potentials violate.
//
// Shortest augmenting paths, as in the Hungarian method, from any feasible potentials. Invariants: no reduced cost
// c - f - g, a - f or b - g is negative but for rounding, and those of matched pairs vanish. A lone point whose price is not
// reached is *open*; a search from it, along pairs and back along matched ones, ends at a lone point of the other side, or
// at one of its own side whose price is reached, and closes it. Auctions give the first potentials: bids of the rows in
// steps of the distance of neighbours, then in smaller ones, which leave few points open and their searches short.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "kdtree.hpp"

namespace gibbsot {

template <class Metric>
class Matching {
public:
    using Index = std::int32_t;

    // n points X with prices a, m points Y with prices b.
    Matching(const Metric& metric, const double* X, const double* a, std::size_t n, const double* Y, const double* b,
             std::size_t m)
        : metric_(metric), sides_{Side(X, a, n), Side(Y, b, m)}, from_(std::max(n, m)), done_(std::max(n, m), 0) {
        for (const Side& side : sides_)
            for (const double price : side.price) largest_ = std::max(largest_, price);
    }

    // poll() may throw, which ends it.
    template <class Poll>
    void solve(Poll poll) {
        const bool every = all_pairs(poll);
        if (!every) neighbours(poll);
        link();
        const double step = nearest_cost();
        for (const double part : kSteps) bid(part * step, poll);
        match_tight();
        close_points(poll);
        for (int round = 0; !every && round < kRounds && add_violated(poll); ++round) {
            link();
            close_points(poll);
        }
    }

    const std::vector<Index>& mates() const { return sides_[0].mate; }
    const std::vector<double>& potentials(int side) const { return sides_[side].potential; }

    // How far f_i + g_j may exceed the cost of a pair, at most.
    double violation() {
        const std::vector<double>&f = sides_[0].potential, &g = sides_[1].potential;
        double most = pairs_.empty() ? 0.0 : -std::numeric_limits<double>::infinity();
        for (const Pair& pair : pairs_) most = std::max(most, f[row(pair)] + g[column(pair)] - pair.cost);
        return std::max(most, complete_ ? 0.0 : worst_ + tolerance()) + 0x1p-50 * largest_;
    }

private:
    static constexpr double kInfinite = std::numeric_limits<double>::infinity();
    static constexpr std::size_t kMost = 24;        // pairs for each point, if all are listed
    static constexpr std::size_t kSampled = 32;     // one row in 32 is looked at to tell whether that is the case
    static constexpr std::size_t kNeighbours = 24;  // of each row, if not
    static constexpr std::size_t kAdded = 4;        // violated pairs of a row in a round
    static constexpr int kRounds = 100;
    static constexpr std::size_t kPolled = 4096;    // steps until somebody may end it
    static constexpr double kSteps[2] = {1, 0.4};   // times the distance of neighbours: the steps of bids
    static constexpr std::size_t kBids = 20;        // for each row and step, at most

    struct Side {
        Side(const double* x, const double* a, std::size_t n)
            : points(x), price(a, a + n), potential(price), feasible(n, -kInfinite), mate(n, -1), distance(n, kInfinite), tree(x, n) {}
        std::size_t size() const { return price.size(); }
        bool open(std::size_t i) const { return mate[i] < 0 && potential[i] < price[i]; }
        bool rose(std::size_t i) const { return potential[i] > feasible[i]; }

        const double* points;
        std::vector<double> price, potential;
        std::vector<double> feasible;  // potentials that no pair violates, for add_violated()
        std::vector<Index> mate;  // -1: alone
        std::vector<double> distance;  // of a search; infinite between searches
        KdTree<2> tree;
        std::vector<std::size_t> start;  // the pairs of each point
        std::vector<Index> to;
        std::vector<double> cost;
    };
    struct Pair {
        Index i, j;
        double cost;
    };
    static std::size_t row(const Pair& pair) { return static_cast<std::size_t>(pair.i); }
    static std::size_t column(const Pair& pair) { return static_cast<std::size_t>(pair.j); }
    static Index number(std::size_t i) { return static_cast<Index>(i); }
    double tolerance() const { return 0x1p-46 * largest_; }
    double cost_of(std::size_t i, std::size_t j) const {
        const double *x = sides_[0].points + 2 * i, *y = sides_[1].points + 2 * j;
        const double d[2] = {x[0] - y[0], x[1] - y[1]};
        return metric_.template cost<2>(d);
    }

    // Lists all pairs that may be needed; false if there are too many, which those of some rows tell at first.
    template <class Poll>
    bool all_pairs(Poll poll) {
        Side &rows = sides_[0], &columns = sides_[1];
        const std::size_t most = kMost * (rows.size() + columns.size());
        std::vector<double> h(columns.size());
        for (std::size_t j = 0; j < h.size(); ++j) h[j] = -columns.price[j];
        columns.tree.set_h(h.data());
        complete_ = true;
        for (const std::size_t step : {kSampled, std::size_t{1}}) {
            pairs_.clear();
            for (std::size_t i = 0; i < rows.size() && complete_; i += step) {
                if (i % kPolled == 0) poll();
                complete_ = columns.tree.within(metric_, rows.points + 2 * i, rows.price[i], [&](Index j, double) {
                    pairs_.push_back({number(i), j, cost_of(i, static_cast<std::size_t>(j))});
                    return step * pairs_.size() <= most;
                });
            }
        }
        return complete_;
    }

    // The k columns of least sums c + h below a bound, for some rows, as the tree finds them.
    template <class Poll>
    void search(const std::vector<double>& h, const std::vector<Index>& some, const double* bound, std::size_t k, Poll poll) {
        if (some.empty()) return;
        KdTree<2>& tree = sides_[1].tree;
        tree.set_h(h.data());
        found_.resize(sides_[0].size() * k);
        sums_.resize(sides_[0].size() * k);
        for (std::size_t begin = 0; begin < some.size(); begin += kPolled) {
            poll();
            tree.nearest(metric_, sides_[0].points, some.data() + begin, std::min(kPolled, some.size() - begin), bound, k,
                         found_.data(), sums_.data());
        }
    }

    // Begins with the nearest columns of each row.
    template <class Poll>
    void neighbours(Poll poll) {
        const std::size_t k = std::min(kNeighbours, sides_[1].size());
        search(std::vector<double>(sides_[1].size(), 0.0), sides_[0].tree.order(), nullptr, k, poll);
        pairs_.clear();
        pairs_.reserve(sums_.size());
        for (std::size_t t = 0; t < sums_.size(); ++t) {
            const std::size_t i = t / k, j = static_cast<std::size_t>(found_[t]);
            if (sums_[t] < sides_[0].price[i] + sides_[1].price[j]) pairs_.push_back({number(i), number(j), sums_[t]});
        }
    }

    // The pairs of each point, by rows and by columns.
    void link() {
        for (int side : {0, 1}) {
            Side& own = sides_[side];
            own.start.assign(own.size() + 1, 0);
            for (const Pair& pair : pairs_) ++own.start[(side == 0 ? row(pair) : column(pair)) + 1];
            const std::size_t most = *std::max_element(own.start.begin(), own.start.end());
            if (reduced_.size() < most) {
                reduced_.resize(most);
                shorter_.resize(most);
            }
            std::partial_sum(own.start.begin(), own.start.end(), own.start.begin());
            own.to.resize(pairs_.size());
            own.cost.resize(pairs_.size());
            std::vector<std::size_t> at(own.start.begin(), own.start.end() - 1);
            for (const Pair& pair : pairs_) {
                const std::size_t place = at[side == 0 ? row(pair) : column(pair)]++;
                own.to[place] = side == 0 ? pair.j : pair.i;
                own.cost[place] = pair.cost;
            }
        }
    }

    // The median over the rows of the cost of the nearest column.
    double nearest_cost() const {
        const Side& rows = sides_[0];
        std::vector<double> least;
        for (std::size_t i = 0; i < rows.size(); ++i)
            if (rows.start[i] < rows.start[i + 1])
                least.push_back(*std::min_element(rows.cost.begin() + static_cast<std::ptrdiff_t>(rows.start[i]),
                                                  rows.cost.begin() + static_cast<std::ptrdiff_t>(rows.start[i + 1])));
        if (least.empty()) return 0;
        const auto middle = least.begin() + static_cast<std::ptrdiff_t>(least.size() / 2);
        std::nth_element(least.begin(), middle, least.end());
        return *middle;
    }

    // Writes cost - f - g of the pairs of a point into `reduced_`, for a value f of its potential; returns their number.
    std::size_t reduce(const Side& own, const Side& other, std::size_t i, double f) {
        const std::size_t begin = own.start[i], count = own.start[i + 1] - begin;
        const Index* to = own.to.data() + begin;
        const double *cost = own.cost.data() + begin, *g = other.potential.data();
        double* reduced = reduced_.data();
        for (std::size_t k = 0; k < count; ++k) reduced[k] = (cost[k] - f) - g[to[k]];
        return count;
    }

    // Rows bid for columns until all are content or there were many bids; then potentials are made feasible.
    template <class Poll>
    void bid(double step, Poll poll) {
        Side &rows = sides_[0], &columns = sides_[1];
        std::vector<Index> queue(rows.size()), owner(columns.size(), -1);
        std::iota(queue.begin(), queue.end(), 0);
        for (std::size_t head = 0; head < queue.size() && head < kBids * rows.size(); ++head) {
            if (head % kPolled == 0) poll();
            const auto i = static_cast<std::size_t>(queue[head]);
            const std::size_t count = reduce(rows, columns, i, 0);
            double best = rows.price[i], second = kInfinite;
            std::size_t chosen = count;
            for (std::size_t k = 0; k < count; ++k) {
                const double sum = reduced_[k];
                second = std::min(second, std::max(best, sum));
                chosen = sum < best ? k : chosen;
                best = std::min(best, sum);
            }
            if (chosen == count) continue;
            const auto j = static_cast<std::size_t>(rows.to[rows.start[i] + chosen]);
            columns.potential[j] -= second - best + step;
            if (owner[j] >= 0) queue.push_back(owner[j]);
            owner[j] = number(i);
        }
        for (int side : {0, 1}) tighten(sides_[side], sides_[1 - side]);
    }

    // Matches points along tight pairs.
    void match_tight() {
        Side &rows = sides_[0], &columns = sides_[1];
        for (std::size_t j = 0; j < columns.size(); ++j)
            for (std::size_t k = columns.start[j]; k < columns.start[j + 1] && columns.open(j); ++k) {
                const auto i = static_cast<std::size_t>(columns.to[k]);
                if (rows.mate[i] >= 0 || columns.cost[k] - rows.potential[i] > columns.potential[j]) continue;
                rows.mate[i] = number(j);
                columns.mate[j] = number(i);
            }
    }

    // The largest potentials that those of the other side allow.
    static void tighten(Side& own, const Side& other) {
        for (std::size_t i = 0; i < own.size(); ++i) {
            double least = own.price[i];
            for (std::size_t k = own.start[i]; k < own.start[i + 1]; ++k)
                least = std::min(least, own.cost[k] - other.potential[static_cast<std::size_t>(own.to[k])]);
            own.potential[i] = least;
        }
    }

    template <class Poll>
    void close_points(Poll poll) {
        for (int side : {0, 1})
            for (std::size_t i = 0; i < sides_[side].size(); ++i) {
                if (i % 64 == 0) poll();  // a search may take long
                if (sides_[side].open(i)) close_point(sides_[side], sides_[1 - side], i);
            }
    }

    // A search from a lone point of the side `own`, by increasing distance.
    void close_point(Side& own, Side& other, std::size_t first) {
        heap_.clear();
        scanned_.clear();
        touched_.clear();
        double best = kInfinite, d = 0;
        std::size_t end = first;
        bool joins = false;  // whether the path ends at a lone point of the other side
        for (std::size_t i = first;;) {
            own.distance[i] = d;
            scanned_.push_back(i);
            if (const double alone = d + (own.price[i] - own.potential[i]); alone < best) {
                best = alone;
                end = i;
                joins = false;
            }
            const std::size_t count = reduce(own, other, i, own.potential[i]);
            const Index* to = own.to.data() + own.start[i];
            std::size_t shorter = 0;  // pairs that shorten a way; without branches, which would be hard to predict
            for (std::size_t k = 0; k < count; ++k) {
                const double reached = d + reduced_[k];
                shorter_[shorter] = number(k);
                shorter += static_cast<std::size_t>((reached < best) & (reached < other.distance[static_cast<std::size_t>(to[k])]));
            }
            for (std::size_t s = 0; s < shorter; ++s) {
                const auto k = static_cast<std::size_t>(shorter_[s]), j = static_cast<std::size_t>(to[k]);
                double reached = d + reduced_[k];
                if (!(reached < best) || done_[j]) continue;
                reached = std::max(reached, d);
                if (other.distance[j] == kInfinite) touched_.push_back(j);
                other.distance[j] = reached;
                from_[j] = number(i);
                if (other.mate[j] < 0) {
                    best = reached;
                    end = j;
                    joins = true;
                } else {
                    heap_.emplace_back(-reached, number(j));
                    std::push_heap(heap_.begin(), heap_.end());
                }
            }
            bool found = false;
            while (!found && !heap_.empty() && -heap_.front().first < best) {
                const auto j = static_cast<std::size_t>(heap_.front().second);
                d = -heap_.front().first;
                std::pop_heap(heap_.begin(), heap_.end());
                heap_.pop_back();
                if (done_[j] || d > other.distance[j]) continue;
                done_[j] = 1;
                i = static_cast<std::size_t>(other.mate[j]);
                found = true;
            }
            if (!found) break;
        }
        for (const std::size_t i : scanned_) {
            own.potential[i] = std::min(own.price[i], own.potential[i] + (best - own.distance[i]));
            own.distance[i] = kInfinite;
        }
        for (const std::size_t j : touched_) {
            if (done_[j]) other.potential[j] -= best - other.distance[j];
            other.distance[j] = kInfinite;
            done_[j] = 0;
        }
        augment(own, other, first, end, joins);
    }

    void augment(Side& own, Side& other, std::size_t first, std::size_t end, bool joins) {
        if (!joins) own.potential[end] = own.price[end];
        if (!joins && end == first) return;
        Index j = joins ? number(end) : own.mate[end];
        if (!joins) own.mate[end] = -1;
        for (bool last = false; !last;) {
            const auto i = static_cast<std::size_t>(from_[static_cast<std::size_t>(j)]);
            const Index next = own.mate[i];
            own.mate[i] = j;
            other.mate[static_cast<std::size_t>(j)] = number(i);
            last = i == first;
            j = next;
        }
    }

    // Adds pairs that the potentials violate, and makes these feasible again; returns whether there were any. They were
    // feasible after the last call: a pair is violated only where a potential rose since then.
    template <class Poll>
    bool add_violated(Poll poll) {
        Side &rows = sides_[0], &columns = sides_[1];
        const std::size_t k = std::min(kAdded, columns.size()), before = pairs_.size();
        std::vector<double> bound(rows.size()), h(columns.size());
        for (std::size_t i = 0; i < bound.size(); ++i) bound[i] = rows.potential[i] - tolerance();
        for (std::size_t j = 0; j < h.size(); ++j) h[j] = -columns.potential[j];
        std::vector<Index> risen, others;
        for (const Index i : rows.tree.order()) (rows.rose(static_cast<std::size_t>(i)) ? risen : others).push_back(i);
        search(h, risen, bound.data(), k, poll);
        for (std::size_t j = 0; j < h.size(); ++j)
            if (!columns.rose(j)) h[j] = kInfinite;
        search(h, others, bound.data(), k, poll);
        worst_ = 0;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            for (std::size_t c = 0; c < k && found_[i * k + c] >= 0; ++c) {
                const auto j = static_cast<std::size_t>(found_[i * k + c]);
                pairs_.push_back({number(i), number(j), cost_of(i, j)});
            }
            if (found_[i * k] < 0) continue;
            worst_ = std::max(worst_, rows.potential[i] - sums_[i * k]);
            rows.potential[i] = sums_[i * k];
            if (const Index j = rows.mate[i]; j >= 0) rows.mate[i] = columns.mate[static_cast<std::size_t>(j)] = -1;
        }
        for (Side& side : sides_) side.feasible = side.potential;
        return pairs_.size() > before;
    }

    Metric metric_;
    Side sides_[2];
    std::vector<Pair> pairs_;
    bool complete_ = false;  // whether the pairs are all that may be needed
    double largest_ = 0, worst_ = 0;
    std::vector<Index> from_;
    std::vector<char> done_;
    std::vector<double> reduced_;  // costs of the pairs of a point
    std::vector<Index> shorter_;
    std::vector<std::int64_t> found_;  // by the tree, with their sums
    std::vector<double> sums_;
    std::vector<std::pair<double, Index>> heap_;
    std::vector<std::size_t> scanned_, touched_;
};

}  // namespace gibbsot
