// A tower as Python hands it over: its encoder packed from named weights, its table read where it lies.
#pragma once

#include "model_arrays.hpp"
#include "tower.hpp"
#include "weights.hpp"

namespace beamtree {

inline SequenceEncoder pack_encoder(const nb::dict& weights, const EncoderSizes& sizes, index_t layers) {
    require(sizes.history_length >= 1 && sizes.width >= 1 && layers >= 1, "tower: expected positive sizes");
    require(sizes.heads >= 1 && sizes.width % sizes.heads == 0, "tower: expected heads that divide the width");
    WeightReader<float> reader(weights);
    const index_t width = sizes.width;
    auto norm = [&](const std::string& name) {
        return RawNorm{reader.read(name + ".weight", width), reader.read(name + ".bias", width)};
    };
    auto linear = [&](const std::string& name, index_t inputs, index_t outputs) {
        return RawLinear{reader.read(name + ".weight", outputs * inputs), reader.read(name + ".bias", outputs)};
    };
    std::vector<RawBlock> blocks;
    for (index_t i = 0; i < layers; ++i) {
        const std::string block = "encoder.layers." + std::to_string(i);
        blocks.push_back(RawBlock{
            .attention_norm = norm(block + ".attention_norm"),
            .queries_keys_values = linear(block + ".queries_keys_values", width, 3 * width),
            .recency = reader.read(block + ".recency", sizes.heads * sizes.history_length),
            .merge = linear(block + ".merge", width, width),
            .network_norm = norm(block + ".network_norm"),
            .widen = linear(block + ".widen", width, 4 * width),
            .narrow = linear(block + ".narrow", 4 * width, width),
        });
    }
    return SequenceEncoder(sizes, blocks, norm("encoder.final_norm"));
}

struct PyTower {
    std::shared_ptr<PyTree> tree;
    Array2<float> node_table;
    SequenceEncoder encoder;
    Tower tower;

    PyTower(std::shared_ptr<PyTree> of_tree, const nb::dict& weights, Array2<float> nodes, float weight,
            index_t history_length, index_t heads, index_t layers)
        : tree(of_tree), node_table(nodes),
          encoder(pack_encoder(weights, EncoderSizes{extent(nodes, 1), heads, history_length}, layers)),
          tower{encoder, nodes.data(), weight} {
        require(extent(nodes, 0) == tree->tree.num_nodes(), "node_table: expected one row for every node");
        require_aligned(nodes, "node_table");
    }
    PyTower(const PyTower&) = delete;
};

}  // namespace beamtree
