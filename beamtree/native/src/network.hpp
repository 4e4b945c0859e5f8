// The preference network's small weights, packed once so that every kernel reads them in its own order.
//
// The attention unit gives history row a the weight PReLU(t) for node w, where hidden unit i has the input x_i:
//
//     x = W_a a + W_p (a * w) + W_w w + b,    t = c + sum_i v_i PReLU(x_i).
//
// Let s be the hidden slope. PReLU(x) = s x + (1 - s) max(x, 0) splits t into a linear and a rectified part:
//
//     t = [c + s v . x]  +  sum_i r_i max(x_i, 0),    r_i = v_i (1 - s).
//
// For one history row the linear part is an affine function of the node, c + s (v^T W_a a + v . b) + s v^T (W_p diag(a) +
// W_w) w: one product of length d instead of h of them. In the rectified part a unit is active where x_i > 0, and as
// r_i max(x_i, 0) = sign(r_i) max(|r_i| x_i, 0), units whose rows of W and b are scaled by |r_i| are merely added or
// subtracted. Units are therefore kept ordered by the sign of r_i: positive, negative, zero.
//
// Backwards, dt/dx_i = s v_i + [x_i > 0] r_i: the linear part is common to all units, and the rectified part needs no more
// than one bit of x_i, whether the unit is active.
#pragma once

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "matrix.hpp"

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
    std::vector<const T*> mlp_weight;  // (m1, windows*d + d), (m2, m1), ..., (mL,)
    std::vector<const T*> mlp_bias;
    std::vector<T> mlp_slope;            // one for each hidden layer
    std::vector<const T*> norm_weight;   // likewise; empty without normalisation
    std::vector<const T*> norm_bias;
};

struct Sizes {
    index_t width = 0;               // d, of an embedding
    index_t attention = 0;           // h, hidden units of the attention unit
    std::vector<index_t> mlp;        // units of the hidden layers, one or more
    std::vector<index_t> windows;    // history positions per window, oldest first
    Normalisation normalisation = Normalisation::none;

    std::size_t layers() const { return mlp.size(); }
    index_t num_windows() const { return static_cast<index_t>(windows.size()); }
    index_t history() const {
        index_t sum = 0;
        for (index_t size : windows) sum += size;
        return sum;
    }
};

template <class T>
struct Network {
    Sizes sizes;
    index_t d = 0, dp = 0;         // embedding width, and padded to whole vectors
    index_t h = 0;                 // attention units
    std::size_t layers = 0;        // hidden layers
    std::vector<index_t> m;        // (layers,) their units
    std::vector<index_t> window_of;  // (K,) window of each history position

    // Attention, in the terms of the derivation above.
    std::vector<index_t> unit_order;                     // (h,) the unit's index in the raw weights
    index_t positive_end = 0, negative_end = 0;          // positive units, then negative ones, then zero ones
    Matrix<T> wa, wp, ww;                                // (h, dp)
    Buffer<T> hidden_bias, v;                            // (h,)
    Buffer<T> linear_a, linear_p, linear_w;              // (dp,) v^T W
    T linear_bias = 0;                                   // v . b
    Matrix<T> wa_rectified, wp_rectified, ww_rectified;  // (h, dp) row i times r_i
    Buffer<T> rectified_v, unit_sign;                    // (h,) r_i; 1, -1 or 0
    Matrix<T> wa_scaled_t, wp_scaled_t, ww_scaled_t;     // (d, h) column i times |r_i|; zero units are not scaled
    Buffer<T> scaled_bias;                               // (h,) likewise
    T hidden_slope = 0, output_bias = 0, output_slope = 0;

    // Perceptron. The first layer's input is [windows ; node], each dp wide.
    Matrix<T> w1;              // (m1, (windows + 1) * dp)
    Matrix<T> w1_t;            // ((windows + 1) * d, m1)
    std::vector<Matrix<T>> upper, upper_t;  // (layers,) of the hidden layers; the first is w1, and empty here
    Buffer<T> output;                       // (m of the last,)
    T last_bias = 0;
    std::vector<T> mlp_slope;                                // (layers,)
    std::vector<Buffer<T>> bias, norm_weight, norm_bias;     // (layers,)

    Network(const Sizes& shape, const RawWeights<T>& raw) : sizes(shape) {
        d = shape.width;
        dp = round_up(d, lanes<T>);
        h = shape.attention;
        layers = shape.layers();
        m = shape.mlp;
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
        constexpr T nothing = static_cast<T>(1e-20);  // below it, scaled rows would lose their digits
        auto rectified = [&](index_t unit) { return raw.output_weight[unit] * (1 - hidden_slope); };
        for (index_t unit = 0; unit < h; ++unit)
            if (rectified(unit) > nothing) unit_order.push_back(unit);
        positive_end = static_cast<index_t>(unit_order.size());
        for (index_t unit = 0; unit < h; ++unit)
            if (rectified(unit) < -nothing) unit_order.push_back(unit);
        negative_end = static_cast<index_t>(unit_order.size());
        for (index_t unit = 0; unit < h; ++unit)
            if (!(std::abs(rectified(unit)) > nothing)) unit_order.push_back(unit);
        for (Buffer<T>* buffer : {&hidden_bias, &v, &rectified_v, &scaled_bias, &unit_sign})
            buffer->zeroed(round_up(h, lanes<T>) + lanes<T>);
        auto scale = [&](index_t i) { return i < negative_end ? std::abs(rectified_v[i]) : T(1); };
        for (index_t i = 0; i < h; ++i) {
            const index_t unit = unit_order[static_cast<std::size_t>(i)];
            hidden_bias[i] = raw.hidden_bias[unit];
            v[i] = raw.output_weight[unit];
            rectified_v[i] = rectified(unit);
            scaled_bias[i] = hidden_bias[i] * scale(i);
            unit_sign[i] = i < positive_end ? T(1) : i < negative_end ? T(-1) : T(0);
        }
        Matrix<T>* plain[3] = {&wa, &wp, &ww};
        Matrix<T>* scaled[3] = {&wa_scaled_t, &wp_scaled_t, &ww_scaled_t};
        Matrix<T>* by_r[3] = {&wa_rectified, &wp_rectified, &ww_rectified};
        Buffer<T>* linear[3] = {&linear_a, &linear_p, &linear_w};
        for (int part = 0; part < 3; ++part) {
            plain[part]->allocate(h, dp);
            by_r[part]->allocate(h, dp);
            scaled[part]->allocate(d, round_up(h, lanes<T>));
            linear[part]->zeroed(dp);
            for (index_t i = 0; i < h; ++i)
                for (index_t j = 0; j < d; ++j) {
                    T weight = raw.hidden_weight[unit_order[static_cast<std::size_t>(i)] * 3 * d + part * d + j];
                    plain[part]->row(i)[j] = weight;
                    by_r[part]->row(i)[j] = weight * rectified_v[i];
                    scaled[part]->row(j)[i] = weight * scale(i);
                    (*linear[part])[j] += v[i] * weight;
                }
        }
        for (index_t i = 0; i < h; ++i) linear_bias += v[i] * hidden_bias[i];
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
        upper = std::vector<Matrix<T>>(layers);
        upper_t = std::vector<Matrix<T>>(layers);
        for (std::vector<Buffer<T>>* buffers : {&bias, &norm_weight, &norm_bias}) *buffers = std::vector<Buffer<T>>(layers);
        for (std::size_t i = 1; i < layers; ++i) pack_layer(upper[i], upper_t[i], raw.mlp_weight[i], m[i], m[i - 1]);
        copy(output, raw.mlp_weight[layers], m[layers - 1]);
        last_bias = raw.mlp_bias[layers][0];
        mlp_slope = raw.mlp_slope;
        for (std::size_t i = 0; i < layers; ++i) {
            copy(bias[i], raw.mlp_bias[i], m[i]);
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
