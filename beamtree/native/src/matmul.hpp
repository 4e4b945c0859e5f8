// Products of small matrices held in cache: out (rows x columns) = A (rows x depth) times B (depth x columns).
//
// The lanes of a vector are neighbouring columns. A tile of a few rows by one or two vectors stays in registers while
// the depth runs, so each step costs one load per vector, one broadcast per row, and rows x vectors fused multiply-adds.
#pragma once

#include "simd.hpp"

namespace beamtree {

// How A is laid out: by depth (element (r, j) at a[j * stride + r]) or by rows (at a[r * stride + j]).
enum class Layout { by_depth, by_rows };

// What the product is added to: nothing, what out holds, a bias for each row or for each column, or out and the latter.
enum class Start { zero, add, row_bias, column_bias, add_and_column_bias };

template <class T, int R, int V>
struct Tile {
    Vec<T> at[R][V];

    template <Layout layout>
    BEAMTREE_INLINE void step(const T* a, index_t a_stride, const T* b) {
        Vec<T> column[V];
#pragma GCC unroll 12
        for (int v = 0; v < V; ++v) {
            column[v] = load(b + v * lanes<T>);
            hold_in_register(column[v]);
        }
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) {
            Vec<T> scalar = splat(layout == Layout::by_depth ? a[r] : a[r * a_stride]);
#pragma GCC unroll 12
            for (int v = 0; v < V; ++v) multiply_add(at[r][v], scalar, column[v]);
        }
    }

    template <Layout layout>
    BEAMTREE_INLINE void accumulate(const T* a, index_t a_stride, const T* b, index_t b_stride, index_t depth) {
        const index_t a_step = layout == Layout::by_depth ? a_stride : 1;
        for (; depth >= 4; depth -= 4) {
#pragma GCC unroll 4
            for (int u = 0; u < 4; ++u) {
                if (layout == Layout::by_depth) hold_address(a);
                step<layout>(a, a_stride, b);
                a += a_step;
                b += b_stride;
            }
        }
        for (; depth > 0; --depth) {
            step<layout>(a, a_stride, b);
            a += a_step;
            b += b_stride;
        }
    }
};

// The most rows of a tile that is V vectors wide: twelve accumulators, the columns and one broadcast fit the registers.
template <int V>
inline constexpr int max_rows = 12 / V;

// Calls body.operator()<R>(first_row) so that the blocks cover all rows; the last two share what is left, because fewer
// accumulators than the latency of the multiply-add leave the units idle. Blocks of a tile of one vector are one or two
// whole blocks of a tile of two.
template <int V, class Body>
BEAMTREE_INLINE void for_row_blocks(index_t rows, Body&& body) {
    constexpr int full = max_rows<2>;
    index_t row = 0;
    if constexpr (V == 1)
        for (; rows - row >= 2 * full && (rows - row == 2 * full || rows - row >= 2 * full + 4); row += 2 * full)
            body.template operator()<2 * full>(row);
    for (; rows - row >= full && (rows - row == full || rows - row >= full + 4); row += full)
        body.template operator()<full>(row);
    while (row < rows) {
        const index_t left = rows - row, size = left > full ? (left + 1) / 2 : left;
        switch (size) {
            case 1: body.template operator()<1>(row); break;
            case 2: body.template operator()<2>(row); break;
            case 3: body.template operator()<3>(row); break;
            case 4: body.template operator()<4>(row); break;
            default: body.template operator()<5>(row); break;
        }
        row += size;
    }
}

// Calls body.operator()<V>(first_column) for tiles of two vectors and, where the number is odd, a last one of one vector.
template <class T, class Body>
BEAMTREE_INLINE void for_column_tiles(index_t padded_columns, Body&& body) {
    index_t column = 0;
    for (; padded_columns - column >= 2 * lanes<T>; column += 2 * lanes<T>) body.template operator()<2>(column);
    if (column < padded_columns) body.template operator()<1>(column);
}

// padded_columns is a multiple of the lanes; out, b and a bias of columns have that many columns per row at least.
template <Layout layout, Start start, class T>
__attribute__((noinline)) void multiply(T* out, index_t out_stride, const T* a, index_t a_stride, const T* b, index_t b_stride, index_t rows,
              index_t depth, index_t padded_columns, const T* bias = nullptr) {
    for_column_tiles<T>(padded_columns, [&]<int V>(index_t column) BEAMTREE_INLINE_LAMBDA {
        for_row_blocks<V>(rows, [&]<int R>(index_t row) BEAMTREE_INLINE_LAMBDA {
            Tile<T, R, V> tile;
            T* corner = out + row * out_stride + column;
#pragma GCC unroll 12
            for (int r = 0; r < R; ++r)
#pragma GCC unroll 12
                for (int v = 0; v < V; ++v) {
                    if constexpr (start == Start::zero) tile.at[r][v] = Vec<T>{};
                    if constexpr (start == Start::add) tile.at[r][v] = load(corner + r * out_stride + v * lanes<T>);
                    if constexpr (start == Start::row_bias) tile.at[r][v] = splat(bias[row + r]);
                    if constexpr (start == Start::column_bias) tile.at[r][v] = load(bias + column + v * lanes<T>);
                    if constexpr (start == Start::add_and_column_bias)
                        tile.at[r][v] = load(corner + r * out_stride + v * lanes<T>) + load(bias + column + v * lanes<T>);
                }
            const T* first = layout == Layout::by_depth ? a + row : a + row * a_stride;
            tile.template accumulate<layout>(first, a_stride, b + column, b_stride, depth);
#pragma GCC unroll 12
            for (int r = 0; r < R; ++r)
#pragma GCC unroll 12
                for (int v = 0; v < V; ++v) store(corner + r * out_stride + v * lanes<T>, tile.at[r][v]);
        });
    });
}

// Eight by eight floats, transposed in registers.
BEAMTREE_INLINE void transpose_block(float* out, index_t out_stride, const float* in, index_t in_stride) {
    Vec<float> row[8], pair[8], four[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) row[i] = load(in + i * in_stride);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        pair[i] = __builtin_shufflevector(row[i], row[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        pair[i + 1] = __builtin_shufflevector(row[i], row[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
        for (int j = 0; j < 2; ++j) {
            four[i + 2 * j] = __builtin_shufflevector(pair[i + j], pair[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            four[i + 2 * j + 1] = __builtin_shufflevector(pair[i + j], pair[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        store(out + i * out_stride, Vec<float>(__builtin_shufflevector(four[i], four[i + 4], 0, 1, 2, 3, 8, 9, 10, 11)));
        store(out + (i + 4) * out_stride,
              Vec<float>(__builtin_shufflevector(four[i], four[i + 4], 4, 5, 6, 7, 12, 13, 14, 15)));
    }
}

// out (rows,) = sums over the lanes of in (rows, lanes); both hold rows up to a multiple of the lanes.
template <class T>
void sum_lanes(T* out, const T* in, index_t rows) {
    for (index_t first = 0; first < rows; first += lanes<T>) {
        if constexpr (std::is_same_v<T, float>) {
            float block[64];
            transpose_block(block, 8, in + first * 8, 8);
            Vec<float> sum = load(block);
            for (int i = 1; i < 8; ++i) sum += load(block + 8 * i);
            store(out + first, sum);
        } else {
            for (index_t i = first; i < first + lanes<T>; ++i) out[i] = horizontal_sum<T>(load(in + i * lanes<T>));
        }
    }
}

// out (columns x rows) = in (rows x columns) transposed; both have the given strides.
template <class T>
void transpose(T* out, index_t out_stride, const T* in, index_t in_stride, index_t rows, index_t columns) {
    constexpr index_t block = 8;
    for (index_t r = 0; r < rows; r += block)
        for (index_t c = 0; c < columns; c += block) {
            if constexpr (std::is_same_v<T, float>)
                if (r + block <= rows && c + block <= columns) {
                    transpose_block(out + c * out_stride + r, out_stride, in + r * in_stride + c, in_stride);
                    continue;
                }
            const index_t r_end = r + block < rows ? r + block : rows;
            const index_t c_end = c + block < columns ? c + block : columns;
            for (index_t i = r; i < r_end; ++i)
                for (index_t j = c; j < c_end; ++j) out[j * out_stride + i] = in[i * in_stride + j];
        }
}

}  // namespace beamtree
