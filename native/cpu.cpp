// A Python module of its own, without the instructions that it looks for.
#include <nanobind/nanobind.h>

#include "instruction_set.hpp"

NB_MODULE(_cpu, m) { m.def("best_instruction_set", &gibbsot::best_instruction_set); }
