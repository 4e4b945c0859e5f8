// Sums of gradients of the small weights over the rows of a batch.
//
// The attention unit's PReLU is linear on either side of zero, so its weights' gradients follow from two kinds of sums: over
// all hidden units ("through", shared by the units) and over those above zero ("bent", one per unit). See finish().
#pragma once

#include "network.hpp"

namespace beamtree {

// Where the finished gradients go, shaped like RawWeights.
template <class T>
struct RawGradients {
    T *hidden_weight, *hidden_bias, *hidden_slope, *output_weight, *output_bias, *output_slope;
    T *mlp_weight[4], *mlp_bias[4], *mlp_slope;
    T *norm_weight[3], *norm_bias[3];
};

template <class T>
class Gradients {
   public:
    T *bent_a, *bent_p, *bent_w;           // (h, dp) sums over units above zero
    T* bent_bias;                          // (h,)
    T *through_a, *through_p, *through_w;  // (dp,) sums over all units
    T* through_bias;                       // (1,)
    T *output_bias, *output_slope;         // (1,)
    T* w1;                                 // (m1, (windows + 1) * dp)
    T *w2, *w3, *w4;                       // rows padded to whole vectors
    T* bias[3];
    T *bias4, *mlp_slope;
    T *norm_weight[3], *norm_bias[3];
    index_t w1_stride, w2_stride, w3_stride;

    explicit Gradients(const Network<T>& net) { restart(net); }

    // Starts anew for a network, on the same memory where it fits.
    void restart(const Network<T>& net) {
        w1_stride = (net.sizes.num_windows() + 1) * net.dp;
        w2_stride = round_up(net.m[0], lanes<T>);
        w3_stride = round_up(net.m[1], lanes<T>);
        place(net, nullptr);
        place(net, values_.zeroed(size_));
    }

    void add(const Gradients& other) {
        for (index_t i = 0; i < size_; ++i) values_[i] += other.values_[i];
    }

    // Turns the sums into the gradients of the weights.
    void finish(const Network<T>& net, const RawGradients<T>& out) const {
        const T slope = net.hidden_slope;
        T slope_gradient = 0;
        const T* bent[3] = {bent_a, bent_p, bent_w};
        const T* through[3] = {through_a, through_p, through_w};
        const Matrix<T>* weights[3] = {&net.wa, &net.wp, &net.ww};
        for (index_t i = 0; i < net.h; ++i) {
            const T full_bias = slope * *through_bias + (1 - slope) * bent_bias[i];
            T along = net.hidden_bias[i] * full_bias;
            T below = net.hidden_bias[i] * (*through_bias - bent_bias[i]);
            const index_t unit = net.unit_order[static_cast<std::size_t>(i)];
            out.hidden_bias[unit] = net.v[i] * full_bias;
            for (int part = 0; part < 3; ++part)
                for (index_t j = 0; j < net.d; ++j) {
                    const T positive = bent[part][i * net.dp + j], all = through[part][j];
                    const T full = slope * all + (1 - slope) * positive;
                    const T weight = weights[part]->row(i)[j];
                    out.hidden_weight[unit * 3 * net.d + part * net.d + j] = net.v[i] * full;
                    along += weight * full;
                    below += weight * (all - positive);
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
        for (index_t i = 0; i < net.m[1]; ++i)
            for (index_t j = 0; j < net.m[0]; ++j) out.mlp_weight[1][i * net.m[0] + j] = w2[i * w2_stride + j];
        for (index_t i = 0; i < net.m[2]; ++i)
            for (index_t j = 0; j < net.m[1]; ++j) out.mlp_weight[2][i * net.m[1] + j] = w3[i * w3_stride + j];
        for (index_t i = 0; i < net.m[2]; ++i) out.mlp_weight[3][i] = w4[i];
        out.mlp_bias[3][0] = *bias4;
        for (int layer = 0; layer < 3; ++layer) {
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
        bent_a = take(net.h * net.dp);
        bent_p = take(net.h * net.dp);
        bent_w = take(net.h * net.dp);
        bent_bias = take(net.h);
        through_a = take(net.dp);
        through_p = take(net.dp);
        through_w = take(net.dp);
        through_bias = take(1);
        output_bias = take(1);
        output_slope = take(1);
        w1 = take(net.m[0] * w1_stride);
        w2 = take(net.m[1] * w2_stride);
        w3 = take(net.m[2] * w3_stride);
        w4 = take(net.m[2]);
        bias4 = take(1);
        mlp_slope = take(3);
        for (int layer = 0; layer < 3; ++layer) {
            bias[layer] = take(net.m[layer]);
            norm_weight[layer] = take(net.m[layer]);
            norm_bias[layer] = take(net.m[layer]);
        }
    }
};

}  // namespace beamtree
