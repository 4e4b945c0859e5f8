// The tower: a request is one vector, made once by a sequence encoder; a node's score is the inner product with its own.
//
// Items of the history are read from the same table as the nodes: an item's vector is that of its leaf.
#pragma once

#include "history_span.hpp"
#include "sequence_encoder.hpp"
#include "tree.hpp"

namespace beamtree {

struct Tower {
    const SequenceEncoder& encoder;
    const float* node_table;  // (nodes, width)
    float weight;             // what the tower counts in a sum

    const float* row(index_t node) const { return node_table + node * encoder.width; }

    // Into the second-level cache: more rows can be under way to it than to the first.
    void prefetch(index_t node) const {
        const char* first = reinterpret_cast<const char*>(row(node));
        const index_t bytes = encoder.width * static_cast<index_t>(sizeof(float));
        for (index_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(first + byte, 0, 1);
        __builtin_prefetch(first + bytes - 1, 0, 1);
    }

    // The request's vector, to out (width,), up to whole vectors.
    void encode(const Tree& tree, const HistorySpan& history, float* out) const {
        const index_t known = std::min(history.length, encoder.history_length);
        const std::int32_t* latest = history.items + (history.length - known);
        const index_t leaves = tree.offset(tree.height);
        auto row_of = [&](index_t i) { return leaves + tree.leaf_of_item[latest[i]]; };
        for (index_t i = 0; i < known; ++i) prefetch(row_of(i));
        encoder.encode(known, [&](index_t i, float* to) { std::copy_n(row(row_of(i)), encoder.width, to); }, out);
    }
};

// One request's vector, and the scores that follow from it.
class EncodedRequest {
   public:
    // offset: (width,), added to the encoded history, null = nothing.
    void prepare(const Tower& tower, const Tree& tree, const HistorySpan& history, const float* offset) {
        tower_ = &tower;
        tree_ = &tree;
        const index_t width = tower.encoder.width;
        vector_.resize(round_up(width, lanes<float>));
        tower.encode(tree, history, vector_.data());
        if (offset != nullptr)
            for (index_t j = 0; j < width; ++j) vector_[j] += offset[j];
        for (index_t j = 0; j < width; ++j) vector_[j] *= tower.weight;
    }

    // Adds to the scores (count,) of nodes (count,) of a level.
    void add(index_t level, const index_t* nodes, index_t count, float* scores) const {
        const index_t offset = tree_->offset(level);
        for (index_t i = 0; i < std::min(ahead, count); ++i) tower_->prefetch(offset + nodes[i]);
        for (index_t first = 0; first < count; first += at_once) {
            for (index_t i = first + ahead; i < std::min(first + ahead + at_once, count); ++i)
                tower_->prefetch(offset + nodes[i]);
            const float* rows[at_once];
            const index_t present = std::min(at_once, count - first);
            // A node's sum is the same whatever nodes it is computed with: where some are missing, the first stands in.
            for (index_t i = 0; i < at_once; ++i) rows[i] = tower_->row(offset + nodes[i < present ? first + i : first]);
            float products[at_once];
            multiply_rows(rows, products);
            for (index_t i = 0; i < present; ++i) scores[first + i] += products[i];
        }
    }

   private:
    static constexpr index_t at_once = lanes<float>;
    static constexpr index_t ahead = 12 * at_once;  // rows that are on their way from memory

    // products (at_once,) = inner products of rows with the request's vector.
    void multiply_rows(const float* const* rows, float* products) const {
        const index_t width = tower_->encoder.width, whole = width / lanes<float> * lanes<float>;
        Floats sums[at_once] = {};
        for (index_t j = 0; j < whole; j += lanes<float>) {
            const Floats vector = load(vector_.data() + j);
#pragma GCC unroll 8
            for (index_t i = 0; i < at_once; ++i) multiply_add(sums[i], load(rows[i] + j), vector);
        }
        float by_lane[at_once * lanes<float>];
#pragma GCC unroll 8
        for (index_t i = 0; i < at_once; ++i) store(by_lane + i * lanes<float>, sums[i]);
        for (index_t i = 0; i < at_once; ++i)
            for (index_t j = whole; j < width; ++j) by_lane[i * lanes<float> + j - whole] += rows[i][j] * vector_[j];
        sum_lanes(products, by_lane, at_once);
    }

    const Tower* tower_ = nullptr;
    const Tree* tree_ = nullptr;
    Buffer<float> vector_;
};

}  // namespace beamtree
