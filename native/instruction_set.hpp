// The widest instruction set for which there are kernels that this processor and its operating system support.
#pragma once

#if defined(_MSC_VER) && defined(_M_X64)
#include <intrin.h>
#endif

namespace gibbsot {

inline const char* best_instruction_set() {
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

}  // namespace gibbsot
