// Prints the best instruction set of this machine, for CMakeLists.txt.
#include <cstdio>

#include "instruction_set.hpp"

int main() { return std::fputs(gibbsot::best_instruction_set(), stdout) < 0; }
