// The attention unit backwards, in the terms of its derivation in network.hpp.
//
// The forward pass kept one bit per (history row, hidden unit, node), whether the unit is active, so no product is computed
// twice.
#pragma once

#include "block_gradients.hpp"
#include "gradients.hpp"

namespace beamtree {

template <class T>
class AttentionBackward {
   public:
    // From at.d_weights, which it changes, to the unit's sums; adds to at.d_history and at.d_coordinates.
    void run(const Network<T>& net, const History<T>& history, const NodeBlock<T>& block, Gradients<T>& sums,
             BlockGradients<T>& at) {
        const index_t d = net.d, dp = net.dp, h = net.h, stride = block.stride, padded = block.padded;
        const index_t count = history.count;
        output_activation(net, history, block, sums, at.d_weights.data());
        const T* g = at.d_weights.data();
        T* d_coordinates = at.d_coordinates.data();
        Matrix<T>& d_history = at.d_history;
        // The linear part.
        pulled_.reserve(count, dp);
        multiply<Layout::by_rows, Start::zero>(pulled_.row(0), pulled_.stride, g, stride, block.w.row(0), block.w.stride,
                                               count, block.count, dp);
        multiply<Layout::by_depth, Start::add>(d_coordinates, stride, history.linear.row(0), history.linear.stride, g,
                                               stride, d, count, padded);
        for (index_t k = 0; k < count; ++k) {
            const T *a = history.a.row(k), *pull = pulled_.row(k);
            for (index_t j = 0; j < d; ++j) {
                sums.linear_p[j] += a[j] * pull[j];
                sums.linear_w[j] += pull[j];
                sums.linear_a[j] += a[j] * totals_[k];
                d_history.row(k)[j] += net.hidden_slope * (pull[j] * net.linear_p[j] + totals_[k] * net.linear_a[j]);
            }
            *sums.linear_bias += totals_[k];
        }
        // The rectified part.
        const index_t hp = round_up(h, lanes<T>);
        active_totals_.allocate(count, hp);
        active_.resize(h * active_stride + 2 * lanes<T>);
        T* packed = packed_.resize(h * dp);
        T* lane_sums = lane_sums_.zeroed(hp * lanes<T>);
        T* found = found_.resize(hp);
        for (index_t k = 0; k < count; ++k) {
            const T* a = history.a.row(k);
            pack_rectified(net, a, packed);
            for (index_t start = 0; start < block.count; start += active_columns) {
                const index_t columns = std::min(active_columns, padded - start);
                keep_active(g + k * stride + start, block.signs(k, 0, h) + start / lanes<T>, block.bits_stride, h, columns,
                            active_.data(), lane_sums);
                sum_lanes(found, lane_sums, h);
                for (index_t i = 0; i < h; ++i) active_totals_.row(k)[i] += found[i];
                multiply<Layout::by_depth, Start::add>(d_coordinates + start, stride, packed, dp, active_.data(),
                                                       active_stride, d, h, columns);
                hidden_products(net, active_.data(), block.w.row(start), std::min(columns, block.count - start), a,
                                d_history.row(k), sums);
            }
        }
        multiply<Layout::by_depth, Start::add>(sums.rectified_a, dp, active_totals_.row(0), active_totals_.stride,
                                               history.a.row(0), history.a.stride, h, count, dp);
        multiply<Layout::by_rows, Start::add>(d_history.row(0), d_history.stride, active_totals_.row(0),
                                              active_totals_.stride, net.wa_rectified.row(0), net.wa_rectified.stride,
                                              count, h, dp);
        for (index_t k = 0; k < count; ++k)
            for (index_t i = 0; i < h; ++i) sums.rectified_bias[i] += active_totals_.row(k)[i];
    }

   private:
    Matrix<T> pulled_;         // (history, dp): sum over nodes of gradient times embedding
    Buffer<T> totals_;         // (history,)
    Matrix<T> active_totals_;  // (history, h): sums over the nodes for which a unit is active
    Buffer<T> active_;         // (h, active_stride)
    Buffer<T> packed_;         // (h, dp)
    Buffer<T> lane_sums_, found_;

    // Nodes that the active units are spelled out for at a time. The stride is known to the compiler: twelve rows are read at
    // once, and constant distances spare it twelve registers.
    static constexpr index_t active_columns = 80;
    static constexpr index_t active_stride = 80;

    // out (h, dp) = W_p diag(a) + W_w, row i times r_i.
    static __attribute__((noinline)) void pack_rectified(const Network<T>& net, const T* a, T* out) {
        const index_t h = net.h, dp = net.dp, stride = net.wp_rectified.stride;
        const T *wp = net.wp_rectified.row(0), *ww = net.ww_rectified.row(0);
        for (index_t i = 0; i < h; ++i, wp += stride, ww += stride, out += dp)
            for (index_t j = 0; j < dp; j += lanes<T>) store(out + j, load(wp + j) * load(a + j) + load(ww + j));
    }

    // active (h, columns) = g (columns,) where a unit is active, else zero; lane_sums (h, lanes) adds each row up.
    static __attribute__((noinline)) void keep_active(const T* g, const std::uint8_t* signs, index_t signs_stride, index_t h,
                                                      index_t columns, T* active, T* lane_sums) {
        for (index_t i = 0; i < h; ++i, signs += signs_stride, active += active_stride) {
            Vec<T> sum{};
            for (index_t n = 0; n < columns; n += lanes<T>) {
                const Vec<T> kept = keep<T>(load(g + n), signs[n / lanes<T>]);
                store(active + n, kept);
                sum += kept;
            }
            store(lane_sums + i * lanes<T>, sum);
        }
    }

    // For one history row: Q = active (h, count) times embeddings w (count, dp), and where it goes.
    static __attribute__((noinline)) void hidden_products(const Network<T>& net, const T* active, const T* w, index_t count,
                                                          const T* a, T* d_a, Gradients<T>& sums) {
        const index_t dp = net.dp, rectified_stride = net.wp_rectified.stride;
        T *rectified_p = sums.rectified_p, *rectified_w = sums.rectified_w;
        const T* wp_rectified = net.wp_rectified.row(0);
        for_column_tiles<T>(dp, [&]<int V>(index_t column) BEAMTREE_INLINE_LAMBDA {
            for_row_blocks<V>(net.h, [&]<int R>(index_t row) BEAMTREE_INLINE_LAMBDA {
                Tile<T, R, V> tile{};
                tile.template accumulate<Layout::by_rows>(active + row * active_stride, active_stride, w + column, dp, count);
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
                        store(rectified_p + at, load(rectified_p + at) + q * scale[v]);
                        store(rectified_w + at, load(rectified_w + at) + q);
                        sum[v] += q * load(wp_rectified + (row + r) * rectified_stride + column + v * lanes<T>);
                    }
#pragma GCC unroll 12
                for (int v = 0; v < V; ++v) store(d_a + column + v * lanes<T>, sum[v]);
            });
        });
    }

    // Takes d_weights (history, stride) before the attention unit's last PReLU.
    void output_activation(const Network<T>& net, const History<T>& history, const NodeBlock<T>& block, Gradients<T>& sums,
                           T* d_weights) {
        const index_t stride = block.stride, padded = block.padded;
        const Vec<T> slope = splat(net.output_slope);
        Vec<T> slope_sum{};
        totals_.resize(history.count);
        for (index_t k = 0; k < history.count; ++k) {
            T* g = d_weights + k * stride;
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
};

}  // namespace beamtree
