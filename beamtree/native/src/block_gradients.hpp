// Gradients of one block of scored nodes, on their way from the perceptron through the attention unit to the embeddings.
#pragma once

#include "forward.hpp"

namespace beamtree {

template <class T>
struct BlockGradients {
    Buffer<T> d_weights;      // (history, stride) of the attention weights
    Buffer<T> d_coordinates;  // (d, stride) of the nodes' embeddings, transposed
    Matrix<T> d_history;      // (history, dp) of the distinct history rows
    Matrix<T> d_nodes;        // (padded, dp) of the nodes' embeddings
    Buffer<T> d_layer_offset; // (m1,) of what the request adds to the first layer: the sum over the nodes

    void finish_nodes(const Network<T>& net, const NodeBlock<T>& block) {
        d_nodes.stride = net.dp;
        d_nodes.values.resize(block.padded * net.dp + 2 * lanes<T>);
        transpose(d_nodes.row(0), net.dp, d_coordinates.data(), block.stride, net.d, block.padded);
    }
};

}  // namespace beamtree
