// Networks packed from a dictionary of weights, joined with their tables, and the scores they give to nodes.
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "model_arrays.hpp"
#include "threads.hpp"
#include "weights.hpp"

namespace beamtree {
namespace {

Sizes sizes_of(const std::vector<index_t>& windows, index_t width, index_t attention, const std::vector<index_t>& mlp,
               bool layer_norm) {
    require(width > 0 && attention > 0 && !mlp.empty() && !windows.empty(), "sizes: expected positive sizes, and a layer or more");
    for (index_t size : windows) require(size > 0, "windows: expected positive sizes");
    for (index_t size : mlp) require(size > 0, "mlp: expected positive sizes");
    return Sizes{.width = width,
                 .attention = attention,
                 .mlp = mlp,
                 .windows = windows,
                 .normalisation = layer_norm ? Normalisation::layer : Normalisation::none};
}

template <class T>
std::shared_ptr<Network<T>> pack_arrays(const nb::dict& weights, const std::vector<index_t>& windows, index_t width,
                                        index_t attention, const std::vector<index_t>& mlp, bool layer_norm) {
    return pack<T>(weights, sizes_of(windows, width, attention, mlp, layer_norm));
}

// Scores (nodes,) of rows of the node table against one history, rows of its own table; layer_offset: (m1,).
template <class T>
nb::object score_rows(const PyAttention<T>& given, const Array1<std::int64_t>& node_rows,
                      const Array1<std::int64_t>& history_rows, const std::optional<Array1<T>>& layer_offset) {
    const Network<T>& net = given.attention.net;
    const Table &nodes = given.attention.tables.nodes, &items = given.attention.tables.history();
    const index_t length = net.sizes.history(), count = extent(node_rows, 0);
    require(extent(history_rows, 0) == length,
            "history_rows: expected " + std::to_string(length) + " positions, got " + std::to_string(history_rows.shape(0)));
    require(!layer_offset || has_shape(*layer_offset, {net.m[0]}), "layer_offset: expected the first layer's width");
    require_range(history_rows, -1, items.rows, "history_rows");
    require_range(node_rows, 0, nodes.rows, "node_rows");
    auto scores = values_for<T>({count});
    {
        nb::gil_scoped_release release;
        static thread_local History<T> history;
        const std::vector<index_t> positions(history_rows.data(), history_rows.data() + length);
        history.prepare(net, items, positions.data(), layer_offset ? layer_offset->data() : nullptr);
        const History<T>& prepared = history;
        ThreadPool::shared().run((count + columns_in_cache - 1) / columns_in_cache, [&](index_t task, int) {
            static thread_local NodeBlock<T> block;
            const index_t first = task * columns_in_cache, end = std::min(count, first + columns_in_cache);
            score_nodes(net, prepared, nodes, node_rows.data() + first, end - first, block, scores.data() + first);
        });
    }
    return to_numpy(std::move(scores), {count});
}

template <class T>
void bind(nb::module_& m, const char* network, const char* packing, const char* attention) {
    nb::class_<Network<T>>(m, network);
    m.def(packing, &pack_arrays<T>, "weights"_a, nb::kw_only(), "windows"_a, "width"_a, "attention"_a, "mlp"_a,
          "layer_norm"_a);
    nb::class_<PyAttention<T>>(m, attention)
        .def(nb::init<std::shared_ptr<Network<T>>, AnyTable, std::optional<AnyTable>>(), "network"_a, "node_table"_a,
             "item_table"_a.none());
    m.def("score_rows", &score_rows<T>, "attention"_a, nb::kw_only(), "node_rows"_a, "history_rows"_a,
          "layer_offset"_a.none());
}

}  // namespace

void bind_network(nb::module_& m) {
    bind<float>(m, "NetworkFloat32", "pack_float32", "AttentionFloat32");
    bind<double>(m, "NetworkFloat64", "pack_float64", "AttentionFloat64");
}

}  // namespace beamtree
