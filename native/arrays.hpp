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
auto operator_factory(const Axes<T>& axes, std::size_t) {
    return [matrices = views(axes)] { return GridOperator<T>(matrices); };
}

}  // namespace gibbsot
