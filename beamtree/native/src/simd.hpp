// Vectors of one 256-bit register, written with the compiler's vector types so that no instruction set is named.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>

#define BEAMTREE_INLINE inline __attribute__((always_inline))
#define BEAMTREE_INLINE_LAMBDA __attribute__((always_inline))

namespace beamtree {

using index_t = std::ptrdiff_t;

template <class T>
struct Simd;

template <>
struct Simd<float> {
    typedef float Vec __attribute__((vector_size(32)));
    typedef float Unaligned __attribute__((vector_size(32), aligned(4), may_alias));
    typedef std::int32_t Mask __attribute__((vector_size(32)));
    static constexpr index_t lanes = 8;
};

template <>
struct Simd<double> {
    typedef double Vec __attribute__((vector_size(32)));
    typedef double Unaligned __attribute__((vector_size(32), aligned(8), may_alias));
    typedef std::int64_t Mask __attribute__((vector_size(32)));
    static constexpr index_t lanes = 4;
};

template <class T>
using Vec = typename Simd<T>::Vec;
template <class T>
using Mask = typename Simd<T>::Mask;
template <class T>
inline constexpr index_t lanes = Simd<T>::lanes;

template <class T>
BEAMTREE_INLINE Vec<T> load(const T* p) {
    return *reinterpret_cast<const typename Simd<T>::Unaligned*>(p);
}

template <class T>
BEAMTREE_INLINE void store(T* p, Vec<T> v) {
    *reinterpret_cast<typename Simd<T>::Unaligned*>(p) = v;
}

BEAMTREE_INLINE Vec<float> splat(float x) { return Vec<float>{x, x, x, x, x, x, x, x}; }
BEAMTREE_INLINE Vec<double> splat(double x) { return Vec<double>{x, x, x, x}; }

// Keeps the compiler from folding a load into each of its uses: it is loaded once and stays in a register.
template <class V>
BEAMTREE_INLINE void hold_in_register([[maybe_unused]] V& v) {
#if defined(__AVX__)
    asm("" : "+x"(v));
#endif
}

// The same for an address: what follows is reached by constant offsets from it.
template <class T>
BEAMTREE_INLINE void hold_address([[maybe_unused]] const T*& p) {
#if defined(__x86_64__)
    asm("" : "+r"(p));
#endif
}

// sum += a * b. Spelled out where the machine has it: left alone, the compiler picks forms that overwrite a factor, and
// pays with moves and spills inside the innermost loop.
BEAMTREE_INLINE void multiply_add(Vec<float>& sum, Vec<float> a, Vec<float> b) {
#if defined(__FMA__) && defined(__x86_64__)
    asm volatile("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
#else
    sum += a * b;
#endif
}

BEAMTREE_INLINE void multiply_add(Vec<double>& sum, Vec<double> a, Vec<double> b) { sum += a * b; }

// Zero, made where it is used: a constant that lives across an inner loop costs it a register.
template <class T>
BEAMTREE_INLINE Vec<T> fresh_zero() {
    Vec<T> zero{};
#if defined(__AVX__)
    asm volatile("" : "+x"(zero));
#endif
    return zero;
}

// max(x, 0), lane by lane.
template <class T>
BEAMTREE_INLINE Vec<T> positive_part(Vec<T> x, Vec<T> zero) {
#ifdef __AVX__
    if constexpr (std::is_same_v<T, float>) return __builtin_ia32_maxps256(x, zero);
#endif
    return x > zero ? x : zero;
}

// One bit per lane: whether the lane is above zero.
template <class T>
BEAMTREE_INLINE std::uint8_t positive_bits(Vec<T> x, Vec<T> zero) {
    const Mask<T> above = x > zero;
#ifdef __AVX__
    if constexpr (std::is_same_v<T, float>)
        return static_cast<std::uint8_t>(__builtin_ia32_movmskps256(reinterpret_cast<Vec<float>>(above)));
#endif
    std::uint8_t bits = 0;
    for (index_t i = 0; i < lanes<T>; ++i) bits = static_cast<std::uint8_t>(bits | ((above[i] & 1) << i));
    return bits;
}

// For every pattern of bits, the mask of the lanes whose bit is set.
template <class T>
struct LaneMasks {
    alignas(64) std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t> of[1 << lanes<T>][lanes<T>];

    constexpr LaneMasks() : of{} {
        for (int bits = 0; bits < 1 << lanes<T>; ++bits)
            for (int lane = 0; lane < lanes<T>; ++lane) of[bits][lane] = (bits >> lane) & 1 ? -1 : 0;
    }
};
template <class T>
inline constexpr LaneMasks<T> lane_masks;

// Keeps the lanes whose bit is set and zeroes the others.
template <class T>
BEAMTREE_INLINE Vec<T> keep(Vec<T> x, std::uint8_t bits) {
    Mask<T> chosen;
    std::memcpy(&chosen, lane_masks<T>.of[bits], sizeof(chosen));
    return reinterpret_cast<Vec<T>>(reinterpret_cast<Mask<T>>(x) & chosen);
}

template <class T>
BEAMTREE_INLINE Vec<T> leaky(Vec<T> x, Vec<T> slope) {
    return x > T(0) ? x : x * slope;
}

template <class T>
BEAMTREE_INLINE T horizontal_sum(Vec<T> v) {
    T sum = 0;
    for (index_t i = 0; i < lanes<T>; ++i) sum += v[i];
    return sum;
}

BEAMTREE_INLINE index_t round_up(index_t x, index_t multiple) { return (x + multiple - 1) / multiple * multiple; }

// Row stride of a matrix: whole cache lines, and an odd number of them, so that columns do not fall into one cache set.
template <class T>
BEAMTREE_INLINE index_t row_stride(index_t columns) {
    constexpr index_t line = 64 / static_cast<index_t>(sizeof(T));
    index_t lines = (columns + line - 1) / line;
    return (lines | 1) * line;
}

// Scratch memory that grows and is never initialised twice; its contents do not survive growth.
template <class T>
class Buffer {
   public:
    Buffer() = default;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    Buffer(Buffer&& other) noexcept : data_(other.data_), capacity_(other.capacity_) {
        other.data_ = nullptr;
        other.capacity_ = 0;
    }
    ~Buffer() { std::free(data_); }

    T* resize(index_t count) {
        if (count > capacity_) {
            std::free(data_);
            capacity_ = count + count / 2 + 64;
            std::size_t bytes = static_cast<std::size_t>(round_up(capacity_ * static_cast<index_t>(sizeof(T)), 64));
            data_ = static_cast<T*>(std::aligned_alloc(64, bytes));
            if (data_ == nullptr) {
                capacity_ = 0;
                throw std::bad_alloc();
            }
        }
        return data_;
    }

    T* zeroed(index_t count) {
        resize(count);
        if (count > 0) std::memset(static_cast<void*>(data_), 0, static_cast<std::size_t>(count) * sizeof(T));
        return data_;
    }

    T* data() { return data_; }
    const T* data() const { return data_; }
    T& operator[](index_t i) { return data_[i]; }
    const T& operator[](index_t i) const { return data_[i]; }

   private:
    T* data_ = nullptr;
    index_t capacity_ = 0;
};

}  // namespace beamtree
