// Sums of gradients of the small weights over the rows of a batch.
//
// The attention unit has two kinds of sums over its pairs of history row and node (network.hpp): of the linear part, over all
// pairs and common to the units, and of the rectified part, for each unit over the pairs where it is active. Both are sums of
// g times the inputs [a, a * w, w, 1], where g is the gradient of t. See finish() for what follows from them.
#pragma once

#include "network.hpp"

namespace beamtree {

// Where the finished gradients go, shaped like RawWeights.
template <class T>
struct RawGradients {
    T *hidden_weight, *hidden_bias, *hidden_slope, *output_weight, *output_bias, *output_slope;
    std::vector<T*> mlp_weight, mlp_bias;    // (layers + 1,)
    T* mlp_slope;                            // (layers,)
    std::vector<T*> norm_weight, norm_bias;  // (layers,), or empty without normalisation
};

template <class T>
class Gradients {
   public:
    T *linear_a, *linear_p, *linear_w;           // (dp,) sums over all pairs
    T* linear_bias;                              // (1,)
    T *rectified_a, *rectified_p, *rectified_w;  // (h, dp) sums over the pairs where a unit is active
    T* rectified_bias;                           // (h,)
    T *output_bias, *output_slope;               // (1,)
    T* w1;                                       // (m1, (windows + 1) * dp)
    std::vector<T*> upper;                       // (layers,) of the hidden layers, rows padded to whole vectors; first: none
    T *output, *last_bias, *mlp_slope;
    std::vector<T*> bias, norm_weight, norm_bias;  // (layers,)
    index_t w1_stride;

    explicit Gradients(const Network<T>& net) { restart(net); }

    // Resets for a network, reusing the memory where it fits.
    void restart(const Network<T>& net) {
        w1_stride = (net.sizes.num_windows() + 1) * net.dp;
        place(net, nullptr);
        place(net, values_.zeroed(size_));
    }

    void add(const Gradients& other) {
        for (index_t i = 0; i < size_; ++i) values_[i] += other.values_[i];
    }

    // Turns the sums into the gradients of the weights. With A the sum over all pairs and P_i that over the active ones,
    // dt/dx_i gives W_i the gradient v_i F_i, F_i = s A + (1 - s) P_i; as PReLU(x_i) is linear in the inputs on either side
    // of zero, v_i has W_i . F_i, and s has v_i W_i . (A - P_i), each with the bias as one more input.
    void finish(const Network<T>& net, const RawGradients<T>& out) const {
        const T slope = net.hidden_slope;
        T slope_gradient = 0;
        const T* rectified[3] = {rectified_a, rectified_p, rectified_w};
        const T* linear[3] = {linear_a, linear_p, linear_w};
        const Matrix<T>* weights[3] = {&net.wa, &net.wp, &net.ww};
        for (index_t i = 0; i < net.h; ++i) {
            const T full_bias = slope * *linear_bias + (1 - slope) * rectified_bias[i];
            T along = net.hidden_bias[i] * full_bias;
            T below = net.hidden_bias[i] * (*linear_bias - rectified_bias[i]);
            const index_t unit = net.unit_order[static_cast<std::size_t>(i)];
            out.hidden_bias[unit] = net.v[i] * full_bias;
            for (int part = 0; part < 3; ++part)
                for (index_t j = 0; j < net.d; ++j) {
                    const T active = rectified[part][i * net.dp + j], all = linear[part][j];
                    const T full = slope * all + (1 - slope) * active;
                    const T weight = weights[part]->row(i)[j];
                    out.hidden_weight[unit * 3 * net.d + part * net.d + j] = net.v[i] * full;
                    along += weight * full;
                    below += weight * (all - active);
                }
            out.output_weight[unit] = along;
            slope_gradient += net.v[i] * below;
        }
        *out.hidden_slope = slope_gradient;
        *out.output_bias = *output_bias;
        *out.output_slope = *output_slope;
        const index_t parts = net.sizes.num_windows() + 1;
        for (index_t i = 0; i < net.m[0]; ++i)
            for (index_t t = 0; t < parts; ++t)
                for (index_t j = 0; j < net.d; ++j)
                    out.mlp_weight[0][(i * parts + t) * net.d + j] = w1[i * w1_stride + t * net.dp + j];
        for (std::size_t layer = 1; layer < net.layers; ++layer) {
            const index_t inputs = net.m[layer - 1], stride = round_up(inputs, lanes<T>);
            for (index_t i = 0; i < net.m[layer]; ++i)
                for (index_t j = 0; j < inputs; ++j) out.mlp_weight[layer][i * inputs + j] = upper[layer][i * stride + j];
        }
        for (index_t i = 0; i < net.m[net.layers - 1]; ++i) out.mlp_weight[net.layers][i] = output[i];
        out.mlp_bias[net.layers][0] = *last_bias;
        for (std::size_t layer = 0; layer < net.layers; ++layer) {
            for (index_t i = 0; i < net.m[layer]; ++i) out.mlp_bias[layer][i] = bias[layer][i];
            out.mlp_slope[layer] = mlp_slope[layer];
            if (net.sizes.normalisation == Normalisation::layer)
                for (index_t i = 0; i < net.m[layer]; ++i) {
                    out.norm_weight[layer][i] = norm_weight[layer][i];
                    out.norm_bias[layer][i] = norm_bias[layer][i];
                }
        }
    }

   private:
    Buffer<T> values_;
    index_t size_ = 0;

    // Lays all sums out behind one another, each on its own cache line.
    void place(const Network<T>& net, T* base) {
        size_ = 0;
        auto take = [&](index_t count) {
            T* here = base == nullptr ? nullptr : base + size_;
            size_ += round_up(count, 64 / static_cast<index_t>(sizeof(T)));
            return here;
        };
        rectified_a = take(net.h * net.dp);
        rectified_p = take(net.h * net.dp);
        rectified_w = take(net.h * net.dp);
        rectified_bias = take(net.h);
        linear_a = take(net.dp);
        linear_p = take(net.dp);
        linear_w = take(net.dp);
        linear_bias = take(1);
        output_bias = take(1);
        output_slope = take(1);
        w1 = take(net.m[0] * w1_stride);
        for (std::vector<T*>* pointers : {&upper, &bias, &norm_weight, &norm_bias}) pointers->assign(net.layers, nullptr);
        for (std::size_t layer = 1; layer < net.layers; ++layer)
            upper[layer] = take(net.m[layer] * round_up(net.m[layer - 1], lanes<T>));
        output = take(net.m[net.layers - 1]);
        last_bias = take(1);
        mlp_slope = take(static_cast<index_t>(net.layers));
        for (std::size_t layer = 0; layer < net.layers; ++layer) {
            bias[layer] = take(net.m[layer]);
            norm_weight[layer] = take(net.m[layer]);
            norm_bias[layer] = take(net.m[layer]);
        }
    }
};

}  // namespace beamtree
