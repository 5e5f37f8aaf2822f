// Operations on a cost: c-transforms, nearest points, means; and the range of an array.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "bindings.hpp"
#include "double_double.hpp"
#include "nearest.hpp"
#include "parallel.hpp"
#include "products.hpp"

namespace gibbsot {
namespace {

// For each x of the batch: out_i = min_j (M_ij + x_j) by rows, else out_j = min_i (M_ij + x_i).
template <class T, class CostArray>
void c_transform(const CostArray& cost, bool by_rows, const Matrix<const T>& x, const Matrix<T>& out,
                 std::size_t n_threads) {
    const std::size_t from = x.shape(1), to = out.shape(1), m1 = by_rows ? to : from;
    check_cost<T>(cost, m1, by_rows ? from : to);
    check_shape("out", out, x.shape(0), to);
    check_threads(n_threads);
    const auto factory = operator_factory<T>(cost, m1);
    nb::gil_scoped_release release;
    parallel_for(x.shape(0), n_threads, [&] {
        auto M = factory();
        const std::size_t most = std::max(M.row_capacity(), M.column_capacity()), scratch = M.scratch_capacity();
        return [&, from, to, by_rows, M = std::move(M), stored = Buffer<T>(most, 26), found = Buffer<T>(most, 47),
                scratch = Buffer<T>(scratch, 34)](std::size_t b) mutable {
            const T* in = x.data() + b * from;
            T* result = out.data() + b * to;
            if (by_rows) {
                M.set_columns(in);
                std::fill(stored.get(), stored.get() + M.column_length(), kInf<T>);
                M.pack_columns(in, stored.get());
                M.transform_to_rows(stored.get(), found.get(), scratch.get());
                M.unpack_rows(found.get(), result);
            } else {
                M.set_columns();
                std::fill(stored.get(), stored.get() + M.row_length(), kInf<T>);
                M.pack_rows(in, stored.get());
                M.transform_to_columns(stored.get(), found.get(), scratch.get());
                M.unpack_columns(found.get(), result);
            }
        };
    });
}

template <class T, class Source>
void find_nearest_of_columns(const Source& M, const Vector<const T>& x, const Matrix<std::int64_t>& out) {
    Buffer<T> rows(M.stride);
    std::fill(rows.get(), rows.get() + M.stride, kInf<T>);
    std::copy(x.data(), x.data() + x.shape(0), rows.get());
    nearest_of_columns(M, out.shape(0), rows.get(), out.shape(1), out.data());
}

template <class T>
void find_nearest(const Matrix<const T>& Mt, bool by_rows, const Vector<const T>& x, const Matrix<std::int64_t>& out) {
    const DenseMatrix<T> M{Mt.data(), Mt.shape(1)};
    if (by_rows)
        nearest_of_rows(M, out.shape(0), Mt.shape(0), x.data(), out.shape(1), out.data());
    else
        find_nearest_of_columns(M, x, out);
}

// The rows of distances are the columns of the distances between Y and X.
template <class T>
void find_nearest(const Points& points, bool by_rows, const Vector<const T>& x, const Matrix<std::int64_t>& out) {
    const auto& [X, Y, squared] = points;
    find_nearest_of_columns(by_rows ? distances<T>(Y, X, squared) : distances<T>(X, Y, squared), x, out);
}

template <class T>
void find_nearest(const Axes<T>& axes, bool by_rows, const Vector<const T>& x, const Matrix<std::int64_t>& out) {
    std::vector<MatrixView<T>> matrices = views<T>(axes);
    if (!by_rows)
        for (auto& matrix : matrices) matrix = matrix.transposed();
    const std::size_t side = matrices.back().columns, stride = padded<T>(side), lines = x.shape(0) / side;
    Buffer<T> stored(lines * stride);
    std::fill(stored.get(), stored.get() + lines * stride, kInf<T>);
    for (std::size_t c = 0; c < lines; ++c)
        std::copy(x.data() + c * side, x.data() + (c + 1) * side, stored.get() + c * stride);
    GridNearest<T>(std::move(matrices), stored.get())(out.shape(1), out.data());
}

// out holds the indices of the k smallest sums of each row (x over the columns) or column (x over the rows).
template <class T, class CostArray>
void nearest(const CostArray& cost, bool by_rows, const Vector<const T>& x, const Matrix<std::int64_t>& out) {
    const std::size_t from = x.shape(0), to = out.shape(0), k = out.shape(1);
    check_cost<T>(cost, by_rows ? to : from, by_rows ? from : to);
    if (k < 1 || k > from)
        fail("out: expected 1 to ", from, " columns, one per nearest point, got ", k);
    nb::gil_scoped_release release;
    find_nearest<T>(cost, by_rows, x, out);
}

// sum_ij p_i q_j M_ij / sum_ij p_i q_j over the finite costs, for each problem
template <class T>
void means_dense(const Matrix<const T>& Mt, const Matrix<const T>& p, const Matrix<const T>& q,
                 const Vector<double>& out, std::size_t n_threads) {
    const std::size_t n = p.shape(0), m1 = p.shape(1), m2 = q.shape(1), stride = Mt.shape(1);
    check_cost<T>(Mt, m1, m2);
    check_shape("q", q, n, m2);
    check_shape("out", out, n);
    check_threads(n_threads);
    nb::gil_scoped_release release;
    parallel_for(n, n_threads, [&] {
        return [&, m1, m2, stride, weights = Buffer<T>(stride), finite = Buffer<T>(stride),
                ones = Buffer<T>(stride)](std::size_t b) mutable {
            std::copy(p.data() + b * m1, p.data() + (b + 1) * m1, weights.get());
            std::fill(ones.get(), ones.get() + stride, T(1));
            double total = 0, mass = 0;
            for (std::size_t j = 0; j < m2; ++j) {
                const double w = q.data()[b * m2 + j];
                if (!(w > 0)) continue;
                const T* column = Mt.data() + j * stride;
                for (std::size_t i = 0; i < stride; ++i) finite[i] = column[i] < kInf<T> ? weights[i] : T(0);
                total += w * weighted_sum(finite.get(), column, stride);
                mass += w * weighted_sum(ones.get(), finite.get(), stride);
            }
            out.data()[b] = total / mass;
        };
    });
}

// found and sums hold the k least sums of each row (x over the columns) or column (x over the rows), -1 where there are
// fewer: k labels at each node.
template <class T>
void nearest_graph(const Graph<T>& graph, bool by_rows, const Vector<const T>& x, const Matrix<std::int64_t>& found,
                   const Matrix<T>& sums) {
    const std::size_t from = x.shape(0), to = found.shape(0), k = found.shape(1);
    check_cost<T>(graph, by_rows ? to : from, by_rows ? from : to);
    check_shape("sums", sums, to, k);
    if (k < 1 || k > from) fail("found: expected 1 to ", from, " columns, one per nearest point, got ", k);
    const auto [given, reversed] = adjacencies<T>(graph);
    const auto &rows = std::get<6>(graph), &columns = std::get<7>(graph);
    const auto &sources = by_rows ? columns : rows, &points = by_rows ? rows : columns;
    const Adjacency<T>& links = by_rows ? reversed : given;
    nb::gil_scoped_release release;
    std::vector<std::int32_t> source(links.nodes * k);
    std::vector<T> sum(links.nodes * k);
    nearest_sources(links, sources.data(), x.data(), from, k, source.data(), sum.data());
    for (std::size_t i = 0; i < to; ++i)
        for (std::size_t c = 0; c < k; ++c) {
            const std::size_t label = static_cast<std::size_t>(points.data()[i]) * k + c;
            found.data()[i * k + c] = source[label];
            sums.data()[i * k + c] = sum[label];
        }
}

// The distances of pairs of nodes, those of the same source one after another.
void distances_graph(const Vector<const std::int64_t>& starts, const Vector<const std::int32_t>& heads,
                     const Vector<const double>& lengths, const Vector<const std::int64_t>& source,
                     const Vector<const std::int64_t>& target, const Vector<double>& out) {
    const std::size_t pairs = out.shape(0);
    const Adjacency<double> graph = adjacency<double>("heads", starts, heads, lengths);
    for (const auto& [name, ends] : {std::pair{"source", &source}, std::pair{"target", &target}}) {
        check_shape(name, *ends, pairs);
        for (std::size_t k = 0; k < pairs; ++k)
            if (ends->data()[k] < 0 || static_cast<std::size_t>(ends->data()[k]) >= graph.nodes)
                fail(name, ": node ", ends->data()[k], " is out of range");
    }
    nb::gil_scoped_release release;
    pair_distances(graph, source.data(), target.data(), pairs, out.data());
}

// The least sums of a tile of products and x, as native/products.hpp says.
template <class T>
void nearest_products(const Matrix<const T>& products, const Vector<const T>& s, const Vector<const T>& t,
                      const Vector<const T>& x, std::size_t first, T cancelled, bool root, const Matrix<T>& sums,
                      const Matrix<std::int64_t>& found, const Vector<std::uint8_t>& near) {
    const std::size_t rows = products.shape(0), columns = products.shape(1), k = sums.shape(1);
    check_shape("s", s, rows);
    check_shape("t", t, columns);
    check_shape("x", x, columns);
    check_shape("sums", sums, rows, k);
    check_shape("found", found, rows, k);
    check_shape("near", near, rows);
    require(k > 0, "sums: expected at least one column");
    nb::gil_scoped_release release;
    offer_products<T>({products.data(), s.data(), t.data(), rows, columns, cancelled, root}, x.data(), first, k, sums.data(),
                      found.data(), near.data());
}

template <class T, class CostArray>
void bind_transform(nb::module_& m, const std::string& kind, const char* cost) {
    using namespace nb::literals;
    m.def(("c_transform_" + kind).c_str(), &c_transform<T, CostArray>, nb::arg(cost), nb::kw_only(), "by_rows"_a,
          "x"_a, output("out"), "n_threads"_a);
}

template <class T, class CostArray>
void bind_cost(nb::module_& m, const std::string& kind, const char* cost) {
    using namespace nb::literals;
    bind_transform<T, CostArray>(m, kind, cost);
    m.def(("nearest_" + kind).c_str(), &nearest<T, CostArray>, nb::arg(cost), nb::kw_only(), "by_rows"_a, "x"_a,
          output("out"));
}

template <class T>
void bind_precision(nb::module_& m) {
    using namespace nb::literals;
    bind_cost<T, Matrix<const T>>(m, "dense", "Mt");
    bind_cost<T, Axes<T>>(m, "grid", "axes");
    bind_cost<T, Points>(m, "points", "points");
    bind_transform<T, Graph<T>>(m, "graph", "graph");
    m.def("nearest_graph", &nearest_graph<T>, "graph"_a, nb::kw_only(), "by_rows"_a, "x"_a, output("found"),
          output("sums"));
    m.def("nearest_products", &nearest_products<T>, "products"_a, nb::kw_only(), "s"_a, "t"_a, "x"_a, "first"_a,
          "cancelled"_a, "root"_a, output("sums"), output("found"), output("near"));
    m.def("means_dense", &means_dense<T>, "Mt"_a, nb::kw_only(), "p"_a, "q"_a, output("out"), "n_threads"_a);
}

// Writes the sums of rows, and returns the least and the largest entry, NaN if there is one.
std::pair<double, double> sum_rows(const Matrix<const double>& x, const Vector<double>& out) {
    check_shape("out", out, x.shape(0));
    for (std::size_t b = 0; b < x.shape(0); ++b) out.data()[b] = sum(x.data() + b * x.shape(1), x.shape(1));
    return extremes(x.data(), x.size());
}

}  // namespace

void bind_costs(nb::module_& m) {
    using namespace nb::literals;
    bind_precision<float>(m);
    bind_precision<double>(m);
    m.def("extremes", [](const Matrix<const double>& x) { return extremes(x.data(), x.size()); }, nb::arg("x"));
    m.def("distances_graph", &distances_graph, "starts"_a, "heads"_a, "lengths"_a, "source"_a, "target"_a, output("out"));
    m.def("sum_rows", &sum_rows, nb::arg("x"), output("out"));
}

}  // namespace gibbsot
