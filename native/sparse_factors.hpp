// Factors L D L^T of a sparse symmetric positive definite matrix whose rows are in the order of elimination.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gibbsot {

// The pattern stays, values change: interior-point methods factorise the same matrix with other weights. Row k of L
// is the solution of a triangular system whose pattern is read off the elimination tree, in which the parent of a
// column is the row of its first entry below the diagonal.
class SparseFactors {
public:
    // Column k has entries in `rows[begin[k]] ... rows[begin[k + 1] - 1]`, all above the diagonal.
    SparseFactors(std::size_t n, const std::int64_t* begin, const std::int32_t* rows)
        : begin_(begin, begin + n + 1), rows_(rows, rows + begin[n]), parent_(n, kNone), start_(n + 1), diagonal_(n) {
        std::vector<std::int32_t> seen(n, kNone);
        for (std::size_t k = 0; k < n; ++k) {
            seen[k] = static_cast<std::int32_t>(k);
            for (std::size_t entry = at(begin_[k]); entry < at(begin_[k + 1]); ++entry) {
                for (std::int32_t i = rows_[entry]; seen[at(i)] != seen[k]; i = parent_[at(i)]) {
                    if (parent_[at(i)] == kNone) parent_[at(i)] = seen[k];
                    ++start_[at(i) + 1];
                    seen[at(i)] = seen[k];
                }
            }
        }
        for (std::size_t k = 0; k < n; ++k) start_[k + 1] += start_[k];
        below_.resize(start_[n]);
        factor_.resize(start_[n]);
    }

    std::size_t size() const { return diagonal_.size(); }
    std::size_t entries() const { return rows_.size(); }

    // Returns whether all pivots are positive.
    bool factorise(const double* values, const double* diagonal) {
        const std::size_t n = size();
        std::vector<std::size_t> end(start_.begin(), start_.end() - 1);
        std::vector<std::int32_t> seen(n, kNone), path, pattern(n);
        std::vector<double> row(n);
        for (std::size_t k = 0; k < n; ++k) {
            const auto own = static_cast<std::int32_t>(k);
            seen[k] = own;
            std::size_t top = n;  // pattern[top ...]: the columns of row k, children before parents
            for (std::size_t entry = at(begin_[k]); entry < at(begin_[k + 1]); ++entry) {
                row[at(rows_[entry])] += values[entry];
                path.clear();
                for (std::int32_t i = rows_[entry]; seen[at(i)] != own; i = parent_[at(i)]) {
                    path.push_back(i);
                    seen[at(i)] = own;
                }
                for (std::size_t l = path.size(); l-- > 0;) pattern[--top] = path[l];
            }
            double pivot = diagonal[k];
            for (; top < n; ++top) {
                const std::size_t i = at(pattern[top]);
                const double x = std::exchange(row[i], 0.0);
                for (std::size_t l = start_[i]; l < end[i]; ++l) row[at(below_[l])] -= factor_[l] * x;
                const double share = x / diagonal_[i];
                pivot -= share * x;
                below_[end[i]] = own;
                factor_[end[i]++] = share;
            }
            if (!(pivot > 0)) return false;
            diagonal_[k] = pivot;
        }
        return true;
    }

    // Replaces the right-hand side by the solution.
    void solve(double* x) const {
        const std::size_t n = size();
        for (std::size_t k = 0; k < n; ++k) {
            for (std::size_t l = start_[k]; l < start_[k + 1]; ++l) x[at(below_[l])] -= factor_[l] * x[k];
        }
        for (std::size_t k = n; k-- > 0;) {
            double sum = x[k] / diagonal_[k];
            for (std::size_t l = start_[k]; l < start_[k + 1]; ++l) sum -= factor_[l] * x[at(below_[l])];
            x[k] = sum;
        }
    }

private:
    static constexpr std::int32_t kNone = -1;
    template <class Index>
    static std::size_t at(Index i) {
        return static_cast<std::size_t>(i);
    }

    std::vector<std::int64_t> begin_;
    std::vector<std::int32_t> rows_, parent_;
    std::vector<std::size_t> start_;   // of the columns of L
    std::vector<std::int32_t> below_;  // the rows of their entries
    std::vector<double> factor_, diagonal_;
};

}  // namespace gibbsot
