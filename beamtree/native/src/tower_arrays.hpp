// A tower as Python hands it over: its encoder packed from named weights, its table read where it lies.
#pragma once

#include "model_arrays.hpp"
#include "tower.hpp"
#include "weights.hpp"

namespace beamtree {

inline RawLinear read_linear(WeightReader<float>& reader, const std::string& name, index_t inputs, index_t outputs) {
    return RawLinear{reader.read(name + ".weight", outputs * inputs), reader.read(name + ".bias", outputs)};
}

inline RawNorm read_norm(WeightReader<float>& reader, const std::string& name, index_t width) {
    return RawNorm{reader.read(name + ".weight", width), reader.read(name + ".bias", width)};
}

inline std::shared_ptr<SequenceEncoder> pack_self_attention(const nb::dict& weights, index_t width, index_t heads,
                                                            index_t layers, index_t history_length) {
    require(history_length >= 1 && width >= 1 && layers >= 1, "encoder: expected positive sizes");
    require(heads >= 1 && width % heads == 0, "encoder: expected heads that divide the width");
    WeightReader<float> reader(weights);
    auto norm = [&](const std::string& name) { return read_norm(reader, name, width); };
    std::vector<RawBlock> blocks;
    for (index_t i = 0; i < layers; ++i) {
        const std::string block = "encoder.layers." + std::to_string(i);
        blocks.push_back(RawBlock{
            .attention_norm = norm(block + ".attention_norm"),
            .queries_keys_values = read_linear(reader, block + ".queries_keys_values", width, 3 * width),
            .recency = reader.read(block + ".recency", heads * history_length),
            .merge = read_linear(reader, block + ".merge", width, width),
            .network_norm = norm(block + ".network_norm"),
            .widen = read_linear(reader, block + ".widen", width, 4 * width),
            .narrow = read_linear(reader, block + ".narrow", 4 * width, width),
        });
    }
    const SelfAttentionSizes sizes{width, heads, history_length};
    return std::make_shared<SequenceEncoder>(SelfAttention(sizes, blocks, norm("encoder.final_norm")));
}

inline std::shared_ptr<SequenceEncoder> pack_recurrent(const nb::dict& weights, index_t width, index_t hidden, index_t layers,
                                                       index_t history_length) {
    require(history_length >= 1 && width >= 1 && hidden >= 1 && layers >= 1, "encoder: expected positive sizes");
    WeightReader<float> reader(weights);
    std::vector<RawRecurrentLayer> raw;
    for (index_t i = 0; i < layers; ++i) {
        auto gates = [&](const std::string& from, index_t inputs) {
            const std::string name = from + "_l" + std::to_string(i);
            return RawLinear{reader.read("encoder.gru.weight_" + name, 3 * hidden * inputs),
                             reader.read("encoder.gru.bias_" + name, 3 * hidden)};
        };
        raw.push_back(RawRecurrentLayer{gates("ih", i == 0 ? width : hidden), gates("hh", hidden)});
    }
    return std::make_shared<SequenceEncoder>(Recurrent(
        RecurrentSizes{width, hidden, history_length}, read_norm(reader, "encoder.input_norm", width), raw,
        read_linear(reader, "encoder.project", hidden, width), read_norm(reader, "encoder.final_norm", width)));
}

struct PyTower {
    std::shared_ptr<PyTree> tree;
    std::shared_ptr<SequenceEncoder> encoder;
    Array2<float> node_table;
    Tower tower;

    PyTower(std::shared_ptr<PyTree> of_tree, std::shared_ptr<SequenceEncoder> of_histories, Array2<float> nodes, float weight)
        : tree(of_tree), encoder(of_histories), node_table(nodes), tower{*encoder, nodes.data(), weight} {
        require(extent(nodes, 0) == tree->tree.num_nodes(), "node_table: expected one row for every node");
        require(extent(nodes, 1) == encoder->width, "node_table: expected rows of the encoder's width");
        require_aligned(nodes, "node_table");
    }
    PyTower(const PyTower&) = delete;
};

}  // namespace beamtree
