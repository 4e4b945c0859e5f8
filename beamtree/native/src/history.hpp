// What is prepared once per (request, level): the history's distinct rows and their shares of the first layers.
//
// On the upper levels many history positions share an ancestor. Equal rows have equal attention weights, so the kernels work
// on distinct rows; a row's share of the first perceptron layer sums over the windows it occurs in, with its counts.
#pragma once

#include <algorithm>
#include <vector>

#include "matmul.hpp"
#include "network.hpp"
#include "table.hpp"

namespace beamtree {

template <class T>
struct History {
    // One entry per (distinct row, window) with its number of occurrences, ordered by window.
    struct Occurrence {
        index_t window;
        index_t distinct;
        index_t times;
    };

    index_t count = 0;                 // distinct rows
    std::vector<index_t> rows;         // (count,) ascending ids in the table
    std::vector<Occurrence> occurrences;
    Matrix<T> a;                       // (count, dp)
    Matrix<T> u;                       // (count, h): W_a a_k + b, unit i scaled by |r_i| (network.hpp)
    Matrix<T> linear;                  // (count, dp): what the linear part of the attention multiplies the node with
    Buffer<T> linear_bias;             // (count,): and what it adds
    Matrix<T> g;                       // (count + d, m1): share of each attention weight, then of each node coordinate
    Buffer<T> bias;                    // (m1,) of the first perceptron layer, what the request adds to it included

    // positions: (K,) rows of the table, oldest first, negative = padding. layer_offset: (m1,), what features of the user
    // and of the context add to the first perceptron layer, for all nodes alike; null = nothing.
    void prepare(const Network<T>& net, const Table& table, const index_t* positions, const T* layer_offset = nullptr) {
        find_distinct(net, positions);
        a.reserve(count, net.dp);
        for (index_t k = 0; k < count; ++k) table.prefetch(rows[static_cast<std::size_t>(k)]);
        for (index_t k = 0; k < count; ++k) table.copy_row(rows[static_cast<std::size_t>(k)], a.row(k), net.dp);
        prepare_attention(net);
        prepare_first_layer(net);
        prepare_bias(net, layer_offset);
    }

    void prepare_attention(const Network<T>& net) {
        const index_t hp = round_up(net.h, lanes<T>);
        u.reserve(count, hp);
        for (index_t k = 0; k < count; ++k)
            for (index_t i = 0; i < hp; i += lanes<T>)
                store(u.row(k) + i, i < net.h ? load(net.scaled_bias.data() + i) : Vec<T>{});
        multiply<Layout::by_rows, Start::add>(u.row(0), u.stride, a.row(0), a.stride, net.wa_scaled_t.row(0),
                                              net.wa_scaled_t.stride, count, net.d, hp);
        linear.reserve(count, net.dp);
        linear_bias.resize(count);
        for (index_t k = 0; k < count; ++k) {
            Vec<T> along{};
            for (index_t j = 0; j < net.dp; j += lanes<T>) {
                const Vec<T> vector = load(a.row(k) + j);
                along += load(net.linear_a.data() + j) * vector;
                store(linear.row(k) + j,
                      net.hidden_slope * (vector * load(net.linear_p.data() + j) + load(net.linear_w.data() + j)));
            }
            linear_bias[k] = net.output_bias + net.hidden_slope * (net.linear_bias + horizontal_sum<T>(along));
        }
    }

   private:
    Matrix<T> scaled_, shares_;
    std::vector<std::pair<index_t, index_t>> order_;

    void find_distinct(const Network<T>& net, const index_t* positions) {
        order_.clear();
        for (index_t k = 0; k < static_cast<index_t>(net.window_of.size()); ++k)
            if (positions[k] >= 0) order_.emplace_back(positions[k], net.window_of[static_cast<std::size_t>(k)]);
        std::sort(order_.begin(), order_.end());
        rows.clear();
        occurrences.clear();
        for (std::size_t i = 0; i < order_.size(); ++i) {
            auto [row, window] = order_[i];
            if (rows.empty() || rows.back() != row) rows.push_back(row);
            const index_t distinct = static_cast<index_t>(rows.size()) - 1;
            if (i > 0 && order_[i] == order_[i - 1])
                ++occurrences.back().times;
            else
                occurrences.push_back({window, distinct, 1});
        }
        count = static_cast<index_t>(rows.size());
        std::sort(occurrences.begin(), occurrences.end(), [](const Occurrence& x, const Occurrence& y) {
            return x.window != y.window ? x.window < y.window : x.distinct < y.distinct;
        });
    }

    void prepare_bias(const Network<T>& net, const T* layer_offset) {
        bias.resize(net.m[0]);
        for (index_t i = 0; i < net.m[0]; ++i) bias[i] = layer_offset == nullptr ? net.bias[0][i] : net.bias[0][i] + layer_offset[i];
    }

    void prepare_first_layer(const Network<T>& net) {
        const index_t m1 = round_up(net.m[0], lanes<T>);
        const index_t total = static_cast<index_t>(occurrences.size());
        g.reserve(count + net.d, m1);
        scaled_.reserve(total, net.dp);
        shares_.reserve(total, m1);
        for (index_t i = 0; i < total; ++i) {
            const Occurrence& o = occurrences[static_cast<std::size_t>(i)];
            for (index_t j = 0; j < net.dp; ++j) scaled_.row(i)[j] = static_cast<T>(o.times) * a.row(o.distinct)[j];
        }
        for (index_t first = 0; first < total;) {
            const index_t window = occurrences[static_cast<std::size_t>(first)].window;
            index_t last = first;
            while (last < total && occurrences[static_cast<std::size_t>(last)].window == window) ++last;
            multiply<Layout::by_rows, Start::zero>(shares_.row(first), shares_.stride, scaled_.row(first), scaled_.stride,
                                                   net.w1_t.row(window * net.d), net.w1_t.stride, last - first, net.d, m1);
            first = last;
        }
        std::memset(static_cast<void*>(g.row(0)), 0, static_cast<std::size_t>(count * g.stride) * sizeof(T));
        for (index_t i = 0; i < total; ++i) {
            T* sum = g.row(occurrences[static_cast<std::size_t>(i)].distinct);
            for (index_t j = 0; j < m1; j += lanes<T>) store(sum + j, load(sum + j) + load(shares_.row(i) + j));
        }
        const index_t node_part = net.sizes.num_windows() * net.d;
        for (index_t j = 0; j < net.d; ++j)
            std::memcpy(g.row(count + j), net.w1_t.row(node_part + j), static_cast<std::size_t>(m1) * sizeof(T));
    }
};

}  // namespace beamtree
