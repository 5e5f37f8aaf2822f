// Many small problems in one call: packed points and matrices, and samples on the line.
#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "arrays.hpp"
#include "bindings.hpp"
#include "interrupts.hpp"
#include "line.hpp"
#include "packed.hpp"
#include "parallel.hpp"

namespace gibbsot {
namespace {

using namespace nb::literals;
using Weights = Vector<const double>;
using Places = Matrix<const std::int64_t>;
using Numbers = Matrix<double>;

constexpr std::size_t kNumbers = sizeof(PackedNumbers) / sizeof(double);

// A range of a packed array, which is not empty.
void check_range(const char* name, std::int64_t begin, std::int64_t count, std::size_t size) {
    const auto length = static_cast<std::int64_t>(size);
    if (begin < 0 || count < 1 || begin > length || count > length - begin)
        fail("places: ", name, " ", begin, " to ", begin + count, " are not among the ", size, " given");
}

PackedNumbers& numbers_of(const Numbers& numbers, std::size_t b) {
    return *reinterpret_cast<PackedNumbers*>(numbers.data() + b * kNumbers);
}

// What is kept of the solutions, in the order of the problems: potentials and masses of arcs, with room for as many as a
// problem has rows and columns, and rows and columns of the arcs. Empty arrays: nothing is kept. The arcs of earlier
// solutions, from which new ones start, lie in the same way.
struct Kept {
    Matrix<double> numbers;
    Matrix<std::int32_t> arcs;
    const std::int32_t* earlier = nullptr;
    std::size_t size = 0;
    bool bounded = true;
    std::vector<std::size_t> begin;

    Kept(const Matrix<double>& kept, const Matrix<std::int32_t>& kept_arcs, const std::vector<PackedPlace>& places)
        : numbers(kept), arcs(kept_arcs) {
        for (const PackedPlace& place : places) {
            begin.push_back(size);
            size += place.rows + place.columns;
        }
        check_shape("kept", kept, 2, kept.shape(1));
        check_shape("arcs", kept_arcs, 2, kept.shape(1));
        if (kept.shape(1) != 0) check_length(kept.shape(1), size);
    }
    void start_from(const Matrix<const std::int32_t>& near, const std::vector<PackedPlace>& places) {
        check_shape("near", near, 2, near.shape(1));
        if (near.shape(1) == 0) return;
        earlier = near.data();
        check_length(near.shape(1), size);
        for (std::size_t b = 0; b < places.size(); ++b)
            for (std::size_t k = begin[b]; k < begin[b] + places[b].rows + places[b].columns; ++k)
                require(near.data()[k] < static_cast<std::int64_t>(places[b].rows) &&
                            near.data()[size + k] < static_cast<std::int64_t>(places[b].columns),
                        "near: an arc lies outside the matrix of costs");
    }
    bool any() const { return numbers.shape(1) != 0; }
    DenseBasis near(std::size_t b, const PackedPlace& place) const {
        if (earlier == nullptr) return {nullptr, nullptr, 0};
        return {earlier + begin[b], earlier + size + begin[b], place.rows + place.columns};
    }
    DenseAnswer answer(std::size_t b, const PackedPlace& place, double accuracy, std::vector<double>& scratch) const {
        if (!any()) {
            scratch.resize(place.rows + place.columns);
            return {scratch.data(), scratch.data() + place.rows, nullptr, nullptr, nullptr, 0, accuracy, bounded};
        }
        double* f = numbers.data() + begin[b];
        std::int32_t* i = arcs.data() + begin[b];
        return {f,        f + place.rows, i, i + arcs.shape(1), f + numbers.shape(1), place.rows + place.columns,
                accuracy, bounded};
    }
};

std::vector<PackedPlace> packed_places(const Places& places, const Weights& p, const Weights& q) {
    check_shape("places", places, places.shape(0), 5);
    std::vector<PackedPlace> found;
    for (std::size_t b = 0; b < places.shape(0); ++b) {
        const std::int64_t* at = places.data() + 5 * b;
        check_range("rows", at[0], at[1], p.shape(0));
        check_range("columns", at[2], at[3], q.shape(0));
        const auto size = [&](std::size_t k) { return static_cast<std::size_t>(at[k]); };
        found.push_back({size(0), size(1), size(2), size(3), size(4)});
    }
    return found;
}

// Solves packed problems, whose costs fill(matrix, place) writes; look(b, costs, answer) is told of every answer.
template <class Fill, class Look>
void solve_each(const std::vector<PackedPlace>& places, const Weights& p, const Weights& q, double accuracy, bool unit,
                std::size_t n_threads, double seconds, const StopFlag& stop, const Numbers& numbers, const Kept& kept,
                Fill fill, Look look) {
    check_shape("numbers", numbers, places.size(), kNumbers);
    check_threads(n_threads);
    Deadline deadline(seconds, stop);
    nb::gil_scoped_release release;
    const auto make = [&] {
        return [&, matrix = PaddedMatrix(), scratch = std::vector<double>()](std::size_t b) mutable {
            const PackedPlace& place = places[b];
            matrix.resize(place.rows, place.columns);
            fill(matrix, place);
            DenseAnswer answer = kept.answer(b, place, accuracy, scratch);
            solve_packed(matrix, p.data() + place.row, q.data() + place.column, unit, kept.near(b, place), answer,
                         [&] { return deadline(); }, numbers_of(numbers, b));
            look(b, matrix.view(), answer);
        };
    };
    parallel_for(places.size(), n_threads, make, [&] { deadline(); });
}

void solve_points(const Matrix<const double>& X, const Matrix<const double>& Y, const std::string& metric, const Weights& p,
                  const Weights& q, const Places& places, double accuracy, bool unit,
                  const Matrix<const std::int32_t>& near, std::size_t n_threads, double seconds, const StopFlag& stop,
                  const Numbers& numbers, const Matrix<double>& kept, const Matrix<std::int32_t>& arcs,
                  const Matrix<double>& sent) {
    const std::size_t d = X.shape(1);
    check_shape("X", X, p.shape(0), d);
    check_shape("Y", Y, q.shape(0), d);
    const std::vector<PackedPlace> found = packed_places(places, p, q);
    std::vector<std::size_t> first{0};  // of the rows of each problem among those of all
    for (const PackedPlace& place : found) first.push_back(first.back() + place.rows);
    const bool sends = sent.shape(0) != 0;
    if (sends) {
        check_shape("sent", sent, first.back(), d);
        require(kept.shape(1) != 0, "sent: expected plans that are kept");
    }
    Kept solutions(kept, arcs, found);
    solutions.start_from(near, found);
    solutions.bounded = !sends;
    const auto solve = [&]<class Metric>(Metric) {
        solve_each(
            found, p, q, accuracy, unit, n_threads, seconds, stop, numbers, solutions,
            [&](PaddedMatrix& matrix, const PackedPlace& place) {
                matrix.fill<Metric>(X.data() + place.row * d, Y.data() + place.column * d, d);
            },
            [&](std::size_t b, const CostView& C, const DenseAnswer& answer) {
                const PackedPlace& place = found[b];
                if (sends)
                    send(C, p.data() + place.row, q.data() + place.column, answer, Y.data() + place.column * d, d,
                         sent.data() + first[b] * d);
            });
    };
    if (metric == "sqeuclidean") return solve(SquaredSum{});
    if (metric == "euclidean") return solve(RootOfSquares{});
    if (metric == "cityblock") return solve(AbsoluteSum{});
    if (metric == "chebyshev") return solve(AbsoluteMaximum{});
    if (metric == "inner") return solve(InnerProduct{});
    fail("metric: expected 'sqeuclidean', 'euclidean', 'cityblock', 'chebyshev' or 'inner', got '", metric, "'");
}

void solve_matrices(const Vector<const double>& C, const Weights& p, const Weights& q, const Places& places, bool unit,
                    std::size_t n_threads, double seconds, const StopFlag& stop, const Numbers& numbers,
                    const Matrix<double>& kept, const Matrix<std::int32_t>& arcs) {
    const std::vector<PackedPlace> found = packed_places(places, p, q);
    for (std::size_t b = 0; b < found.size(); ++b)
        check_range("entries", places.data()[5 * b + 4], places.data()[5 * b + 1] * places.data()[5 * b + 3], C.shape(0));
    solve_each(
        found, p, q, 0, unit, n_threads, seconds, stop, numbers, Kept(kept, arcs, found),
        [&](PaddedMatrix& matrix, const PackedPlace& place) { matrix.copy(C.data() + place.entry); },
        [](std::size_t, const CostView&, const DenseAnswer&) {});
}

// Samples on the line: of each problem where its points begin and how many there are, the same of the other side, and where
// the weights of both begin. Without weights all points have the same.
void solve_lines(const Weights& x, const Weights& y, const Weights& p, const Weights& q, const Places& places, double power,
                 double accuracy, bool unit, std::size_t n_threads, double seconds, const StopFlag& stop,
                 const Numbers& numbers) {
    check_shape("places", places, places.shape(0), 6);
    check_shape("numbers", numbers, places.shape(0), kNumbers);
    check_threads(n_threads);
    require(power >= 1, "power: expected at least 1");
    const bool weighted[2] = {p.shape(0) > 0, q.shape(0) > 0};
    for (std::size_t b = 0; b < places.shape(0); ++b) {
        const std::int64_t* at = places.data() + 6 * b;
        check_range("points of x", at[0], at[1], x.shape(0));
        check_range("points of y", at[2], at[3], y.shape(0));
        if (weighted[0]) check_range("weights of p", at[4], at[1], p.shape(0));
        if (weighted[1]) check_range("weights of q", at[5], at[3], q.shape(0));
    }
    Deadline deadline(seconds, stop);
    nb::gil_scoped_release release;
    const auto make = [&] {
        return [&, first = LineSide(), second = LineSide()](std::size_t b) mutable {
            const std::int64_t* at = places.data() + 6 * b;
            const auto m1 = static_cast<std::size_t>(at[1]), m2 = static_cast<std::size_t>(at[3]);
            const double* a = weighted[0] ? p.data() + at[4] : nullptr;
            const double* c = weighted[1] ? q.data() + at[5] : nullptr;
            const double none = std::numeric_limits<double>::quiet_NaN();
            PackedNumbers& out = numbers_of(numbers, b);
            out = {none, none, none, none, none, none, 1, 1, 0, PackedNumbers::kRefused};
            if (a != nullptr) out.p = mass_of(a, m1);
            if (c != nullptr) out.q = mass_of(c, m2);
            if (!(out.p > 0 && out.q > 0)) return;
            if (deadline()) {
                out.state = PackedNumbers::kStopped;
                return;
            }
            first.set(x.data() + at[0], a, m1);
            second.set(y.data() + at[2], c, m2);
            LineBounds bounds;
            if (!line_bounds(first, second, power, accuracy, bounds)) return;
            out.value = out.scale = bounds.value;
            out.lower = bounds.lower;
            out.upper = bounds.upper;
            out.state = PackedNumbers::kSolved;
            scale_numbers(a, m1, unit || a == nullptr, out);
        };
    };
    parallel_for(places.shape(0), n_threads, make, [&] { deadline(); });
}

constexpr std::size_t kKeptPoints = 1 << 16;

// One problem on the line, without weights if all points have the same: the cost of the monotone plan, its bounds, and
// whether these are proved.
std::tuple<double, double, double, bool> bound_line(const Weights& x, const Weights& y, const Weights& p, const Weights& q,
                                                    double power, double accuracy) {
    require(x.shape(0) > 0 && y.shape(0) > 0, "x, y: expected at least one point");
    if (p.shape(0) != 0) check_length(p.shape(0), x.shape(0));
    if (q.shape(0) != 0) check_length(q.shape(0), y.shape(0));
    require(power >= 1, "power: expected at least 1");
    nb::gil_scoped_release release;
    // kept from call to call, unless they are large: new pages take as long as the sums
    static thread_local LineSide first, second;
    first.set(x.data(), p.shape(0) != 0 ? p.data() : nullptr, x.shape(0));
    second.set(y.data(), q.shape(0) != 0 ? q.data() : nullptr, y.shape(0));
    LineBounds found;
    const bool proved = line_bounds(first, second, power, accuracy, found);
    if (first.size() + second.size() > kKeptPoints) first = second = LineSide();
    return {found.value, found.lower, found.upper, proved};
}

}  // namespace

void bind_packed(nb::module_& m) {
    m.def("solve_points", &solve_points, "X"_a, "Y"_a, "metric"_a, nb::kw_only(), "p"_a, "q"_a, "places"_a, "accuracy"_a,
          "unit"_a, "near"_a, "n_threads"_a, "seconds"_a, "stop"_a, output("numbers"), output("kept"), output("arcs"),
          output("sent"));
    m.def("solve_matrices", &solve_matrices, "C"_a, nb::kw_only(), "p"_a, "q"_a, "places"_a, "unit"_a, "n_threads"_a,
          "seconds"_a, "stop"_a, output("numbers"), output("kept"), output("arcs"));
    m.def("bound_line", &bound_line, "x"_a, "y"_a, "p"_a, "q"_a, "power"_a, "accuracy"_a);
    m.def("solve_lines", &solve_lines, "x"_a, "y"_a, nb::kw_only(), "p"_a, "q"_a, "places"_a, "power"_a, "accuracy"_a,
          "unit"_a, "n_threads"_a, "seconds"_a, "stop"_a, output("numbers"));
}

}  // namespace gibbsot
