// The network's small weights as a dictionary of arrays, named like the state of the torch network: read into a packed
// network, and their gradients written back under the same names.
#pragma once

#include "arrays.hpp"
#include "gradients.hpp"

namespace beamtree {

struct LayerShape {
    index_t outputs, inputs;
};

// Of the hidden layers and of the last one.
inline std::vector<LayerShape> layer_shapes(const Sizes& sizes) {
    std::vector<LayerShape> shapes;
    index_t inputs = (sizes.num_windows() + 1) * sizes.width;
    for (index_t units : sizes.mlp) {
        shapes.push_back({units, inputs});
        inputs = units;
    }
    shapes.push_back({1, inputs});
    return shapes;
}

inline std::string layer_name(std::size_t layer, const char* part) { return "mlp." + std::to_string(layer) + part; }
inline std::string norm_name(std::size_t layer, const char* part) { return "norm." + std::to_string(layer) + part; }

// Looks weights up by name and keeps alive what it handed out.
template <class T>
class WeightReader {
   public:
    explicit WeightReader(const nb::dict& weights) : weights_(weights) {}

    const T* read(const std::string& name, index_t expected) {
        require(weights_.contains(name.c_str()), "weights: " + name + " is missing");
        const Array& array = kept_.emplace_back(nb::cast<Array>(weights_[name.c_str()]));
        require(static_cast<index_t>(array.size()) == expected, "weights: " + name + " should hold " +
                                                                    std::to_string(expected) + " values, got " +
                                                                    std::to_string(array.size()));
        require_aligned(array, name);
        return array.data();
    }

   private:
    using Array = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;

    const nb::dict& weights_;
    std::vector<Array> kept_;
};

template <class T>
std::shared_ptr<Network<T>> pack(const nb::dict& weights, const Sizes& sizes) {
    WeightReader<T> reader(weights);
    RawWeights<T> raw{};
    raw.hidden_weight = reader.read("attention.hidden.weight", sizes.attention * 3 * sizes.width);
    raw.hidden_bias = reader.read("attention.hidden.bias", sizes.attention);
    raw.hidden_slope = *reader.read("attention.hidden_slope", 1);
    raw.output_weight = reader.read("attention.output.weight", sizes.attention);
    raw.output_bias = *reader.read("attention.output.bias", 1);
    raw.output_slope = *reader.read("attention.output_slope", 1);
    const auto shapes = layer_shapes(sizes);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
        raw.mlp_weight.push_back(reader.read(layer_name(i, ".weight"), shapes[i].outputs * shapes[i].inputs));
        raw.mlp_bias.push_back(reader.read(layer_name(i, ".bias"), shapes[i].outputs));
    }
    const T* slopes = reader.read("mlp.slopes", static_cast<index_t>(sizes.layers()));
    raw.mlp_slope.assign(slopes, slopes + sizes.layers());
    for (std::size_t i = 0; i < sizes.layers() && sizes.normalisation == Normalisation::layer; ++i) {
        raw.norm_weight.push_back(reader.read(norm_name(i, ".weight"), sizes.mlp[i]));
        raw.norm_bias.push_back(reader.read(norm_name(i, ".bias"), sizes.mlp[i]));
    }
    return std::make_shared<Network<T>>(sizes, raw);
}

template <class T>
nb::dict unpack(const Network<T>& net, const Gradients<T>& sums) {
    nb::dict out;
    auto place = [&](const std::string& name, std::initializer_list<index_t> shape) {
        auto values = values_for<T>(shape);
        T* data = values.data();
        out[name.c_str()] = to_numpy(std::move(values), shape);
        return data;
    };
    RawGradients<T> raw{};
    raw.hidden_weight = place("attention.hidden.weight", {net.h, 3 * net.d});
    raw.hidden_bias = place("attention.hidden.bias", {net.h});
    raw.hidden_slope = place("attention.hidden_slope", {1});
    raw.output_weight = place("attention.output.weight", {1, net.h});
    raw.output_bias = place("attention.output.bias", {1});
    raw.output_slope = place("attention.output_slope", {1});
    const auto shapes = layer_shapes(net.sizes);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
        raw.mlp_weight.push_back(place(layer_name(i, ".weight"), {shapes[i].outputs, shapes[i].inputs}));
        raw.mlp_bias.push_back(place(layer_name(i, ".bias"), {shapes[i].outputs}));
    }
    raw.mlp_slope = place("mlp.slopes", {static_cast<index_t>(net.layers)});
    for (std::size_t i = 0; i < net.layers && net.sizes.normalisation == Normalisation::layer; ++i) {
        raw.norm_weight.push_back(place(norm_name(i, ".weight"), {net.m[i]}));
        raw.norm_bias.push_back(place(norm_name(i, ".bias"), {net.m[i]}));
    }
    sums.finish(net, raw);
    return out;
}

}  // namespace beamtree
