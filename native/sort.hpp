// Sorting numbers, alone or with a weight each, by their bits.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "simd.hpp"

namespace gibbsot {

struct WeightedPoint {
    double point, weight;
};
inline double point_of(double x) { return x; }
inline double point_of(const WeightedPoint& x) { return x.point; }

// The bits of a number, in an order that is that of the numbers.
inline std::uint64_t ordered_bits(double x) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    return bits ^ (bits >> 63 != 0 ? ~std::uint64_t{0} : std::uint64_t{1} << 63);
}

// Sorts few numbers by counting how many others come before each, without a branch that depends on them; more of them by
// distributing three times, by digits of the leading bits in which the numbers differ, the lowest digit first.
// Numbers that share these bits are then neighbours, and inserting puts them in order. Where too many
// share them for this to be fast, a sort that compares finishes the work.
template <class Record>
class Sorter {
public:
    void sort(std::vector<Record>& records) {
        const std::size_t n = records.size();
        if (n < kFew) return rank(records);
        if (n < kMany)
            distribute<9>(records);
        else
            distribute<11>(records);
        std::size_t moves = 0;
        for (std::size_t k = 1; k < n; ++k) {
            if (!less(records[k], records[k - 1])) continue;
            const Record own = records[k];
            std::size_t to = k;
            for (; to > 0 && less(own, records[to - 1]); --to) records[to] = records[to - 1];
            records[to] = own;
            if ((moves += k - to) > kMoves * n) return compare(records);
        }
    }

private:
    static constexpr std::size_t kFew = 200;    // numbers that are counted
    static constexpr std::size_t kMany = 3000;  // from which longer tables of digits pay
    static constexpr std::size_t kMoves = 8;    // of each number, beyond which inserting ends
    static constexpr int kDigits = 3;

    static bool less(const Record& a, const Record& b) { return point_of(a) < point_of(b); }
    static void compare(std::vector<Record>& records) { std::sort(records.begin(), records.end(), less); }

    // Equal numbers keep their order. Counts are of a group at once; those behind the last number are not used.
    void rank(std::vector<Record>& records) {
        constexpr std::size_t W = kLanes<double>;
        const std::size_t n = records.size();
        double points[kFew + W], lanes[W], counts[W];
        for (std::size_t k = 0; k < n; ++k) points[k] = point_of(records[k]);
        std::fill(points + n, points + n + W, kInf<double>);
        for (std::size_t l = 0; l < W; ++l) lanes[l] = static_cast<double>(l);
        const Vec<double> zero{}, one = splat(1.0), lane = load(lanes);
        other_.resize(n);
        for (std::size_t first = 0; first < n; first += W) {
            const Vec<double> own = load(points + first);
            const std::size_t end = std::min(n, first + W);
            Vec<double> before = zero;
            std::size_t k = 0;
            for (; k < first; ++k) before += splat(points[k]) <= own ? one : zero;
            for (; k < end; ++k) {
                const Vec<double> here = splat(points[k]), earlier = splat(static_cast<double>(k - first)) < lane ? one : zero;
                before += here < own ? one : here == own ? earlier : zero;
            }
            for (; k < n; ++k) before += splat(points[k]) < own ? one : zero;
            store(counts, before);
            for (k = first; k < end; ++k) other_[static_cast<std::size_t>(counts[k - first])] = records[k];
        }
        records.swap(other_);
    }

    template <int Bits>
    void distribute(std::vector<Record>& records) {
        constexpr std::size_t kValues = std::size_t{1} << Bits;
        const std::uint64_t first = ordered_bits(point_of(records[0]));
        std::uint64_t differ = 0;
        for (const Record& record : records) differ |= ordered_bits(point_of(record)) ^ first;
        const int shift = std::max(0, static_cast<int>(std::bit_width(differ)) - kDigits * Bits);
        const auto digit = [shift](const Record& record, int k) {
            return static_cast<std::size_t>(ordered_bits(point_of(record)) >> (shift + k * Bits)) & (kValues - 1);
        };
        std::array<std::array<std::uint32_t, kValues>, kDigits> begins{};
        for (const Record& record : records)
            for (int k = 0; k < kDigits; ++k) ++begins[static_cast<std::size_t>(k)][digit(record, k)];
        other_.resize(records.size());
        for (int k = 0; k < kDigits; ++k) {
            auto& begin = begins[static_cast<std::size_t>(k)];
            if (begin[digit(records[0], k)] == records.size()) continue;  // a digit that all have
            std::uint32_t total = 0;
            for (std::uint32_t& count : begin) total += std::exchange(count, total);
            for (const Record& record : records) other_[begin[digit(record, k)]++] = record;
            records.swap(other_);
        }
    }

    std::vector<Record> other_;
};

}  // namespace gibbsot
