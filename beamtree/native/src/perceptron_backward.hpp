// The perceptron backwards: from the gradients of the scores to those of the attention weights, nodes and history.
#pragma once

#include "block_gradients.hpp"
#include "gradients.hpp"

namespace beamtree {

template <class T>
class PerceptronBackward {
   public:
    // d_score: (padded,), zero behind the nodes. Sums of the weights go to sums; below holds what goes on to the attention.
    void run(const Network<T>& net, const History<T>& history, const NodeBlock<T>& block, const T* d_score,
             Gradients<T>& sums, const Dropout& dropout, index_t row, BlockGradients<T>& below) {
        hidden_layers(net, block, d_score, sums, dropout, row);
        first_bias(net, block, sums, below);
        first_layer(net, history, block, sums, below);
    }

   private:
    std::vector<Buffer<T>> d_layer_;        // (layers,) of (units, stride)
    Matrix<T> transposed_;                  // (padded, units)
    Matrix<T> d_g_;                         // (history, m1)
    Matrix<T> gathered_, taken_, vectors_;  // (occurrences of a window, ...)

    static T row_sum(const T* x, index_t padded) {
        Vec<T> sum{};
        for (index_t n = 0; n < padded; n += lanes<T>) sum += load(x + n);
        return horizontal_sum<T>(sum);
    }

    void hidden_layers(const Network<T>& net, const NodeBlock<T>& block, const T* d_score, Gradients<T>& sums,
                       const Dropout& dropout, index_t row) {
        const index_t stride = block.stride, padded = block.padded;
        if (d_layer_.size() < net.layers) d_layer_ = std::vector<Buffer<T>>(net.layers);
        const std::size_t last = net.layers - 1;
        T* top = d_layer_[last].resize(net.m[last] * stride + 2 * lanes<T>);
        for (index_t i = 0; i < net.m[last]; ++i) {
            const T* y = block.out[last].data() + i * stride;
            Vec<T> sum{};
            for (index_t n = 0; n < padded; n += lanes<T>) {
                const Vec<T> g = load(d_score + n);
                sum += g * load(y + n);
                store(top + i * stride + n, g * net.output[i]);
            }
            sums.output[i] += horizontal_sum<T>(sum);
        }
        *sums.last_bias += row_sum(d_score, padded);
        for (std::size_t layer = last;; --layer) {
            activation(net, block, layer, sums, dropout, row);
            if (layer == 0) break;
            const index_t units = net.m[layer], inputs = net.m[layer - 1], inputs_padded = round_up(inputs, lanes<T>);
            const T* d_pre = d_layer_[layer].data();
            transposed_.reserve(padded, inputs_padded);
            transpose_padded(transposed_, block.out[layer - 1].data(), stride, inputs, padded);
            multiply<Layout::by_rows, Start::add>(sums.upper[layer], inputs_padded, d_pre, stride, transposed_.row(0),
                                                  transposed_.stride, units, block.count, inputs_padded);
            T* below = d_layer_[layer - 1].resize(inputs * stride + 2 * lanes<T>);
            multiply<Layout::by_depth, Start::zero>(below, stride, net.upper[layer].row(0), net.upper[layer].stride, d_pre,
                                                    stride, inputs, units, padded);
        }
    }

    // out (padded, units padded) = x (units, stride) transposed, zero behind the units.
    static void transpose_padded(Matrix<T>& out, const T* x, index_t stride, index_t units, index_t padded) {
        transpose(out.row(0), out.stride, x, stride, units, padded);
        const index_t units_padded = round_up(units, lanes<T>);
        for (index_t n = 0; n < padded && units < units_padded; ++n)
            for (index_t i = units; i < units_padded; ++i) out.row(n)[i] = 0;
    }

    // Takes d_layer_[layer] from behind the PReLU to before the normalisation.
    void activation(const Network<T>& net, const NodeBlock<T>& block, std::size_t layer, Gradients<T>& sums, const Dropout& dropout,
                    index_t row) {
        const index_t stride = block.stride, padded = block.padded, units = net.m[layer];
        T* g = d_layer_[layer].data();
        const T* pre = block.pre[layer].data();
        const Vec<T> slope = splat(net.mlp_slope[layer]);
        Vec<T> slope_sum{};
        const DropoutMask mask(dropout.seed, row, dropout.rate);
        for (index_t i = 0; i < units; ++i) {
            for (index_t n = 0; n < padded; n += lanes<T>) {
                const Vec<T> x = load(pre + i * stride + n), y = load(g + i * stride + n);
                slope_sum += x > T(0) ? Vec<T>{} : x * y;
                store(g + i * stride + n, x > T(0) ? y : y * slope);
            }
            if (layer == 0 && dropout.rate > 0) mask.apply(g + i * stride, padded, i);
        }
        sums.mlp_slope[layer] += horizontal_sum<T>(slope_sum);
        if (net.sizes.normalisation == Normalisation::layer) unstandardise(net, block, layer, sums);
        if (layer == 0) return;
        for (index_t i = 0; i < units; ++i) sums.bias[layer][i] += row_sum(g + i * stride, padded);
    }

    // The first layer's bias, and what the request adds to it.
    void first_bias(const Network<T>& net, const NodeBlock<T>& block, Gradients<T>& sums, BlockGradients<T>& below) {
        T* d_offset = below.d_layer_offset.resize(net.m[0]);
        for (index_t i = 0; i < net.m[0]; ++i) {
            d_offset[i] = row_sum(d_layer_[0].data() + i * block.stride, block.padded);
            sums.bias[0][i] += d_offset[i];
        }
    }

    void unstandardise(const Network<T>& net, const NodeBlock<T>& block, std::size_t layer, Gradients<T>& sums) {
        const index_t stride = block.stride, padded = block.padded, units = net.m[layer];
        T* g = d_layer_[layer].data();
        const T* hat = block.hat[layer].data();
        const T share = T(1) / static_cast<T>(units);
        for (index_t i = 0; i < units; ++i) {
            Vec<T> gain{}, offset{};
            for (index_t n = 0; n < padded; n += lanes<T>) {
                const Vec<T> y = load(g + i * stride + n);
                gain += y * load(hat + i * stride + n);
                offset += y;
                store(g + i * stride + n, y * net.norm_weight[layer][i]);
            }
            sums.norm_weight[layer][i] += horizontal_sum<T>(gain);
            sums.norm_bias[layer][i] += horizontal_sum<T>(offset);
        }
        for (index_t n = 0; n < padded; n += lanes<T>) {
            Vec<T> mean{}, along{};
            for (index_t i = 0; i < units; ++i) {
                const Vec<T> y = load(g + i * stride + n);
                mean += y;
                along += y * load(hat + i * stride + n);
            }
            mean *= share;
            along *= share;
            const Vec<T> inverse = load(block.inverse[layer].data() + n);
            for (index_t i = 0; i < units; ++i) {
                const Vec<T> y = load(g + i * stride + n) - mean - load(hat + i * stride + n) * along;
                store(g + i * stride + n, y * inverse);
            }
        }
    }

    void first_layer(const Network<T>& net, const History<T>& history, const NodeBlock<T>& block, Gradients<T>& sums,
                     BlockGradients<T>& below) {
        const index_t stride = block.stride, padded = block.padded, m1 = net.m[0], m1_padded = round_up(m1, lanes<T>);
        const index_t node_part = net.sizes.num_windows() * net.dp;
        const T* g = d_layer_[0].data();
        // The node's own coordinates.
        multiply<Layout::by_rows, Start::add>(sums.w1 + node_part, sums.w1_stride, g, stride, block.w.row(0), block.w.stride,
                                              m1, block.count, net.dp);
        T* d_coordinates = below.d_coordinates.resize(net.d * stride + 2 * lanes<T>);
        multiply<Layout::by_depth, Start::zero>(d_coordinates, stride, net.w1.row(0) + node_part, net.w1.stride, g, stride,
                                                net.d, m1, padded);
        // The attention weights, and each history row's share.
        T* d_weights = below.d_weights.resize(history.count * stride + 2 * lanes<T>);
        multiply<Layout::by_rows, Start::zero>(d_weights, stride, history.g.row(0), history.g.stride, g, stride,
                                               history.count, m1, padded);
        transposed_.reserve(padded, m1_padded);
        transpose_padded(transposed_, g, stride, m1, padded);
        d_g_.reserve(history.count, m1_padded);
        multiply<Layout::by_rows, Start::zero>(d_g_.row(0), d_g_.stride, block.y0.data(), stride, transposed_.row(0),
                                               transposed_.stride, history.count, block.count, m1_padded);
        // From the shares to the windows' weights and the history.
        below.d_history.allocate(history.count, net.dp);
        const index_t total = static_cast<index_t>(history.occurrences.size());
        for (index_t first = 0; first < total;) {
            const index_t window = history.occurrences[static_cast<std::size_t>(first)].window;
            index_t last = first;
            while (last < total && history.occurrences[static_cast<std::size_t>(last)].window == window) ++last;
            window_share(net, history, first, last, window, sums, below.d_history);
            first = last;
        }
    }

    void window_share(const Network<T>& net, const History<T>& history, index_t first, index_t last, index_t window,
                      Gradients<T>& sums, Matrix<T>& d_history) {
        const index_t rows = last - first, m1 = net.m[0], m1_padded = round_up(m1, lanes<T>);
        gathered_.reserve(rows, m1_padded);
        taken_.reserve(rows, net.dp);
        vectors_.reserve(rows, net.dp);
        for (index_t i = 0; i < rows; ++i) {
            const auto& o = history.occurrences[static_cast<std::size_t>(first + i)];
            const T times = static_cast<T>(o.times);
            for (index_t j = 0; j < m1_padded; ++j) gathered_.row(i)[j] = times * d_g_.row(o.distinct)[j];
            std::memcpy(vectors_.row(i), history.a.row(o.distinct), static_cast<std::size_t>(net.dp) * sizeof(T));
        }
        multiply<Layout::by_depth, Start::add>(sums.w1 + window * net.dp, sums.w1_stride, gathered_.row(0), gathered_.stride,
                                               vectors_.row(0), vectors_.stride, m1, rows, net.dp);
        multiply<Layout::by_rows, Start::zero>(taken_.row(0), taken_.stride, gathered_.row(0), gathered_.stride,
                                               net.w1.row(0) + window * net.dp, net.w1.stride, rows, m1, net.dp);
        for (index_t i = 0; i < rows; ++i) {
            T* sum = d_history.row(history.occurrences[static_cast<std::size_t>(first + i)].distinct);
            for (index_t j = 0; j < net.dp; j += lanes<T>) store(sum + j, load(sum + j) + load(taken_.row(i) + j));
        }
    }
};

}  // namespace beamtree
