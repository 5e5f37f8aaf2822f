// Assignments at least cost: shortest augmenting paths on a dense square matrix, after column reduction and augmenting
// row reduction (Jonker and Volgenant 1987).
//
//     min  sum_i c(i, x_i) over permutations x,   max  sum_i u_i + sum_j v_j  with  u_i + v_j <= c_ij
//
// The potentials v of the columns only ever decrease, so that a lower bound of c_ij - v_j stays one. Every row therefore
// keeps a list of its arcs of least c_ij - v_j, and a bound that no other was below when the list was made: nearly all steps
// need only the list. Searches follow lists too: the bound of a row that they have reached waits among the distances, and
// the whole row is read when its turn comes.
//
// Costs may be stored in single precision; sums are in double precision. Minima are exact, and of equal ones the first in a
// fixed order counts: results are bit-identical for every vector width.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "simd.hpp"

namespace gibbsot {

template <class T>
class Assignment {
public:
    using Index = std::int32_t;

    // n rows of n costs, each `stride` after the one before
    Assignment(const T* costs, std::size_t n, std::size_t stride)
        : C_(costs), n_(n), stride_(stride), v_(n, kInf<double>), mate_(n, -1), owner_(n, -1), arcs_(new Arc[n * kMost]),
          count_(n), bound_(n), distance_(n, kInf<double>), from_(n, -1), done_(n, 0) {}

    // Returns false without an assignment if there is none at a finite cost, if bids settle so few rows that a simplex is
    // faster, or if pause(), which is called at first and then every few milliseconds' worth of work, returns true.
    template <class Pause>
    bool solve(Pause pause) {
        const auto stopped = [&] { return work_ > kPolled && (work_ = 0, pause()); };
        if (pause() || !reduce(stopped) || !bid(stopped)) return false;
        for (std::size_t j = 0; j < n_; ++j)
            if (owner_[j] < 0) open_.push_back(number(j));
        for (std::size_t i = 0; i < n_; ++i)
            if (mate_[i] < 0 && (stopped() || !augment(i))) return false;
        return true;
    }

    // The column of each row.
    const std::vector<Index>& mates() const { return mate_; }
    // The potentials of the columns; those of the rows are what they allow.
    const std::vector<double>& potentials() const { return v_; }
    double least() const { return least_; }
    double cost(std::size_t i, std::size_t j) const { return static_cast<double>(row(i)[j]); }

private:
    static constexpr std::size_t kClasses = 8;  // of columns, with equal indices modulo this
    static constexpr std::size_t kUnrolled = 4;
    static constexpr std::size_t kGroup = 32;   // of columns, whose bits a word has
    static constexpr std::size_t kMost = 64;    // arcs of a list
    static constexpr std::size_t kFew = 32;     // columns without a row: every row that is reached looks at all
    static constexpr std::size_t kPolled = 20'000'000;
    // Bids per row. Each takes some 50 ns, a search far more, so that many pay. In one to four dimensions rows outbid each
    // other in small steps: after the first tenth at most a share of them may be without a column.
    static constexpr std::size_t kFirstBids = 10, kBids = 300, kShare = 3;
    static constexpr int kRounds = 3;

    static Index number(std::size_t i) { return static_cast<Index>(i); }
    static std::size_t at(Index i) { return static_cast<std::size_t>(i); }
    const T* row(std::size_t i) const { return C_ + i * stride_; }
    static Vec<double> read(const T* p) {
        if constexpr (sizeof(T) == sizeof(double))
            return load(p);
        else
            return convert<Vec<double>>(load_as<typename VecOf<T, kLanes<double> * sizeof(T)>::type>(p));
    }

    // Column reduction, and the lists of all rows.
    template <class Stopped>
    bool reduce(Stopped stopped) {
        for (std::size_t i = 0; i < n_; ++i) {
            const T* c = row(i);
            for (std::size_t j = 0; j < n_; ++j) v_[j] = std::min(v_[j], static_cast<double>(c[j]));
            work_ += n_;
            if (stopped()) return false;
        }
        least_ = *std::min_element(v_.begin(), v_.end());
        for (double& v : v_) v = v < kInf<double> ? v : 0;
        for (std::size_t i = 0; i < n_; ++i) {
            find(i);
            if (stopped()) return false;
        }
        return true;
    }

    struct Arc {
        double cost;
        Index column;
    };

    // The list of row i: all arcs up to the largest of the least c - v of the classes, 22 on average.
    void find(std::size_t i) {
        const T* c = row(i);
        const double* v = v_.data();
        constexpr std::size_t W = kLanes<double>, V = kClasses / W, step = kUnrolled * kClasses;
        double least[kClasses];
        std::fill(least, least + kClasses, kInf<double>);
        std::size_t j = 0;
        if (n_ >= step) {
            Vec<double> acc[kUnrolled * V];
            for (std::size_t k = 0; k < kUnrolled * V; ++k) acc[k] = read(c + k * W) - load(v + k * W);
            for (j = step; j + step <= n_; j += step)
                for (std::size_t k = 0; k < kUnrolled * V; ++k)
                    acc[k] = minimum(acc[k], read(c + j + k * W) - load(v + j + k * W));
            for (std::size_t k = V; k < kUnrolled * V; ++k) acc[k % V] = minimum(acc[k % V], acc[k]);
            for (std::size_t k = 0; k < V; ++k) store(least + k * W, acc[k]);
        }
        for (; j < n_; ++j) least[j % kClasses] = std::min(least[j % kClasses], static_cast<double>(c[j]) - v[j]);
        double bound = *std::max_element(least, least + kClasses);
        Arc* list = arcs_.get() + i * kMost;
        std::size_t count = 0;
        const auto add = [&](std::size_t k) {
            const double sum = static_cast<double>(c[k]) - v[k];
            if (!(sum <= bound) || sum == kInf<double>) return;
            if (count == kMost) {
                bound = halve(list);
                count = kMost / 2;
                if (!(sum <= bound)) return;
            }
            list[count++] = {static_cast<double>(c[k]), number(k)};
        };
        for (j = 0; j + kGroup <= n_; j += kGroup)
            for (std::uint32_t here = up_to(bound, c + j, v + j); here != 0; here &= here - 1)
                add(j + static_cast<std::size_t>(std::countr_zero(here)));
        for (; j < n_; ++j) add(j);
        count_[i] = count;
        bound_[i] = bound;
        work_ += 2 * n_;
    }

    // Which c - v of a group are at most a bound, as bits. Where these are cannot be foreseen: no branch depends on it.
    static std::uint32_t up_to(double bound, const T* c, const double* v) {
        static constexpr auto kBits = [] {
            std::array<double, kGroup> bits{};
            double bit = 1;
            for (double& x : bits) {
                x = bit;
                bit *= 2;
            }
            return bits;
        }();
        constexpr std::size_t W = kLanes<double>;
        const Vec<double> most = splat(bound), zero{};
        Vec<double> found = zero;
        for (std::size_t k = 0; k < kGroup; k += W)
            found += read(c + k) - load(v + k) <= most ? load(kBits.data() + k) : zero;
        double lanes[W], total = 0;
        store(lanes, found);
        for (const double lane : lanes) total += lane;
        return static_cast<std::uint32_t>(total);
    }

    // Leaves the larger half of a full list out, and returns the least of it.
    double halve(Arc* list) const {
        const auto sum = [&](const Arc& arc) { return arc.cost - v_[at(arc.column)]; };
        std::sort(list, list + kMost, [&](const Arc& a, const Arc& b) {
            return sum(a) < sum(b) || (sum(a) == sum(b) && a.column < b.column);
        });
        return sum(list[kMost / 2]);
    }

    struct Bid {
        double first, second;  // the least c - v of a list
        Index column;          // of the first, -1 if there is none
    };
    Bid least_of(std::size_t i) const {
        const Arc* list = arcs_.get() + i * kMost;
        Bid bid{kInf<double>, kInf<double>, -1};
        for (std::size_t k = 0; k < count_[i]; ++k) {
            const double sum = list[k].cost - v_[at(list[k].column)];
            const bool less = sum < bid.first;
            bid.second = less ? bid.first : std::min(bid.second, sum);
            bid.column = less ? list[k].column : bid.column;
            bid.first = less ? sum : bid.first;
        }
        return bid;
    }

    // Augmenting row reduction: a row without a column takes its nearest one from the row that has it, and lowers v until it
    // is as near as the second.
    template <class Stopped>
    bool bid(Stopped stopped) {
        std::vector<Index> queue(n_), later;
        for (std::size_t i = 0; i < n_; ++i) queue[i] = number(n_ - 1 - i);
        std::size_t made = 0;
        for (int round = 0; round < kRounds && !queue.empty(); ++round) {
            for (; !queue.empty() && made < kBids * n_; ++made) {
                if (made == kFirstBids * n_ && kShare * (queue.size() + later.size()) > n_) return false;
                work_ += 64;
                if (stopped()) return false;
                const std::size_t i = at(queue.back());
                queue.pop_back();
                Bid own = least_of(i);
                if (own.column < 0 || own.first > bound_[i]) {
                    find(i);
                    own = least_of(i);
                }
                if (own.column < 0) continue;  // all pairs are forbidden
                const std::size_t j = at(own.column);
                const double second = std::min(own.second, bound_[i]);
                const bool lowers = own.first < second && second < kInf<double>;
                const Index last = owner_[j];
                if (last >= 0 && !lowers) {
                    later.push_back(number(i));
                    continue;
                }
                if (lowers) v_[j] -= second - own.first;
                owner_[j] = number(i);
                mate_[i] = own.column;
                if (last < 0) continue;
                mate_[at(last)] = -1;
                queue.push_back(last);
            }
            queue.insert(queue.end(), later.rbegin(), later.rend());
            later.clear();
        }
        return true;
    }

    // A shortest path from a row without a column to a column without a row. Returns whether there is one.
    bool augment(std::size_t first) {
        const auto [end, length] = search(first);
        for (const Index j : touched_)
            if (end >= 0 && done_[at(j)]) v_[at(j)] -= length - distance_[at(j)];
        clear();
        if (end < 0) return false;
        open_.erase(std::lower_bound(open_.begin(), open_.end(), end));
        for (Index j = end;;) {
            const std::size_t i = at(from_[at(j)]);
            owner_[at(j)] = number(i);
            std::swap(j, mate_[i]);
            if (i == first) return true;
        }
    }

    struct Waiting {
        double distance;
        Index column;  // or -1 minus a number of reached_, whose other arcs wait
        bool operator<(const Waiting& other) const {
            return distance > other.distance || (distance == other.distance && column > other.column);
        }
    };
    struct Reached {
        std::size_t row;
        double offset;  // what c - v is added to, for the distance of a column
    };

    // Distances from a row, by increasing distance, until a column without a row is the nearest: this and its distance; or
    // -1 where none can be reached.
    std::pair<Index, double> search(std::size_t first) {
        double best = kInf<double>, d = 0;
        Index end = -1;
        const auto reach = [&](std::size_t j, double distance, std::size_t i) {
            distance = std::max(distance, d);
            if (!(distance < distance_[j] && distance < best) || done_[j]) return;
            if (distance_[j] == kInf<double>) touched_.push_back(number(j));
            distance_[j] = distance;
            from_[j] = number(i);
            if (owner_[j] < 0) {
                best = distance;
                end = number(j);
            } else {
                push({distance, number(j)});
            }
        };
        const auto arrive = [&](std::size_t i, double offset) {
            if (open_.size() <= kFew)
                for (const Index j : open_) reach(at(j), offset + (cost(i, at(j)) - v_[at(j)]), i);
            const Arc* list = arcs_.get() + i * kMost;
            for (std::size_t k = 0; k < count_[i]; ++k)
                reach(at(list[k].column), offset + (list[k].cost - v_[at(list[k].column)]), i);
            if (!(offset + bound_[i] < best)) return;
            reached_.push_back({i, offset});
            push({std::max(d, offset + bound_[i]), -number(reached_.size())});
        };
        arrive(first, 0);
        while (!heap_.empty() && heap_.front().distance < best) {
            const Waiting next = heap_.front();
            std::pop_heap(heap_.begin(), heap_.end());
            heap_.pop_back();
            if (next.column < 0) {
                d = next.distance;
                read_all(reached_[at(-1 - next.column)], best, reach);
                continue;
            }
            const std::size_t j = at(next.column), i = at(owner_[j]);
            if (done_[j]) continue;
            done_[j] = 1;
            d = next.distance;
            work_ += 64;
            arrive(i, d - (cost(i, j) - v_[j]));
        }
        return {end, best};
    }

    void push(Waiting waiting) {
        heap_.push_back(waiting);
        std::push_heap(heap_.begin(), heap_.end());
    }

    // All arcs of a row, where they are shorter than what is known.
    template <class Reach>
    void read_all(Reached from, const double& best, Reach reach) {
        const T* c = row(from.row);
        const double *v = v_.data(), *known = distance_.data(), offset = from.offset;
        const auto distance = [&](std::size_t j) { return offset + (static_cast<double>(c[j]) - v[j]); };
        std::size_t j = 0;
        for (; j + kClasses <= n_; j += kClasses) {
            bool here = false;
            for (std::size_t k = 0; k < kClasses; ++k) here |= (distance(j + k) < known[j + k]) & (distance(j + k) < best);
            for (std::size_t k = 0; here && k < kClasses; ++k) reach(j + k, distance(j + k), from.row);
        }
        for (; j < n_; ++j) reach(j, distance(j), from.row);
        work_ += n_;
    }

    // After a search.
    void clear() {
        for (const Index j : touched_) {
            distance_[at(j)] = kInf<double>;
            done_[at(j)] = 0;
        }
        touched_.clear();
        heap_.clear();
        reached_.clear();
    }

    const T* C_;
    std::size_t n_, stride_;
    std::vector<double> v_;
    std::vector<Index> mate_, owner_;  // of rows and of columns, -1 without one
    std::unique_ptr<Arc[]> arcs_;      // kMost for each row, of which the first count_ are its list
    std::vector<std::size_t> count_;
    std::vector<double> bound_;
    std::vector<double> distance_;  // of a search, like all below; infinite between searches
    std::vector<Index> from_;
    std::vector<char> done_;
    std::vector<Index> open_, touched_;  // columns without a row, and those with a distance
    std::vector<Waiting> heap_;
    std::vector<Reached> reached_;
    std::size_t work_ = 0;
    double least_ = 0;
};

}  // namespace gibbsot
