// Gradients of one block of scored nodes: the perceptron, then the attention unit.
#pragma once

#include "attention_backward.hpp"
#include "perceptron_backward.hpp"

namespace beamtree {

template <class T>
class Backward {
   public:
    // d_score: (padded,) gradient of the scores, zero behind the nodes. Sums of the weights go to sums.
    void run(const Network<T>& net, const History<T>& history, const NodeBlock<T>& block, const T* d_score,
             Gradients<T>& sums, const Dropout& dropout = {}, index_t row = 0) {
        perceptron_.run(net, history, block, d_score, sums, dropout, row, found_);
        attention_.run(net, history, block, sums, found_);
        found_.finish_nodes(net, block);
    }

    // The attention unit alone: d_weights (history, block.stride) are the gradients of the attention weights.
    void run_attention(const Network<T>& net, const History<T>& history, const NodeBlock<T>& block, const T* d_weights,
                       Gradients<T>& sums) {
        const index_t size = history.count * block.stride;
        std::memcpy(found_.d_weights.resize(size + 2 * lanes<T>), d_weights, static_cast<std::size_t>(size) * sizeof(T));
        found_.d_coordinates.zeroed(net.d * block.stride);
        found_.d_history.allocate(history.count, net.dp);
        attention_.run(net, history, block, sums, found_);
        found_.finish_nodes(net, block);
    }

    const T* d_history(index_t k) const { return found_.d_history.row(k); }  // (dp,) of a distinct history row
    const T* d_node(index_t n) const { return found_.d_nodes.row(n); }       // (dp,) of a node's embedding
    const T* d_layer_offset() const { return found_.d_layer_offset.data(); }  // (m1,) of what the request adds

   private:
    PerceptronBackward<T> perceptron_;
    AttentionBackward<T> attention_;
    BlockGradients<T> found_;
};

}  // namespace beamtree
