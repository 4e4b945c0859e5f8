// One training step in one pass: per (instance, level) forward, sampled-softmax loss and backward while all of it is in cache.
#pragma once

#include <cmath>
#include <limits>
#include <memory>

#include "backward.hpp"
#include "row_gradients.hpp"

namespace beamtree {

// Cross-entropy of column 0 against the other columns: the loss, and its gradient by the scores (count,).
template <class T>
double softmax_loss(const T* scores, const T* correction, index_t count, double weight, T* gradient) {
    double highest = -std::numeric_limits<double>::infinity();
    for (index_t n = 0; n < count; ++n) highest = std::max(highest, static_cast<double>(scores[n] - correction[n]));
    double sum = 0;
    for (index_t n = 0; n < count; ++n) sum += std::exp(static_cast<double>(scores[n] - correction[n]) - highest);
    for (index_t n = 0; n < count; ++n)
        gradient[n] = static_cast<T>(weight * std::exp(static_cast<double>(scores[n] - correction[n]) - highest) / sum);
    gradient[0] -= static_cast<T>(weight);
    return weight * (highest + std::log(sum) - static_cast<double>(scores[0] - correction[0]));
}

// Where the history's vectors come from: the node table (ancestors), or a table of their own.
struct Tables {
    Table nodes;
    Table items;
    bool separate = false;

    const Table& history() const { return separate ? items : nodes; }
};

template <class T>
struct StepResult {
    double loss = 0;
    std::unique_ptr<Gradients<T>> weights;
    RowSums<T> nodes;
    RowSums<T> items;
};

// A batch is cut into chunks by its size alone. Each chunk has its own sums, and they are added in order: the result is the
// same to the last bit for any number of threads.
template <class T>
class Chunks {
   public:
    Chunks(const Network<T>& net, index_t parts) : net_(net), parts_(parts), count_(std::min<index_t>(parts, 32)) {
        nodes_.resize(static_cast<std::size_t>(count_));
        items_.resize(static_cast<std::size_t>(count_));
        losses_.assign(static_cast<std::size_t>(count_), 0.0);
        for (index_t i = 0; i < count_; ++i) sums_.push_back(std::make_unique<Gradients<T>>(net));
    }

    struct Chunk {
        Gradients<T>& sums;
        RowList<T>& nodes;
        RowList<T>& items;
        double& loss;
    };

    // Calls body(part, chunk) for every part; the parts of a chunk run in order on one thread.
    template <class Body>
    StepResult<T> run(Body&& body) {
        ThreadPool::shared().run(count_, [&](index_t i, int) {
            const std::size_t at = static_cast<std::size_t>(i);
            Chunk chunk{*sums_[at], nodes_[at], items_[at], losses_[at]};
            for (index_t part = parts_ * i / count_; part < parts_ * (i + 1) / count_; ++part) body(part, chunk);
        });
        StepResult<T> result;
        result.weights = std::make_unique<Gradients<T>>(net_);
        for (index_t i = 0; i < count_; ++i) {
            result.weights->add(*sums_[static_cast<std::size_t>(i)]);
            result.loss += losses_[static_cast<std::size_t>(i)];
        }
        result.nodes = sum_rows(nodes_, net_.d);
        result.items = sum_rows(items_, net_.d);
        return result;
    }

   private:
    const Network<T>& net_;
    index_t parts_, count_;
    std::vector<std::unique_ptr<Gradients<T>>> sums_;
    std::vector<RowList<T>> nodes_, items_;
    std::vector<double> losses_;
};

// The scratch of one thread.
template <class T>
struct Scratch {
    History<T> history;
    NodeBlock<T> block, selected;
    Backward<T> backward;
    std::vector<index_t> history_rows, node_rows;
    std::vector<T> correction;
    Buffer<T> d_score;

    static Scratch& of_this_thread() {
        static thread_local Scratch scratch;
        return scratch;
    }
};

// Loss and gradients of a block whose forward pass is done; node_rows and correction have one entry per column.
template <class T>
void learn_block(const Network<T>& net, const Tables& tables, Scratch<T>& scratch, NodeBlock<T>& block, double weight,
                 const Dropout& dropout, index_t row, typename Chunks<T>::Chunk& chunk) {
    T* d_score = scratch.d_score.zeroed(block.padded);
    chunk.loss += softmax_loss(block.score.data(), scratch.correction.data(), block.count, weight, d_score);
    scratch.backward.run(net, scratch.history, block, d_score, chunk.sums, dropout, row);
    for (index_t n = 0; n < block.count; ++n)
        chunk.nodes.append(scratch.node_rows[static_cast<std::size_t>(n)], scratch.backward.d_nodes.row(n), net.d);
    RowList<T>& history_list = tables.separate ? chunk.items : chunk.nodes;
    for (index_t k = 0; k < scratch.history.count; ++k)
        history_list.append(scratch.history.rows[static_cast<std::size_t>(k)], scratch.backward.d_history.row(k), net.d);
}

// Candidates given by the caller: node_rows (rows, columns) with -1 for absent, column 0 the positive; correction likewise;
// history_rows (rows, K) in the history's table; weights (rows,). The loss is the mean over all rows.
template <class T>
StepResult<T> step_on_candidates(const Network<T>& net, const Tables& tables, const std::int64_t* node_rows,
                                 const T* correction, const std::int64_t* history_rows, const T* weights, index_t rows,
                                 index_t columns, const Dropout& dropout) {
    const index_t length = static_cast<index_t>(net.window_of.size());
    Chunks<T> chunks(net, rows);
    return chunks.run([&](index_t row, typename Chunks<T>::Chunk& chunk) {
        Scratch<T>& scratch = Scratch<T>::of_this_thread();
        if (weights[row] == 0) return;
        scratch.node_rows.clear();
        scratch.correction.clear();
        for (index_t c = 0; c < columns; ++c) {
            if (node_rows[row * columns + c] < 0) continue;
            scratch.node_rows.push_back(static_cast<index_t>(node_rows[row * columns + c]));
            scratch.correction.push_back(correction[row * columns + c]);
        }
        if (node_rows[row * columns] < 0 || scratch.node_rows.size() < 2) return;
        scratch.history_rows.assign(history_rows + row * length, history_rows + (row + 1) * length);
        scratch.history.prepare(net, tables.history(), scratch.history_rows.data());
        scratch.block.gather(net, tables.nodes, scratch.node_rows.data(), static_cast<index_t>(scratch.node_rows.size()));
        attend<true>(net, scratch.history, scratch.block);
        score<true>(net, scratch.history, scratch.block, dropout, row);
        learn_block(net, tables, scratch, scratch.block, static_cast<double>(weights[row]) / static_cast<double>(rows),
                    dropout, row, chunk);
    });
}

}  // namespace beamtree
