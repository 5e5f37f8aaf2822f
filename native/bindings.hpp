// The functions that each source file adds to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace gibbsot {

void bind_costs(nanobind::module_& m);    // c-transforms, nearest points and means of a cost
void bind_sampler(nanobind::module_& m);  // sweeps of the Gibbs sampler and its random numbers
void bind_exact(nanobind::module_& m);    // the network simplex, k-d trees, the line
void bind_packed(nanobind::module_& m);   // many small problems in one call

}  // namespace gibbsot
