// Sweeps of the Gibbs sampler over a batch of problems, and its random numbers.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "bindings.hpp"
#include "mixtures.hpp"
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
           double mixing_slope, bool pinned, std::uint64_t seed, std::size_t n_threads, const Matrix<const T>& p,
           const Matrix<const T>& q, const Vector<const std::uint64_t>& ids, const Matrix<T>& h,
           const Vector<std::int64_t>& sweep, const Matrix<T>& U, const Matrix<T>& L, const Matrix<T>& g,
           const Matrix<double>& values, const Vector<double>& energy) {
            require(stride > 0, "stride: expected at least 1, got 0");
            const Plan plan{temperatures.shape(1), tau, stride, mixing_slope, pinned, seed};
            run<T>(cost, plan, Batch<T>{p, q, temperatures, ids, h, sweep, U, L, g, values, energy}, n_threads);
        },
        nb::arg(cost_name), nb::kw_only(), "temperatures"_a, "tau"_a, "stride"_a, "mixing_slope"_a, "pinned"_a,
        "seed"_a, "n_threads"_a, "p"_a, "q"_a, "ids"_a, output("h"), output("sweep"), output("U"), output("L"),
        output("g"), output("values"), output("energy"));
}

// Chains whose models are mixtures; see mixtures.hpp.
template <class T, class CostArray>
void run_mixtures(const CostArray& cost, const Plan& plan, const Matrix<const std::int32_t>& components,
                  const Matrix<const double>& weighted, std::size_t most, std::size_t m2, std::size_t support,
                  const MixtureChains<T>& chains, const Matrix<std::int64_t>& sums, std::size_t n_threads) {
    const std::size_t K = components.shape(0), m1 = components.shape(1), n = chains.n;
    check_cost<T>(cost, m1, m2);
    check_threads(n_threads);
    const bool with_sums = weighted.shape(0) > 0;
    if (with_sums) check_shape("weighted", weighted, n, K);
    check_shape("sums", sums, with_sums ? K : 0, with_sums ? m1 : 0);
    require(plan.sweeps > 0 && plan.stride > 0, "max_sweeps, stride: expected at least 1");
    require(most >= kMeasures, "most: expected at least the measures of a block");
    for (std::size_t j = 0; j < n; ++j) {
        const std::int64_t begin = chains.starts[j], end = chains.starts[j + 1];
        if (begin < 0 || begin >= end || end > static_cast<std::int64_t>(support))
            fail("starts: row ", j, " is empty or out of range");
        bool positive = false;
        for (std::int64_t e = begin; e < end; ++e) {
            if (chains.columns[e] < 0 || chains.columns[e] >= static_cast<std::int64_t>(m2))
                fail("columns: ", chains.columns[e], " is out of range");
            positive = positive || static_cast<T>(chains.weights[e]) > 0;
        }
        if (!positive) fail("weights: row ", j, " has no positive weight");
        const double* W = chains.memberships + j * K;
        if (std::none_of(W, W + K, [](double w) { return w > 0; }))
            fail("memberships: row ", j, " has no positive weight");
    }
    Rows D(K, m1, 29);
    for (std::size_t k = 0; k < K; ++k) {
        const std::int32_t* row = components.data() + k * m1;
        if (std::none_of(row, row + m1, [](std::int32_t w) { return w > 0; }))
            fail("components: row ", k, " has no positive weight");
        std::copy(row, row + m1, D[k]);
    }
    ComponentSums total{sums.data(), K, m1, most};
    const auto factory = operator_factory<T>(cost, m1);
    using Operator = decltype(factory());
    nb::gil_scoped_release release;
    parallel_for((n + kMeasures - 1) / kMeasures, n_threads, [&] {
        return [worker = std::make_unique<MixtureWorker<T, Operator>>(factory(), plan, D, chains, total)](
                   std::size_t block) { (*worker)(block); };
    });
}

template <class T, class CostArray>
void bind_mixtures(nb::module_& m, const char* name, const char* cost_name) {
    using namespace nb::literals;
    m.def(
        name,
        [](const CostArray& cost, const Matrix<const std::int32_t>& components, const Matrix<const double>& memberships,
           const Matrix<const double>& weighted, std::size_t m2, const Vector<const std::int64_t>& starts,
           const Vector<const std::int64_t>& columns, const Vector<const double>& weights,
           const Vector<const std::uint64_t>& ids, const Vector<const double>& temperatures, std::size_t max_sweeps,
           std::size_t tau, std::size_t stride, double mixing_slope, std::uint64_t seed, double quantum,
           std::size_t most, std::size_t n_threads, const Vector<T>& h, const Vector<std::int64_t>& sweep,
           const Vector<double>& values, const Matrix<double>& gradients, const Matrix<std::int64_t>& sums) {
            const std::size_t n = memberships.shape(0), K = components.shape(0), support = columns.shape(0);
            check_shape("memberships", memberships, n, K);
            check_shape("starts", starts, n + 1);
            check_shape("weights", weights, support);
            check_shape("h", h, support);
            check_shape("ids", ids, n);
            check_shape("sweep", sweep, n);
            check_shape("values", values, n);
            check_shape("gradients", gradients, n, K);
            const bool one = temperatures.shape(0) == 1;
            if (!one) check_shape("temperatures", temperatures, n);
            const Plan plan{max_sweeps, tau, stride, mixing_slope, false, seed};
            const MixtureChains<T> chains{n,
                                          memberships.data(),
                                          weighted.shape(0) > 0 ? weighted.data() : nullptr,
                                          starts.data(),
                                          columns.data(),
                                          weights.data(),
                                          ids.data(),
                                          temperatures.data(),
                                          one ? std::size_t{0} : std::size_t{1},
                                          quantum,
                                          h.data(),
                                          sweep.data(),
                                          values.data(),
                                          gradients.data()};
            run_mixtures<T>(cost, plan, components, weighted, most, m2, support, chains, sums, n_threads);
        },
        nb::arg(cost_name), nb::kw_only(), "components"_a, "memberships"_a, "weighted"_a, "m2"_a, "starts"_a,
        "columns"_a, "weights"_a, "ids"_a, "temperatures"_a, "max_sweeps"_a, "tau"_a, "stride"_a, "mixing_slope"_a,
        "seed"_a, "quantum"_a, "most"_a, "n_threads"_a, output("h"), output("sweep"), output("values"),
        output("gradients"), output("sums"));
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
    bind_run<T, Graph<T>>(m, "run_graph", "graph");
    bind_mixtures<T, Matrix<const T>>(m, "run_mixtures_dense", "Mt");
    bind_mixtures<T, Axes<T>>(m, "run_mixtures_grid", "axes");
    bind_mixtures<T, Points>(m, "run_mixtures_points", "points");
    bind_mixtures<T, Graph<T>>(m, "run_mixtures_graph", "graph");
    m.def("exponentials", &draw<T>, nb::kw_only(), "seed"_a, "id"_a, "sweep_and_side"_a, output("out"));
}

}  // namespace

void bind_sampler(nb::module_& m) {
    bind_precision<float>(m);
    bind_precision<double>(m);
}

}  // namespace gibbsot
