// What Python sees: arrays in, arrays out. Everything is checked here, once, so that the kernels may trust their indices.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "training.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace beamtree {

template <class T>
using Array1 = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Array2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
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

// Attention weights (history, nodes) of vectors given outright.
template <class T>
void attention_forward(const Network<T>& net, const Array2<T>& vectors, const Array2<T>& nodes,
                       nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu> out) {
    const index_t length = static_cast<index_t>(vectors.shape(0)), count = static_cast<index_t>(nodes.shape(0));
    require(static_cast<index_t>(vectors.shape(1)) == net.d && static_cast<index_t>(nodes.shape(1)) == net.d,
            "vectors, nodes: expected rows of the network's width");
    require(static_cast<index_t>(out.shape(0)) == length && static_cast<index_t>(out.shape(1)) == count,
            "out: expected (history, nodes)");
    T* weights = out.data();
    nb::gil_scoped_release release;
    static thread_local History<T> history;
    fill_history(history, net, vectors.data(), length);
    history.prepare_attention(net);
    const Table table{nodes.data(), count, net.d, sizeof(T) == 4 ? Storage::float32 : Storage::float64};
    const index_t threads = ThreadPool::shared().size();
    const index_t share = std::max<index_t>(round_up((count + threads - 1) / threads, 2 * lanes<T>), 2 * lanes<T>);
    const History<T>& prepared = history;
    ThreadPool::shared().run((count + share - 1) / share, [&](index_t task, int) {
        static thread_local NodeBlock<T> block;
        static thread_local std::vector<index_t> rows;
        const index_t first = task * share, end = std::min(count, first + share);
        rows.clear();
        for (index_t n = first; n < end; ++n) rows.push_back(n);
        block.gather(net, table, rows.data(), end - first);
        attend<false>(net, prepared, block);
        for (index_t k = 0; k < length; ++k)
            std::memcpy(weights + k * count + first, block.weights(k), static_cast<std::size_t>(end - first) * sizeof(T));
    });
}

// Gradients of sum(d_weights * weights): of the vectors (history, d), the nodes (nodes, d) and the attention unit.
template <class T>
nb::tuple attention_backward(const Network<T>& net, const Array2<T>& vectors, const Array2<T>& nodes,
                             const Array2<T>& d_weights) {
    const index_t length = static_cast<index_t>(vectors.shape(0)), count = static_cast<index_t>(nodes.shape(0)), d = net.d;
    require(static_cast<index_t>(vectors.shape(1)) == d && static_cast<index_t>(nodes.shape(1)) == d,
            "vectors, nodes: expected rows of the network's width");
    require(static_cast<index_t>(d_weights.shape(0)) == length && static_cast<index_t>(d_weights.shape(1)) == count,
            "d_weights: expected (history, nodes)");
    std::vector<T> d_vectors(static_cast<std::size_t>(length * d)), d_nodes(static_cast<std::size_t>(count * d));
    Gradients<T> total(net);
    {
        nb::gil_scoped_release release;
        static thread_local History<T> history;
        fill_history(history, net, vectors.data(), length);
        history.prepare_attention(net);
        const Table table{nodes.data(), count, d, sizeof(T) == 4 ? Storage::float32 : Storage::float64};
        const index_t pieces = std::max<index_t>(1, std::min<index_t>(8, count / columns_in_cache + 1));
        std::vector<std::unique_ptr<Gradients<T>>> sums(static_cast<std::size_t>(pieces));
        std::vector<std::vector<T>> d_history(static_cast<std::size_t>(pieces));
        const History<T>& prepared = history;
        ThreadPool::shared().run(pieces, [&](index_t piece, int) {
            static thread_local NodeBlock<T> block;
            static thread_local Backward<T> backward;
            static thread_local std::vector<index_t> rows;
            const index_t first = count * piece / pieces, end = count * (piece + 1) / pieces;
            rows.clear();
            for (index_t n = first; n < end; ++n) rows.push_back(n);
            auto& mine = sums[static_cast<std::size_t>(piece)];
            mine = std::make_unique<Gradients<T>>(net);
            block.gather(net, table, rows.data(), end - first);
            attend<true>(net, prepared, block);
            std::vector<T> incoming(static_cast<std::size_t>(length * block.stride), T(0));
            for (index_t k = 0; k < length; ++k)
                std::memcpy(incoming.data() + k * block.stride, d_weights.data() + k * count + first,
                            static_cast<std::size_t>(end - first) * sizeof(T));
            backward.run_attention(net, prepared, block, incoming.data(), *mine);
            for (index_t n = first; n < end; ++n)
                std::memcpy(d_nodes.data() + n * d, backward.d_nodes.row(n - first), static_cast<std::size_t>(d) * sizeof(T));
            auto& part = d_history[static_cast<std::size_t>(piece)];
            for (index_t k = 0; k < length; ++k)
                part.insert(part.end(), backward.d_history.row(k), backward.d_history.row(k) + d);
        });
        for (index_t piece = 0; piece < pieces; ++piece) {
            total.add(*sums[static_cast<std::size_t>(piece)]);
            const auto& part = d_history[static_cast<std::size_t>(piece)];
            for (std::size_t i = 0; i < part.size(); ++i) d_vectors[i] += part[i];
        }
    }
    return nb::make_tuple(
        to_numpy(std::move(d_vectors), {static_cast<std::size_t>(length), static_cast<std::size_t>(d)}),
        to_numpy(std::move(d_nodes), {static_cast<std::size_t>(count), static_cast<std::size_t>(d)}), unpack(net, total));
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
    return nb::make_tuple(result.loss, unpack(net, *result.weights), to_numpy(std::move(result.nodes.rows), {nodes}),
                          to_numpy(std::move(result.nodes.values), {nodes, d}),
                          to_numpy(std::move(result.items.rows), {items}),
                          to_numpy(std::move(result.items.values), {items, d}));
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
    m.def("dropout_factor", [](std::uint64_t seed, std::int64_t row, std::int64_t column, std::int64_t unit, float rate) {
        return DropoutMask(seed, row, rate).factor(column, unit);
    });
    bind_network<float>(m, "NetworkFloat32");
    bind_network<double>(m, "NetworkFloat64");
}
