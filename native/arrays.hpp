// The array types of the Python interface, and the checks of arguments that run before a kernel does.
//
// Every check raises ValueError with the name of the argument. Wrong dtypes, orders and read-only outputs are refused
// by nanobind with TypeError.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstddef>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "operators.hpp"

namespace gibbsot {

namespace nb = nanobind;

template <class T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Stack = nb::ndarray<T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
template <class T>
using Axes = std::vector<Matrix<const T>>;  // of a grid, one matrix per axis
using Points = std::tuple<Matrix<const double>, Matrix<const double>, bool>;  // X, Y, and whether distances are squared
// A graph: starts, heads and lengths of the links that leave each node, the same for those that enter it, and the nodes of
// the rows and of the columns.
template <class T>
using Graph = std::tuple<Vector<const std::int64_t>, Vector<const std::int32_t>, Vector<const T>, Vector<const std::int64_t>,
                         Vector<const std::int32_t>, Vector<const T>, Vector<const std::int32_t>,
                         Vector<const std::int32_t>>;

// An array that a kernel writes to. A converted copy would lose the result, so none is made.
inline auto output(const char* name) { return nb::arg(name).noconvert(); }

template <class... Texts>
[[noreturn]] void fail(const Texts&... texts) {
    std::ostringstream message;
    (message << ... << texts);
    throw nb::value_error(message.str().c_str());
}

inline void require(bool condition, const char* message) {
    if (!condition) fail(message);
}

template <class T>
void check_shape(const char* name, const Vector<T>& array, std::size_t n) {
    if (array.shape(0) != n) fail(name, ": expected shape (", n, ",), got (", array.shape(0), ",)");
}
template <class T>
void check_shape(const char* name, const Matrix<T>& array, std::size_t rows, std::size_t columns) {
    if (array.shape(0) != rows || array.shape(1) != columns)
        fail(name, ": expected shape (", rows, ", ", columns, "), got (", array.shape(0), ", ", array.shape(1), ")");
}

inline void check_threads(std::size_t n_threads) { require(n_threads >= 1, "n_threads: expected at least 1, got 0"); }

// A dense cost of m1 x m2 points is stored by columns, each padded to whole cache lines.
template <class T>
void check_cost(const Matrix<const T>& Mt, std::size_t m1, std::size_t m2) {
    require(m1 > 0 && m2 > 0, "Mt: expected at least one row and one column");
    check_shape("Mt", Mt, m2, padded<T>(m1));
}

// A grid cost of m1 x m2 points: the sides multiply to m1 and m2.
template <class T>
void check_cost(const Axes<T>& axes, std::size_t m1, std::size_t m2) {
    require(!axes.empty() && m1 > 0 && m2 > 0, "axes: expected at least one axis, row and column");
    const std::array<std::size_t, 2> expected{m1, m2};
    for (std::size_t side = 0; side < 2; ++side) {
        std::size_t points = 1;
        for (const auto& axis : axes) {
            const std::size_t n = axis.shape(side);
            points = n <= expected[side] / points ? points * n : 0;  // the product may exceed std::size_t
            if (points == 0) break;
        }
        if (points != expected[side])
            fail("axes: expected ", side == 0 ? "rows" : "columns", " whose product is the number of points, ",
                 expected[side]);
    }
}

// Points X and Y of one dimension.
template <class T>
void check_cost(const Points& points, std::size_t m1, std::size_t m2) {
    const auto& [X, Y, squared] = points;
    require(m1 > 0 && m2 > 0, "points: expected at least one row and one column");
    check_shape("X", X, m1, Y.shape(1));
    check_shape("Y", Y, m2, X.shape(1));
}

inline void check_nodes(const char* name, const Vector<const std::int32_t>& nodes, std::size_t count) {
    for (std::size_t k = 0; k < nodes.shape(0); ++k)
        if (nodes.data()[k] < 0 || static_cast<std::size_t>(nodes.data()[k]) >= count)
            fail(name, ": node ", nodes.data()[k], " is out of range");
}
template <class T>
Adjacency<T> adjacency(const char* name, const Vector<const std::int64_t>& starts, const Vector<const std::int32_t>& heads,
                       const Vector<const T>& lengths) {
    require(starts.shape(0) > 0, "starts: expected one more than there are nodes");
    const std::size_t nodes = starts.shape(0) - 1;
    check_shape("lengths", lengths, heads.shape(0));
    for (std::size_t v = 0; v < nodes; ++v)
        if (starts.data()[v] > starts.data()[v + 1]) fail(name, ": node ", v, " has fewer links than none");
    if (starts.data()[0] != 0 || starts.data()[nodes] != static_cast<std::int64_t>(heads.shape(0)))
        fail(name, ": the links of all nodes are not those given");
    check_nodes(name, heads, nodes);
    return {starts.data(), heads.data(), lengths.data(), nodes};
}
template <class T>
std::pair<Adjacency<T>, Adjacency<T>> adjacencies(const Graph<T>& graph) {
    const auto& [starts, heads, lengths, from_starts, tails, from_lengths, rows, columns] = graph;
    return {adjacency<T>("heads", starts, heads, lengths), adjacency<T>("tails", from_starts, tails, from_lengths)};
}

// A graph whose nodes the rows and columns are.
template <class T>
void check_cost(const Graph<T>& graph, std::size_t m1, std::size_t m2) {
    require(m1 > 0 && m2 > 0, "graph: expected at least one row and one column");
    const auto [given, reversed] = adjacencies<T>(graph);
    require(given.nodes == reversed.nodes, "graph: expected as many nodes in both directions");
    check_shape("rows", std::get<6>(graph), m1);
    check_shape("columns", std::get<7>(graph), m2);
    check_nodes("rows", std::get<6>(graph), given.nodes);
    check_nodes("columns", std::get<7>(graph), given.nodes);
}

template <class T>
std::vector<MatrixView<T>> views(const Axes<T>& axes) {
    std::vector<MatrixView<T>> matrices;
    for (const auto& axis : axes) matrices.push_back({axis.data(), axis.shape(0), axis.shape(1), axis.shape(1), 1});
    return matrices;
}

// What makes an operator of a checked cost; each thread has its own operator.
template <class T>
auto operator_factory(const Matrix<const T>& Mt, std::size_t m1) {
    const DenseMatrix<T> matrix{Mt.data(), Mt.shape(1)};
    return [matrix, m1, m2 = Mt.shape(0)] { return DenseOperator(matrix, m1, m2); };
}
template <class T>
PointMatrix<T> distances(const Matrix<const double>& X, const Matrix<const double>& Y, bool squared) {
    return {X.data(), X.shape(0), Y.data(), Y.shape(1), squared};
}
template <class T>
auto operator_factory(const Points& points, std::size_t m1) {
    return [&points, m1] {
        const auto& [X, Y, squared] = points;
        return DenseOperator(distances<T>(X, Y, squared), m1, Y.shape(0));
    };
}
template <class T>
auto operator_factory(const Graph<T>& graph, std::size_t m1) {
    const auto [given, reversed] = adjacencies<T>(graph);
    return [given = given, reversed = reversed, &graph, m1] {
        const auto &rows = std::get<6>(graph), &columns = std::get<7>(graph);
        return DenseOperator(GraphMatrix<T>(given, reversed, rows.data(), m1, columns.data()), m1, columns.shape(0));
    };
}
template <class T>
auto operator_factory(const Axes<T>& axes, std::size_t) {
    return [matrices = views(axes)] { return GridOperator<T>(matrices); };
}

}  // namespace gibbsot
