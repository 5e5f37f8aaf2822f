// Factors L L^T of a sparse symmetric positive definite matrix whose rows are in the order of elimination.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace gibbsot {

// The pattern stays, values change: interior-point methods factorise the same matrix with other weights.
//
// Neighbouring columns of L with the same rows form a panel, which is dense. A panel receives the products of the
// earlier panels that have rows among its columns, one list of these for each panel: almost all work is in products
// of dense matrices. The parent of a column in the elimination tree is the row of its first entry below the diagonal.
class SparseFactors {
public:
    // Column k has entries in `rows[begin[k]] ... rows[begin[k + 1] - 1]`, all above the diagonal.
    SparseFactors(std::size_t n, const std::int64_t* begin, const std::int32_t* rows)
        : begin_(begin, begin + n + 1), rows_(rows, rows + begin[n]), panel_of_(n) {
        std::vector<std::int32_t> parent(n, kNone), seen(n, kNone);
        std::vector<std::size_t> count(n);  // of the entries of columns of L below the diagonal
        for (std::size_t k = 0; k < n; ++k) {
            seen[k] = static_cast<std::int32_t>(k);
            for (std::size_t entry = at(begin_[k]); entry < at(begin_[k + 1]); ++entry) {
                for (std::int32_t i = rows_[entry]; seen[at(i)] != seen[k]; i = parent[at(i)]) {
                    if (parent[at(i)] == kNone) parent[at(i)] = seen[k];
                    ++count[at(i)];
                    seen[at(i)] = seen[k];
                }
            }
        }
        for (std::size_t k = 0; k < n; ++k) {
            const bool joins = k > 0 && parent[k - 1] == static_cast<std::int32_t>(k) &&
                               count[k] + 1 <= count[k - 1] + kZeros;
            if (!joins) panels_.push_back({k, k, 0, 0, 0});
            panels_.back().last = k + 1;
            panel_of_[k] = static_cast<std::int32_t>(panels_.size() - 1);
        }
        find_rows();
    }

    std::size_t size() const { return panel_of_.size(); }
    std::size_t entries() const { return rows_.size(); }

    // Returns whether all pivots are positive.
    bool factorise(const double* values, const double* diagonal) {
        std::fill(factor_.begin(), factor_.end(), 0.0);
        for (std::size_t k = 0; k < size(); ++k) {
            const Panel& panel = panels_[at(panel_of_[k])];
            factor_[panel.factor + (k - panel.first) * (panel.height + 1)] = diagonal[k];
            for (std::size_t entry = at(begin_[k]); entry < at(begin_[k + 1]); ++entry) {
                factor_[place_[entry]] += values[entry];
            }
        }
        // the panels whose next rows are columns of a panel, as lists
        std::vector<std::int32_t> first(panels_.size(), kNone), next(panels_.size(), kNone), local(size());
        std::vector<std::size_t> done(panels_.size());
        const auto enlist = [&](std::size_t panel) {
            const std::size_t row = panels_[panel].index + done[panel];
            if (done[panel] == panels_[panel].height) return;
            std::int32_t& head = first[at(panel_of_[at(index_[row])])];
            next[panel] = std::exchange(head, static_cast<std::int32_t>(panel));
        };
        for (std::size_t own = 0; own < panels_.size(); ++own) {
            const Panel& panel = panels_[own];
            number_rows(panel, local);
            for (std::int32_t other = first[own]; other != kNone;) {
                const std::size_t earlier = at(std::exchange(other, next[at(other)]));
                done[earlier] = subtract_products(panels_[earlier], done[earlier], panel, local);
                enlist(earlier);
            }
            if (!factorise_panel(panel)) return false;
            done[own] = panel.width();
            enlist(own);
        }
        return true;
    }

    // Replaces the right-hand side by the solution.
    void solve(double* x) const {
        for (const Panel& panel : panels_) {
            const std::int32_t* row = &index_[panel.index];
            for (std::size_t k = 0; k < panel.width(); ++k) {
                const double* column = &factor_[panel.factor + k * panel.height];
                const double value = x[at(row[k])] /= column[k];
                for (std::size_t l = k + 1; l < panel.height; ++l) x[at(row[l])] -= column[l] * value;
            }
        }
        for (std::size_t own = panels_.size(); own-- > 0;) {
            const Panel& panel = panels_[own];
            const std::int32_t* row = &index_[panel.index];
            for (std::size_t k = panel.width(); k-- > 0;) {
                const double* column = &factor_[panel.factor + k * panel.height];
                double sum = x[at(row[k])];
                for (std::size_t l = k + 1; l < panel.height; ++l) sum -= column[l] * x[at(row[l])];
                x[at(row[k])] = sum / column[k];
            }
        }
    }

private:
    // Columns `first ... last - 1` of L. Their rows, the columns themselves first, are at `index`, and their entries
    // at `factor`, column by column.
    struct Panel {
        std::size_t first, last, index, height, factor;
        std::size_t width() const { return last - first; }
    };

    static constexpr std::int32_t kNone = -1;
    static constexpr std::size_t kZeros = 4;    // that a column may store for a wider panel
    static constexpr std::size_t kBlock = 256;  // rows whose products are computed together: they stay in the cache

    template <class Index>
    static std::size_t at(Index i) {
        return static_cast<std::size_t>(i);
    }

    void number_rows(const Panel& panel, std::vector<std::int32_t>& local) const {
        for (std::size_t l = 0; l < panel.height; ++l) {
            local[at(index_[panel.index + l])] = static_cast<std::int32_t>(l);
        }
    }

    // Finds the rows of panels: those of the matrix, and those of panels whose parent is a column of theirs.
    void find_rows() {
        const std::size_t n = size();
        std::vector<std::size_t> start(n + 1);  // entries of the matrix by their rows, which are columns of L
        for (const std::int32_t i : rows_) ++start[at(i) + 1];
        std::partial_sum(start.begin(), start.end(), start.begin());
        std::vector<std::int32_t> below(rows_.size()), entry_at(rows_.size());
        std::vector<std::size_t> end(start.begin(), start.end() - 1);
        for (std::size_t k = 0; k < n; ++k) {
            for (std::size_t entry = at(begin_[k]); entry < at(begin_[k + 1]); ++entry) {
                const std::size_t l = end[at(rows_[entry])]++;
                below[l] = static_cast<std::int32_t>(k);
                entry_at[l] = static_cast<std::int32_t>(entry);
            }
        }
        place_.resize(rows_.size());
        std::vector<std::int32_t> child(panels_.size(), kNone), sibling(panels_.size(), kNone);
        std::vector<std::int32_t> seen(n, kNone), local(n);
        std::size_t stored = 0;
        for (std::size_t own = 0; own < panels_.size(); ++own) {
            Panel& panel = panels_[own];
            panel.index = index_.size();
            const auto include = [&](std::int32_t row) {
                if (at(row) < panel.last || seen[at(row)] == static_cast<std::int32_t>(own)) return;
                seen[at(row)] = static_cast<std::int32_t>(own);
                index_.push_back(row);
            };
            for (std::size_t k = panel.first; k < panel.last; ++k) index_.push_back(static_cast<std::int32_t>(k));
            for (std::size_t l = start[panel.first]; l < start[panel.last]; ++l) include(below[l]);
            for (std::int32_t other = child[own]; other != kNone; other = sibling[at(other)]) {
                const Panel& earlier = panels_[at(other)];
                for (std::size_t l = earlier.width(); l < earlier.height; ++l) include(index_[earlier.index + l]);
            }
            const auto outside = index_.begin() + static_cast<std::ptrdiff_t>(panel.index + panel.width());
            std::sort(outside, index_.end());
            panel.height = index_.size() - panel.index;
            if (outside != index_.end()) {
                std::int32_t& head = child[at(panel_of_[at(*outside)])];
                sibling[own] = std::exchange(head, static_cast<std::int32_t>(own));
            }
            panel.factor = stored;
            stored += panel.height * panel.width();
            number_rows(panel, local);
            for (std::size_t k = panel.first; k < panel.last; ++k) {
                for (std::size_t l = start[k]; l < start[k + 1]; ++l) {
                    place_[at(entry_at[l])] = panel.factor + (k - panel.first) * panel.height + at(local[at(below[l])]);
                }
            }
        }
        factor_.resize(stored);
    }

    // Subtracts the products of columns with one of their rows: x_i -= sum_k a_ik b_k, where columns are `stride` apart.
    static void subtract(double* x, const double* a, const double* b, std::size_t columns, std::size_t stride,
                         std::size_t from, std::size_t to) {
        std::size_t k = 0;
        for (; k + 4 <= columns; k += 4, a += 4 * stride, b += 4 * stride) {
            const double b0 = b[0], b1 = b[stride], b2 = b[2 * stride], b3 = b[3 * stride];
            const double *a1 = a + stride, *a2 = a1 + stride, *a3 = a2 + stride;
            for (std::size_t i = from; i < to; ++i) x[i] -= (a[i] * b0 + a1[i] * b1) + (a2[i] * b2 + a3[i] * b3);
        }
        for (; k < columns; ++k, a += stride, b += stride) {
            const double share = *b;
            for (std::size_t i = from; i < to; ++i) x[i] -= a[i] * share;
        }
    }

    // Subtracts the products of a panel's rows from `from` on from a later panel; returns the first row beyond it.
    std::size_t subtract_products(const Panel& earlier, std::size_t from, const Panel& panel,
                                  const std::vector<std::int32_t>& local) {
        const std::int32_t* row = &index_[earlier.index + from];
        const double* a = &factor_[earlier.factor + from];
        const std::size_t m = earlier.height - from;
        std::size_t columns = 0;
        while (columns < m && at(row[columns]) < panel.last) ++columns;
        if (earlier.width() == 1) {
            for (std::size_t j = 0; j < columns; ++j) {
                double* x = &factor_[panel.factor + at(local[at(row[j])]) * panel.height];
                for (std::size_t i = j; i < m; ++i) x[at(local[at(row[i])])] -= a[i] * a[j];
            }
            return from + columns;
        }
        products_.assign(m * columns, 0.0);
        for (std::size_t block = 0; block < m; block += kBlock) {
            const std::size_t end = std::min(block + kBlock, m);
            for (std::size_t j = 0; j < std::min(columns, end); ++j) {
                subtract(&products_[j * m], a, a + j, earlier.width(), earlier.height, std::max(block, j), end);
            }
        }
        for (std::size_t j = 0; j < columns; ++j) {
            double* x = &factor_[panel.factor + at(local[at(row[j])]) * panel.height];
            for (std::size_t i = j; i < m; ++i) x[at(local[at(row[i])])] += products_[j * m + i];
        }
        return from + columns;
    }

    // Factorises the square of a panel, and divides its other rows; returns whether all pivots are positive.
    bool factorise_panel(const Panel& panel) {
        double* a = &factor_[panel.factor];
        for (std::size_t k = 0; k < panel.width(); ++k) {
            double* column = a + k * panel.height;
            subtract(column, a, a + k, k, panel.height, k, panel.height);
            if (!(column[k] > 0)) return false;
            const double root = std::sqrt(column[k]);
            column[k] = root;
            for (std::size_t l = k + 1; l < panel.height; ++l) column[l] /= root;
        }
        return true;
    }

    std::vector<std::int64_t> begin_;
    std::vector<std::int32_t> rows_, panel_of_, index_;
    std::vector<std::size_t> place_;  // of the entries of the matrix, in the factors
    std::vector<Panel> panels_;
    std::vector<double> factor_, products_;
};

}  // namespace gibbsot
