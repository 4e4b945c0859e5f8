// SASRec's encoder: from the vectors of a history to the one of what comes next.
//
// Blocks of self-attention and a small network, each normalised before it and added to what came in. Positions are rows.
// A position sees itself and those before it, each by how many places before, and only the last one is asked for: of the
// last block the others are needed as keys and values alone. What a query meets is taken a few rows at a time, so that it
// stays in cache and what a position cannot see is mostly not computed.
#pragma once

#include <limits>
#include <vector>

#include "linear.hpp"

namespace beamtree {

struct RawBlock {
    RawNorm attention_norm;
    RawLinear queries_keys_values;  // (3 width, width): queries, then keys, then values
    const float* recency;           // (heads, history length): a bias by the distance between positions
    RawLinear merge;                // (width, width)
    RawNorm network_norm;
    RawLinear widen;   // (4 width, width)
    RawLinear narrow;  // (width, 4 width)
};

struct SelfAttentionSizes {
    index_t width;           // of vectors
    index_t heads;           // they share the width evenly
    index_t history_length;  // number of latest items that are read
};

// What it writes to on its way; kept, because it would cost to allocate.
struct SelfAttentionScratch {
    Matrix<float> hidden;                 // (positions, width)
    Matrix<float> normed;                 // likewise
    Matrix<float> queries, keys, values;  // likewise
    Matrix<float> keys_by_depth;          // (width, positions)
    Matrix<float> weights;                // (rows at a time, positions)
    Matrix<float> attended;               // (rows at a time, width)
    Matrix<float> widened;                // (rows at a time, 4 width)

    static SelfAttentionScratch& of_this_thread() {
        static thread_local SelfAttentionScratch scratch;
        return scratch;
    }
};

class SelfAttentionBlock {
   public:
    // Rows that are taken from queries to the block's end at a time.
    static constexpr index_t rows_at_a_time = 24;

    SelfAttentionBlock(const RawBlock& raw, const SelfAttentionSizes& sizes)
        : width_(sizes.width), heads_(sizes.heads), head_width_(width_ / heads_), history_length_(sizes.history_length),
          attention_norm_(raw.attention_norm, width_),
          queries_(third(raw.queries_keys_values, 0, width_), width_, width_,
                   1 / std::sqrt(static_cast<float>(head_width_))),
          keys_(third(raw.queries_keys_values, 1, width_), width_, width_),
          values_(third(raw.queries_keys_values, 2, width_), width_, width_), merge_(raw.merge, width_, width_),
          network_norm_(raw.network_norm, width_), widen_(raw.widen, width_, 4 * width_),
          narrow_(raw.narrow, 4 * width_, width_) {
        recency_.allocate(heads_, history_length_ + rows_at_a_time + lanes<float>);
        for (index_t head = 0; head < heads_; ++head) {
            const float* by_age = raw.recency + head * history_length_;
            std::reverse_copy(by_age, by_age + history_length_, recency_.row(head));
        }
    }

    // The hidden rows from first on, of all positions; the rows before stay as they came in.
    void apply(SelfAttentionScratch& at, index_t positions, index_t first) const {
        // A head's last vector may reach behind its own columns: into the next head's, which are written after it.
        const index_t columns = width_ + 2 * lanes<float>;
        for (Matrix<float>* rows : {&at.normed, &at.queries, &at.keys, &at.values}) rows->reserve(positions, columns);
        at.keys_by_depth.reserve(width_, round_up(positions, lanes<float>));
        at.weights.reserve(rows_at_a_time, round_up(positions, lanes<float>));
        at.attended.reserve(rows_at_a_time, columns);
        at.widened.reserve(rows_at_a_time, round_up(4 * width_, lanes<float>));
        attention_norm_.apply(at.hidden, 0, at.normed, 0, positions);
        queries_.apply(at.normed, first, at.queries, first, positions - first);
        keys_.apply(at.normed, 0, at.keys, 0, positions);
        values_.apply(at.normed, 0, at.values, 0, positions);
        transpose(at.keys_by_depth.row(0), at.keys_by_depth.stride, at.keys.row(0), at.keys.stride, positions, width_);
        for (index_t row = first; row < positions; row += rows_at_a_time)
            finish(at, row, std::min(rows_at_a_time, positions - row));
    }

   private:
    static RawLinear third(const RawLinear& all, index_t number, index_t width) {
        return RawLinear{all.weight + number * width * width, all.bias + number * width};
    }

    void finish(SelfAttentionScratch& at, index_t first, index_t rows) const {
        for (index_t head = 0; head < heads_; ++head) attend(at, head, first, rows);
        merge_.apply<Start::add_and_column_bias>(at.attended, 0, at.hidden, first, rows);
        network_norm_.apply(at.hidden, first, at.normed, first, rows);
        widen_.apply(at.normed, first, at.widened, 0, rows);
        for (index_t i = 0; i < rows; ++i)
            for (index_t j = 0; j < widen_.padded(); j += lanes<float>)
                store(at.widened.row(i) + j, gelu(load(at.widened.row(i) + j)));
        narrow_.apply<Start::add_and_column_bias>(at.widened, 0, at.hidden, first, rows);
    }

    // One head's share of the attended rows.
    void attend(SelfAttentionScratch& at, index_t head, index_t first, index_t rows) const {
        const index_t column = head * head_width_, seen = first + rows, padded = round_up(seen, lanes<float>);
        multiply<Layout::by_rows, Start::zero>(at.weights.row(0), at.weights.stride, at.queries.row(first) + column,
                                               at.queries.stride, at.keys_by_depth.row(column), at.keys_by_depth.stride, rows,
                                               head_width_, padded);
        const float* added = recency_.row(head) + history_length_ - first - 1;
        for (index_t i = 0; i < rows; ++i) softmax(at.weights.row(i), added - i, first + i + 1, padded);
        multiply<Layout::by_rows, Start::zero>(at.attended.row(0) + column, at.attended.stride, at.weights.row(0),
                                               at.weights.stride, at.values.row(0) + column, at.values.stride, rows, seen,
                                               round_up(head_width_, lanes<float>));
    }

    // The softmax of the first `seen` values, to each of which one is added; those behind them, up to whole vectors, become
    // zero.
    static void softmax(float* row, const float* added, index_t seen, index_t padded) {
        constexpr float never = -std::numeric_limits<float>::infinity();
        std::fill(row + seen, row + padded, never);
        Floats most = splat(never);
        for (index_t j = 0; j < padded; j += lanes<float>) {
            const Floats sum = load(row + j) + load(added + j);
            store(row + j, sum);
            most = larger(most, sum);
        }
        const float highest = horizontal_max(most);
        Floats sum{};
        for (index_t j = 0; j < padded; j += lanes<float>) {
            const Floats power = exponential(load(row + j) - highest);
            store(row + j, power);
            sum += power;
        }
        const float share = 1 / horizontal_sum<float>(sum);
        for (index_t j = 0; j < padded; j += lanes<float>) store(row + j, load(row + j) * share);
    }

    index_t width_, heads_, head_width_, history_length_;
    Matrix<float> recency_;  // (heads, history length): oldest first, then zeros, for vectors that reach behind the latest
    LayerNorm attention_norm_;
    Linear queries_, keys_, values_, merge_;  // queries are scaled by 1 / sqrt(width of a head)
    LayerNorm network_norm_;
    Linear widen_, narrow_;
};

struct SelfAttention {
    index_t width = 0;
    index_t history_length = 0;  // number of latest items that are read
    std::vector<SelfAttentionBlock> blocks;
    LayerNorm final_norm;

    SelfAttention(const SelfAttentionSizes& sizes, const std::vector<RawBlock>& raw_blocks, const RawNorm& raw_norm)
        : width(sizes.width), history_length(sizes.history_length), final_norm(raw_norm, sizes.width) {
        for (const RawBlock& block : raw_blocks) blocks.emplace_back(block, sizes);
    }

    // What comes after a history, to out (width,), up to whole vectors. copy_row(i, to) writes the vector (width,) of the
    // i-th of its items, oldest first; no more of them than history_length. No items are as one with a vector of zeros.
    template <class CopyRow>
    void encode(index_t items, CopyRow&& copy_row, float* out) const {
        SelfAttentionScratch& at = SelfAttentionScratch::of_this_thread();
        const index_t rows = std::max<index_t>(items, 1), padded = round_up(width, lanes<float>);
        at.hidden.reserve(rows, padded);
        for (index_t i = 0; i < rows; ++i) {
            float* row = at.hidden.row(i);
            std::fill(row, row + padded, 0.0f);
            if (items > 0) copy_row(i, row);
        }
        for (std::size_t i = 0; i < blocks.size(); ++i)
            blocks[i].apply(at, rows, i + 1 < blocks.size() ? 0 : rows - 1);
        final_norm.apply(at.hidden.row(rows - 1), out);
    }
};

}  // namespace beamtree
