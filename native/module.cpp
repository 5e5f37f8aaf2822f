// The Python face of the kernels. The module is built once for each instruction set, under its own name.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "limits.hpp"
#include "nearest.hpp"
#include "operators.hpp"
#include "parallel.hpp"
#include "sweep.hpp"

#if defined(_MSC_VER) && defined(_M_X64)
#include <intrin.h>
#endif

namespace nb = nanobind;
using namespace nb::literals;
using namespace gibbsot;

namespace {

// Arrays that a kernel writes to must come with the right dtype and order: it would write to a converted copy.
template <class T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// The widest instruction set that this processor and its operating system support.
std::string best_instruction_set() {
#if defined(__GNUC__) && defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return "avx512";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
#elif defined(_MSC_VER) && defined(_M_X64)
    int leaf1[4], leaf7[4];
    __cpuid(leaf1, 1);
    __cpuidex(leaf7, 7, 0);
    const unsigned long long enabled = (leaf1[2] >> 27) & 1 ? _xgetbv(0) : 0;
    const unsigned wide = (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31);
    if ((enabled & 0xE6) == 0xE6 && (static_cast<unsigned>(leaf7[1]) & wide) == wide) return "avx512";
    if ((enabled & 0x6) == 0x6 && (leaf7[1] >> 5) & 1 && (leaf1[2] >> 12) & 1) return "avx2";
#endif
    return "baseline";
}

template <class T>
struct Batch {
    Matrix<const T> p, q;
    Matrix<T> h;
    Vector<std::int64_t> sweep;
    Vector<const std::uint64_t> ids;
    Matrix<const double> temperatures;  // one row for all problems, or one each
    Matrix<T> U, L, g;
    Matrix<double> values;
    Vector<double> energy;
};

template <class T, class MakeOperator>
void run(MakeOperator make_operator, const Plan& plan, const Batch<T>& batch, std::size_t threads) {
    nb::gil_scoped_release release;
    const std::size_t m1 = batch.p.shape(1), m2 = batch.q.shape(1), sweeps = batch.values.shape(1);
    parallel_for(batch.p.shape(0), threads, [&] {
        auto M = make_operator();
        Workspace<T> work(M);
        return [&batch, &plan, m1, m2, sweeps, M = std::move(M), work = std::move(work)](std::size_t b) mutable {
            const Chain<T> chain{batch.p.data() + b * m1,
                                 batch.q.data() + b * m2,
                                 batch.temperatures.data() + (batch.temperatures.shape(0) > 1 ? b * sweeps : 0),
                                 batch.ids.data()[b],
                                 batch.h.data() + b * m2,
                                 batch.sweep.data() + b,
                                 batch.U.data() + b * m1,
                                 batch.L.data() + b * m2,
                                 batch.g.data() + b * m1,
                                 batch.values.data() + b * sweeps,
                                 batch.energy.data() + b};
            run_chain(M, plan, chain, work);
        };
    });
}

template <class T, class MakeOperator>
void products(MakeOperator make_operator, bool by_rows, Matrix<const T> x, Matrix<T> out, std::size_t threads) {
    nb::gil_scoped_release release;
    const std::size_t from = x.shape(1), to = out.shape(1);
    parallel_for(x.shape(0), threads, [&] {
        auto M = make_operator();
        Workspace<T> work(M);
        return [=, M = std::move(M), work = std::move(work)](std::size_t b) mutable {
            const T* in = x.data() + b * from;
            T* result = out.data() + b * to;
            if (by_rows) {
                M.set_columns(in);
                std::fill(work.h.get(), work.h.get() + M.column_length(), kInf<T>);
                M.pack_columns(in, work.h.get());
                M.rows(work.h.get(), work.U.get(), work.scratch.get());
                M.unpack_rows(work.U.get(), result);
            } else {
                M.set_columns();
                std::fill(work.minus_g.get(), work.minus_g.get() + M.row_length(), kInf<T>);
                M.pack_rows(in, work.minus_g.get());
                M.columns(work.minus_g.get(), work.minus_L.get(), work.scratch.get());
                M.unpack_columns(work.minus_L.get(), result);
            }
        };
    });
}

template <class T>
auto dense_operator(const Matrix<const T>& Mt, std::size_t rows) {
    const DenseMatrix<T> matrix{Mt.data(), Mt.shape(1)};
    return [matrix, rows, columns = Mt.shape(0)] { return DenseOperator<T>(matrix, rows, columns); };
}

template <class T>
std::vector<MatrixView<T>> views(const std::vector<Matrix<const T>>& axes) {
    std::vector<MatrixView<T>> matrices;
    for (const auto& axis : axes) matrices.push_back({axis.data(), axis.shape(0), axis.shape(1), axis.shape(1), 1});
    return matrices;
}

template <class T>
auto grid_operator(const std::vector<Matrix<const T>>& axes) {
    return [matrices = views(axes)] { return GridOperator<T>(matrices); };
}

// out holds the places of the k smallest sums of each row (x over the columns) or column (x over the rows)
template <class T>
void nearest_dense(Matrix<const T> Mt, bool by_rows, Vector<const T> x, Matrix<std::int64_t> out) {
    nb::gil_scoped_release release;
    const DenseMatrix<T> M{Mt.data(), Mt.shape(1)};
    if (by_rows) {
        nearest_of_rows(M, out.shape(0), Mt.shape(0), x.data(), out.shape(1), out.data());
    } else {
        Buffer<T> rows(M.stride);
        std::fill(rows.get(), rows.get() + M.stride, kInf<T>);
        std::copy(x.data(), x.data() + x.shape(0), rows.get());
        nearest_of_columns(M, Mt.shape(0), rows.get(), out.shape(1), out.data());
    }
}

template <class T>
void nearest_grid(std::vector<Matrix<const T>> axes, bool by_rows, Vector<const T> x, Matrix<std::int64_t> out) {
    std::vector<MatrixView<T>> matrices = views(axes);
    nb::gil_scoped_release release;
    Shape shape;
    for (auto& matrix : matrices) {
        if (!by_rows) matrix = matrix.transposed();
        shape.push_back(matrix.columns);
    }
    const GridLayout<T> grid(shape);
    Buffer<T> stored(grid.room());
    std::fill(stored.get(), stored.get() + grid.room(), kInf<T>);
    grid.pack(x.data(), stored.get());
    nearest_on_grid(matrices, stored.get(), out.shape(1), out.data());
}

// sum_ij p_i q_j M_ij / sum_ij p_i q_j over the finite costs, for each problem
template <class T>
void dense_means(Matrix<const T> Mt, Matrix<const T> p, Matrix<const T> q, Vector<double> out, std::size_t threads) {
    nb::gil_scoped_release release;
    const std::size_t m1 = p.shape(1), m2 = q.shape(1), stride = Mt.shape(1);
    parallel_for(p.shape(0), threads, [&] {
        return [=, weights = Buffer<T>(stride), finite = Buffer<T>(stride),
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

template <class T>
void bind(nb::module_& m) {
    m.def("run_dense", [](Matrix<const T> Mt, Matrix<const double> temperatures, std::size_t tau, bool pinned,
                          std::uint64_t seed, std::size_t threads, Matrix<const T> p, Matrix<const T> q, Matrix<T> h,
                          Vector<std::int64_t> sweep, Vector<const std::uint64_t> ids, Matrix<T> U, Matrix<T> L,
                          Matrix<T> g, Matrix<double> values, Vector<double> energy) {
        const Plan plan{temperatures.shape(1), tau, pinned, seed};
        run<T>(dense_operator<T>(Mt, p.shape(1)), plan, {p, q, h, sweep, ids, temperatures, U, L, g, values, energy},
               threads);
    });
    m.def("run_grid", [](std::vector<Matrix<const T>> axes, Matrix<const double> temperatures, std::size_t tau,
                         bool pinned, std::uint64_t seed, std::size_t threads, Matrix<const T> p, Matrix<const T> q,
                         Matrix<T> h, Vector<std::int64_t> sweep, Vector<const std::uint64_t> ids, Matrix<T> U,
                         Matrix<T> L, Matrix<T> g, Matrix<double> values, Vector<double> energy) {
        const Plan plan{temperatures.shape(1), tau, pinned, seed};
        run<T>(grid_operator<T>(axes), plan, {p, q, h, sweep, ids, temperatures, U, L, g, values, energy}, threads);
    });
    m.def("product_dense", [](Matrix<const T> Mt, bool by_rows, Matrix<const T> x, Matrix<T> out, std::size_t threads) {
        products<T>(dense_operator<T>(Mt, by_rows ? out.shape(1) : x.shape(1)), by_rows, x, out, threads);
    });
    m.def("product_grid", [](std::vector<Matrix<const T>> axes, bool by_rows, Matrix<const T> x, Matrix<T> out,
                             std::size_t threads) { products<T>(grid_operator<T>(axes), by_rows, x, out, threads); });
    m.def("means_dense", &dense_means<T>);
    m.def("nearest_dense", &nearest_dense<T>);
    m.def("nearest_grid", &nearest_grid<T>);
    m.def("exponentials", [](std::uint64_t seed, std::uint64_t problem, std::uint32_t sweep_and_side, Vector<T> out) {
        nb::gil_scoped_release release;
        const Stream stream{seed, problem, sweep_and_side};
        const std::size_t n = out.shape(0), whole = n / kGroup * kGroup;
        exponentials(stream, out.data(), 0, whole);
        if (whole == n) return;
        Buffer<T> rest(n + kGroup);
        exponentials(stream, rest.get(), whole, n);
        std::copy(rest.get() + whole, rest.get() + n, out.data() + whole);
    });
    m.def("read_bandwidth", [](Vector<const T> data) {
        nb::gil_scoped_release release;
        return read_bandwidth(data.data(), data.shape(0));
    });
}

}  // namespace

NB_MODULE(GIBBSOT_MODULE, m) {
    bind<float>(m);
    bind<double>(m);
    m.def("best_instruction_set", &best_instruction_set);
    m.def("add_min_peak_float32", &add_min_peak<float>);
    m.def("add_min_peak_float64", &add_min_peak<double>);
}
