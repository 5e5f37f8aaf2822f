// Vectors of the widest native width, with the compiler's vector extension; scalars where there is none.
//
// Every operation on them is exact (min) or IEEE elementwise, and sums run over a fixed number of lanes. Results are
// therefore bit-identical for every width.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

namespace gibbsot {

inline constexpr std::size_t kLine = 64;  // bytes; rows are padded to it and sums have kLine / sizeof(T) lanes

#if defined(__AVX512F__)
inline constexpr std::size_t kVectorBytes = 64;
#elif defined(__AVX__)
inline constexpr std::size_t kVectorBytes = 32;
#else
inline constexpr std::size_t kVectorBytes = 16;
#endif

#if defined(__GNUC__)  // and clang
template <class T, std::size_t Bytes>
struct VecOf {
    typedef T type __attribute__((vector_size(Bytes)));
};
template <class T>
inline constexpr std::size_t kLanes = kVectorBytes / sizeof(T);
template <class To, class From>
inline To convert(From x) {
    return __builtin_convertvector(x, To);
}
// As V, without alignment and aliasing rules. With memcpy, accumulators would go through the stack.
template <class V>
struct Unaligned {
    typedef V type __attribute__((aligned(1), may_alias));
};
template <class V, class T>
inline V load_as(const T* p) {
    return *reinterpret_cast<const typename Unaligned<V>::type*>(p);
}
template <class T, class V>
inline void store(T* p, V v) {
    *reinterpret_cast<typename Unaligned<V>::type*>(p) = v;
}
#else
template <class T, std::size_t Bytes>
struct VecOf {
    typedef T type;
};
template <class T>
inline constexpr std::size_t kLanes = 1;
template <class To, class From>
inline To convert(From x) {
    return static_cast<To>(x);
}
template <class V, class T>
inline V load_as(const T* p) {
    V v;
    std::memcpy(&v, p, sizeof(V));
    return v;
}
template <class T, class V>
inline void store(T* p, V v) {
    std::memcpy(p, &v, sizeof(V));
}
#endif

template <class T>
using Vec = typename VecOf<T, kVectorBytes>::type;

template <class T>
inline constexpr std::size_t kLineLanes = kLine / sizeof(T);

template <class T>
inline constexpr T kInf = std::numeric_limits<T>::infinity();

template <class T>
constexpr std::size_t padded(std::size_t n) {
    return (n + kLineLanes<T> - 1) / kLineLanes<T> * kLineLanes<T>;
}

template <class T>
inline Vec<T> load(const T* p) {
    return load_as<Vec<T>>(p);
}

template <class T>
inline Vec<T> splat(T x) {
    return x - Vec<T>{};
}

template <class V>
inline V minimum(V a, V b) {
    return b < a ? b : a;
}

// The least lane, by halves.
template <class T, class V>
inline T lowest(V v) {
    if constexpr (sizeof(V) == sizeof(T)) {
        return load_as<T>(&v);
    } else {
        using Half = typename VecOf<T, sizeof(V) / 2>::type;
        T lanes[sizeof(V) / sizeof(T)];
        store(lanes, v);
        return lowest<T>(minimum(load_as<Half>(lanes), load_as<Half>(lanes + sizeof(V) / sizeof(T) / 2)));
    }
}

// The least and the largest of n entries; both are NaN if one is.
inline std::pair<double, double> extremes(const double* x, std::size_t n) {
    constexpr std::size_t W = kLanes<double>;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    double low = kInf<double>, high = -kInf<double>;
    std::size_t i = 0;
    if (n >= W) {
        Vec<double> least = load(x), minus_largest = -least, seen = least;  // seen: NaN where one was
        for (; i + W <= n; i += W) {
            const Vec<double> here = load(x + i);
            least = minimum(least, here);
            minus_largest = minimum(minus_largest, -here);
            seen = here == here ? seen : here;
        }
        low = lowest<double>(least);
        high = -lowest<double>(minus_largest);
        double lanes[W];
        store(lanes, seen);
        for (const double lane : lanes)
            if (lane != lane) return {nan, nan};
    }
    for (; i < n; ++i) {
        if (x[i] != x[i]) return {nan, nan};
        low = std::min(low, x[i]);
        high = std::max(high, x[i]);
    }
    return {low, high};
}

// A sum in kLineLanes lanes that are added as a tree: bit-identical for every vector width.
template <class T>
class Sum {
public:
    // Adds a * b where keep is positive; elsewhere it adds zero, even if b is infinite.
    void add_product(const T* a, const T* b, const T* keep) {
        for (std::size_t v = 0; v < kVectors; ++v) {
            const std::size_t at = v * kLanes<T>;
            const Vec<T> product = load(a + at) * load(b + at);
            acc_[v] = acc_[v] + (load(keep + at) > Vec<T>{} ? product : Vec<T>{});
        }
    }

    double value() const {
        T lanes[kLineLanes<T>];
        std::memcpy(lanes, acc_, sizeof(lanes));
        double tree[kLineLanes<T>];
        for (std::size_t l = 0; l < kLineLanes<T>; ++l) tree[l] = lanes[l];
        for (std::size_t step = kLineLanes<T> / 2; step > 0; step /= 2)
            for (std::size_t l = 0; l < step; ++l) tree[l] += tree[l + step];
        return tree[0];
    }

private:
    static constexpr std::size_t kVectors = kLineLanes<T> / kLanes<T>;
    Vec<T> acc_[kVectors] = {};
};

// <w, x> over n padded entries; entries with zero weight are left out, even if x is infinite.
template <class T>
inline double weighted_sum(const T* w, const T* x, std::size_t n) {
    Sum<T> sum;
    for (std::size_t i = 0; i < n; i += kLineLanes<T>) sum.add_product(w + i, x + i, w + i);
    return sum.value();
}

}  // namespace gibbsot
