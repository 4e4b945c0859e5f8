// What Python sees: arrays in, arrays out. Everything is checked here, once, so that the kernels may trust their indices.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <numeric>
#include <optional>

#include "adam.hpp"
#include "relearn.hpp"
#include "sampling.hpp"
#include "search.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace beamtree {

template <class T>
using Array1 = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Array2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Array3 = nb::ndarray<const T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using AnyTable = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

[[noreturn]] void refuse(const std::string& message) { throw nb::value_error(message.c_str()); }

void require(bool holds, const std::string& message) {
    if (!holds) refuse(message);
}

Table table_of(const AnyTable& array, index_t width, const char* name) {
    Table table;
    table.data = array.data();
    table.rows = static_cast<index_t>(array.shape(0));
    table.width = static_cast<index_t>(array.shape(1));
    if (array.dtype() == nb::dtype<float>())
        table.storage = Storage::float32;
    else if (array.dtype() == nb::dtype<double>())
        table.storage = Storage::float64;
    else if (array.dtype().code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float) && array.dtype().bits == 16)
        table.storage = Storage::float16;
    else
        refuse(std::string(name) + ": expected float16, float32 or float64");
    require(table.width == width, std::string(name) + ": expected rows of " + std::to_string(width) + " values, got " +
                                      std::to_string(table.width));
    return table;
}

template <class I>
void require_range(const I* values, index_t count, index_t low, index_t high, const char* name) {
    for (index_t i = 0; i < count; ++i)
        if (static_cast<index_t>(values[i]) < low || static_cast<index_t>(values[i]) >= high)
            refuse(std::string(name) + ": expected values in " + std::to_string(low) + " .. " + std::to_string(high - 1) +
                   ", got " + std::to_string(static_cast<long long>(values[i])) + " at position " + std::to_string(i));
}

// Hands a vector over to NumPy without copying it.
template <class T>
nb::object to_numpy(std::vector<T>&& values, std::initializer_list<std::size_t> shape) {
    auto* owner = new std::vector<T>(std::move(values));
    nb::capsule guard(owner, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T>(owner->data(), shape, guard), nb::rv_policy::reference);
}

template <class T>
std::vector<T> weight(const nb::dict& weights, const std::string& name, index_t expected) {
    require(weights.contains(name.c_str()), "weights: " + name + " is missing");
    auto array = nb::cast<nb::ndarray<const T, nb::c_contig, nb::device::cpu>>(weights[name.c_str()]);
    require(static_cast<index_t>(array.size()) == expected,
            "weights: " + name + " should hold " + std::to_string(expected) + " values, got " + std::to_string(array.size()));
    return std::vector<T>(array.data(), array.data() + array.size());
}

const char* const layer_names[4] = {"mlp.0", "mlp.1", "mlp.2", "mlp.3"};
const char* const norm_names[3] = {"norm.0", "norm.1", "norm.2"};

template <class T>
std::shared_ptr<Network<T>> pack(const nb::dict& weights, const std::vector<index_t>& windows, index_t width,
                                 index_t attention, const std::vector<index_t>& mlp, bool layer_norm) {
    Sizes sizes;
    require(width > 0 && attention > 0 && mlp.size() == 3 && !windows.empty(), "sizes: expected positive sizes, three layers");
    sizes.width = width;
    sizes.attention = attention;
    sizes.windows = windows;
    sizes.normalisation = layer_norm ? Normalisation::layer : Normalisation::none;
    for (index_t size : windows) require(size > 0, "windows: expected positive sizes");
    for (int i = 0; i < 3; ++i) {
        require(mlp[static_cast<std::size_t>(i)] > 0, "mlp: expected positive sizes");
        sizes.mlp[i] = mlp[static_cast<std::size_t>(i)];
    }
    const index_t inputs[4] = {(sizes.num_windows() + 1) * width, sizes.mlp[0], sizes.mlp[1], sizes.mlp[2]};
    const index_t outputs[4] = {sizes.mlp[0], sizes.mlp[1], sizes.mlp[2], 1};
    auto hidden_weight = weight<T>(weights, "attention.hidden.weight", attention * 3 * width);
    auto hidden_bias = weight<T>(weights, "attention.hidden.bias", attention);
    auto output_weight = weight<T>(weights, "attention.output.weight", attention);
    auto slopes = weight<T>(weights, "mlp.slopes", 3);
    std::vector<T> mlp_weight[4], mlp_bias[4], norm_weight[3], norm_bias[3];
    RawWeights<T> raw{};
    raw.hidden_weight = hidden_weight.data();
    raw.hidden_bias = hidden_bias.data();
    raw.output_weight = output_weight.data();
    raw.hidden_slope = weight<T>(weights, "attention.hidden_slope", 1)[0];
    raw.output_bias = weight<T>(weights, "attention.output.bias", 1)[0];
    raw.output_slope = weight<T>(weights, "attention.output_slope", 1)[0];
    for (int i = 0; i < 4; ++i) {
        mlp_weight[i] = weight<T>(weights, std::string(layer_names[i]) + ".weight", outputs[i] * inputs[i]);
        mlp_bias[i] = weight<T>(weights, std::string(layer_names[i]) + ".bias", outputs[i]);
        raw.mlp_weight[i] = mlp_weight[i].data();
        raw.mlp_bias[i] = mlp_bias[i].data();
    }
    for (int i = 0; i < 3; ++i) {
        raw.mlp_slope[i] = slopes[static_cast<std::size_t>(i)];
        if (!layer_norm) continue;
        norm_weight[i] = weight<T>(weights, std::string(norm_names[i]) + ".weight", outputs[i]);
        norm_bias[i] = weight<T>(weights, std::string(norm_names[i]) + ".bias", outputs[i]);
        raw.norm_weight[i] = norm_weight[i].data();
        raw.norm_bias[i] = norm_bias[i].data();
    }
    return std::make_shared<Network<T>>(sizes, raw);
}

// Gradients of the small weights as a dictionary shaped like the weights.
template <class T>
nb::dict unpack(const Network<T>& net, const Gradients<T>& sums) {
    nb::dict out;
    auto place = [&](const std::string& name, std::initializer_list<std::size_t> shape) {
        std::size_t count = 1;
        for (std::size_t size : shape) count *= size;
        auto* owner = new std::vector<T>(count);
        nb::capsule guard(owner, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
        out[name.c_str()] = nb::cast(nb::ndarray<nb::numpy, T>(owner->data(), shape, guard), nb::rv_policy::reference);
        return owner->data();
    };
    const auto z = [](index_t x) { return static_cast<std::size_t>(x); };
    const index_t inputs[4] = {(net.sizes.num_windows() + 1) * net.d, net.m[0], net.m[1], net.m[2]};
    const index_t outputs[4] = {net.m[0], net.m[1], net.m[2], 1};
    RawGradients<T> raw{};
    raw.hidden_weight = place("attention.hidden.weight", {z(net.h), z(3 * net.d)});
    raw.hidden_bias = place("attention.hidden.bias", {z(net.h)});
    raw.hidden_slope = place("attention.hidden_slope", {1});
    raw.output_weight = place("attention.output.weight", {1, z(net.h)});
    raw.output_bias = place("attention.output.bias", {1});
    raw.output_slope = place("attention.output_slope", {1});
    for (int i = 0; i < 4; ++i) {
        raw.mlp_weight[i] = place(std::string(layer_names[i]) + ".weight", {z(outputs[i]), z(inputs[i])});
        raw.mlp_bias[i] = place(std::string(layer_names[i]) + ".bias", {z(outputs[i])});
    }
    raw.mlp_slope = place("mlp.slopes", {3});
    if (net.sizes.normalisation == Normalisation::layer)
        for (int i = 0; i < 3; ++i) {
            raw.norm_weight[i] = place(std::string(norm_names[i]) + ".weight", {z(net.m[i])});
            raw.norm_bias[i] = place(std::string(norm_names[i]) + ".bias", {z(net.m[i])});
        }
    sums.finish(net, raw);
    return out;
}

template <class T>
void fill_history(History<T>& history, const Network<T>& net, const T* vectors, index_t count) {
    history.count = count;
    history.occurrences.clear();
    history.a.stride = row_stride<T>(net.dp);
    history.a.values.resize(count * history.a.stride + 2 * lanes<T>);
    for (index_t k = 0; k < count; ++k) {
        for (index_t j = 0; j < net.dp; ++j) history.a.row(k)[j] = j < net.d ? vectors[k * net.d + j] : T(0);
    }
}

// Vectors (batch, K, d) and nodes (batch, n, d) given outright; one task is a stretch of one history's nodes.
template <class T>
struct AttentionBatch {
    const T *vectors, *nodes;
    index_t batch, length, count, width;
    index_t pieces;  // tasks per history

    AttentionBatch(const Network<T>& net, const Array3<T>& vector_array, const Array3<T>& node_array)
        : vectors(vector_array.data()),
          nodes(node_array.data()),
          batch(static_cast<index_t>(vector_array.shape(0))),
          length(static_cast<index_t>(vector_array.shape(1))),
          count(static_cast<index_t>(node_array.shape(1))),
          width(net.d) {
        require(static_cast<index_t>(node_array.shape(0)) == batch, "vectors, nodes: expected the same number of histories");
        require(static_cast<index_t>(vector_array.shape(2)) == width && static_cast<index_t>(node_array.shape(2)) == width,
                "vectors, nodes: expected rows of the network's width");
        constexpr index_t nodes_per_piece = 64;
        pieces = batch > 1 ? 1 : std::clamp<index_t>(count / nodes_per_piece, 1, 8);
    }

    // Prepares the history and the nodes of every task and calls body(task, history, block, index, first, end).
    template <class Body>
    void run(const Network<T>& net, Body&& body) const {
        ThreadPool::shared().run(batch * pieces, [&](index_t task, int) {
            static thread_local History<T> history;
            static thread_local NodeBlock<T> block;
            static thread_local std::vector<index_t> rows;
            const index_t index = task / pieces, piece = task % pieces;
            const index_t first = count * piece / pieces, end = count * (piece + 1) / pieces;
            rows.resize(static_cast<std::size_t>(end - first));
            std::iota(rows.begin(), rows.end(), first);
            const Table table{nodes + index * count * width, count, width,
                              sizeof(T) == 4 ? Storage::float32 : Storage::float64};
            fill_history(history, net, vectors + index * length * width, length);
            history.prepare_attention(net);
            block.gather(net, table, rows.data(), end - first);
            body(task, history, block, index, first, end);
        });
    }
};

// Attention weights (batch, K, n).
template <class T>
void attention_forward(const Network<T>& net, const Array3<T>& vectors, const Array3<T>& nodes,
                       nb::ndarray<T, nb::ndim<3>, nb::c_contig, nb::device::cpu> out) {
    const AttentionBatch<T> at(net, vectors, nodes);
    require(static_cast<index_t>(out.shape(0)) == at.batch && static_cast<index_t>(out.shape(1)) == at.length &&
                static_cast<index_t>(out.shape(2)) == at.count,
            "out: expected (batch, history, nodes)");
    T* weights = out.data();
    nb::gil_scoped_release release;
    at.run(net, [&](index_t, const History<T>& history, NodeBlock<T>& block, index_t index, index_t first, index_t end) {
        attend<false>(net, history, block);
        for (index_t k = 0; k < at.length; ++k)
            std::memcpy(weights + (index * at.length + k) * at.count + first, block.weights(k),
                        static_cast<std::size_t>(end - first) * sizeof(T));
    });
}

// Gradients of sum(d_weights * weights): of the vectors (batch, K, d), the nodes (batch, n, d) and the attention unit.
template <class T>
nb::tuple attention_backward(const Network<T>& net, const Array3<T>& vectors, const Array3<T>& nodes,
                             const Array3<T>& d_weights) {
    const AttentionBatch<T> at(net, vectors, nodes);
    require(static_cast<index_t>(d_weights.shape(0)) == at.batch &&
                static_cast<index_t>(d_weights.shape(1)) == at.length && static_cast<index_t>(d_weights.shape(2)) == at.count,
            "d_weights: expected (batch, history, nodes)");
    const std::size_t d = static_cast<std::size_t>(at.width), batch = static_cast<std::size_t>(at.batch);
    const std::size_t length = static_cast<std::size_t>(at.length), count = static_cast<std::size_t>(at.count);
    std::vector<T> d_vectors(batch * length * d), d_nodes(batch * count * d);
    Gradients<T> total(net);
    {
        nb::gil_scoped_release release;
        std::vector<std::unique_ptr<Gradients<T>>> sums(static_cast<std::size_t>(at.batch * at.pieces));
        std::vector<std::vector<T>> d_history(sums.size());
        at.run(net, [&](index_t task, const History<T>& history, NodeBlock<T>& block, index_t index, index_t first,
                        index_t end) {
            static thread_local Backward<T> backward;
            static thread_local Buffer<T> incoming;
            auto& mine = sums[static_cast<std::size_t>(task)];
            mine = std::make_unique<Gradients<T>>(net);
            attend<true>(net, history, block);
            incoming.zeroed(at.length * block.stride);
            for (index_t k = 0; k < at.length; ++k)
                std::memcpy(incoming.data() + k * block.stride,
                            d_weights.data() + (index * at.length + k) * at.count + first,
                            static_cast<std::size_t>(end - first) * sizeof(T));
            backward.run_attention(net, history, block, incoming.data(), *mine);
            for (index_t n = first; n < end; ++n)
                std::memcpy(d_nodes.data() + (index * at.count + n) * at.width, backward.d_nodes.row(n - first),
                            d * sizeof(T));
            auto& part = d_history[static_cast<std::size_t>(task)];
            for (index_t k = 0; k < at.length; ++k)
                part.insert(part.end(), backward.d_history.row(k), backward.d_history.row(k) + d);
        });
        for (std::size_t task = 0; task < sums.size(); ++task) {
            total.add(*sums[task]);
            T* sum = d_vectors.data() + task / static_cast<std::size_t>(at.pieces) * length * d;
            for (std::size_t i = 0; i < d_history[task].size(); ++i) sum[i] += d_history[task][i];
        }
    }
    return nb::make_tuple(to_numpy(std::move(d_vectors), {batch, length, d}),
                          to_numpy(std::move(d_nodes), {batch, count, d}), unpack(net, total));
}

// Scores (nodes,) of rows of the node table against one history.
template <class T>
nb::object score_rows(const Network<T>& net, const AnyTable& node_array, const AnyTable& history_array,
                      const Array1<std::int64_t>& history_rows, const Array1<std::int64_t>& node_rows) {
    const Table nodes = table_of(node_array, net.d, "node_table"), items = table_of(history_array, net.d, "history_table");
    const index_t length = static_cast<index_t>(net.window_of.size()), count = static_cast<index_t>(node_rows.shape(0));
    require(static_cast<index_t>(history_rows.shape(0)) == length,
            "history_rows: expected " + std::to_string(length) + " positions, got " + std::to_string(history_rows.shape(0)));
    require_range(history_rows.data(), length, -1, items.rows, "history_rows");
    require_range(node_rows.data(), count, 0, nodes.rows, "node_rows");
    std::vector<T> scores(static_cast<std::size_t>(count));
    {
        nb::gil_scoped_release release;
        static thread_local History<T> history;
        std::vector<index_t> positions(history_rows.data(), history_rows.data() + length);
        history.prepare(net, items, positions.data());
        const History<T>& prepared = history;
        ThreadPool::shared().run((count + columns_in_cache - 1) / columns_in_cache, [&](index_t task, int) {
            static thread_local NodeBlock<T> block;
            const index_t first = task * columns_in_cache, end = std::min(count, first + columns_in_cache);
            score_nodes(net, prepared, nodes, node_rows.data() + first, end - first, block, scores.data() + first);
        });
    }
    return to_numpy(std::move(scores), {static_cast<std::size_t>(count)});
}

template <class T>
nb::tuple unpack_step(const Network<T>& net, StepResult<T>&& result) {
    const std::size_t nodes = result.nodes.rows.size(), items = result.items.rows.size(), d = static_cast<std::size_t>(net.d);
    nb::dict work;
    work["forward_pairs"] = result.work.forward_pairs;
    work["forward_nodes"] = result.work.forward_nodes;
    work["backward_pairs"] = result.work.backward_pairs;
    work["backward_nodes"] = result.work.backward_nodes;
    work["prepared"] = result.work.prepared;
    work["learned"] = result.work.learned;
    return nb::make_tuple(result.loss, unpack(net, *result.weights), to_numpy(std::move(result.nodes.rows), {nodes}),
                          to_numpy(std::move(result.nodes.values), {nodes, d}),
                          to_numpy(std::move(result.items.rows), {items}),
                          to_numpy(std::move(result.items.values), {items, d}), work);
}

Tables tables_of(const AnyTable& nodes, const std::optional<AnyTable>& items, index_t width) {
    Tables tables;
    tables.nodes = table_of(nodes, width, "node_table");
    tables.separate = items.has_value();
    if (items) tables.items = table_of(*items, width, "item_table");
    return tables;
}

Dropout dropout_of(float rate, std::uint64_t seed) {
    require(rate >= 0 && rate < 1, "dropout: expected a rate in [0, 1)");
    return Dropout{rate, seed};
}

template <class T>
nb::tuple candidates_step(const Network<T>& net, const AnyTable& node_table, const std::optional<AnyTable>& item_table,
                          const Array2<std::int64_t>& node_rows, const Array2<T>& correction,
                          const Array2<std::int64_t>& history_rows, const Array1<T>& weights, float dropout,
                          std::uint64_t seed) {
    const Tables tables = tables_of(node_table, item_table, net.d);
    const index_t rows = static_cast<index_t>(node_rows.shape(0)), columns = static_cast<index_t>(node_rows.shape(1));
    const index_t length = static_cast<index_t>(net.window_of.size());
    require(rows > 0 && columns > 0, "node_rows: expected at least one row and one column");
    require(static_cast<index_t>(correction.shape(0)) == rows && static_cast<index_t>(correction.shape(1)) == columns,
            "log_correction: expected the shape of node_rows");
    require(static_cast<index_t>(history_rows.shape(0)) == rows && static_cast<index_t>(history_rows.shape(1)) == length,
            "history_rows: expected (rows, history)");
    require(static_cast<index_t>(weights.shape(0)) == rows, "weights: expected one per row");
    require_range(node_rows.data(), rows * columns, -1, tables.nodes.rows, "node_rows");
    require_range(history_rows.data(), rows * length, -1, tables.history().rows, "history_rows");
    const Dropout drop = dropout_of(dropout, seed);
    StepResult<T> result;
    {
        nb::gil_scoped_release release;
        result = step_on_candidates(net, tables, node_rows.data(), correction.data(), history_rows.data(), weights.data(),
                                    rows, columns, drop);
    }
    return unpack_step(net, std::move(result));
}

// A tree together with the arrays it reads, which it keeps alive.
struct PyTree {
    Array1<std::int32_t> item_at_leaf, leaf_of_item;
    Tree tree;

    PyTree(index_t branching, Array1<std::int32_t> at_leaf, Array1<std::int32_t> of_item)
        : item_at_leaf(at_leaf), leaf_of_item(of_item),
          tree(checked(branching, at_leaf, of_item), static_cast<index_t>(at_leaf.shape(0)), at_leaf.data(), of_item.data(),
               static_cast<index_t>(of_item.shape(0))) {}

    static index_t checked(index_t branching, const Array1<std::int32_t>& at_leaf, const Array1<std::int32_t>& of_item) {
        require(branching >= 2, "branching: expected at least 2");
        require(at_leaf.shape(0) > 0, "item_at_leaf: expected at least one leaf");
        require_range(at_leaf.data(), static_cast<index_t>(at_leaf.shape(0)), -1, static_cast<index_t>(of_item.shape(0)),
                      "item_at_leaf");
        require_range(of_item.data(), static_cast<index_t>(of_item.shape(0)), 0, static_cast<index_t>(at_leaf.shape(0)),
                      "leaf_of_item");
        return branching;
    }
};

struct PyLeafSet {
    LeafSet leaves;
    index_t size;
};

// Leaves that any request may return: occupied, and their item allowed.
std::shared_ptr<PyLeafSet> allow(const PyTree& tree, const Array1<bool>& allowed_items) {
    require(static_cast<index_t>(allowed_items.shape(0)) == tree.tree.items, "allowed_items: expected one entry per item");
    const std::int32_t* at_leaf = tree.item_at_leaf.data();
    const bool* allowed = allowed_items.data();
    nb::gil_scoped_release release;
    return std::make_shared<PyLeafSet>(PyLeafSet{
        LeafSet(tree.tree.leaves, [&](index_t leaf) { return at_leaf[leaf] >= 0 && allowed[at_leaf[leaf]]; }),
        tree.tree.leaves});
}

Model<float> model_of(const Network<float>& net, const PyTree& tree, const AnyTable& nodes,
                      const std::optional<AnyTable>& items) {
    Model<float> model{net, tree.tree, table_of(nodes, net.d, "node_table"), Table{}, items.has_value()};
    require(model.nodes.rows == tree.tree.num_nodes(), "node_table: expected " + std::to_string(tree.tree.num_nodes()) +
                                                           " rows, got " + std::to_string(model.nodes.rows));
    if (items) {
        model.items = table_of(*items, net.d, "item_table");
        require(model.items.rows == tree.tree.items, "item_table: expected one row per item");
    }
    return model;
}

void require_histories(const Network<float>& net, const PyTree& tree, const Array2<std::int32_t>& histories) {
    const index_t length = static_cast<index_t>(net.window_of.size());
    require(static_cast<index_t>(histories.shape(1)) == length,
            "histories: expected " + std::to_string(length) + " positions, got " + std::to_string(histories.shape(1)));
    require_range(histories.data(), static_cast<index_t>(histories.size()), -1, tree.tree.items, "histories");
}

// beams: (requests,), or empty for the exact scan.
nb::tuple search(const Network<float>& net, const PyTree& tree, const AnyTable& node_table,
                 const std::optional<AnyTable>& item_table, const Array2<std::int32_t>& histories,
                 const std::optional<Array1<std::int64_t>>& beams, index_t k, bool widen, const PyLeafSet* allowed,
                 const std::optional<Array1<std::int32_t>>& excluded_items,
                 const std::optional<Array1<std::int64_t>>& excluded_offsets) {
    const Model<float> model = model_of(net, tree, node_table, item_table);
    require_histories(net, tree, histories);
    const index_t requests = static_cast<index_t>(histories.shape(0));
    require(k >= 1, "k: expected at least 1");
    require(allowed == nullptr || allowed->size == tree.tree.leaves, "allowed: made for another tree");
    if (beams) {
        require(static_cast<index_t>(beams->shape(0)) == requests, "beam_widths: expected one per request");
        require_range(beams->data(), requests, 1, std::numeric_limits<std::int32_t>::max(), "beam_widths");
    }
    require(excluded_items.has_value() == excluded_offsets.has_value(), "excluded: expected items and offsets");
    if (excluded_items) {
        const std::int64_t* offsets = excluded_offsets->data();
        require(static_cast<index_t>(excluded_offsets->shape(0)) == requests + 1, "excluded: expected requests + 1 offsets");
        require(offsets[0] >= 0 && offsets[requests] <= static_cast<std::int64_t>(excluded_items->shape(0)),
                "excluded: offsets leave the items");
        for (index_t r = 0; r < requests; ++r) require(offsets[r] <= offsets[r + 1], "excluded: offsets must not fall");
        require_range(excluded_items->data(), static_cast<index_t>(excluded_items->shape(0)), -1, tree.tree.items, "excluded");
    }
    std::vector<std::int32_t> items(static_cast<std::size_t>(requests * k));
    std::vector<float> scores(static_cast<std::size_t>(requests * k));
    {
        nb::gil_scoped_release release;
        const LeafSet* shared = allowed != nullptr ? &allowed->leaves
                                : tree.tree.has_vacancies ? &tree.tree.occupied_leaves
                                                          : nullptr;
        const index_t length = static_cast<index_t>(net.window_of.size());
        auto eligible_of = [&](index_t request) {
            std::vector<index_t> excluded;
            if (excluded_items)
                for (std::int64_t i = excluded_offsets->data()[request]; i < excluded_offsets->data()[request + 1]; ++i) {
                    const std::int32_t item = excluded_items->data()[i];
                    if (item >= 0) excluded.push_back(tree.tree.leaf_of_item[item]);
                }
            return Eligible(tree.tree, shared, std::move(excluded));
        };
        auto found_of = [&](index_t request) { return Found{items.data() + request * k, scores.data() + request * k}; };
        auto one = [&](index_t request, bool spread) {
            static thread_local BeamSearch searcher;
            const Eligible eligible = eligible_of(request);
            index_t beam = static_cast<index_t>(beams->data()[request]);
            if (widen) beam += std::min(eligible.excluded(), beam);
            searcher.run(model, histories.data() + request * length, eligible, beam, k, spread, found_of(request));
        };
        if (!beams)
            for (index_t request = 0; request < requests; ++request) {
                const Eligible eligible = eligible_of(request);
                exact_scan(model, histories.data() + request * length, eligible, eligible.total() == tree.tree.leaves, k,
                           found_of(request));
            }
        else if (requests < ThreadPool::shared().size())
            for (index_t request = 0; request < requests; ++request) one(request, true);
        else
            ThreadPool::shared().run(requests, [&](index_t request, int) { one(request, false); });
    }
    const std::size_t rows = static_cast<std::size_t>(requests), columns = static_cast<std::size_t>(k);
    return nb::make_tuple(to_numpy(std::move(items), {rows, columns}), to_numpy(std::move(scores), {rows, columns}));
}

Sampling sampling_of(const std::string& sampler, const Tree& tree, const Array1<std::int64_t>& negatives, bool from_root,
                     bool correct_positive, std::uint64_t seed) {
    require(sampler == "uniform" || sampler == "top_down", "sampler: expected uniform or top_down, got " + sampler);
    require(static_cast<index_t>(negatives.shape(0)) == tree.height, "negatives: expected one count for each level below the root");
    require_range(negatives.data(), tree.height, 1, std::numeric_limits<std::int32_t>::max(), "negatives");
    Sampling sampling;
    sampling.sampler = sampler == "uniform" ? Sampler::uniform : Sampler::top_down;
    sampling.from_root = from_root;
    sampling.correct_positive = correct_positive;
    sampling.seed = seed;
    sampling.negatives.push_back(0);
    for (index_t level = 0; level < tree.height; ++level) sampling.negatives.push_back(negatives.data()[level]);
    return sampling;
}

Batch batch_of(const Network<float>& net, const PyTree& tree, const Array2<std::int32_t>& histories,
               const Array2<std::int32_t>& targets, const std::optional<Array3<float>>& weights) {
    require_histories(net, tree, histories);
    const index_t instances = static_cast<index_t>(histories.shape(0));
    const index_t targets_each = static_cast<index_t>(targets.shape(1));
    require(instances > 0, "histories: expected at least one instance");
    require(static_cast<index_t>(targets.shape(0)) == instances, "targets: expected a row for every history");
    require_range(targets.data(), instances * targets_each, -1, tree.tree.items, "targets");
    require(!weights || (static_cast<index_t>(weights->shape(0)) == instances &&
                         static_cast<index_t>(weights->shape(1)) == targets_each &&
                         static_cast<index_t>(weights->shape(2)) == tree.tree.height),
            "weights: expected (instances, targets, levels below the root)");
    return Batch{histories.data(), targets.data(), weights ? weights->data() : nullptr, instances, targets_each};
}

nb::tuple batch_step(const Network<float>& net, const PyTree& tree, const AnyTable& node_table,
                     const std::optional<AnyTable>& item_table, const Array2<std::int32_t>& histories,
                     const Array2<std::int32_t>& targets, const std::optional<Array3<float>>& weights,
                     const std::string& sampler, const Array1<std::int64_t>& negatives, bool from_root,
                     bool correct_positive, std::uint64_t seed, float dropout, std::uint64_t dropout_seed) {
    const Model<float> model = model_of(net, tree, node_table, item_table);
    const Tables tables{model.nodes, model.items, model.separate};
    const Batch batch = batch_of(net, tree, histories, targets, weights);
    const Sampling sampling = sampling_of(sampler, tree.tree, negatives, from_root, correct_positive, seed);
    const Dropout drop = dropout_of(dropout, dropout_seed);
    StepResult<float> result;
    {
        nb::gil_scoped_release release;
        result = step_on_batch(net, tables, tree.tree, batch, sampling, drop);
    }
    return unpack_step(net, std::move(result));
}

// node_rows, log_correction: (instances * levels, columns) as the step would draw them, -1 where a column is absent.
nb::tuple draw(const Network<float>& net, const PyTree& tree, const AnyTable& node_table,
               const std::optional<AnyTable>& item_table, const Array2<std::int32_t>& histories,
               const Array2<std::int32_t>& targets, const std::string& sampler, const Array1<std::int64_t>& negatives,
               bool from_root, bool correct_positive, std::uint64_t seed) {
    const Model<float> model = model_of(net, tree, node_table, item_table);
    const Tables tables{model.nodes, model.items, model.separate};
    const Batch batch = batch_of(net, tree, histories, targets, std::nullopt);
    const Sampling sampling = sampling_of(sampler, tree.tree, negatives, from_root, correct_positive, seed);
    std::vector<DrawnRow> drawn;
    {
        nb::gil_scoped_release release;
        drawn = draw_batch(net, tables, tree.tree, batch, sampling);
    }
    std::size_t columns = 1;
    for (const DrawnRow& row : drawn) columns = std::max(columns, row.node_rows.size());
    const std::size_t rows = static_cast<std::size_t>(batch.instances * tree.tree.height);
    std::vector<std::int64_t> node_rows(rows * columns, -1);
    std::vector<float> correction(rows * columns, 0.0f);
    for (const DrawnRow& row : drawn)
        for (std::size_t c = 0; c < row.node_rows.size(); ++c) {
            node_rows[static_cast<std::size_t>(row.row) * columns + c] = row.node_rows[c];
            correction[static_cast<std::size_t>(row.row) * columns + c] = row.correction[c];
        }
    return nb::make_tuple(to_numpy(std::move(node_rows), {rows, columns}), to_numpy(std::move(correction), {rows, columns}));
}

template <class T>
using Writable2 = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class T>
void adam(Writable2<T> table, Writable2<T> first, Writable2<T> second, const Array1<std::int64_t>& rows,
          const Array2<T>& gradients, double learning_rate, double beta1, double beta2, double epsilon, double weight_decay,
          bool decoupled, std::int64_t step) {
    const index_t height = static_cast<index_t>(table.shape(0)), width = static_cast<index_t>(table.shape(1));
    const index_t count = static_cast<index_t>(rows.shape(0));
    for (const auto& moment : {first, second})
        require(static_cast<index_t>(moment.shape(0)) == height && static_cast<index_t>(moment.shape(1)) == width,
                "moments: expected the shape of the table");
    require(static_cast<index_t>(gradients.shape(0)) == count && static_cast<index_t>(gradients.shape(1)) == width,
            "gradients: expected (rows, width)");
    require(step >= 1, "step: expected to count from 1");
    require_range(rows.data(), count, 0, height, "rows");
    for (index_t i = 1; i < count; ++i) require(rows.data()[i - 1] < rows.data()[i], "rows: expected to rise, without repeats");
    nb::gil_scoped_release release;
    adam_rows(table.data(), first.data(), second.data(), rows.data(), gradients.data(), count, width,
              AdamSettings{learning_rate, beta1, beta2, epsilon, weight_decay, decoupled, step});
}

template <class Sum>
void relearn(const Network<float>& net, const PyTree& tree, const AnyTable& node_table,
             const std::optional<AnyTable>& item_table, const Array2<std::int32_t>& histories,
             const Array1<std::int32_t>& targets, const Array1<std::int64_t>& groups, index_t upper, index_t lower,
             Writable2<Sum> sums) {
    const Model<float> model = model_of(net, tree, node_table, item_table);
    require_histories(net, tree, histories);
    const index_t instances = static_cast<index_t>(histories.shape(0));
    require(static_cast<index_t>(targets.shape(0)) == instances, "targets: expected one per history");
    require_range(targets.data(), instances, 0, tree.tree.items, "targets");
    require(0 <= upper && upper < lower && lower <= tree.tree.height, "levels: expected 0 <= upper < lower <= height");
    require(static_cast<index_t>(groups.shape(0)) == tree.tree.items, "groups: expected one per item");
    require_range(groups.data(), tree.tree.items, -1, tree.tree.size(upper), "groups");
    require(static_cast<index_t>(sums.shape(0)) == tree.tree.items, "sums: expected one row per item");
    const index_t columns = static_cast<index_t>(sums.shape(1));
    for (index_t i = 0; i < instances; ++i) {
        const index_t group = static_cast<index_t>(groups.data()[targets.data()[i]]);
        if (group < 0) continue;
        require(tree.tree.first_descendant(group + 1, upper, lower) - tree.tree.first_descendant(group, upper, lower) <= columns,
                "sums: too few columns for the candidates of a group");
    }
    nb::gil_scoped_release release;
    score_candidates(model, Stage{groups.data(), upper, lower, columns}, histories.data(), targets.data(), instances,
                     sums.data());
}

template <class T>
void bind_network(nb::module_& m, const char* name) {
    nb::class_<Network<T>>(m, name);
    m.def("attention_forward", &attention_forward<T>);
    m.def("attention_backward", &attention_backward<T>);
    m.def("score_rows", &score_rows<T>);
    m.def("candidates_step", &candidates_step<T>, "network"_a, "node_table"_a, "item_table"_a.none(), "node_rows"_a,
          "log_correction"_a, "history_rows"_a, "weights"_a, "dropout"_a, "seed"_a);
}

}  // namespace beamtree

NB_MODULE(_kernels, m) {
    using namespace beamtree;
    m.def("threads", [] { return ThreadPool::shared().size(); });
    m.def("set_threads", [](int count) { ThreadPool::shared().resize(count); });
    m.def("pack_float32", &pack<float>);
    m.def("pack_float64", &pack<double>);
    m.def("dropout_factors", [](std::uint64_t seed, index_t row, index_t columns, index_t units, float rate) {
        const DropoutMask mask(seed, row, dropout_of(rate, seed).rate);
        std::vector<float> factors;
        for (index_t column = 0; column < columns; ++column)
            for (index_t unit = 0; unit < units; ++unit) factors.push_back(mask.factor(column, unit));
        return to_numpy(std::move(factors), {static_cast<std::size_t>(columns), static_cast<std::size_t>(units)});
    });
    bind_network<float>(m, "NetworkFloat32");
    bind_network<double>(m, "NetworkFloat64");
    nb::class_<PyTree>(m, "Tree").def(nb::init<index_t, Array1<std::int32_t>, Array1<std::int32_t>>());
    nb::class_<PyLeafSet>(m, "LeafSet");
    m.def("allow", &allow);
    m.def("search", &search, "network"_a, "tree"_a, "node_table"_a, "item_table"_a.none(), "histories"_a,
          "beam_widths"_a.none(), "k"_a, "widen"_a, "allowed"_a.none(), "excluded_items"_a.none(),
          "excluded_offsets"_a.none());
    m.def("batch_step", &batch_step, "network"_a, "tree"_a, "node_table"_a, "item_table"_a.none(), "histories"_a,
          "targets"_a, "weights"_a.none(), "sampler"_a, "negatives"_a, "from_root"_a, "correct_positive"_a, "seed"_a,
          "dropout"_a, "dropout_seed"_a);
    m.def("draw", &draw, "network"_a, "tree"_a, "node_table"_a, "item_table"_a.none(), "histories"_a, "targets"_a,
          "sampler"_a, "negatives"_a, "from_root"_a, "correct_positive"_a, "seed"_a);
    m.def("adam", &adam<float>);
    m.def("adam", &adam<double>);
    m.def("relearn", &relearn<float>, "network"_a, "tree"_a, "node_table"_a, "item_table"_a.none(), "histories"_a,
          "targets"_a, "groups"_a, "upper"_a, "lower"_a, "sums"_a);
    m.def("relearn", &relearn<double>, "network"_a, "tree"_a, "node_table"_a, "item_table"_a.none(), "histories"_a,
          "targets"_a, "groups"_a, "upper"_a, "lower"_a, "sums"_a);
}
