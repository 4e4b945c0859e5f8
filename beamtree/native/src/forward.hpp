// Scores of a block of nodes against one prepared history, all in cache: attention unit, first layer, perceptron.
//
// A block keeps its columns (nodes) in the lanes. Nothing of size nodes x K x h is ever stored: the hidden layer of the
// attention unit lives in registers, and the backward pass needs only the signs, one bit each.
#pragma once

#include "history.hpp"
#include "random.hpp"

namespace beamtree {

// Columns that stay in the first-level cache while the history runs past them.
inline constexpr index_t columns_in_cache = 320;

struct Dropout {
    float rate = 0;
    std::uint64_t seed = 0;
};

template <class T>
struct NodeBlock {
    index_t count = 0;    // nodes
    index_t padded = 0;   // up to whole vectors; the columns behind count hold zero embeddings
    index_t stride = 0;   // of every matrix whose columns are nodes
    index_t history = 0;  // distinct history rows

    Matrix<T> w;               // (padded, dp) embeddings
    Buffer<T> y0;              // (history + d, stride): attention weights, then the embeddings' coordinates
    Buffer<T> t;               // (history, stride): attention before its last PReLU
    Buffer<std::uint8_t> bits; // (history, h, bits_stride): signs of the hidden layer, one byte per vector
    index_t bits_stride = 0;
    std::vector<Buffer<T>> hat;      // (layers,) normalised values before gain and offset
    std::vector<Buffer<T>> inverse;  // (layers,) of (padded,) 1 / standard deviation
    std::vector<Buffer<T>> pre;      // (layers,) before the PReLU
    std::vector<Buffer<T>> out;      // (layers,) after it
    Buffer<T> score;           // (padded,)
    Buffer<T> packed;          // (d, h) weights of the history row at work, see AttendRow

    void resize(const Network<T>& net, index_t nodes) {
        count = nodes;
        padded = round_up(nodes, lanes<T>);
        stride = row_stride<T>(padded);
        w.stride = net.dp;
        w.values.resize(padded * net.dp + 2 * lanes<T>);
        for (std::vector<Buffer<T>>* buffers : {&hat, &inverse, &pre, &out})
            if (buffers->size() < net.layers) *buffers = std::vector<Buffer<T>>(net.layers);
    }

    // rows: (nodes,) rows of the table.
    template <class Row>
    void gather(const Network<T>& net, const Table& table, const Row* rows, index_t nodes) {
        resize(net, nodes);
        constexpr index_t ahead = 16;
        for (index_t n = 0; n < std::min(ahead, nodes); ++n) table.prefetch(static_cast<index_t>(rows[n]));
        for (index_t n = 0; n < nodes; ++n) {
            if (n + ahead < nodes) table.prefetch(static_cast<index_t>(rows[n + ahead]));
            table.copy_row(static_cast<index_t>(rows[n]), w.row(n), net.dp);
        }
        for (index_t i = nodes * net.dp; i < padded * net.dp; ++i) w.values[i] = 0;
    }

    T* weights(index_t k) { return y0.data() + k * stride; }
    T* coordinates() { return y0.data() + history * stride; }
    const std::uint8_t* signs(index_t k, index_t unit, index_t units) const {
        return bits.data() + (k * units + unit) * bits_stride;
    }
};

// out (d, h) = (W_p diag(a) + W_w) transposed and scaled, for one history row a; h in N vectors.
template <int N, class T>
void pack_vectors(const Network<T>& net, const T* a, T* out, index_t out_stride, index_t first) {
    const index_t stride = net.wp_scaled_t.stride;
    const T *wp = net.wp_scaled_t.row(0) + first, *ww = net.ww_scaled_t.row(0) + first;
    out += first;
    for (index_t j = net.d; j > 0; --j, ++a, wp += stride, ww += stride, out += out_stride) {
        const Vec<T> scale = splat(*a);
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i)
            store(out + i * lanes<T>, load(wp + i * lanes<T>) * scale + load(ww + i * lanes<T>));
    }
}

template <class T>
__attribute__((noinline)) void pack_row(const Network<T>& net, const T* a, T* out, index_t out_stride) {
    for (index_t first = 0; first < net.h; first += 6 * lanes<T>) {
        switch (std::min<index_t>(6, (net.h - first + lanes<T> - 1) / lanes<T>)) {
            case 1: pack_vectors<1>(net, a, out, out_stride, first); break;
            case 2: pack_vectors<2>(net, a, out, out_stride, first); break;
            case 3: pack_vectors<3>(net, a, out, out_stride, first); break;
            case 4: pack_vectors<4>(net, a, out, out_stride, first); break;
            case 5: pack_vectors<5>(net, a, out, out_stride, first); break;
            default: pack_vectors<6>(net, a, out, out_stride, first); break;
        }
    }
}

// One history row against a stretch of columns.
template <class T>
struct AttendRow {
    const T* packed;  // (d, h): W_p diag(a_k) + W_w transposed, unit i scaled by |r_i| (network.hpp)
    index_t packed_stride;
    const T* u;            // (h,)
    const T* coordinates;  // (d, columns)
    index_t stride;
    T* t;                 // (columns,) before the last PReLU: the linear part, to which the rectified part is added
    T* s;                 // (columns,) after it; may be t
    std::uint8_t* signs;  // (h, bits_stride)
    index_t bits_stride;
    index_t columns;
};

// A function of its own, so that its inner loop has the registers to itself.
template <bool keep_signs, class T>
__attribute__((noinline)) void attend_row(const Network<T>& net, const AttendRow<T> at) {
    const index_t d = net.d, positive_end = net.positive_end, negative_end = net.negative_end;
    const index_t rows = keep_signs ? net.h : negative_end;  // zero units add nothing, but the backward pass needs them
    const T* unit_sign = net.unit_sign.data();
    for_column_tiles<T>(at.columns, [&]<int V>(index_t column) BEAMTREE_INLINE_LAMBDA {
        T* t = at.t + column;
        for_row_blocks<V>(rows, [&]<int R>(index_t row) BEAMTREE_INLINE_LAMBDA {
            Tile<T, R, V> tile;
#pragma GCC unroll 12
            for (int r = 0; r < R; ++r)
#pragma GCC unroll 12
                for (int v = 0; v < V; ++v) tile.at[r][v] = splat(at.u[row + r]);
            tile.template accumulate<Layout::by_depth>(at.packed + row, at.packed_stride, at.coordinates + column, at.stride,
                                                       d);
            const Vec<T> zero = fresh_zero<T>();
            if constexpr (keep_signs)
#pragma GCC unroll 12
                for (int r = 0; r < R; ++r)
#pragma GCC unroll 12
                    for (int v = 0; v < V; ++v)
                        at.signs[(row + r) * at.bits_stride + column / lanes<T> + v] =
                            positive_bits<T>(tile.at[r][v], zero);
            // Always in the same groups, so that a weight does not depend on the tile that its column falls into.
            constexpr int group = R > max_rows<2> ? R / 2 : R;
#pragma GCC unroll 2
            for (int g = 0; g < R; g += group) {
                const bool positive = row + g + group <= positive_end;
                const bool negative = row + g >= positive_end && row + g + group <= negative_end;
                Vec<T> sum[V];
#pragma GCC unroll 12
                for (int v = 0; v < V; ++v) sum[v] = positive_part<T>(tile.at[g][v], zero);
                if (positive || negative) {
#pragma GCC unroll 12
                    for (int r = g + 1; r < g + group; ++r)
#pragma GCC unroll 12
                        for (int v = 0; v < V; ++v) sum[v] += positive_part<T>(tile.at[r][v], zero);
                    if (positive)
#pragma GCC unroll 12
                        for (int v = 0; v < V; ++v) store(t + v * lanes<T>, load(t + v * lanes<T>) + sum[v]);
                    else
#pragma GCC unroll 12
                        for (int v = 0; v < V; ++v) store(t + v * lanes<T>, load(t + v * lanes<T>) - sum[v]);
                } else {
                    const T* sign = unit_sign + row;
#pragma GCC unroll 12
                    for (int v = 0; v < V; ++v) sum[v] *= sign[g];
#pragma GCC unroll 12
                    for (int r = g + 1; r < g + group; ++r)
#pragma GCC unroll 12
                        for (int v = 0; v < V; ++v) sum[v] += positive_part<T>(tile.at[r][v], zero) * sign[r];
#pragma GCC unroll 12
                    for (int v = 0; v < V; ++v) store(t + v * lanes<T>, load(t + v * lanes<T>) + sum[v]);
                }
            }
        });
    });
    const Vec<T> slope = splat(net.output_slope);
    for (index_t n = 0; n < at.columns; n += lanes<T>) store(at.s + n, leaky<T>(load(at.t + n), slope));
}

// Where the weights of a block are wanted besides, if anywhere: row k at first + k * stride.
template <class T>
struct WeightsOut {
    T* first = nullptr;
    index_t stride = 0;

    // These columns of row k are written a few microseconds later.
    void expect(index_t k, index_t column, index_t count) const {
        constexpr index_t line = 64 / static_cast<index_t>(sizeof(T));
        if (first == nullptr) return;
        for (index_t n = column; n < column + count; n += line) __builtin_prefetch(first + k * stride + n, 1);
    }

    void copy(index_t k, index_t column, index_t count, const T* weights) const {
        if (first == nullptr) return;
        std::memcpy(first + k * stride + column, weights, static_cast<std::size_t>(count) * sizeof(T));
    }
};

// Attention weights of every (history row, node): block.weights(k). With keep_signs, also block.t and block.bits.
template <bool keep_signs, class T>
void attend(const Network<T>& net, const History<T>& history, NodeBlock<T>& block, const WeightsOut<T>& out = {}) {
    const index_t d = net.d, h = net.h, stride = block.stride;
    block.history = history.count;
    block.y0.resize((history.count + d) * stride + 2 * lanes<T>);
    transpose(block.coordinates(), stride, block.w.row(0), block.w.stride, block.padded, d);
    T* before = block.y0.data();
    if constexpr (keep_signs) {
        before = block.t.resize(history.count * stride + 2 * lanes<T>);
        block.bits_stride = round_up(block.padded / lanes<T>, 8);
        block.bits.resize(history.count * h * block.bits_stride);
    }
    multiply<Layout::by_rows, Start::row_bias>(before, stride, history.linear.row(0), history.linear.stride,
                                               block.coordinates(), stride, history.count, d, block.padded,
                                               history.linear_bias.data());
    const index_t packed_stride = row_stride<T>(round_up(h, lanes<T>));
    T* packed = block.packed.resize(d * packed_stride);
    for (index_t start = 0; start < block.padded; start += columns_in_cache) {
        const index_t end = std::min(start + columns_in_cache, block.padded), counted = std::min(end, block.count) - start;
        for (index_t k = 0; k < history.count; ++k) {
            out.expect(k, start, counted);
            pack_row(net, history.a.row(k), packed, packed_stride);
            std::uint8_t* signs = keep_signs ? block.bits.data() + k * h * block.bits_stride + start / lanes<T> : nullptr;
            attend_row<keep_signs>(net, AttendRow<T>{packed, packed_stride, history.u.row(k), block.coordinates() + start,
                                                     stride, before + k * stride + start, block.weights(k) + start, signs,
                                                     block.bits_stride, end - start});
            out.copy(k, start, counted, block.weights(k) + start);
        }
    }
}

// Standardises every column of x (units x padded) in place and keeps the inverse deviation.
template <class T>
void standardise(T* x, index_t units, index_t stride, index_t padded, T* inverse) {
    constexpr T epsilon = static_cast<T>(1e-5);
    const T share = T(1) / static_cast<T>(units);
    for (index_t n = 0; n < padded; n += lanes<T>) {
        Vec<T> sum{}, squares{};
        for (index_t i = 0; i < units; ++i) sum += load(x + i * stride + n);
        const Vec<T> mean = sum * share;
        for (index_t i = 0; i < units; ++i) {
            const Vec<T> centred = load(x + i * stride + n) - mean;
            squares += centred * centred;
        }
        Vec<T> scale{};
        for (index_t lane = 0; lane < lanes<T>; ++lane) scale[lane] = T(1) / std::sqrt(squares[lane] * share + epsilon);
        for (index_t i = 0; i < units; ++i) store(x + i * stride + n, (load(x + i * stride + n) - mean) * scale);
        store(inverse + n, scale);
    }
}

// Scores from attention weights. With keep, everything that the backward pass reads stays in the block.
template <bool keep, class T>
void score(const Network<T>& net, const History<T>& history, NodeBlock<T>& block, const Dropout& dropout = {},
           index_t row = 0) {
    const index_t stride = block.stride, padded = block.padded;
    const T* input = block.y0.data();
    index_t inputs = history.count + net.d;
    for (std::size_t layer = 0; layer < net.layers; ++layer) {
        const index_t units = net.m[layer];
        const Matrix<T>& weights = layer == 0 ? history.g : net.upper_t[layer];
        T* x = block.pre[layer].resize(units * stride + 2 * lanes<T>);
        const T* bias = layer == 0 ? history.bias.data() : net.bias[layer].data();
        multiply<Layout::by_depth, Start::row_bias>(x, stride, weights.row(0), weights.stride, input, stride, units, inputs, padded, bias);
        const bool normalised = net.sizes.normalisation == Normalisation::layer;
        if (normalised) {
            standardise(x, units, stride, padded, block.inverse[layer].resize(padded));
            if constexpr (keep) {
                T* hat = block.hat[layer].resize(units * stride);
                std::memcpy(hat, x, static_cast<std::size_t>(units * stride) * sizeof(T));
            }
        }
        const bool dropped = layer == 0 && dropout.rate > 0;
        const DropoutMask mask(dropout.seed, row, dropout.rate);
        T* y = keep ? block.out[layer].resize(units * stride + 2 * lanes<T>) : x;
        const Vec<T> slope = splat(net.mlp_slope[layer]);
        for (index_t i = 0; i < units; ++i) {
            T* x_row = x + i * stride;
            if (normalised)
                for (index_t n = 0; n < padded; n += lanes<T>)
                    store(x_row + n, load(x_row + n) * net.norm_weight[layer][i] + net.norm_bias[layer][i]);
            if (dropped) mask.apply(x_row, padded, i);
            for (index_t n = 0; n < padded; n += lanes<T>) store(y + i * stride + n, leaky<T>(load(x_row + n), slope));
        }
        input = y;
        inputs = units;
    }
    T* scores = block.score.resize(padded);
    for (index_t n = 0; n < padded; n += lanes<T>) {
        Vec<T> sum = splat(net.last_bias);
        for (index_t i = 0; i < inputs; ++i) sum += load(input + i * stride + n) * net.output[i];
        store(scores + n, sum);
    }
}

// Scores of many nodes: rows (count,) of the table, scores (count,).
template <class T, class Row>
void score_nodes(const Network<T>& net, const History<T>& history, const Table& table, const Row* rows, index_t count,
                 NodeBlock<T>& block, T* scores) {
    const index_t pieces = (count + columns_in_cache - 1) / columns_in_cache;
    for (index_t piece = 0, first = 0; piece < pieces; ++piece) {
        const index_t share = std::min(count - first, round_up((count - first) / (pieces - piece), 2 * lanes<T>));
        block.gather(net, table, rows + first, share);
        attend<false>(net, history, block);
        score<false>(net, history, block);
        std::memcpy(scores + first, block.score.data(), static_cast<std::size_t>(share) * sizeof(T));
        first += share;
    }
}

}  // namespace beamtree
