// Prices by bids, for any weights (Bertsekas and Castanon 1989): what a shortest path would need a matrix for, rows find in
// lists of their nearest columns.
//
// A row with mass left bids for the column j of least c_ij + price_j: it raises the price of what it takes by the distance
// to the second least, plus epsilon. A full column gives up what was taken at the lowest prices. Prices only rise, so that
// all arcs outside a list stay above the bound that was valid when it was made; a row whose list is used up waits for a new
// one. Masses and prices are rounded: they are a start for a solver, not a proof.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "simd.hpp"

namespace gibbsot {

class Auction {
public:
    using Index = std::int32_t;

    // Weights of rows and columns with equal sums, and the first prices of the columns.
    Auction(const double* p, std::size_t rows, const double* q, std::size_t columns, const double* prices, std::size_t k)
        : k_(k), left_(p, p + rows), free_(q, q + columns), price_(prices, prices + columns), arcs_(rows * k),
          bound_(rows, -kInf<double>), listed_(rows, 0), held_(columns) {
        double total = 0;
        for (const double x : left_) total += x;
        dust_ = total * kDust;
        for (std::size_t i = rows; i-- > 0;)
            if (left_[i] > dust_) queue_.push_back(number(i));
    }

    std::size_t list_size() const { return k_; }
    std::size_t rows() const { return left_.size(); }
    std::size_t columns() const { return free_.size(); }
    const std::vector<double>& prices() const { return price_; }
    // Rows that wait for a list.
    const std::vector<Index>& waiting() const { return waiting_; }
    // The mass that is left over.
    double left() const {
        double total = 0;
        for (const double x : left_) total += x;
        return total;
    }

    // The k arcs of least cost + price of a row, in ascending order, whose last is a bound of all others; negative columns
    // stand for none. All rows that wait get one.
    void give_list(std::size_t i, const std::int64_t* columns, const float* sums, const float* prices) {
        Arc* list = arcs_.data() + i * k_;
        std::size_t count = 0;
        for (std::size_t a = 0; a < k_ && columns[a] >= 0; ++a, ++count) {
            const auto j = static_cast<std::size_t>(columns[a]);
            list[count] = {static_cast<double>(sums[a]) - static_cast<double>(prices[j]), static_cast<Index>(j)};
        }
        listed_[i] = count;
        bound_[i] = count < k_ || k_ == free_.size() ? kInf<double> : static_cast<double>(sums[k_ - 1]);
    }
    void resume() {
        queue_.insert(queue_.end(), waiting_.rbegin(), waiting_.rend());
        waiting_.clear();
    }

    // Bids until no row has mass left but those that wait, at most `enough` is left, or `most` bids were made. pause(),
    // which is called every few milliseconds, returns whether to stop. Returns the number of bids.
    template <class Pause>
    std::size_t run(double epsilon, double enough, std::size_t most, Pause pause) {
        double open = left();
        std::size_t made = 0;
        for (; !queue_.empty() && open > enough && made < most; ++made) {
            if (made % 100'000 == 99'999) {
                open = left();  // without the rounding errors of the updates
                if (pause()) break;
            }
            const Index row = queue_.back();
            const std::size_t i = at(row);
            if (!(left_[i] > dust_)) {
                queue_.pop_back();
                continue;
            }
            const Bid bid = least_of(i);
            if (bid.column < 0 || bid.first > bound_[i]) {
                queue_.pop_back();
                waiting_.push_back(row);
                continue;
            }
            const std::size_t j = at(bid.column);
            const double second = std::min(bid.second, bound_[i]);
            const double rise = (second < kInf<double> ? second - bid.first : 0) + epsilon;
            const double before = left_[i];
            queue_.pop_back();
            take(i, j, price_[j] + rise);
            if (left_[i] > dust_) queue_.push_back(row);
            open += left_[i] - before + returned_;
        }
        return made;
    }

    // The least cost + price of a row, or less.
    double potential(std::size_t i) const {
        const Bid bid = least_of(i);
        return std::min(bid.first, bound_[i]);
    }

private:
    static constexpr double kDust = 1e-12;  // of all mass: what rounding may leave of a part

    struct Arc {
        double cost;
        Index column;
    };
    struct Bid {
        double first, second;
        Index column;
    };
    struct Held {  // what a row has of a column, and at which price
        double price, mass;
        Index row;
        bool operator<(const Held& other) const { return price > other.price; }  // the cheapest is the top of a heap
    };

    static Index number(std::size_t i) { return static_cast<Index>(i); }
    static std::size_t at(Index i) { return static_cast<std::size_t>(i); }

    Bid least_of(std::size_t i) const {
        const Arc* list = arcs_.data() + i * k_;
        Bid bid{kInf<double>, kInf<double>, -1};
        for (std::size_t a = 0; a < listed_[i]; ++a) {
            const double sum = list[a].cost + price_[at(list[a].column)];
            const bool less = sum < bid.first;
            bid.second = less ? bid.first : std::min(bid.second, sum);
            bid.column = less ? list[a].column : bid.column;
            bid.first = less ? sum : bid.first;
        }
        return bid;
    }

    // Row i takes what it can of column j at a price: what is free, and what others have for less.
    void take(std::size_t i, std::size_t j, double price) {
        auto& held = held_[j];
        double mass = std::min(left_[i], free_[j]);
        free_[j] -= mass;
        if (!(free_[j] > dust_)) free_[j] = 0;
        returned_ = 0;
        while (left_[i] - mass > dust_ && free_[j] == 0 && !held.empty() && held.front().price < price) {
            Held& cheapest = held.front();
            const double share = std::min(left_[i] - mass, cheapest.mass);
            mass += share;
            cheapest.mass -= share;
            returned_ += share;
            const std::size_t last = at(cheapest.row);
            if (last == i) {  // its own mass, at a higher price
                left_[i] += share;
            } else {
                if (!(left_[last] > dust_)) queue_.push_back(cheapest.row);
                left_[last] += share;
            }
            if (!(cheapest.mass > dust_)) {
                std::pop_heap(held.begin(), held.end());
                held.pop_back();
            }
        }
        left_[i] -= mass;
        held.push_back({price, mass, number(i)});
        std::push_heap(held.begin(), held.end());
        if (free_[j] == 0) price_[j] = std::max(price_[j], held.front().price);
    }

    std::size_t k_;
    std::vector<double> left_, free_, price_;
    std::vector<Arc> arcs_;
    std::vector<double> bound_;
    std::vector<std::size_t> listed_;
    std::vector<std::vector<Held>> held_;
    std::vector<Index> queue_, waiting_;
    double dust_ = 0, returned_ = 0;
};

}  // namespace gibbsot
