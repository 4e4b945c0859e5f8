// One training step in one pass: per (instance, level) forward, sampled-softmax loss and backward while all of it is in cache.
#pragma once

#include <cmath>
#include <limits>
#include <memory>

#include "attention.hpp"
#include "backward.hpp"
#include "row_gradients.hpp"

namespace beamtree {

// A column that should win: its share of the loss, and what is subtracted from every other column's score in its softmax
// besides that column's own correction.
struct Positive {
    index_t column;
    double weight;
    double shift;
};

// Cross-entropy of every positive against the other columns, weighted: the loss, and its gradient by the scores (count,),
// which is zero before. A positive is not corrected in its own softmax; an infinite correction leaves a column out.
template <class T>
double softmax_loss(const T* scores, const T* correction, index_t count, const std::vector<Positive>& positives,
                    std::vector<double>& exponents, T* gradient) {
    double highest = -std::numeric_limits<double>::infinity();
    for (index_t n = 0; n < count; ++n) highest = std::max(highest, static_cast<double>(scores[n]) - correction[n]);
    exponents.resize(static_cast<std::size_t>(count));
    for (index_t n = 0; n < count; ++n)
        exponents[static_cast<std::size_t>(n)] = std::exp(static_cast<double>(scores[n]) - correction[n] - highest);
    double loss = 0;
    for (const Positive& positive : positives) {
        double others = 0;
        for (index_t n = 0; n < count; ++n)
            if (n != positive.column) others += exponents[static_cast<std::size_t>(n)];
        if (others == 0) continue;
        // ln of the others' sum over the positive's own exponent; the loss is softplus of it.
        const double odds = highest + std::log(others) - positive.shift - static_cast<double>(scores[positive.column]);
        const double lost = 1 / (1 + std::exp(-odds));
        loss += positive.weight * (odds > 0 ? odds + std::log1p(std::exp(-odds)) : std::log1p(std::exp(odds)));
        for (index_t n = 0; n < count; ++n)
            if (n != positive.column)
                gradient[n] += static_cast<T>(positive.weight * lost * exponents[static_cast<std::size_t>(n)] / others);
        gradient[positive.column] -= static_cast<T>(positive.weight * lost);
    }
    return loss;
}

// What a step computed: the measure of its arithmetic.
struct Work {
    double forward_pairs = 0;   // (history row, node) pairs through the attention unit
    double forward_nodes = 0;   // nodes through the perceptron
    double backward_pairs = 0;
    double backward_nodes = 0;
    double prepared = 0;        // history rows prepared
    double learned = 0;         // history rows of blocks that were learned from

    void add(const Work& other) {
        forward_pairs += other.forward_pairs;
        forward_nodes += other.forward_nodes;
        backward_pairs += other.backward_pairs;
        backward_nodes += other.backward_nodes;
        prepared += other.prepared;
        learned += other.learned;
    }
};

template <class T>
struct StepResult {
    double loss = 0;
    Work work;
    std::unique_ptr<Gradients<T>> weights;
    RowSums<T> nodes;
    RowSums<T> items;
    std::vector<T> layer_offsets;  // (parts, m1), empty where the parts have none
};

// A batch is cut into chunks by its size alone. Each chunk has its own sums, and they are added in order: the result is the
// same to the last bit for any number of threads.
template <class T>
class Chunks {
   public:
    Chunks(const Network<T>& net, index_t parts)
        : net_(net), parts_(parts), count_(std::min<index_t>(parts, 32)), memory_(Memory::of_this_thread()) {
        const std::size_t count = static_cast<std::size_t>(count_);
        losses_.assign(count, 0.0);
        work_.resize(count);
        memory_.nodes.resize(count);
        memory_.items.resize(count);
        while (memory_.sums.size() < count) memory_.sums.push_back(std::make_unique<Gradients<T>>(net));
        for (std::size_t i = 0; i < count; ++i) {
            memory_.nodes[i].clear();
            memory_.items[i].clear();
            memory_.sums[i]->restart(net);
        }
    }

    struct Chunk {
        Gradients<T>& sums;
        RowList<T>& nodes;
        RowList<T>& items;
        double& loss;
        Work& work;
        T* d_layer_offset = nullptr;  // (m1,) of the part at work, null = not asked for
    };

    // Calls body(part, chunk) for every part; the parts of a chunk run in order on one thread. with_offsets: each part has
    // a gradient of its own, of what it adds to the first layer.
    template <class Body>
    StepResult<T> run(bool with_offsets, Body&& body) {
        const index_t m1 = with_offsets ? net_.m[0] : 0;
        std::vector<T> layer_offsets(static_cast<std::size_t>(parts_ * m1), T(0));
        ThreadPool::shared().run(count_, [&](index_t i, int) {
            const std::size_t at = static_cast<std::size_t>(i);
            Chunk chunk{*memory_.sums[at], memory_.nodes[at], memory_.items[at], losses_[at], work_[at]};
            for (index_t part = parts_ * i / count_; part < parts_ * (i + 1) / count_; ++part) {
                if (with_offsets) chunk.d_layer_offset = layer_offsets.data() + part * m1;
                body(part, chunk);
            }
        });
        StepResult<T> result;
        result.weights = std::make_unique<Gradients<T>>(net_);
        for (index_t i = 0; i < count_; ++i) {
            result.weights->add(*memory_.sums[static_cast<std::size_t>(i)]);
            result.loss += losses_[static_cast<std::size_t>(i)];
            result.work.add(work_[static_cast<std::size_t>(i)]);
        }
        result.nodes = sum_rows(memory_.nodes, net_.d);
        result.items = sum_rows(memory_.items, net_.d);
        result.layer_offsets = std::move(layer_offsets);
        return result;
    }

   private:
    // Kept from step to step: fresh memory of this size would be mapped and cleared by the kernel every time.
    struct Memory {
        std::vector<std::unique_ptr<Gradients<T>>> sums;
        std::vector<RowList<T>> nodes, items;

        static Memory& of_this_thread() {
            static thread_local Memory memory;
            return memory;
        }
    };

    const Network<T>& net_;
    index_t parts_, count_;
    Memory& memory_;
    std::vector<double> losses_;
    std::vector<Work> work_;
};

// The scratch of one thread.
template <class T>
struct Scratch {
    History<T> history;
    NodeBlock<T> block, selected;
    Backward<T> backward;
    std::vector<index_t> history_rows, node_rows;
    std::vector<T> correction;
    std::vector<Positive> positives;
    std::vector<double> exponents;
    Buffer<T> d_score;

    static Scratch& of_this_thread() {
        static thread_local Scratch scratch;
        return scratch;
    }

    // Loss and gradients of a block whose forward pass is done, by its positives; node_rows and correction have one entry
    // per column.
    void learn(const Attention<T>& attention, const NodeBlock<T>& scored, const Dropout& dropout, index_t row,
               typename Chunks<T>::Chunk& chunk) {
        const Network<T>& net = attention.net;
        T* gradient = d_score.zeroed(scored.padded);
        chunk.loss += softmax_loss(scored.score.data(), correction.data(), scored.count, positives, exponents, gradient);
        backward.run(net, history, scored, gradient, chunk.sums, dropout, row);
        for (index_t n = 0; n < scored.count; ++n)
            chunk.nodes.append(node_rows[static_cast<std::size_t>(n)], backward.d_node(n), net.d);
        RowList<T>& history_list = attention.tables.separate ? chunk.items : chunk.nodes;
        for (index_t k = 0; k < history.count; ++k)
            history_list.append(history.rows[static_cast<std::size_t>(k)], backward.d_history(k), net.d);
        if (chunk.d_layer_offset != nullptr)
            for (index_t i = 0; i < net.m[0]; ++i) chunk.d_layer_offset[i] += backward.d_layer_offset()[i];
        chunk.work.backward_pairs += static_cast<double>(history.count * scored.count);
        chunk.work.backward_nodes += static_cast<double>(scored.count);
        chunk.work.learned += static_cast<double>(history.count);
    }

    // Embeddings and attention weights of nodes; with signs for the backward pass.
    void attend_to(const Attention<T>& attention, const std::vector<index_t>& rows, typename Chunks<T>::Chunk& chunk) {
        block.gather(attention.net, attention.tables.nodes, rows.data(), static_cast<index_t>(rows.size()));
        attend<true>(attention.net, history, block);
        chunk.work.forward_pairs += static_cast<double>(history.count * block.count);
        chunk.work.forward_nodes += static_cast<double>(block.count);
    }
};

// Candidates given by the caller.
template <class T>
struct Candidates {
    const std::int64_t* node_rows;     // (rows, columns), -1 = absent, column 0 the positive
    const T* correction;               // likewise
    const std::int64_t* history_rows;  // (rows, K) in the history's table, -1 = padding
    const T* weights;                  // (rows,)
    const T* layer_offsets;            // (rows, m1) added to the first layer, null = nothing
    index_t rows, columns;
};

// Loss and gradients, the mean over all rows.
template <class T>
StepResult<T> step_on_candidates(const Attention<T>& attention, const Candidates<T>& given, const Dropout& dropout) {
    const Network<T>& net = attention.net;
    const index_t length = net.sizes.history(), columns = given.columns;
    Chunks<T> chunks(net, given.rows);
    return chunks.run(given.layer_offsets != nullptr, [&](index_t row, typename Chunks<T>::Chunk& chunk) {
        Scratch<T>& scratch = Scratch<T>::of_this_thread();
        if (given.weights[row] == 0) return;
        const std::int64_t* node_rows = given.node_rows + row * columns;
        const std::int64_t* history_rows = given.history_rows + row * length;
        scratch.node_rows.clear();
        scratch.correction.clear();
        for (index_t c = 0; c < columns; ++c) {
            if (node_rows[c] < 0) continue;
            scratch.node_rows.push_back(static_cast<index_t>(node_rows[c]));
            scratch.correction.push_back(given.correction[row * columns + c]);
        }
        if (node_rows[0] < 0 || scratch.node_rows.size() < 2) return;
        scratch.history_rows.assign(history_rows, history_rows + length);
        const T* layer_offset = given.layer_offsets == nullptr ? nullptr : given.layer_offsets + row * net.m[0];
        scratch.history.prepare(net, attention.tables.history(), scratch.history_rows.data(), layer_offset);
        chunk.work.prepared += static_cast<double>(scratch.history.count);
        scratch.attend_to(attention, scratch.node_rows, chunk);
        score<true>(net, scratch.history, scratch.block, dropout, row);
        const double share = static_cast<double>(given.weights[row]) / static_cast<double>(given.rows);
        scratch.positives.assign(1, Positive{0, share, -static_cast<double>(scratch.correction.front())});
        scratch.learn(attention, scratch.block, dropout, row, chunk);
    });
}

}  // namespace beamtree
