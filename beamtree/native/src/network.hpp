// The preference network's small weights, packed once so that every kernel reads them in its own order.
#pragma once

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "simd.hpp"

namespace beamtree {

enum class Normalisation { none, layer };

// The weights as they arrive: row-major, output by input, named like the state of the torch network.
template <class T>
struct RawWeights {
    const T* hidden_weight;  // (h, 3d): [W_a | W_p | W_w]
    const T* hidden_bias;    // (h,)
    T hidden_slope;
    const T* output_weight;  // (h,)
    T output_bias;
    T output_slope;
    const T* mlp_weight[4];  // (m1, windows*d + d), (m2, m1), (m3, m2), (m3,)
    const T* mlp_bias[4];
    T mlp_slope[3];
    const T* norm_weight[3];  // null without normalisation
    const T* norm_bias[3];
};

struct Sizes {
    index_t width = 0;               // d, of an embedding
    index_t attention = 0;           // h, hidden units of the attention unit
    index_t mlp[3] = {0, 0, 0};      // units of the hidden layers
    std::vector<index_t> windows;    // history positions per window, oldest first
    Normalisation normalisation = Normalisation::none;

    index_t num_windows() const { return static_cast<index_t>(windows.size()); }
    index_t history() const {
        index_t sum = 0;
        for (index_t size : windows) sum += size;
        return sum;
    }
};

// One packed matrix: rows of a fixed stride, zero behind the columns.
template <class T>
struct Matrix {
    Buffer<T> values;
    index_t stride = 0;

    void allocate(index_t rows, index_t columns) {
        stride = row_stride<T>(columns);
        values.zeroed(rows * stride + 2 * lanes<T>);
    }
    T* row(index_t r) { return values.data() + r * stride; }
    const T* row(index_t r) const { return values.data() + r * stride; }
};

template <class T>
struct Network {
    Sizes sizes;
    index_t d = 0, dp = 0;         // embedding width, and padded to whole vectors
    index_t h = 0;                 // attention units
    index_t m[3] = {0, 0, 0};      // units of the hidden layers
    std::vector<index_t> window_of;  // (K,) window of each history position

    // Attention: x_k = PReLU(W_a a_k + W_p (a_k * w) + W_w w + b), s_k = PReLU(v . x_k + c).
    // Units are kept in an order of their own: those whose v_i (1 - slope) is above zero, below zero, and zero.
    std::vector<index_t> unit_order;      // (h,) the unit's index in the raw weights
    index_t raised = 0, loud = 0;         // units above zero; units not zero
    Matrix<T> wa_t, wp_t, ww_t;           // (d, h), loud columns times |v_i (1 - slope)|
    Buffer<T> loud_bias, direction;       // (h,) b likewise; the sign of v_i (1 - slope): 1, -1 or 0
    Matrix<T> wa, wp, ww;                 // (h, dp)
    Matrix<T> wa_bent, wp_bent, ww_bent;  // (h, dp), row i times v_i (1 - slope): the part that the PReLU bends
    Buffer<T> hidden_bias, v, v_bent;     // (h,)
    Buffer<T> v_wa, v_wp, v_ww;           // (dp,) v^T W: the part that passes through the slope
    T v_bias = 0, hidden_slope = 0, output_bias = 0, output_slope = 0;

    // Perceptron. The first layer's input is [windows ; node], each dp wide.
    Matrix<T> w1;              // (m1, (windows + 1) * dp)
    Matrix<T> w1_t;            // ((windows + 1) * d, m1)
    Matrix<T> w2, w2_t, w3, w3_t;
    Buffer<T> w4, bias[3];
    T bias4 = 0, mlp_slope[3] = {0, 0, 0};
    Buffer<T> norm_weight[3], norm_bias[3];

    Network(const Sizes& shape, const RawWeights<T>& raw) : sizes(shape) {
        d = shape.width;
        dp = round_up(d, lanes<T>);
        h = shape.attention;
        for (int i = 0; i < 3; ++i) m[i] = shape.mlp[i];
        for (index_t t = 0; t < shape.num_windows(); ++t)
            for (index_t i = 0; i < shape.windows[static_cast<std::size_t>(t)]; ++i) window_of.push_back(t);
        pack_attention(raw);
        pack_perceptron(raw);
    }

   private:
    static void copy(Buffer<T>& out, const T* in, index_t count) {
        out.zeroed(round_up(count, lanes<T>) + lanes<T>);
        for (index_t i = 0; i < count; ++i) out[i] = in[i];
    }

    void pack_attention(const RawWeights<T>& raw) {
        hidden_slope = raw.hidden_slope;
        output_bias = raw.output_bias;
        output_slope = raw.output_slope;
        constexpr T silence = static_cast<T>(1e-20);
        auto bend = [&](index_t unit) { return raw.output_weight[unit] * (1 - hidden_slope); };
        for (index_t unit = 0; unit < h; ++unit)
            if (bend(unit) > silence) unit_order.push_back(unit);
        raised = static_cast<index_t>(unit_order.size());
        for (index_t unit = 0; unit < h; ++unit)
            if (bend(unit) < -silence) unit_order.push_back(unit);
        loud = static_cast<index_t>(unit_order.size());
        for (index_t unit = 0; unit < h; ++unit)
            if (!(std::abs(bend(unit)) > silence)) unit_order.push_back(unit);
        for (Buffer<T>* buffer : {&hidden_bias, &v, &v_bent, &loud_bias, &direction})
            buffer->zeroed(round_up(h, lanes<T>) + lanes<T>);
        auto loudness = [&](index_t i) { return i < loud ? std::abs(v_bent[i]) : T(1); };
        for (index_t i = 0; i < h; ++i) {
            const index_t unit = unit_order[static_cast<std::size_t>(i)];
            hidden_bias[i] = raw.hidden_bias[unit];
            v[i] = raw.output_weight[unit];
            v_bent[i] = bend(unit);
            loud_bias[i] = hidden_bias[i] * loudness(i);
            direction[i] = i < raised ? T(1) : i < loud ? T(-1) : T(0);
        }
        Matrix<T>* plain[3] = {&wa, &wp, &ww};
        Matrix<T>* transposed[3] = {&wa_t, &wp_t, &ww_t};
        Matrix<T>* bent[3] = {&wa_bent, &wp_bent, &ww_bent};
        Buffer<T>* through[3] = {&v_wa, &v_wp, &v_ww};
        for (int part = 0; part < 3; ++part) {
            plain[part]->allocate(h, dp);
            bent[part]->allocate(h, dp);
            transposed[part]->allocate(d, round_up(h, lanes<T>));
            through[part]->zeroed(dp);
            for (index_t i = 0; i < h; ++i)
                for (index_t j = 0; j < d; ++j) {
                    T weight = raw.hidden_weight[unit_order[static_cast<std::size_t>(i)] * 3 * d + part * d + j];
                    plain[part]->row(i)[j] = weight;
                    bent[part]->row(i)[j] = weight * v_bent[i];
                    transposed[part]->row(j)[i] = weight * loudness(i);
                    (*through[part])[j] += v[i] * weight;
                }
        }
        for (index_t i = 0; i < h; ++i) v_bias += v[i] * hidden_bias[i];
    }

    void pack_perceptron(const RawWeights<T>& raw) {
        const index_t parts = sizes.num_windows() + 1;
        w1.allocate(m[0], parts * dp);
        w1_t.allocate(parts * d, round_up(m[0], lanes<T>));
        for (index_t i = 0; i < m[0]; ++i)
            for (index_t t = 0; t < parts; ++t)
                for (index_t j = 0; j < d; ++j) {
                    T weight = raw.mlp_weight[0][i * parts * d + t * d + j];
                    w1.row(i)[t * dp + j] = weight;
                    w1_t.row(t * d + j)[i] = weight;
                }
        pack_layer(w2, w2_t, raw.mlp_weight[1], m[1], m[0]);
        pack_layer(w3, w3_t, raw.mlp_weight[2], m[2], m[1]);
        copy(w4, raw.mlp_weight[3], m[2]);
        bias4 = raw.mlp_bias[3][0];
        for (int i = 0; i < 3; ++i) {
            copy(bias[i], raw.mlp_bias[i], m[i]);
            mlp_slope[i] = raw.mlp_slope[i];
            if (sizes.normalisation == Normalisation::layer) {
                copy(norm_weight[i], raw.norm_weight[i], m[i]);
                copy(norm_bias[i], raw.norm_bias[i], m[i]);
            }
        }
    }

    static void pack_layer(Matrix<T>& plain, Matrix<T>& transposed, const T* raw, index_t outputs, index_t inputs) {
        plain.allocate(outputs, round_up(inputs, lanes<T>));
        transposed.allocate(inputs, round_up(outputs, lanes<T>));
        for (index_t i = 0; i < outputs; ++i)
            for (index_t j = 0; j < inputs; ++j) {
                plain.row(i)[j] = raw[i * inputs + j];
                transposed.row(j)[i] = raw[i * inputs + j];
            }
    }
};

}  // namespace beamtree
