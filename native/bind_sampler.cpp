// Sweeps of the Gibbs sampler over a batch of problems, and its random numbers.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "bindings.hpp"
#include "parallel.hpp"
#include "sweep.hpp"

namespace gibbsot {
namespace {

// The arrays of a batch, one row per problem.
template <class T>
struct Batch {
    Matrix<const T> p, q;
    Matrix<const double> temperatures;  // one row for all problems, or one each
    Vector<const std::uint64_t> ids;
    Matrix<T> h;
    Vector<std::int64_t> sweep;
    Matrix<T> U, L, g;
    Matrix<double> values;
    Vector<double> energy;

    void check() const {
        const std::size_t n = p.shape(0), m1 = p.shape(1), m2 = q.shape(1), rows = temperatures.shape(0);
        const std::size_t sweeps = temperatures.shape(1);
        require(sweeps > 0, "temperatures: expected at least one sweep");
        if (rows != 1) check_shape("temperatures", temperatures, n, sweeps);
        check_shape("q", q, n, m2);
        check_shape("ids", ids, n);
        check_shape("h", h, n, m2);
        check_shape("sweep", sweep, n);
        check_shape("U", U, n, m1);
        check_shape("L", L, n, m2);
        check_shape("g", g, n, m1);
        check_shape("values", values, n, sweeps);
        check_shape("energy", energy, n);
        check_weights("p", p);
        check_weights("q", q);
    }

    Chain<T> chain(std::size_t b) const {
        const std::size_t m1 = p.shape(1), m2 = q.shape(1), sweeps = values.shape(1);
        return {p.data() + b * m1,
                q.data() + b * m2,
                temperatures.data() + (temperatures.shape(0) > 1 ? b * sweeps : 0),
                ids.data()[b],
                h.data() + b * m2,
                sweep.data() + b,
                U.data() + b * m1,
                L.data() + b * m2,
                g.data() + b * m1,
                values.data() + b * sweeps,
                energy.data() + b};
    }

private:
    // A sweep reads the first and the last point with weight.
    static void check_weights(const char* name, const Matrix<const T>& weights) {
        const std::size_t m = weights.shape(1);
        for (std::size_t b = 0; b < weights.shape(0); ++b) {
            const T* row = weights.data() + b * m;
            if (std::none_of(row, row + m, [](T w) { return w > 0; }))
                fail(name, ": row ", b, " has no positive weight");
        }
    }
};

template <class T, class CostArray>
void run(const CostArray& cost, const Plan& plan, const Batch<T>& batch, std::size_t n_threads) {
    check_cost<T>(cost, batch.p.shape(1), batch.q.shape(1));
    batch.check();
    check_threads(n_threads);
    const auto factory = operator_factory<T>(cost, batch.p.shape(1));
    nb::gil_scoped_release release;
    parallel_for(batch.p.shape(0), n_threads, [&] {
        auto M = factory();
        Workspace<T> work(M);
        return [&batch, &plan, M = std::move(M), work = std::move(work)](std::size_t b) mutable {
            run_chain(M, plan, batch.chain(b), work);
        };
    });
}

template <class T, class CostArray>
void bind_run(nb::module_& m, const char* name, const char* cost_name) {
    using namespace nb::literals;
    m.def(
        name,
        [](const CostArray& cost, const Matrix<const double>& temperatures, std::size_t tau, std::size_t stride,
           double mixing_slope, bool pinned, std::uint64_t seed, std::size_t n_threads, const Matrix<const T>& p, const Matrix<const T>& q,
           const Vector<const std::uint64_t>& ids, const Matrix<T>& h, const Vector<std::int64_t>& sweep,
           const Matrix<T>& U, const Matrix<T>& L, const Matrix<T>& g, const Matrix<double>& values,
           const Vector<double>& energy) {
            require(stride > 0, "stride: expected at least 1, got 0");
            const Plan plan{temperatures.shape(1), tau, stride, mixing_slope, pinned, seed};
            run<T>(cost, plan, Batch<T>{p, q, temperatures, ids, h, sweep, U, L, g, values, energy}, n_threads);
        },
        nb::arg(cost_name), nb::kw_only(), "temperatures"_a, "tau"_a, "stride"_a, "mixing_slope"_a, "pinned"_a, "seed"_a,
        "n_threads"_a, "p"_a, "q"_a, "ids"_a, output("h"), output("sweep"), output("U"), output("L"), output("g"),
        output("values"), output("energy"));
}

// The generator itself, for the tests that compare it with philox.py: whole groups straight into out, the rest copied.
template <class T>
void draw(std::uint64_t seed, std::uint64_t problem, std::uint32_t sweep_and_side, const Vector<T>& out) {
    nb::gil_scoped_release release;
    const Stream stream{seed, problem, sweep_and_side};
    const std::size_t n = out.shape(0), whole = n / kGroup * kGroup;
    exponentials(stream, out.data(), 0, whole);
    if (whole == n) return;
    Buffer<T> rest(n + kGroup);
    exponentials(stream, rest.get(), whole, n);
    std::copy(rest.get() + whole, rest.get() + n, out.data() + whole);
}

template <class T>
void bind_precision(nb::module_& m) {
    using namespace nb::literals;
    bind_run<T, Matrix<const T>>(m, "run_dense", "Mt");
    bind_run<T, Axes<T>>(m, "run_grid", "axes");
    bind_run<T, Points>(m, "run_points", "points");
    m.def("exponentials", &draw<T>, nb::kw_only(), "seed"_a, "id"_a, "sweep_and_side"_a, output("out"));
}

}  // namespace

void bind_sampler(nb::module_& m) {
    bind_precision<float>(m);
    bind_precision<double>(m);
}

}  // namespace gibbsot
