// The exact engine: the network simplex on arcs and on dense matrices, k-d trees, matchings of points, and the monotone
// path of the line.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "arrays.hpp"
#include "assignment.hpp"
#include "auction.hpp"
#include "bindings.hpp"
#include "dense_simplex.hpp"
#include "interrupts.hpp"
#include "kdtree.hpp"
#include "line.hpp"
#include "matching.hpp"
#include "network_simplex.hpp"
#include "parallel.hpp"
#include "simplex.hpp"
#include "sparse_factors.hpp"
#include "tree_potentials.hpp"

namespace gibbsot {
namespace {

using namespace nb::literals;

// An array of Python that owns what was a vector.
template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> owned(std::vector<T>&& values) {
    auto kept = std::make_unique<std::vector<T>>(std::move(values));
    T* data = kept->data();
    const std::size_t n = kept->size();
    nb::capsule owner(kept.release(), [](void* p) noexcept { std::default_delete<std::vector<T>>{}(static_cast<std::vector<T>*>(p)); });
    return nb::ndarray<nb::numpy, T, nb::ndim<1>>(data, {n}, owner);
}

void bind_arcs(nb::module_& m) {
    nb::class_<ArcSimplex>(m, "ArcSimplex")
        .def("__init__",
             [](ArcSimplex* self, Vector<const double> p, Vector<const double> q) {
                 std::construct_at(self, p.data(), p.shape(0), q.data(), q.shape(0));
             },
             "p"_a, "q"_a)
        .def("add",
             [](ArcSimplex& self, Vector<const std::int64_t> i, Vector<const std::int64_t> j, Vector<const double> c) {
                 check_length(i.shape(0), c.shape(0));
                 check_length(j.shape(0), c.shape(0));
                 nb::gil_scoped_release release;
                 self.add(i.data(), j.data(), c.data(), c.shape(0));
             },
             "i"_a, "j"_a, "cost"_a)
        .def("start",
             [](ArcSimplex& self, Vector<const double> f, Vector<const double> g, double artificial, bool greedy,
                Vector<const std::int64_t> basis, Vector<const std::int64_t> tops) {
                 check_length(f.shape(0), self.rows());
                 check_length(g.shape(0), self.columns());
                 std::vector<Edge> edges;
                 for (std::size_t k = 0; k < basis.shape(0); ++k) {
                     const std::int64_t arc = basis.data()[k];
                     if (arc < 0) continue;
                     require(arc < static_cast<std::int64_t>(self.arcs()), "basis: an arc that does not exist");
                     edges.push_back(self.edge(static_cast<std::size_t>(arc)));
                 }
                 std::vector<ArcSimplex::Index> first;
                 for (std::size_t k = 0; k < tops.shape(0); ++k) {
                     const std::int64_t node = tops.data()[k];
                     require(node >= 0 && node < static_cast<std::int64_t>(self.rows() + self.columns()),
                             "tops: a node that does not exist");
                     first.push_back(static_cast<ArcSimplex::Index>(node));
                 }
                 nb::gil_scoped_release release;
                 self.start(f.data(), g.data(), artificial, greedy, edges, first);
             },
             "f"_a, "g"_a, "artificial"_a, "greedy"_a, "basis"_a, "tops"_a)
        .def("optimise",
             [](ArcSimplex& self, std::int64_t pivots, double tolerance, double relative) {
                 Interrupt interrupt;
                 nb::gil_scoped_release release;
                 return self.optimise(pivots, tolerance, relative, [&] { interrupt(); });
             },
             "pivots"_a, "tolerance"_a, "relative"_a)
        .def("settle", &ArcSimplex::settle, nb::call_guard<nb::gil_scoped_release>())
        .def("set_artificial", &ArcSimplex::set_artificial, "cost"_a, nb::call_guard<nb::gil_scoped_release>())
        .def("set_costs",
             [](ArcSimplex& self, Vector<const double> cost) {
                 check_length(cost.shape(0), self.arcs());
                 nb::gil_scoped_release release;
                 self.set_costs(cost.data());
             },
             "cost"_a)
        .def("set_weights",
             [](ArcSimplex& self, Vector<const double> p, Vector<const double> q, double artificial) {
                 check_length(p.shape(0), self.rows());
                 check_length(q.shape(0), self.columns());
                 nb::gil_scoped_release release;
                 self.set_weights(p.data(), q.data(), artificial);
             },
             "p"_a, "q"_a, "artificial"_a)
        .def("refresh", &ArcSimplex::refresh, nb::call_guard<nb::gil_scoped_release>())
        .def("potentials",
             [](const ArcSimplex& self, Vector<double> f, Vector<double> g) {
                 check_length(f.shape(0), self.rows());
                 check_length(g.shape(0), self.columns());
                 self.potentials(f.data(), g.data());
             },
             output("f"), output("g"))
        .def("tree",
             [](const ArcSimplex& self, Vector<std::int64_t> i, Vector<std::int64_t> j, Vector<std::int64_t> arc,
                Vector<double> share) {
                 check_length(i.shape(0), self.rows() + self.columns());
                 check_length(j.shape(0), i.shape(0));
                 check_length(arc.shape(0), i.shape(0));
                 check_length(share.shape(0), i.shape(0));
                 nb::gil_scoped_release release;
                 self.tree(i.data(), j.data(), arc.data());
                 self.exact_shares(share.data());
             },
             output("i"), output("j"), output("arc"), output("share"))
        .def_prop_ro("artificial_flow", &ArcSimplex::artificial_flow)
        .def_prop_ro("arcs", &ArcSimplex::arcs)
        .def_prop_ro("pivots", &ArcSimplex::pivots)
        .def_prop_ro("hidden", &ArcSimplex::hidden)
        .def_prop_ro("value", &ArcSimplex::value);
}

NetworkSimplex::Side side_of(const char* name, const Vector<const std::int32_t>& nodes, const Vector<const double>& weights,
                             std::size_t count) {
    check_nodes(name, nodes, count);
    check_length(weights.shape(0), nodes.shape(0));
    return {{nodes.data(), nodes.data() + nodes.shape(0)}, {weights.data(), weights.data() + weights.shape(0)}};
}

void bind_networks(nb::module_& m) {
    using Nodes = Vector<const std::int32_t>;
    nb::class_<NetworkSimplex>(m, "NetworkSimplex")
        .def("__init__",
             [](NetworkSimplex* self, std::size_t nodes, Nodes tail, Nodes head, Vector<const double> forward,
                Vector<const double> backward, Nodes rows, Vector<const double> p, Nodes columns, Vector<const double> q) {
                 check_nodes("tail", tail, nodes);
                 check_nodes("head", head, nodes);
                 check_length(head.shape(0), tail.shape(0));
                 check_length(forward.shape(0), tail.shape(0));
                 check_length(backward.shape(0), tail.shape(0));
                 require(tail.shape(0) < (std::size_t{1} << 30), "tail: expected fewer links");
                 Network network{nodes, {}};
                 network.links.reserve(tail.shape(0));
                 for (std::size_t k = 0; k < tail.shape(0); ++k) {
                     require(tail.data()[k] != head.data()[k], "tail, head: a link from a node to itself");
                     network.links.push_back({tail.data()[k], head.data()[k], forward.data()[k], backward.data()[k]});
                 }
                 std::construct_at(self, std::move(network), side_of("rows", rows, p, nodes),
                                   side_of("columns", columns, q, nodes));
             },
             "nodes"_a, "tail"_a, "head"_a, "forward"_a, "backward"_a, "rows"_a, "p"_a, "columns"_a, "q"_a)
        .def("start",
             [](NetworkSimplex& self, Vector<const std::int64_t> links, double artificial, double seconds,
                const StopFlag& stop) {
                 std::vector<NetworkSimplex::Index> chosen;
                 for (std::size_t k = 0; k < links.shape(0); ++k) {
                     const std::int64_t link = links.data()[k];
                     require(link >= 0 && link < static_cast<std::int64_t>(self.links()), "links: one does not exist");
                     chosen.push_back(static_cast<NetworkSimplex::Index>(link));
                 }
                 Deadline deadline(seconds, stop);
                 nb::gil_scoped_release release;
                 self.start(std::move(chosen), artificial, [&] { return deadline(); });
             },
             "links"_a, "artificial"_a, "seconds"_a, "stop"_a)
        .def("optimise",
             [](NetworkSimplex& self, std::int64_t pivots, double tolerance, double relative) {
                 Interrupt interrupt;
                 nb::gil_scoped_release release;
                 return self.optimise(pivots, tolerance, relative, [&] {
                     interrupt();
                     return false;
                 });
             },
             "pivots"_a, "tolerance"_a, "relative"_a)
        .def("settle", &NetworkSimplex::settle, nb::call_guard<nb::gil_scoped_release>())
        .def("refresh", &NetworkSimplex::refresh, nb::call_guard<nb::gil_scoped_release>())
        .def("set_artificial", &NetworkSimplex::set_artificial, "cost"_a, nb::call_guard<nb::gil_scoped_release>())
        .def("tree",
             [](const NetworkSimplex& self, Vector<std::int64_t> tail, Vector<std::int64_t> head,
                Vector<std::int64_t> link, Vector<double> share) {
                 check_length(tail.shape(0), self.nodes());
                 check_length(head.shape(0), self.nodes());
                 check_length(link.shape(0), self.nodes());
                 check_length(share.shape(0), self.nodes());
                 nb::gil_scoped_release release;
                 self.tree(tail.data(), head.data(), link.data(), share.data());
             },
             output("tail"), output("head"), output("link"), output("share"))
        .def("potentials",
             [](const NetworkSimplex& self, Matrix<double> y) {
                 check_shape("y", y, 2, self.nodes());
                 nb::gil_scoped_release release;
                 return self.potentials(y.data(), y.data() + self.nodes());
             },
             output("y"))
        .def("coupling",
             [](const NetworkSimplex& self) {
                 std::vector<std::int64_t> row, column;
                 std::vector<double> share;
                 {
                     nb::gil_scoped_release release;
                     self.coupling(row, column, share);
                 }
                 return std::make_tuple(owned(std::move(row)), owned(std::move(column)), owned(std::move(share)));
             })
        .def_prop_ro("artificial_flow", &NetworkSimplex::artificial_flow)
        .def_prop_ro("pivots", &NetworkSimplex::pivots)
        .def_prop_ro("hidden", &NetworkSimplex::hidden)
        .def_prop_ro("value", &NetworkSimplex::value);
}

constexpr std::size_t kInfo = 8;  // numbers of a problem

// One problem a row of p and q, all with the costs C, each from a row of the arcs of earlier bases if there are any.
// `numbers` has, one after the other, for all problems: value, lower, upper, scale, entries, pivots, feasible and stopped;
// the potentials f and g; the masses of the plans. `arcs` has their rows and columns; without columns there are no plans.
// Potentials are written for the points that have weight. After `seconds`, or when `stop` is set, problems end with
// what they have reached.
void solve_dense_batch(const Matrix<const double>& C, const Matrix<const double>& p, const Matrix<const double>& q,
                       const Stack<const std::int32_t>& basis, double accuracy, std::size_t n_threads, double seconds,
                       const StopFlag& stop, const Vector<double>& numbers, const Stack<std::int32_t>& arcs) {
    const std::size_t n = p.shape(0), m1 = C.shape(0), m2 = C.shape(1), most = arcs.shape(2), known = basis.shape(2);
    check_shape("p", p, n, m1);
    check_shape("q", q, n, m2);
    check_threads(n_threads);
    require(basis.shape(0) == 2 && (known == 0 || basis.shape(1) == n), "basis: expected rows and columns of all problems");
    for (std::size_t k = 0; k < n * known; ++k)
        require(basis.data()[k] < static_cast<std::int64_t>(m1) &&
                    basis.data()[n * known + k] < static_cast<std::int64_t>(m2),
                "basis: an arc lies outside the matrix of costs");
    require(arcs.shape(0) == 2 && arcs.shape(1) == n, "arcs: expected rows and columns of all problems");
    const auto support = [](const Matrix<const double>& x, std::size_t b) {
        const double* begin = x.data() + b * x.shape(1);
        return static_cast<std::size_t>(std::count_if(begin, begin + x.shape(1), [](double w) { return w > 0; }));
    };
    for (std::size_t b = 0; b < n && most > 0 && most < m1 + m2; ++b)
        require(most >= support(p, b) + support(q, b), "arcs: expected as many as there are points with weight");
    check_length(numbers.shape(0), n * (kInfo + m1 + m2 + most));
    double *f = numbers.data() + n * kInfo, *g = f + n * m1, *mass = g + n * m2;
    Interrupt interrupt;
    nb::gil_scoped_release release;
    const auto begin = std::chrono::steady_clock::now();
    const auto make = [&] {
        return [&](std::size_t b) {
            const bool plan = most > 0;
            bool stopped = false;
            DenseAnswer answer{f + b * m1, g + b * m2,
                               plan ? arcs.data() + b * most : nullptr,
                               plan ? arcs.data() + (n + b) * most : nullptr,
                               plan ? mass + b * most : nullptr, most, accuracy};
            const DenseBasis from{basis.data() + b * known, basis.data() + (n + b) * known, known};
            solve_dense({C.data(), m1, m2, m2}, p.data() + b * m1, q.data() + b * m2, from, answer, [&] {
                interrupt();
                const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
                stopped = stop.is_set() || elapsed.count() > seconds;
                return stopped;
            });
            double* out = numbers.data() + kInfo * b;
            out[0] = answer.value;
            out[1] = answer.lower;
            out[2] = answer.upper;
            out[3] = answer.scale;
            out[4] = static_cast<double>(answer.entries);
            out[5] = static_cast<double>(answer.pivots);
            out[6] = answer.feasible ? 1 : 0;
            out[7] = stopped ? 1 : 0;
        };
    };
    parallel_for(n, n_threads, make, [&] { interrupt(); });
}

// Potentials of an assignment at least cost, for costs in single precision. Returns whether there is one; without, a simplex
// may be faster, all assignments may be forbidden, the time may be over, or `stop` may be set.
bool assign(const Matrix<const float>& C, double seconds, const StopFlag& stop, const Vector<double>& f,
            const Vector<double>& g) {
    const std::size_t n = C.shape(0);
    check_length(C.shape(1), n);
    check_length(f.shape(0), n);
    check_length(g.shape(0), n);
    Interrupt interrupt;
    nb::gil_scoped_release release;
    const auto begin = std::chrono::steady_clock::now();
    Assignment<float> assignment(C.data(), n, n);
    const bool found = assignment.solve([&] {
        interrupt();
        const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
        return stop.is_set() || elapsed.count() > seconds;
    });
    if (!found) return false;
    const std::vector<double>& v = assignment.potentials();
    std::copy(v.begin(), v.end(), g.data());
    for (std::size_t i = 0; i < n; ++i) {
        const auto j = static_cast<std::size_t>(assignment.mates()[i]);
        f.data()[i] = assignment.cost(i, j) - v[j];
    }
    return true;
}

void bind_auction(nb::module_& m) {
    nb::class_<Auction>(m, "Auction")
        .def("__init__",
             [](Auction* self, Vector<const double> p, Vector<const double> q, Vector<const double> prices, std::size_t k) {
                 check_length(prices.shape(0), q.shape(0));
                 require(k > 0 && k <= q.shape(0), "k: expected 1 to as many as there are columns");
                 std::construct_at(self, p.data(), p.shape(0), q.data(), q.shape(0), prices.data(), k);
             },
             "p"_a, "q"_a, "prices"_a, "k"_a)
        .def("give_lists",
             [](Auction& self, Vector<const std::int64_t> rows, Matrix<const std::int64_t> found, Matrix<const float> sums,
                Vector<const float> prices) {
                 const std::size_t n = rows.shape(0), k = self.list_size();
                 check_shape("found", found, n, k);
                 check_shape("sums", sums, n, k);
                 check_length(prices.shape(0), self.columns());
                 for (std::size_t a = 0; a < n; ++a)
                     require(rows.data()[a] >= 0 && rows.data()[a] < static_cast<std::int64_t>(self.rows()),
                             "rows: one does not exist");
                 for (std::size_t a = 0; a < n * k; ++a)
                     require(found.data()[a] < static_cast<std::int64_t>(self.columns()), "found: a column does not exist");
                 nb::gil_scoped_release release;
                 for (std::size_t a = 0; a < n; ++a)
                     self.give_list(static_cast<std::size_t>(rows.data()[a]), found.data() + a * k, sums.data() + a * k,
                                    prices.data());
                 self.resume();
             },
             "rows"_a, "found"_a, "sums"_a, "prices"_a)
        .def("run",
             [](Auction& self, double epsilon, double enough, std::size_t most, double seconds, const StopFlag& stop) {
                 Deadline deadline(seconds, stop);
                 nb::gil_scoped_release release;
                 return self.run(epsilon, enough, most, [&] { return deadline(); });
             },
             "epsilon"_a, "enough"_a, "most"_a, "seconds"_a, "stop"_a)
        .def("waiting",
             [](const Auction& self) { return owned(std::vector<std::int64_t>(self.waiting().begin(), self.waiting().end())); })
        .def("prices",
             [](const Auction& self, Vector<double> out) {
                 check_length(out.shape(0), self.columns());
                 std::copy(self.prices().begin(), self.prices().end(), out.data());
             },
             output("out"))
        .def("potentials",
             [](const Auction& self, Vector<double> out) {
                 check_length(out.shape(0), self.rows());
                 for (std::size_t i = 0; i < self.rows(); ++i) out.data()[i] = self.potential(i);
             },
             output("out"))
        .def_prop_ro("left", &Auction::left);
}

// <x, y>, or the sum of x if y is empty: both doubles, the sum and the number of the absolute terms, and the exponent.
std::tuple<double, double, double, std::int64_t, int> inner_product(const Vector<const double>& x,
                                                                    const Vector<const double>& y) {
    if (y.shape(0) != 0) check_length(y.shape(0), x.shape(0));
    const Inner found = inner(x.data(), y.shape(0) != 0 ? y.data() : nullptr, x.shape(0));
    return {found.value.high, found.value.low, found.absolute, found.terms, found.exponent};
}

// Lower and upper bounds for measures of mass one, times the sums of their weights, rounded outwards. Returns whether all of
// them are in the range where that is possible; they are not to be used otherwise.
bool scale_bounds(const Matrix<const double>& weights, const Matrix<double>& bounds) {
    const std::size_t n = weights.shape(0), m = weights.shape(1);
    check_shape("bounds", bounds, 2, n);
    for (std::size_t b = 0; b < n; ++b) {
        double &lower = bounds.data()[b], &upper = bounds.data()[n + b];
        const Estimate mass = total(weights.data() + b * m, m);
        lower = -product_up(mass, -lower);
        upper = product_up(mass, upper);
        if (std::isnan(lower) || std::isnan(upper)) return false;
    }
    return true;
}

// Potentials of the points without weight, from those that solve_dense wrote.
void complete_dense_batch(Matrix<const double> C, Matrix<const double> p, Matrix<const double> q, std::size_t n_threads,
                          Matrix<double> f, Matrix<double> g) {
    const std::size_t n = p.shape(0), m1 = C.shape(0), m2 = C.shape(1);
    check_shape("p", p, n, m1);
    check_shape("q", q, n, m2);
    check_shape("f", f, n, m1);
    check_shape("g", g, n, m2);
    check_threads(n_threads);
    nb::gil_scoped_release release;
    parallel_for(n, n_threads, [&] {
        return [&](std::size_t b) {
            complete_dual({C.data(), m1, m2, m2}, p.data() + b * m1, q.data() + b * m2, f.data() + b * m1,
                          g.data() + b * m2);
        };
    });
}

// Calls work with a metric, by the name that SciPy has for it.
template <class Work>
void with_metric(const std::string& name, Work&& work) {
    if (name == "sqeuclidean") return work(SquaredEuclidean{});
    if (name == "euclidean") return work(Euclidean{});
    if (name == "cityblock") return work(Cityblock{});
    if (name == "chebyshev") return work(Chebyshev{});
    throw std::invalid_argument("metric: expected 'sqeuclidean', 'euclidean', 'cityblock' or 'chebyshev', got '" + name + "'");
}

// Writes the column of each row, -1 where it stays alone, and the potentials; returns how far these violate a pair at most.
double match_points(Matrix<const double> X, Matrix<const double> Y, Vector<const double> a, Vector<const double> b, double p,
                    double q, Vector<std::int32_t> mates, Vector<double> f, Vector<double> g) {
    const std::size_t n = a.shape(0), m = b.shape(0);
    require(n > 0 && m > 0, "X, Y: expected at least one point");
    check_shape("X", X, n, 2);
    check_shape("Y", Y, m, 2);
    check_shape("mates", mates, n);
    check_shape("f", f, n);
    check_shape("g", g, m);
    require(p >= 1 && q >= 1, "p, q: expected numbers of at least 1");
    Interrupt interrupt;
    nb::gil_scoped_release release;
    const auto solve = [&](const auto& metric) {
        Matching matching(metric, X.data(), a.data(), n, Y.data(), b.data(), m);
        matching.solve([&] { interrupt(); });
        std::copy(matching.mates().begin(), matching.mates().end(), mates.data());
        std::copy(matching.potentials(0).begin(), matching.potentials(0).end(), f.data());
        std::copy(matching.potentials(1).begin(), matching.potentials(1).end(), g.data());
        return matching.violation();
    };
    if (q == 1 && std::isinf(p)) return solve(Chebyshev{});
    if (q == 1 && p == 1) return solve(Cityblock{});
    if (p == 2 && q == 1) return solve(Euclidean{});
    return p == 2 && q == 2 ? solve(SquaredEuclidean{}) : solve(NormPower{p, q});
}

template <std::size_t D>
void bind_tree(nb::module_& m, const char* name) {
    using Tree = KdTree<D>;
    nb::class_<Tree>(m, name)
        .def("__init__",
             [](Tree* self, Matrix<const double> points) {
                 check_length(points.shape(1), D);
                 nb::gil_scoped_release release;
                 std::construct_at(self, points.data(), points.shape(0));
             },
             "points"_a)
        .def("set_h",
             [](Tree& self, Vector<const double> h, std::size_t n_threads) {
                 check_length(h.shape(0), self.size());
                 check_threads(n_threads);
                 nb::gil_scoped_release release;
                 self.set_h(h.data(), n_threads);
             },
             "h"_a, "n_threads"_a)
        .def("order",
             [](const Tree& self, Vector<std::int32_t> out) {
                 check_length(out.shape(0), self.size());
                 std::copy(self.order().begin(), self.order().end(), out.data());
             },
             output("out"))
        .def("nearest",
             [](const Tree& self, Matrix<const double> x, Vector<const std::int32_t> queries, Vector<const double> bound,
                const std::string& metric, std::size_t n_threads, Matrix<std::int64_t> indices, Matrix<double> values) {
                 check_length(x.shape(1), D);
                 check_length(indices.shape(0), x.shape(0));
                 check_length(values.size(), indices.size());
                 check_threads(n_threads);
                 if (bound.shape(0) != 0) check_length(bound.shape(0), x.shape(0));
                 Interrupt interrupt;
                 nb::gil_scoped_release release;
                 const double* bounds = bound.shape(0) != 0 ? bound.data() : nullptr;
                 constexpr std::size_t chunk = 4096;
                 with_metric(metric, [&](const auto& distance) {
                     const auto make = [&] {
                         return [&](std::size_t c) {
                             const std::int32_t* some = queries.data() + c * chunk;
                             const std::size_t count = std::min(chunk, queries.shape(0) - c * chunk);
                             self.nearest(distance, x.data(), some, count, bounds, indices.shape(1), indices.data(),
                                          values.data());
                             interrupt();
                         };
                     };
                     parallel_for((queries.shape(0) + chunk - 1) / chunk, n_threads, make, [&] { interrupt(); });
                 });
             },
             "x"_a, nb::kw_only(), "queries"_a, "bound"_a, "metric"_a, "n_threads"_a, output("indices"),
             output("values"));
}

std::int64_t cells(Matrix<const double> points, std::size_t most, Vector<std::int64_t> label) {
    check_length(label.shape(0), points.shape(0));
    nb::gil_scoped_release release;
    switch (points.shape(1)) {
        case 1: return median_cells<1>(points.data(), points.shape(0), most, label.data());
        case 2: return median_cells<2>(points.data(), points.shape(0), most, label.data());
        case 3: return median_cells<3>(points.data(), points.shape(0), most, label.data());
        case 4: return median_cells<4>(points.data(), points.shape(0), most, label.data());
        default: fail("points: expected one to four coordinates, got ", points.shape(1));
    }
}

void line_path(Vector<const double> p, Vector<const double> q, Vector<std::int64_t> i, Vector<std::int64_t> j,
               Vector<double> share) {
    const std::size_t m1 = p.shape(0), m2 = q.shape(0), n = m1 + m2 - 1;
    check_length(i.shape(0), n);
    check_length(j.shape(0), n);
    check_length(share.shape(0), n);
    nb::gil_scoped_release release;
    with_words({p.data(), p.data() + m1}, {q.data(), q.data() + m2}, [&]<std::size_t K>() {
        monotone_path<K>(p.data(), m1, q.data(), m2, i.data(), j.data(), share.data());
    });
}

void follow(Vector<const std::int64_t> i, Vector<const std::int64_t> j, Matrix<const double> costs,
            Vector<const double> weight, Matrix<double> f, Matrix<double> g) {
    check_length(j.shape(0), i.shape(0));
    check_shape("costs", costs, 2, i.shape(0));
    check_shape("f", f, 2, weight.shape(0));
    check_length(g.shape(0), 2);
    const std::size_t rows = f.shape(1), columns = g.shape(1), n = i.shape(0);
    for (std::size_t k = 0; k < n; ++k)
        require(i.data()[k] >= 0 && i.data()[k] < static_cast<std::int64_t>(rows) && j.data()[k] >= 0 &&
                    j.data()[k] < static_cast<std::int64_t>(columns),
                "i, j: an arc between nodes that do not exist");
    nb::gil_scoped_release release;
    follow_forest(i.data(), j.data(), costs.data(), costs.data() + n, n, weight.data(), rows, columns,
                  {f.data(), f.data() + rows}, {g.data(), g.data() + columns});
}

void bind_factors(nb::module_& m) {
    nb::class_<SparseFactors>(m, "SparseFactors")
        .def("__init__",
             [](SparseFactors* self, Vector<const std::int64_t> begin, Vector<const std::int32_t> rows) {
                 require(begin.shape(0) > 0 && begin.data()[0] == 0, "begin: expected 0 first");
                 const std::size_t n = begin.shape(0) - 1;
                 for (std::size_t k = 0; k < n; ++k)
                     require(begin.data()[k] <= begin.data()[k + 1], "begin: expected increasing numbers");
                 check_length(rows.shape(0), static_cast<std::size_t>(begin.data()[n]));
                 for (std::size_t k = 0; k < n; ++k)
                     for (std::int64_t entry = begin.data()[k]; entry < begin.data()[k + 1]; ++entry)
                         require(rows.data()[entry] >= 0 && rows.data()[entry] < static_cast<std::int64_t>(k),
                                 "rows: expected entries above the diagonal");
                 nb::gil_scoped_release release;
                 std::construct_at(self, n, begin.data(), rows.data());
             },
             "begin"_a, "rows"_a)
        .def("factorise",
             [](SparseFactors& self, Vector<const double> values, Vector<const double> diagonal) {
                 check_length(values.shape(0), self.entries());
                 check_length(diagonal.shape(0), self.size());
                 nb::gil_scoped_release release;
                 return self.factorise(values.data(), diagonal.data());
             },
             "values"_a, "diagonal"_a)
        .def("solve",
             [](const SparseFactors& self, Vector<double> x) {
                 check_length(x.shape(0), self.size());
                 nb::gil_scoped_release release;
                 self.solve(x.data());
             },
             output("x"));
}

}  // namespace

void bind_exact(nb::module_& m) {
    bind_arcs(m);
    bind_networks(m);
    bind_factors(m);
    bind_auction(m);
    bind_tree<1>(m, "KdTree1");
    bind_tree<2>(m, "KdTree2");
    bind_tree<3>(m, "KdTree3");
    bind_tree<4>(m, "KdTree4");
    m.def("line_path", &line_path, nb::kw_only(), "p"_a, "q"_a, output("i"), output("j"), output("share"));
    m.def("follow_forest", &follow, "i"_a, "j"_a, "costs"_a, "weight"_a, output("f"), output("g"));
    m.def("median_cells", &cells, "points"_a, nb::kw_only(), "most"_a, output("label"));
    m.def("match_points", &match_points, "X"_a, "Y"_a, nb::kw_only(), "a"_a, "b"_a, "p"_a, "q"_a, output("mates"),
          output("f"), output("g"));
    nb::class_<StopFlag>(m, "StopFlag")
        .def(nb::init<>())
        .def("set", &StopFlag::set)
        .def("watch", &StopFlag::watch);
    m.def("solve_dense", &solve_dense_batch, "C"_a, "p"_a, "q"_a, "basis"_a, "accuracy"_a, "n_threads"_a, "seconds"_a,
          "stop"_a, output("numbers"), output("arcs"));
    m.def("assign", &assign, "C"_a, "seconds"_a, "stop"_a, output("f"), output("g"));
    m.def("inner", &inner_product, "x"_a, "y"_a);
    m.def("scale_bounds", &scale_bounds, "weights"_a, output("bounds"));
    m.def("complete_dense", &complete_dense_batch, "C"_a, nb::kw_only(), "p"_a, "q"_a, "n_threads"_a, output("f"),
          output("g"));
}

}  // namespace gibbsot
