// A network simplex on all arcs of a dense matrix of costs, read in place, and certified answers from it.
#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "assignment.hpp"
#include "double_double.hpp"
#include "forest.hpp"
#include "preorder_tree.hpp"
#include "pricing.hpp"

namespace gibbsot {

// The costs between the points of two supports, row by row.
struct CostView {
    const double* data;
    std::size_t rows, columns, stride;
    std::size_t width = columns;  // entries of a row that may be read: infinite beyond the columns
    const double* row(std::size_t i) const { return data + i * stride; }
};

template <class Flow>
class DenseSimplex {
public:
    using Tree = PreorderTree<Flow>;
    using Index = typename Tree::Index;

    // a and b are positive and have equal sums
    DenseSimplex(CostView costs, std::vector<Flow> a, std::vector<Flow> b)
        : C_(costs), a_(std::move(a)), b_(std::move(b)), basis_(costs.rows, costs.columns) {
        const auto scan = [&](double own) {
            const double size = std::abs(own);
            largest_ = size < kInf<double> ? std::max(largest_, size) : largest_;
            least_ = std::min(least_, own);
        };
        for (std::size_t i = 0; i < C_.rows; ++i) {
            const double* row = C_.row(i);
            const auto [low, high] = extremes(row, C_.columns);
            if (std::abs(low) < kInf<double> && std::abs(high) < kInf<double>) {
                scan(low);
                scan(high);
            } else {
                for (std::size_t j = 0; j < C_.columns; ++j) scan(row[j]);
            }
        }
        if (largest_ == 0) largest_ = 1;
    }

    double least() const { return least_; }
    Tree& basis() { return basis_; }
    const Tree& basis() const { return basis_; }

    // A greedy plan on reduced costs: a step empties a row or a column, which becomes a child of the other. Where
    // infinite costs stop it, artificial arcs lead to the root.
    void start() {
        const std::size_t m1 = C_.rows, m2 = C_.columns;
        basis_.clear();
        std::vector<double> shift(C_.width, kInf<double>);
        std::vector<Flow> left_b(b_);
        for (std::size_t i = 0; i < m1; ++i)
            for (std::size_t j = 0; j < C_.width; ++j) shift[j] = std::min(shift[j], C_.row(i)[j]);
        for (double& x : shift) x = x < kInf<double> ? -x : 0;
        std::vector<Flow> left(a_);
        std::size_t open = m2;
        // From row i to its nearest open column. Returns whether the row is hung: nothing can leave it any more.
        const auto ship = [&](std::size_t i, bool last) {
            const Index u = static_cast<Index>(i);
            const auto [j, value] = least_of(i, shift.data());
            if (open == 0 || !(value < kInf<double>)) {
                basis_.hang(u, basis_.root(), Tree::kNone, left[i]);
                return true;
            }
            if (left[i] < left_b[j] || (open == 1 && !last)) {
                basis_.hang(u, column_node(j), 0, left[i]);
                left_b[j] -= left[i];
                keep_positive(left_b[j]);
                return true;
            }
            basis_.hang(column_node(j), u, 0, left_b[j]);
            left[i] -= left_b[j];
            shift[j] = kInf<double>;
            --open;
            return false;
        };
        // in turn, so that no row takes what is nearer to others
        std::vector<std::size_t> waiting(m1);
        std::iota(waiting.begin(), waiting.end(), std::size_t{0});
        while (!waiting.empty()) {
            std::size_t kept = 0;
            for (std::size_t k = 0; k < waiting.size(); ++k) {
                const std::size_t i = waiting[k];
                const bool last = kept == 0 && k + 1 == waiting.size();
                bool hung = ship(i, last);
                while (!hung && !is_positive(left[i])) hung = ship(i, last);
                if (!hung) waiting[kept++] = i;
            }
            waiting.resize(kept);
        }
        for (std::size_t j = 0; j < m2; ++j)
            if (basis_[column_node(j)].parent == Tree::kNone)
                basis_.hang(column_node(j), basis_.root(), Tree::kNone, left_b[j]);
        y0_.assign(m1 + m2, 0);
        greedy_ = true;
        hung();
    }

    // A basis that keeps the edges of a list where they carry flow.
    template <std::size_t K>
    void start(const std::vector<Edge>& edges, const ExactWeights<K>& weights) {
        basis_.clear();
        greedy_ = false;
        y0_.assign(C_.rows + C_.columns, 0);
        const auto as_flow = [&](const Wide<K>& flow) {
            if constexpr (std::is_same_v<Flow, double>)
                return weights.share(flow);
            else
                return flow;
        };
        // artificial arcs refer to the potentials of the edges
        const auto reach = [&](Index v, Index from) {
            if (from == Tree::kNone) return;
            const double above = y0_[static_cast<std::size_t>(from)];
            y0_[static_cast<std::size_t>(v)] = basis_.is_row(v) ? above + cost(v, from) : above - cost(from, v);
        };
        Forest<K, Tree, decltype(as_flow), decltype(reach)>(basis_, edges, weights, as_flow, reach);
        hung();
    }

    // Pivots until no arc has a negative reduced cost, or pause(), which is called at first and then every few
    // milliseconds' worth of work, returns true. Returns false where infinite costs forbid every plan.
    template <class Pause>
    bool optimise(Pause pause) {
        if (pause() || (C_.columns >= kMany && !pivot_near(pause))) return stop();
        const double most = 16.0 * static_cast<double>(C_.rows + C_.columns) * largest_;
        for (;;) {
            for (int repeat = 0; repeat < 4; ++repeat) {
                const std::int64_t before = basis_.pivots();
                if (!pivot_all(pause)) return stop();
                if (basis_.pivots() == before) break;
                basis_.refresh([&](Index v) { return tree_cost(v); });
            }
            if (connected_ || !artificial_flow()) return true;
            if (artificial_ > most) return false;
            artificial_ *= 8;
            basis_.refresh([&](Index v) { return tree_cost(v); });
        }
    }

    double tree_cost(Index v) const {
        if (basis_[v].arc == Tree::kNone)
            return artificial_ + (basis_.is_row(v) ? 1 : -1) * y0_[static_cast<std::size_t>(v)];
        const Index p = basis_[v].parent;
        return basis_.is_row(v) ? cost(v, p) : cost(p, v);
    }

private:
    // After all nodes were hung.
    void hung() {
        std::size_t tops = 0;
        for (Index v = 0; v < basis_.root(); ++v) tops += basis_[v].parent == basis_.root() ? 1 : 0;
        connected_ = tops == 1;  // the only artificial arc carries nothing and stays
        artificial_ = connected_ ? 0 : 4 * usual_cost();
        basis_.finish([&](Index v) { return tree_cost(v); });
    }
    // The present basis without rounding errors, or the first one if this has artificial flow.
    bool stop() {
        if (connected_ || !artificial_flow()) {
            basis_.refresh([&](Index v) { return tree_cost(v); });
            return true;
        }
        start();
        return connected_ || !artificial_flow();
    }
    double cost(Index i, Index v) const {
        return C_.row(static_cast<std::size_t>(i))[static_cast<std::size_t>(v) - C_.rows];
    }
    Index column_node(std::size_t j) const { return static_cast<Index>(C_.rows + j); }
    std::pair<std::size_t, double> least_of(std::size_t i, const double* x) const {
        const double* c = C_.row(i);
        const double value = least_sum(c, x, C_.width);
        std::size_t j = 0;
        for (; j + 8 <= C_.width; j += 8) {
            bool here = false;
            for (std::size_t k = 0; k < 8; ++k) here |= c[j + k] + x[j + k] == value;
            if (here) break;
        }
        while (j < C_.columns && c[j] + x[j] != value) ++j;
        return {j, value};
    }
    // The largest of the least costs of rows, or the least positive cost: where the price of artificial arcs begins. It
    // rises while they carry flow; a price far above the costs would take the potentials' digits.
    double usual_cost() const {
        double usual = 0;
        for (std::size_t i = 0; i < C_.rows; ++i) {
            constexpr std::size_t kWidth = 8;  // in lanes, as in the constructor
            const double* row = C_.row(i);
            double least[kWidth];
            std::fill(least, least + kWidth, kInf<double>);
            std::size_t j = 0;
            for (; j + kWidth <= C_.columns; j += kWidth)
                for (std::size_t l = 0; l < kWidth; ++l) least[l] = std::min(least[l], std::abs(row[j + l]));
            for (; j < C_.columns; ++j) least[0] = std::min(least[0], std::abs(row[j]));
            const double row_least = *std::min_element(least, least + kWidth);
            if (row_least < kInf<double>) usual = std::max(usual, row_least);
        }
        if (usual > 0) return usual;
        double least = largest_;
        for (std::size_t i = 0; i < C_.rows; ++i)
            for (std::size_t j = 0; j < C_.columns; ++j)
                if (const double c = std::abs(C_.row(i)[j]); c > 0) least = std::min(least, c);
        return least;
    }
    bool artificial_flow() const {
        for (Index v = 0; v < basis_.root(); ++v)
            if (basis_[v].parent == basis_.root() && is_positive(basis_[v].flow)) return true;
        return false;
    }

    struct Entering {
        std::size_t row;  // the number of rows if there is none
        std::size_t column = 0, scanned = 0;
        double reduced = 0;
    };

    // The pivot rule, twice: LEMON's block search, where a block is some rows instead of some arcs, because the least
    // reduced cost of a whole row costs little more than reading it. Rows are priced from i on, where the last search
    // ended, and the least of the first block that has a negative one enters. Reduced costs within the rounding errors of
    // their terms do not count.

    // On the near arcs of the rows.
    Entering find_entering_arc(const NearArcs& near, std::size_t& i) const {
        const std::size_t m1 = C_.rows;
        const double* y = basis_.y();
        const double* yc = y + m1;
        Entering entering{m1};
        for (; entering.scanned < m1 && (entering.row == m1 || entering.scanned % kBlock != 0); ++entering.scanned) {
            const double least = near.least_of(i, yc), reduced = least - y[i];
            if (reduced < entering.reduced && reduced < -4 * kUlp * std::abs(y[i])) {
                const std::size_t j = near.column_of(i, yc, least);
                const double terms = std::abs(y[i]) + std::abs(yc[j]) + std::abs(C_.row(i)[j]);
                if (reduced < -4 * kUlp * terms) {
                    entering.reduced = reduced;
                    entering.row = i;
                    entering.column = j;
                }
            }
            if (++i == m1) i = 0;
        }
        return entering;
    }

    // On all arcs.
    Entering find_entering_arc(double tolerance, std::size_t& i) const {
        const std::size_t m1 = C_.rows, m2 = C_.columns;
        // after a near basis few arcs are left, so that the best of more rows saves pivots
        const std::size_t usual = m2 <= 128 ? (greedy_ ? 4 : 8) : m2 <= 512 ? 4 : 2;
        const double* y = basis_.y();
        const double* yc = y + m1;
        std::size_t found = m1, column = 0, scanned = 0, block = usual;
        double best = 0;
        while (scanned < m1) {
            for (std::size_t end = std::min(scanned + block, m1); scanned < end; ++scanned) {
                const double reduced = least_sum(C_.row(i), yc, C_.width) - y[i];
                // without a branch, which would be mispredicted for every other row
                const bool enters = (reduced < best) & (reduced < -tolerance * std::abs(y[i]));
                best = enters ? reduced : best;
                found = enters ? i : found;
                i = i + 1 == m1 ? 0 : i + 1;
            }
            if (found == m1) continue;
            column = least_of(found, yc).first;
            const double terms = std::abs(y[found]) + std::abs(yc[column]) + std::abs(C_.row(found)[column]);
            if (best < -tolerance * terms) break;
            // Large terms cancelled and left a rounding error: every row on its own, so that it hides no other.
            if (block > 1) scanned = 0;
            block = 1;
            best = 0;
            found = m1;
        }
        return {found, column, scanned, best};
    }

    // Pivots on the near arcs of all rows, which are found anew until they allow few pivots. Returns whether it was not
    // stopped.
    template <class Pause>
    bool pivot_near(Pause pause) {
        const std::size_t m1 = C_.rows, m2 = C_.columns;
        const double* yc = basis_.y() + m1;
        const auto few = static_cast<std::int64_t>(m1 + m2) / 8, many = 50 * static_cast<std::int64_t>(m1 + m2);
        NearArcs near(m1);
        std::size_t work = 0;
        for (std::int64_t made = few; made >= few && made < many;) {
            if (pause()) return false;
            for (std::size_t i = 0; i < m1; ++i) near.find(i, C_.row(i), yc, m2);
            const std::int64_t before = basis_.pivots();
            std::size_t i = 0, found = 0;
            for (made = 0; made < many && found < m1; made = basis_.pivots() - before) {
                const Entering entering = find_entering_arc(near, i);
                found = entering.row;
                if (found < m1)
                    basis_.pivot(static_cast<Index>(found), column_node(entering.column), 0, entering.reduced);
                work += entering.scanned * NearArcs::kClasses + 8 * (m1 + m2);
                if (work > 20'000'000) {
                    work = 0;
                    if (pause()) return false;
                }
            }
            basis_.refresh([&](Index v) { return tree_cost(v); });
        }
        return true;
    }

    // Returns whether it was not stopped.
    template <class Pause>
    bool pivot_all(Pause pause) {
        const std::size_t m1 = C_.rows, m2 = C_.columns;
        double tolerance = 4 * kUlp;
        std::int64_t patience = 200 * static_cast<std::int64_t>(m1 + m2) + 10000;
        std::size_t work = 0;
        if (next_ >= m1) next_ = 0;
        for (;;) {
            const Entering entering = find_entering_arc(tolerance, next_);
            if (entering.row == m1) return true;
            basis_.pivot(static_cast<Index>(entering.row), column_node(entering.column), 0, entering.reduced);
            if (--patience == 0) {  // pivots on rounding errors
                tolerance *= 16;
                patience = 50 * static_cast<std::int64_t>(m1 + m2) + 10000;
            }
            work += (entering.scanned + 1) * m2 + 8 * (m1 + m2);
            if (work > 20'000'000) {
                work = 0;
                if (pause()) return false;
            }
        }
    }

    static constexpr std::size_t kMany = 640;  // columns from which near arcs pay
    static constexpr std::size_t kBlock = 16;  // rows of which the least arc enters

    CostView C_;
    std::vector<Flow> a_, b_;
    Tree basis_;
    std::vector<double> y0_;  // potentials that the costs of artificial arcs refer to
    double largest_ = 0, least_ = kInf<double>, artificial_ = 0;
    bool connected_ = false, greedy_ = false;  // greedy_: the first basis was not given
    std::size_t next_ = 0;
};

// What is known of one problem. The plan's masses are shares of the total; potentials satisfy f_i + g_j <= C_ij exactly.
struct DenseAnswer {
    double *f, *g;            // of the points that have weight; the others are left alone
    std::int32_t *i, *j;      // may be null: the plan's entries, the other arcs of the basis, and -1
    double* mass;             // may be null
    std::size_t capacity;     // of these
    double accuracy = 0;      // the relative error of the costs, none of them negative
    bool bounded = true;      // otherwise there is no lower bound, and potentials have the rounding errors of the basis
    std::int64_t entries = 0;
    double value = 0, lower = 0, upper = 0, scale = 0;  // scale: the sum of the absolute terms of the value
    std::int64_t pivots = 0;
    bool feasible = true;
};

// The least value that half of the weight does not exceed.
inline double weighted_median(const std::vector<double>& x, const std::vector<double>& weight) {
    std::vector<std::pair<double, double>> sorted(x.size());
    double total = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        sorted[i] = {x[i], weight[i]};
        total += weight[i] / 2;
    }
    std::sort(sorted.begin(), sorted.end());
    std::size_t i = 0;
    for (double sum = sorted[0].second; sum < total && i + 1 < sorted.size(); sum += sorted[i].second) ++i;
    return sorted[i].first;
}

// Rounded below the difference of two doubles that gave x.
inline double below(double x) { return x - std::abs(x) * kUlp; }

// The largest f that potentials g allow, rounded down. Returns the bound <p, f> / P + <q, g> / Q for costs that may be off
// by `accuracy`, rounded down; all weights are positive. Rows without an allowed pair get `largest`.
inline double dual_of_columns(CostView C, const double* p, const double* q, double accuracy, double largest, const double* g,
                              double* f) {
    std::vector<double> minus_g(C.width);
    for (std::size_t j = 0; j < C.columns; ++j) minus_g[j] = -g[j];
    for (std::size_t i = 0; i < C.rows; ++i) {
        const double least = least_sum(C.row(i), minus_g.data(), C.width);
        f[i] = least < kInf<double> ? below(least) : largest;
    }
    const Estimate first = weighted_mean(p, f, C.rows), second = weighted_mean(q, g, C.columns);
    DoubleDouble bound = first.value;
    bound += second.value;
    return rounded_down(bound.value(), first.error + second.error, accuracy);
}

// The same from any f: g is its c-transform and f that of g.
inline double dense_dual(CostView C, const double* p, const double* q, double accuracy, double* f, double* g) {
    std::fill(g, g + C.columns, kInf<double>);
    for (std::size_t i = 0; i < C.rows; ++i)
        for (std::size_t j = 0; j < C.columns; ++j) g[j] = std::min(g[j], C.row(i)[j] - f[i]);
    double largest = 0;
    for (std::size_t i = 0; i < C.rows; ++i) largest = std::max(largest, std::abs(f[i]));
    for (std::size_t j = 0; j < C.columns; ++j) g[j] = g[j] < kInf<double> ? below(g[j]) : largest;
    return dual_of_columns(C, p, q, accuracy, largest, g, f);
}

struct Support {
    std::vector<std::int32_t> rows, columns;
    std::vector<double> p, q;

    Support(CostView C, const double* all_p, const double* all_q) {
        rows.reserve(C.rows);
        columns.reserve(C.columns);
        p.reserve(C.rows);
        q.reserve(C.columns);
        for (std::size_t i = 0; i < C.rows; ++i)
            if (all_p[i] > 0) {
                rows.push_back(static_cast<std::int32_t>(i));
                p.push_back(all_p[i]);
            }
        for (std::size_t j = 0; j < C.columns; ++j)
            if (all_q[j] > 0) {
                columns.push_back(static_cast<std::int32_t>(j));
                q.push_back(all_q[j]);
            }
    }
};

inline constexpr std::size_t kCopied = 1 << 16;  // entries up to which a copy with whole cache lines pays

// Copies the costs between the points that have weight, each row from the start of a cache line.
inline CostView gather(CostView C, const Support& support, std::vector<double>& storage) {
    const std::size_t m1 = support.rows.size(), m2 = support.columns.size(), stride = padded<double>(m2);
    storage.resize(m1 * stride + kLine / sizeof(double));
    double* to = storage.data() + (kLine - reinterpret_cast<std::uintptr_t>(storage.data()) % kLine) / sizeof(double);
    const CostView view{to, m1, m2, stride, stride};
    for (std::size_t i = 0; i < m1; ++i, to += stride) {
        const double* row = C.row(static_cast<std::size_t>(support.rows[i]));
        if (m2 == C.columns)
            std::copy(row, row + m2, to);
        else
            for (std::size_t j = 0; j < m2; ++j) to[j] = row[static_cast<std::size_t>(support.columns[j])];
        std::fill(to + m2, to + stride, kInf<double>);
    }
    return view;
}

// Potentials of the points without weight from those of the others: c-transforms, rounded down.
inline void complete_dual(CostView C, const double* p, const double* q, double* f, double* g) {
    double largest = 0;
    for (std::size_t i = 0; i < C.rows; ++i)
        if (p[i] > 0) largest = std::max(largest, std::abs(f[i]));
    std::vector<double> least(C.columns, kInf<double>), minus_g(C.columns);
    for (std::size_t i = 0; i < C.rows; ++i)
        if (p[i] > 0)
            for (std::size_t j = 0; j < C.columns; ++j) least[j] = std::min(least[j], C.row(i)[j] - f[i]);
    for (std::size_t j = 0; j < C.columns; ++j) {
        if (!(q[j] > 0)) g[j] = least[j] < kInf<double> ? below(least[j]) : largest;
        minus_g[j] = -g[j];
    }
    for (std::size_t i = 0; i < C.rows; ++i) {
        if (p[i] > 0) continue;
        const double sum = least_sum(C.row(i), minus_g.data(), C.columns);
        f[i] = sum < kInf<double> ? below(sum) : largest;
    }
}

inline constexpr double kDust = 2 * kUlp;  // of a weight: what rounding of the weights may leave as mass

// The plan of a basis with exact flows, and its cost rounded up. Returns whether no flow is negative.
template <std::size_t K, class Simplex>
bool dense_plan(Simplex& simplex, const Support& support, const ExactWeights<K>& weights, DenseAnswer& answer) {
    using Index = typename Simplex::Index;
    auto& tree = simplex.basis();
    const auto& order = tree.preorder();
    DoubleDouble total;
    double absolute = 0, scale = 0;
    std::int64_t n = 0;
    bool forbidden = false;
    struct Entry {
        Index node;
        double share, cost;
    };
    std::vector<Entry> entries;
    std::vector<Index> empty;
    const auto write = [&](std::int64_t k, Index v, double share) {
        const Index row = tree.is_row(v) ? v : tree[v].parent, column = tree.is_row(v) ? tree[v].parent : v;
        answer.i[k] = support.rows[static_cast<std::size_t>(row)];
        answer.j[k] = support.columns[static_cast<std::size_t>(column - tree.rows())];
        answer.mass[k] = share;
    };
    const bool feasible = exact_flows<K>(tree, order, weights, [&](Index v, const Wide<K>& flow) {
        const bool artificial = tree[v].arc == Simplex::Tree::kNone;
        if (!is_positive(flow)) {
            if (!artificial) empty.push_back(v);
            return;
        }
        if (artificial) {
            forbidden = true;
            return;
        }
        const double share = weights.share(flow), c = simplex.tree_cost(v);
        const DoubleDouble term = DoubleDouble::product(share, c);
        total += term;
        scale += std::abs(term.high);
        // a share or a product below the normal numbers has lost digits
        if (c != 0) absolute += std::abs(term.high) + std::numeric_limits<double>::min() * std::max(1.0, std::abs(c));
        if (answer.mass != nullptr) entries.push_back({v, share, c});
    });
    // Weights that were rounded leave masses far below a unit in the last place of both their row and their column.
    // These are part of the value, but no entries of the plan, unless they cost something.
    const auto dust = [&](const Entry& entry) {
        const Index v = entry.node, row = tree.is_row(v) ? v : tree[v].parent, column = tree.is_row(v) ? tree[v].parent : v;
        const double a = support.p[static_cast<std::size_t>(row)] / weights.total_p,
                     b = support.q[static_cast<std::size_t>(column - tree.rows())] / weights.total_q;
        return entry.share <= kDust * std::min(a, b) && entry.share * std::abs(entry.cost) <= kUlp * scale;
    };
    for (const Entry& entry : entries) {
        if (dust(entry))
            empty.push_back(entry.node);
        else
            write(n++, entry.node, entry.share);
    }
    answer.entries = n;
    if (answer.mass != nullptr) {
        for (const Index v : empty) write(n++, v, 0);
        std::fill(answer.i + n, answer.i + answer.capacity, -1);
        std::fill(answer.j + n, answer.j + answer.capacity, -1);
        std::fill(answer.mass + n, answer.mass + answer.capacity, 0.0);
    }
    answer.value = forbidden ? kInf<double> : total.value();
    answer.scale = forbidden ? kInf<double> : std::max(scale, std::abs(answer.value));
    answer.upper = rounded_up(answer.value, 0.511 * kUlp * absolute, answer.accuracy);  // of masses: see `share`
    return feasible;
}

// The arcs of an earlier basis, as rows and columns; negative ones are left out.
struct DenseBasis {
    const std::int32_t *i, *j;
    std::size_t size;
};

// The arcs between points that have weight, as edges between nodes.
inline std::vector<Edge> edges_between(CostView C, const DenseBasis& arcs, const Support& support) {
    if (arcs.size == 0) return {};
    std::vector<std::int32_t> row(C.rows, -1), column(C.columns, -1);
    for (std::size_t k = 0; k < support.rows.size(); ++k)
        row[static_cast<std::size_t>(support.rows[k])] = static_cast<std::int32_t>(k);
    for (std::size_t k = 0; k < support.columns.size(); ++k)
        column[static_cast<std::size_t>(support.columns[k])] = static_cast<std::int32_t>(support.rows.size() + k);
    std::vector<Edge> edges;
    for (std::size_t k = 0; k < arcs.size; ++k) {
        if (arcs.i[k] < 0 || arcs.j[k] < 0) continue;
        const auto i = static_cast<std::size_t>(arcs.i[k]), j = static_cast<std::size_t>(arcs.j[k]);
        if (row[i] >= 0 && column[j] >= 0 && C.row(i)[j] < kInf<double>) edges.push_back({row[i], column[j], 0});
    }
    return edges;
}

// How far bounds may be apart before a simplex looks again for potentials: what "optimal" means allows twice as much.
inline constexpr double kClosed = 0.5e-10;
inline constexpr std::size_t kAssigned = 48;  // points from which assignments are faster than the simplex

// The bounds, where no plan of mass one costs less than the least cost.
inline void no_less(DenseAnswer& answer, double least) {
    answer.lower = std::max(answer.lower, answer.accuracy > 0 ? rounded_down(least, 0, answer.accuracy) : least);
}

// The optimum for uniform weights on as many rows as columns. Returns whether it is one and proved; the arcs of the
// assignment, if there is one, are appended to `edges`.
template <class Pause>
bool solve_assignment(CostView C, const Support& support, std::vector<Edge>& edges, DenseAnswer& answer, Pause pause) {
    const std::size_t n = C.rows;
    const auto uniform = [](const std::vector<double>& w) {
        return std::all_of(w.begin(), w.end(), [&](double x) { return x == w[0]; });
    };
    if (n != C.columns || n < kAssigned || edges.size() > n || !uniform(support.p) || !uniform(support.q)) return false;
    Assignment<double> assignment(C.data, n, C.stride);
    if (!assignment.solve(pause)) return false;
    const double share = 1 / static_cast<double>(n);
    DoubleDouble total;
    std::vector<double> f(n), g(assignment.potentials());
    double absolute = 0;
    answer.scale = 0;
    edges.clear();
    for (std::size_t i = 0; i < n; ++i) {
        const auto j = static_cast<std::size_t>(assignment.mates()[i]);
        const double c = assignment.cost(i, j);
        const DoubleDouble term = DoubleDouble::product(share, c);
        total += term;
        answer.scale += std::abs(term.high);
        // a product below the normal numbers has lost digits
        if (c != 0) absolute += std::abs(term.high) + std::numeric_limits<double>::min();
        f[i] = c - g[j];
        edges.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(n + j), 0});
        if (answer.mass == nullptr) continue;
        answer.i[i] = support.rows[i];
        answer.j[i] = support.columns[j];
        answer.mass[i] = share;
    }
    if (answer.mass != nullptr) {
        std::fill(answer.i + n, answer.i + answer.capacity, -1);
        std::fill(answer.j + n, answer.j + answer.capacity, -1);
        std::fill(answer.mass + n, answer.mass + answer.capacity, 0.0);
    }
    answer.entries = static_cast<std::int64_t>(n);
    answer.value = total.value();
    answer.scale = std::max(answer.scale, std::abs(answer.value));
    answer.upper = rounded_up(answer.value, 0.511 * kUlp * absolute, answer.accuracy);  // of masses: one rounded quotient
    const double middle = weighted_median(f, support.p);  // potentials of a size that wastes no digits
    for (double& x : g) x += middle;
    answer.lower = dual_of_columns(C, support.p.data(), support.q.data(), answer.accuracy, 0, g.data(), f.data());
    no_less(answer, assignment.least());
    for (std::size_t i = 0; i < n; ++i) answer.f[support.rows[i]] = f[i];
    for (std::size_t j = 0; j < n; ++j) answer.g[support.columns[j]] = g[j];
    return answer.upper - answer.lower <= kClosed * answer.scale;
}

// Solves one problem by the simplex, on the costs between the points of its support, from some edges of a basis if there are
// any. pause() returns whether to stop with what has been reached.
template <class Pause>
void solve_by_simplex(CostView view, const Support& support, std::vector<Edge> edges, DenseAnswer& answer, Pause pause) {
    const std::size_t m1 = support.rows.size(), m2 = support.columns.size();
    std::vector<double> f(m1), g(m2);
    const auto finish = [&](auto& simplex) {
        answer.pivots += simplex.basis().pivots();
        for (std::size_t i = 0; i < m1; ++i) f[i] = simplex.basis().y(static_cast<std::int32_t>(i));
        const double middle = weighted_median(f, support.p);  // potentials of a size that wastes no digits
        for (double& x : f) x -= middle;
        if (answer.bounded) {
            answer.lower = dense_dual(view, support.p.data(), support.q.data(), answer.accuracy, f.data(), g.data());
            no_less(answer, simplex.least());
        } else {
            for (std::size_t j = 0; j < m2; ++j) g[j] = middle - simplex.basis().y(static_cast<std::int32_t>(m1 + j));
        }
        for (std::size_t i = 0; i < m1; ++i) answer.f[support.rows[i]] = f[i];
        for (std::size_t j = 0; j < m2; ++j) answer.g[support.columns[j]] = g[j];
    };
    with_words(support.p, support.q, [&]<std::size_t K>() {
        const ExactWeights<K> weights(support.p.data(), m1, support.q.data(), m2);
        const auto begin = [&](auto& simplex) {
            if (edges.empty())
                simplex.start();
            else
                simplex.template start<K>(edges, weights);
            answer.feasible = simplex.optimise(pause);
        };
        // normal weights: flows in doubles lead to the basis, whose flows are then computed exactly
        if (weights.bits <= 130) {
            const double P = weights.total_p, Q = weights.total_q;
            std::vector<double> a(support.p), b(support.q);
            for (double& x : a) x /= P;
            for (double& x : b) x /= Q;
            DenseSimplex<double> simplex(view, std::move(a), std::move(b));
            begin(simplex);
            if (answer.feasible && dense_plan<K>(simplex, support, weights, answer)) return finish(simplex);
            answer.pivots += simplex.basis().pivots();
            edges = edges_of(simplex.basis());
        }
        DenseSimplex<Wide<K>> simplex(view, weights.a, weights.b);
        begin(simplex);
        dense_plan<K>(simplex, support, weights, answer);
        finish(simplex);
    });
}

// The same by the faster way: assignments read a matrix as it is, a copy with whole cache lines pays for the simplex.
template <class Pause>
void solve_dense(CostView C, const double* p, const double* q, const DenseBasis& basis, DenseAnswer& answer,
                 Pause pause) {
    const Support support(C, p, q);
    const std::size_t m1 = support.rows.size(), m2 = support.columns.size();
    const bool whole = m1 == C.rows && m2 == C.columns;
    std::vector<double> gathered;
    CostView view = whole ? C : gather(C, support, gathered);
    std::vector<Edge> edges = edges_between(C, basis, support);
    if (solve_assignment(view, support, edges, answer, pause)) return;
    const bool lines = C.width == C.stride && reinterpret_cast<std::uintptr_t>(C.data) % kLine == 0;
    if (whole && !lines && m1 * m2 <= kCopied) view = gather(C, support, gathered);
    solve_by_simplex(view, support, std::move(edges), answer, pause);
}

}  // namespace gibbsot
