// Functions of all lanes of a vector at once, to about the last bit of a float.
#pragma once

#include <initializer_list>

#include "simd.hpp"

namespace beamtree {

using Floats = Vec<float>;

BEAMTREE_INLINE Floats larger(Floats a, Floats b) { return a > b ? a : b; }
BEAMTREE_INLINE Floats smaller(Floats a, Floats b) { return a < b ? a : b; }

BEAMTREE_INLINE float horizontal_max(Floats v) {
    float most = v[0];
    for (index_t i = 1; i < lanes<float>; ++i) most = v[i] > most ? v[i] : most;
    return most;
}

// e^x for x up to 88, and 0 below -87: x = n ln 2 + r with |r| <= ln 2 / 2, e^r by a polynomial (that of Cephes), and n
// goes straight to the exponent's bits. Adding 1.5 * 2^23 rounds to a whole number and leaves it in the lowest bits.
BEAMTREE_INLINE Floats exponential(Floats x) {
    constexpr float whole = 12582912.0f, lowest = -87.0f;
    const Floats shifted = x * 1.44269504088896341f + whole;
    const Floats n = shifted - whole;
    const Floats r = x - n * 0.693359375f + n * 2.12194440e-4f;
    Floats power = splat(1.9875691500e-4f);
    for (float next : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
        power = power * r + next;
    power = power * r * r + r + 1.0f;
    const Mask<float> scaled = reinterpret_cast<Mask<float>>(power) + (reinterpret_cast<Mask<float>>(shifted) << 23);
    return x > lowest ? reinterpret_cast<Floats>(scaled) : Floats{};
}

// erf(x), off by less than 4e-7: a rational function of least error, odd by its first factor, beyond which erf is +-1.
BEAMTREE_INLINE Floats error_function(Floats x) {
    constexpr float end = 3.832506856900711f;
    const Floats bounded = larger(smaller(x, splat(end)), splat(-end)), square = bounded * bounded;
    Floats above = splat(-2.72614225801306e-10f), below = splat(-1.45660718464996e-05f);
    for (float next : {2.77068142495902e-08f, -2.10102402082508e-06f, -5.69250639462346e-05f, -7.34990630326855e-04f,
                       -2.95459980854025e-03f, -1.60960333262415e-02f})
        above = above * square + next;
    for (float next : {-2.13374055278905e-04f, -1.68282697438203e-03f, -7.37332916720468e-03f, -1.42647390514189e-02f})
        below = below * square + next;
    return bounded * above / below;
}

// x times the share of a standard normal distribution that lies below x.
BEAMTREE_INLINE Floats gelu(Floats x) { return 0.5f * x * (1.0f + error_function(x * 0.70710678118654752f)); }

// 1 / (1 + e^-x), to about 1e-7; the bound keeps the power finite and the result at 0 to the last bit but a few.
BEAMTREE_INLINE Floats logistic(Floats x) { return 1.0f / (1.0f + exponential(smaller(-x, splat(80.0f)))); }

// tanh(x), to about 1e-7.
BEAMTREE_INLINE Floats hyperbolic_tangent(Floats x) { return 2.0f * logistic(2.0f * x) - 1.0f; }

}  // namespace beamtree
