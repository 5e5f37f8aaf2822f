// Costs of points in many dimensions from products of matrices, a tile after another: the matrix is never formed.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "nearest.hpp"

namespace gibbsot {

// -2 <x_i, y_j> for some rows i and columns j, and the squared lengths s_i and t_j, all around a common centre. Squared
// distances below `cancelled` times s_i + t_j have lost digits: these pairs are left out.
template <class T>
struct ProductTile {
    const T *products, *s, *t;
    std::size_t rows, columns;
    T cancelled;
    bool root;  // whether costs are plain distances
};

// Offers the sums of costs and x of a tile, whose first column has the number `first`, to lists of the k least ones of
// each row: `sums` in ascending order, and where they are. Rows of which a pair was left out
// are marked in `near`.
template <class T>
void offer_products(const ProductTile<T>& tile, const T* x, std::size_t first, std::size_t k, T* sums, std::int64_t* found,
                    std::uint8_t* near) {
    constexpr std::size_t W = kLanes<T>, step = 4 * W;
    const std::size_t n = tile.columns;
    const T *t = tile.t, cancelled = tile.cancelled;
    for (std::size_t i = 0; i < tile.rows; ++i) {
        const T *m = tile.products + i * n, s = tile.s[i];
        T* list = sums + i * k;
        std::int64_t* where = found + i * k;
        const auto cost = [&](std::size_t j) {
            const T square = (m[j] + s) + t[j];
            if (square < cancelled * (s + t[j])) return kInf<T>;
            return tile.root ? std::sqrt(std::max(square, T(0))) : square;
        };
        const auto offer = [&](std::size_t j) {
            const T sum = cost(j) + x[j];
            if (!(sum < list[k - 1])) return;
            std::size_t at = k - 1;
            for (; at > 0 && sum < list[at - 1]; --at) {
                list[at] = list[at - 1];
                where[at] = where[at - 1];
            }
            list[at] = sum;
            where[at] = static_cast<std::int64_t>(first + j);
        };
        bool lost = false;
        std::size_t j = 0;
        for (; j + step <= n; j += step) {
            Vec<T> least = splat(kInf<T>), digits = splat(kInf<T>);
            for (std::size_t l = j; l < j + step; l += W) {
                Vec<T> square = (load(m + l) + splat(s)) + load(t + l);
                const Vec<T> kept = square - splat(cancelled) * (splat(s) + load(t + l));
                digits = minimum(digits, kept);
                if (tile.root) {
                    T lanes[W];
                    store(lanes, square);
                    for (T& lane : lanes) lane = std::sqrt(std::max(lane, T(0)));
                    square = load(lanes);
                }
                least = minimum(least, (kept < Vec<T>{} ? splat(kInf<T>) : square) + load(x + l));
            }
            lost |= lowest<T>(digits) < 0;
            if (!(lowest<T>(least) < list[k - 1])) continue;
            for (std::size_t l = j; l < j + step; ++l) offer(l);
        }
        for (; j < n; ++j) {
            lost |= (m[j] + s) + t[j] < cancelled * (s + t[j]);
            offer(j);
        }
        if (lost) near[i] = 1;
    }
}

}  // namespace gibbsot
