// Standard exponential variates from Philox 4x32 (Salmon, Moraes, Dror and Shaw, SC 2011), a counter-based generator.
//
// Variate i depends on (seed, problem, sweep, side, i) only. Words come in groups of 32, from 8 consecutive counters:
// word 16 a + 2 c + b of a group is output 2 a + b of counter c. This is the order in which vectors of 64-bit lanes
// produce them; philox.py uses the same order.
#pragma once

#if defined(__SSE2__) || defined(_M_X64)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__GNUC__)
#include <arm_neon.h>
#endif

#include "simd.hpp"

namespace gibbsot {

inline constexpr int kRounds = 7;
inline constexpr std::size_t kGroup = 32;  // words

struct Stream {
    std::uint64_t seed;
    std::uint64_t problem;
    std::uint32_t sweep_and_side;  // 2 * sweep + side
};

// The 64-bit products of the low halves of the lanes with a 32-bit constant.
inline Vec<std::uint64_t> multiply_low(Vec<std::uint64_t> a, std::uint32_t b) {
#if defined(__AVX512F__) && defined(__GNUC__)
    return (Vec<std::uint64_t>)_mm512_maskz_mul_epu32(0xFF, (__m512i)a, _mm512_set1_epi64(b));
#elif defined(__AVX2__) && defined(__GNUC__)
    return (Vec<std::uint64_t>)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(b));
#elif defined(__SSE2__) && defined(__GNUC__)
    return (Vec<std::uint64_t>)_mm_mul_epu32((__m128i)a, _mm_set1_epi64x(b));
#else
    return (a & 0xFFFFFFFFu) * std::uint64_t{b};
#endif
}

// The keys of all rounds, and the words of the counter that are constant in a stream.
struct Philox {
    explicit Philox(const Stream& stream)
        : c1(stream.sweep_and_side), c2(stream.problem & 0xFFFFFFFFu), c3(stream.problem >> 32) {
        for (int round = 0; round < kRounds; ++round) {
            const auto r = static_cast<std::uint32_t>(round);
            k0[round] = static_cast<std::uint32_t>(stream.seed) + r * 0x9E3779B9u;
            k1[round] = static_cast<std::uint32_t>(stream.seed >> 32) + r * 0xBB67AE85u;
        }
    }

    // Calls take(first, words) with each vector of the 32 words of a group (counters 8 * group .. 8 * group + 7).
    template <class Take>
    void operator()(std::uint32_t group, Take take) const {
        static_assert(std::endian::native == std::endian::little);
        using V = Vec<std::uint64_t>;
        static constexpr std::uint64_t steps[8] = {0, 1, 2, 3, 4, 5, 6, 7};
        for (std::size_t first = 0; first < 8; first += kLanes<std::uint64_t>) {
            V x0 = splat(std::uint64_t{group} * 8) + load(steps + first);
            V x1 = splat(c1), x2 = splat(c2), x3 = splat(c3);
            for (int round = 0; round < kRounds; ++round) {
                const V even = multiply_low(x0, 0xD2511F53u);
                const V odd = multiply_low(x2, 0xCD9E8D57u);
                // from here on the high halves of the lanes are arbitrary; multiply_low ignores them
                x0 = (odd >> 32) ^ x1 ^ splat(k0[round]);
                x1 = odd;
                x2 = (even >> 32) ^ x3 ^ splat(k1[round]);
                x3 = even;
            }
            take(2 * first, (x0 & 0xFFFFFFFFu) | (x1 << 32));
            take(16 + 2 * first, (x2 & 0xFFFFFFFFu) | (x3 << 32));
        }
    }

private:
    std::uint64_t c1, c2, c3;
    std::uint64_t k0[kRounds], k1[kRounds];  // 32 bits each, in the width of the lanes
};

// a * b + c in single precision, rounded once. Without the instruction the sum is also rounded to double. The result is
// bit-identical for every argument that minus_log_float passes; a test draws nearly all 2^23 of them.
template <class F>
inline F fused(F a, F b, F c) {
#if defined(__AVX512F__) && defined(__GNUC__)
    return (F)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__) && defined(__GNUC__)
    return (F)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__) && defined(__GNUC__)
    return (F)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    float x[kLanes<float>], y[kLanes<float>], z[kLanes<float>];
    store(x, a);
    store(y, b);
    store(z, c);
    for (std::size_t l = 0; l < kLanes<float>; ++l)
        x[l] = static_cast<float>(double{x[l]} * double{y[l]} + double{z[l]});
    return load_as<F>(x);
#endif
}

// -log(u) for u in (0, 1), strictly positive: u = m * 2^e with m in [sqrt(1/2), sqrt(2)), f = m - 1, and
// -log(1 + f) = -f + f^2 (1/2 - f P(f)) with P the Chebyshev fit of degree 6 (error of the product below 9e-8).
template <class F, class I>
inline F minus_log_float(F u) {
    const I bits = std::bit_cast<I>(u);
    const I e = (bits - 0x3F3504F3) & -0x800000;  // the exponent times 2^23
    const F f = std::bit_cast<F>(bits - e) - 1.0f;
    const F zero{};
    F P = fused(f, 0.0904878443f - zero, -0.140308922f - zero);
    P = fused(P, f, 0.147038992f - zero);
    P = fused(P, f, -0.166027189f - zero);
    P = fused(P, f, 0.199842232f - zero);
    P = fused(P, f, -0.250007026f - zero);
    P = fused(P, f, 0.333334154f - zero);
    const F near = fused(fused(-P, f, 0.5f - zero), f * f, -f);
    return fused(convert<F>(e), -0.693147181f * 0x1p-23f - zero, near);
}

// The same in double precision: log(1 + f) = 2 atanh(s) = 2 s + 2 s^3 R(s^2) with s = f / (2 + f), R of degree 6.
template <class F, class I>
inline F minus_log_double(F u) {
    const I bits = std::bit_cast<I>(u);
    const I top = bits - 0x3FE6A09E667F3BCD;
    // an arithmetic shift by 52, which AVX2 lacks: add a bias, shift, subtract the bias
    const I e =
        std::bit_cast<I>((std::bit_cast<typename VecOf<std::uint64_t, sizeof(I)>::type>(top) + (1ull << 63)) >> 52) -
        2048;
    const F f = std::bit_cast<F>(bits - (e << 52)) - 1.0;
    const F s = f / (f + 2.0);
    const F z = s * s;
    F R = z * 0x1.2b584aae78a57p-4 + 0x1.39fe606542ddep-4;
    R = R * z + 0x1.7462b4ab2ef6bp-4;
    R = R * z + 0x1.c71c62e5800a1p-4;
    R = R * z + 0x1.2492492df148dp-3;
    R = R * z + 0x1.99999999952e2p-3;
    R = R * z + 0x1.5555555555558p-2;
    // e as a floating-point number, through the bits of 2^52 + 2^51 + e
    const F exponent = std::bit_cast<F>(e + 0x4338000000000000) - 0x1.8p52;
    const F small = s * z * R * 2.0 + exponent * 1.90821492927058770002e-10;
    return -((small + s * 2.0) + exponent * 6.93147180369123816490e-01);
}

// The exponentials of one vector of words: u = (floor(word / 2^9) + 1/2) / 2^23 in single precision,
// (word + 1/2) / 2^32 in double precision.
template <class T, class Words>
inline void exponentials_of(Words words, T* out) {
    if constexpr (sizeof(T) == 4) {
        using F = typename VecOf<float, sizeof(Words)>::type;
        using I = typename VecOf<std::int32_t, sizeof(Words)>::type;
        // (1 + k / 2^23) - (1 - 1 / 2^24), exactly
        const F u = std::bit_cast<F>((words >> 9) | 0x3F800000u) - (1.0f - 0x1p-24f);
        store(out, minus_log_float<F, I>(u));
    } else {
        using F = typename VecOf<double, 2 * sizeof(Words)>::type;
        using I = typename VecOf<std::int64_t, 2 * sizeof(Words)>::type;
        using Signed = typename VecOf<std::int32_t, sizeof(Words)>::type;
        const Signed w = std::bit_cast<Signed>(words) ^ std::numeric_limits<std::int32_t>::min();
        store(out, minus_log_double<F, I>((convert<F>(w) + 2147483648.5) * 0x1p-32));
    }
}

// The exponentials begin .. end - 1 of a stream. Whole groups are written, so out must have capacity for them.
template <class T>
inline void exponentials(const Stream& stream, T* out, std::size_t begin, std::size_t end) {
    using Words = typename VecOf<std::uint32_t, sizeof(Vec<T>) / sizeof(T) * sizeof(std::uint32_t)>::type;
    constexpr std::size_t count = sizeof(Words) / sizeof(std::uint32_t);
    constexpr std::size_t all = sizeof(Vec<std::uint64_t>) / sizeof(std::uint32_t);
    const Philox philox(stream);
    for (std::size_t i = begin / kGroup * kGroup; i < end; i += kGroup)
        philox(static_cast<std::uint32_t>(i / kGroup), [&](std::size_t first, Vec<std::uint64_t> words) {
            Words pieces[all / count];
            std::memcpy(pieces, &words, sizeof(words));
            for (std::size_t k = 0; k < all / count; ++k) exponentials_of<T>(pieces[k], out + i + first + k * count);
        });
}

}  // namespace gibbsot
