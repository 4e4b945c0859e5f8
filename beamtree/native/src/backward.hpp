// Gradients of one block of scored nodes: perceptron, first layer, attention unit.
//
// The forward pass kept its activations and one sign bit per hidden attention unit, so no product is computed twice.
#pragma once

#include "forward.hpp"
#include "gradients.hpp"

namespace beamtree {

template <class T>
class Backward {
   public:
    Matrix<T> d_history;  // (history, dp) gradient of the distinct history rows
    Matrix<T> d_nodes;    // (padded, dp) gradient of the block's embeddings

    // d_score: (padded,) gradient of the scores, zero behind the nodes. Sums of the weights go to sums.
    void run(const Network<T>& net, const History<T>& history, NodeBlock<T>& block, const T* d_score, Gradients<T>& sums,
             const Dropout& dropout = {}, index_t row = 0) {
        perceptron(net, block, d_score, sums, dropout, row);
        first_layer(net, history, block, sums);
        attention(net, history, block, sums);
        finish_nodes(net, block);
    }

    // The attention unit alone: d_weights (history, block.stride) are the gradients of the attention weights.
    void run_attention(const Network<T>& net, const History<T>& history, NodeBlock<T>& block, const T* d_weights,
                       Gradients<T>& sums) {
        const index_t size = history.count * block.stride;
        std::memcpy(d_weights_.resize(size + 2 * lanes<T>), d_weights, static_cast<std::size_t>(size) * sizeof(T));
        reserve(d_history, history.count, net.dp);
        clear(d_history.row(0), history.count * d_history.stride);
        clear(d_coordinates_.resize(net.d * block.stride), net.d * block.stride);
        attention(net, history, block, sums);
        finish_nodes(net, block);
    }

   private:
    Buffer<T> d_layer_[3];     // (units, stride)
    Matrix<T> transposed_;     // (padded, units)
    Buffer<T> d_weights_;      // (history, stride): gradient of the attention weights, then before their PReLU
    Matrix<T> d_g_;            // (history, m1)
    Matrix<T> gathered_, taken_;
    Buffer<T> d_coordinates_;  // (d, stride)
    Matrix<T> pulled_;         // (history, dp): sum over nodes of gradient times embedding
    Buffer<T> totals_;         // (history,)
    Matrix<T> positive_;       // (history, h): sums over nodes where the unit is above zero
    Buffer<T> chosen_;         // (h, chosen_stride)
    Buffer<T> packed_;         // (h, dp)
    Buffer<T> lane_sums_, found_;

    // Columns that the units' choices are spelled out for at a time. The stride is known to the compiler: twelve rows are
    // read at once, and constant distances spare it twelve registers.
    static constexpr index_t chosen_columns = 80;
    static constexpr index_t chosen_stride = 80;

    static void clear(T* values, index_t count) {
        std::memset(static_cast<void*>(values), 0, static_cast<std::size_t>(count) * sizeof(T));
    }

    static void reserve(Matrix<T>& matrix, index_t rows, index_t columns) {
        matrix.stride = row_stride<T>(columns);
        matrix.values.resize(rows * matrix.stride + 2 * lanes<T>);
    }

    static T row_sum(const T* x, index_t padded) {
        Vec<T> sum{};
        for (index_t n = 0; n < padded; n += lanes<T>) sum += load(x + n);
        return horizontal_sum<T>(sum);
    }

    void perceptron(const Network<T>& net, NodeBlock<T>& block, const T* d_score, Gradients<T>& sums,
                    const Dropout& dropout, index_t row) {
        const index_t stride = block.stride, padded = block.padded;
        T* top = d_layer_[2].resize(net.m[2] * stride + 2 * lanes<T>);
        for (index_t i = 0; i < net.m[2]; ++i) {
            const T* y = block.out[2].data() + i * stride;
            Vec<T> sum{};
            for (index_t n = 0; n < padded; n += lanes<T>) {
                const Vec<T> g = load(d_score + n);
                sum += g * load(y + n);
                store(top + i * stride + n, g * net.w4[i]);
            }
            sums.w4[i] += horizontal_sum<T>(sum);
        }
        *sums.bias4 += row_sum(d_score, padded);
        const Matrix<T>* weights[3] = {nullptr, &net.w2, &net.w3};
        T* weight_sums[3] = {nullptr, sums.w2, sums.w3};
        const index_t sum_strides[3] = {0, sums.w2_stride, sums.w3_stride};
        for (int layer = 2; layer >= 0; --layer) {
            activation(net, block, layer, sums, dropout, row);
            if (layer == 0) break;
            const index_t units = net.m[layer], inputs = net.m[layer - 1], inputs_padded = round_up(inputs, lanes<T>);
            const T* d_pre = d_layer_[layer].data();
            reserve(transposed_, padded, inputs_padded);
            transpose_padded(transposed_, block.out[layer - 1].data(), stride, inputs, padded);
            multiply<Layout::by_rows, Start::add>(weight_sums[layer], sum_strides[layer], d_pre, stride, transposed_.row(0),
                                                  transposed_.stride, units, block.count, inputs_padded);
            T* below = d_layer_[layer - 1].resize(inputs * stride + 2 * lanes<T>);
            multiply<Layout::by_depth, Start::zero>(below, stride, weights[layer]->row(0), weights[layer]->stride, d_pre,
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
    void activation(const Network<T>& net, NodeBlock<T>& block, int layer, Gradients<T>& sums, const Dropout& dropout,
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
        for (index_t i = 0; i < units; ++i) sums.bias[layer][i] += row_sum(g + i * stride, padded);
    }

    void unstandardise(const Network<T>& net, NodeBlock<T>& block, int layer, Gradients<T>& sums) {
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

    void first_layer(const Network<T>& net, const History<T>& history, NodeBlock<T>& block, Gradients<T>& sums) {
        const index_t stride = block.stride, padded = block.padded, m1 = net.m[0], m1_padded = round_up(m1, lanes<T>);
        const index_t node_part = net.sizes.num_windows() * net.dp;
        const T* g = d_layer_[0].data();
        // The node's own coordinates.
        multiply<Layout::by_rows, Start::add>(sums.w1 + node_part, sums.w1_stride, g, stride, block.w.row(0), block.w.stride,
                                              m1, block.count, net.dp);
        T* d_coordinates = d_coordinates_.resize(net.d * stride + 2 * lanes<T>);
        multiply<Layout::by_depth, Start::zero>(d_coordinates, stride, net.w1.row(0) + node_part, net.w1.stride, g, stride,
                                                net.d, m1, padded);
        // The attention weights, and each history row's share.
        T* d_weights = d_weights_.resize(history.count * stride + 2 * lanes<T>);
        multiply<Layout::by_rows, Start::zero>(d_weights, stride, history.g.row(0), history.g.stride, g, stride,
                                               history.count, m1, padded);
        reserve(transposed_, padded, m1_padded);
        transpose_padded(transposed_, g, stride, m1, padded);
        reserve(d_g_, history.count, m1_padded);
        multiply<Layout::by_rows, Start::zero>(d_g_.row(0), d_g_.stride, block.y0.data(), stride, transposed_.row(0),
                                               transposed_.stride, history.count, block.count, m1_padded);
        // From the shares to the windows' weights and the history.
        reserve(d_history, history.count, net.dp);
        clear(d_history.row(0), history.count * d_history.stride);
        const index_t total = static_cast<index_t>(history.occurrences.size());
        for (index_t first = 0; first < total;) {
            const index_t window = history.occurrences[static_cast<std::size_t>(first)].window;
            index_t last = first;
            while (last < total && history.occurrences[static_cast<std::size_t>(last)].window == window) ++last;
            window_share(net, history, first, last, window, sums);
            first = last;
        }
    }

    void window_share(const Network<T>& net, const History<T>& history, index_t first, index_t last, index_t window,
                      Gradients<T>& sums) {
        const index_t rows = last - first, m1 = net.m[0], m1_padded = round_up(m1, lanes<T>);
        reserve(gathered_, rows, m1_padded);
        reserve(taken_, rows, net.dp);
        reserve(packed_rows_, rows, net.dp);
        for (index_t i = 0; i < rows; ++i) {
            const auto& o = history.occurrences[static_cast<std::size_t>(first + i)];
            const T times = static_cast<T>(o.times);
            for (index_t j = 0; j < m1_padded; ++j) gathered_.row(i)[j] = times * d_g_.row(o.distinct)[j];
            std::memcpy(packed_rows_.row(i), history.a.row(o.distinct), static_cast<std::size_t>(net.dp) * sizeof(T));
        }
        multiply<Layout::by_depth, Start::add>(sums.w1 + window * net.dp, sums.w1_stride, gathered_.row(0), gathered_.stride,
                                               packed_rows_.row(0), packed_rows_.stride, m1, rows, net.dp);
        multiply<Layout::by_rows, Start::zero>(taken_.row(0), taken_.stride, gathered_.row(0), gathered_.stride,
                                               net.w1.row(0) + window * net.dp, net.w1.stride, rows, m1, net.dp);
        for (index_t i = 0; i < rows; ++i) {
            T* sum = d_history.row(history.occurrences[static_cast<std::size_t>(first + i)].distinct);
            for (index_t j = 0; j < net.dp; j += lanes<T>) store(sum + j, load(sum + j) + load(taken_.row(i) + j));
        }
    }

    // From d_weights_ to the attention unit's sums, d_history and d_coordinates_.
    void attention(const Network<T>& net, const History<T>& history, NodeBlock<T>& block, Gradients<T>& sums) {
        const index_t d = net.d, dp = net.dp, h = net.h, stride = block.stride, padded = block.padded;
        const index_t count = history.count;
        output_activation(net, history, block, sums);
        const T* g = d_weights_.data();
        T* d_coordinates = d_coordinates_.data();
        // What passes through the slope does not depend on the hidden units.
        reserve(pulled_, count, dp);
        multiply<Layout::by_rows, Start::zero>(pulled_.row(0), pulled_.stride, g, stride, block.w.row(0), block.w.stride,
                                               count, block.count, dp);
        multiply<Layout::by_depth, Start::add>(d_coordinates, stride, history.through.row(0), history.through.stride, g,
                                               stride, d, count, padded);
        for (index_t k = 0; k < count; ++k) {
            const T *a = history.a.row(k), *pull = pulled_.row(k);
            for (index_t j = 0; j < d; ++j) {
                sums.through_p[j] += a[j] * pull[j];
                sums.through_w[j] += pull[j];
                sums.through_a[j] += a[j] * totals_[k];
                d_history.row(k)[j] += net.hidden_slope * (pull[j] * net.v_wp[j] + totals_[k] * net.v_wa[j]);
            }
            *sums.through_bias += totals_[k];
        }
        // The rest comes from the units above zero.
        const index_t hp = round_up(h, lanes<T>);
        reserve(positive_, count, hp);
        clear(positive_.row(0), count * positive_.stride);
        chosen_.resize(h * chosen_stride + 2 * lanes<T>);
        T* packed = packed_.resize(h * dp);
        T* lane_sums = lane_sums_.zeroed(hp * lanes<T>);
        T* found = found_.resize(hp);
        for (index_t k = 0; k < count; ++k) {
            const T* a = history.a.row(k);
            pack_bent(net, a, packed);
            for (index_t start = 0; start < block.count; start += chosen_columns) {
                const index_t columns = std::min(chosen_columns, padded - start);
                choose(g + k * stride + start, block.signs(k, 0, h) + start / lanes<T>, block.bits_stride, h, columns,
                       chosen_.data(), lane_sums);
                sum_lanes(found, lane_sums, h);
                for (index_t i = 0; i < h; ++i) positive_.row(k)[i] += found[i];
                multiply<Layout::by_depth, Start::add>(d_coordinates + start, stride, packed, dp, chosen_.data(),
                                                       chosen_stride, d, h, columns);
                hidden_products(net, chosen_.data(), block.w.row(start), std::min(columns, block.count - start), a,
                                d_history.row(k), sums);
            }
        }
        multiply<Layout::by_depth, Start::add>(sums.bent_a, dp, positive_.row(0), positive_.stride, history.a.row(0),
                                               history.a.stride, h, count, dp);
        multiply<Layout::by_rows, Start::add>(d_history.row(0), d_history.stride, positive_.row(0), positive_.stride,
                                              net.wa_bent.row(0), net.wa_bent.stride, count, h, dp);
        for (index_t k = 0; k < count; ++k)
            for (index_t i = 0; i < h; ++i) sums.bent_bias[i] += positive_.row(k)[i];
    }

    // out (h, dp) = W_p diag(a) + W_w, each row times its v (1 - slope).
    static __attribute__((noinline)) void pack_bent(const Network<T>& net, const T* a, T* out) {
        const index_t h = net.h, dp = net.dp, stride = net.wp_bent.stride;
        const T *wp = net.wp_bent.row(0), *ww = net.ww_bent.row(0);
        for (index_t i = 0; i < h; ++i, wp += stride, ww += stride, out += dp)
            for (index_t j = 0; j < dp; j += lanes<T>) store(out + j, load(wp + j) * load(a + j) + load(ww + j));
    }

    // chosen (h, columns) = g (columns,) where a unit is above zero, else zero; lane_sums (h, lanes) adds each row up.
    static __attribute__((noinline)) void choose(const T* g, const std::uint8_t* signs, index_t signs_stride, index_t h,
                                                 index_t columns, T* chosen, T* lane_sums) {
        for (index_t i = 0; i < h; ++i, signs += signs_stride, chosen += chosen_stride) {
            Vec<T> sum{};
            for (index_t n = 0; n < columns; n += lanes<T>) {
                const Vec<T> kept = keep<T>(load(g + n), signs[n / lanes<T>]);
                store(chosen + n, kept);
                sum += kept;
            }
            store(lane_sums + i * lanes<T>, sum);
        }
    }

    // For one history row: Q = chosen (h, count) times embeddings w (count, dp), and where it goes.
    static __attribute__((noinline)) void hidden_products(const Network<T>& net, const T* chosen, const T* w, index_t count,
                                                          const T* a, T* d_a, Gradients<T>& sums) {
        const index_t dp = net.dp, bent_stride = net.wp_bent.stride;
        T *bent_p = sums.bent_p, *bent_w = sums.bent_w;
        const T* wp_bent = net.wp_bent.row(0);
        for_column_tiles<T>(dp, [&]<int V>(index_t column) BEAMTREE_INLINE_LAMBDA {
            for_row_blocks<V>(net.h, [&]<int R>(index_t row) BEAMTREE_INLINE_LAMBDA {
                Tile<T, R, V> tile{};
                tile.template accumulate<Layout::by_rows>(chosen + row * chosen_stride, chosen_stride, w + column, dp, count);
                Vec<T> scale[V], sum[V];
#pragma GCC unroll 12
                for (int v = 0; v < V; ++v) {
                    scale[v] = load(a + column + v * lanes<T>);
                    sum[v] = load(d_a + column + v * lanes<T>);
                }
#pragma GCC unroll 12
                for (int r = 0; r < R; ++r)
#pragma GCC unroll 12
                    for (int v = 0; v < V; ++v) {
                        const index_t at = (row + r) * dp + column + v * lanes<T>;
                        const Vec<T> q = tile.at[r][v];
                        store(bent_p + at, load(bent_p + at) + q * scale[v]);
                        store(bent_w + at, load(bent_w + at) + q);
                        sum[v] += q * load(wp_bent + (row + r) * bent_stride + column + v * lanes<T>);
                    }
#pragma GCC unroll 12
                for (int v = 0; v < V; ++v) store(d_a + column + v * lanes<T>, sum[v]);
            });
        });
    }

    // Takes d_weights_ before the attention unit's last PReLU.
    void output_activation(const Network<T>& net, const History<T>& history, NodeBlock<T>& block, Gradients<T>& sums) {
        const index_t stride = block.stride, padded = block.padded;
        const Vec<T> slope = splat(net.output_slope);
        Vec<T> slope_sum{};
        totals_.resize(history.count);
        for (index_t k = 0; k < history.count; ++k) {
            T* g = d_weights_.data() + k * stride;
            const T* t = block.t.data() + k * stride;
            Vec<T> total{};
            for (index_t n = 0; n < padded; n += lanes<T>) {
                const Vec<T> x = load(t + n);
                Vec<T> y = load(g + n);
                slope_sum += x > T(0) ? Vec<T>{} : x * y;
                y = x > T(0) ? y : y * slope;
                store(g + n, y);
                total += y;
            }
            totals_[k] = horizontal_sum<T>(total);
            *sums.output_bias += totals_[k];
        }
        *sums.output_slope += horizontal_sum<T>(slope_sum);
    }

    void finish_nodes(const Network<T>& net, NodeBlock<T>& block) {
        d_nodes.stride = net.dp;
        d_nodes.values.resize(block.padded * net.dp + 2 * lanes<T>);
        transpose(d_nodes.row(0), net.dp, d_coordinates_.data(), block.stride, net.d, block.padded);
    }

    Matrix<T> packed_rows_;
};

}  // namespace beamtree
