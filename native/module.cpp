// The Python module of the kernels. It is built once per instruction set, each time under its own name.
#include <nanobind/nanobind.h>

#include "bindings.hpp"

NB_MODULE(GIBBSOT_MODULE, m) {
    gibbsot::bind_costs(m);
    gibbsot::bind_sampler(m);
    gibbsot::bind_exact(m);
    gibbsot::bind_packed(m);
}
