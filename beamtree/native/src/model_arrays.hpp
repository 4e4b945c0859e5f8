// A model as Python hands it over: a tree, the attention network with tables that fit it, and histories of its items.
#pragma once

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include <optional>

#include "arrays.hpp"
#include "attention.hpp"

namespace beamtree {

// A tree together with the arrays it reads, which it keeps alive.
struct PyTree {
    Array1<std::int32_t> item_at_leaf, leaf_of_item;
    Tree tree;

    PyTree(index_t branching, Array1<std::int32_t> at_leaf, Array1<std::int32_t> of_item)
        : item_at_leaf(at_leaf), leaf_of_item(of_item),
          tree(checked(branching, at_leaf, of_item), extent(at_leaf, 0), at_leaf.data(), of_item.data(),
               extent(of_item, 0)) {}

   private:
    static index_t checked(index_t branching, const Array1<std::int32_t>& at_leaf, const Array1<std::int32_t>& of_item) {
        require(branching >= 2, "branching: expected at least 2");
        require(at_leaf.size() > 0, "item_at_leaf: expected at least one leaf");
        require_aligned(at_leaf, "item_at_leaf");
        require_aligned(of_item, "leaf_of_item");
        require_range(at_leaf, -1, extent(of_item, 0), "item_at_leaf");
        require_range(of_item, 0, extent(at_leaf, 0), "leaf_of_item");
        return branching;
    }
};

inline Tables tables_of(const AnyTable& nodes, const std::optional<AnyTable>& items, index_t width) {
    Tables tables;
    tables.nodes = table_of(nodes, width, "node_table");
    tables.separate = items.has_value();
    if (items) tables.items = table_of(*items, width, "item_table");
    return tables;
}

// The attention network and its tables, all kept alive. Training makes one for every step: it looks at shapes alone.
template <class T>
struct PyAttention {
    std::shared_ptr<Network<T>> network;
    AnyTable node_table;
    std::optional<AnyTable> item_table;
    Attention<T> attention;

    PyAttention(std::shared_ptr<Network<T>> of_network, AnyTable nodes, std::optional<AnyTable> items)
        : network(of_network), node_table(nodes), item_table(items),
          attention{*network, tables_of(nodes, items, network->d)} {}
};

template <class T>
const Attention<T>& fitting(const PyAttention<T>& given, const Tree& tree) {
    const Tables& tables = given.attention.tables;
    require(tables.nodes.rows == tree.num_nodes(), "node_table: expected " + std::to_string(tree.num_nodes()) +
                                                       " rows, got " + std::to_string(tables.nodes.rows));
    require(!tables.separate || tables.items.rows == tree.items, "item_table: expected one row per item");
    return given.attention;
}

// Whole histories: history i is items[starts[i] .. ends[i] - 1].
inline void require_spans(const Array1<std::int32_t>& items, const Array1<std::int64_t>& starts,
                          const Array1<std::int64_t>& ends, index_t num_items) {
    const index_t count = extent(starts, 0), length = extent(items, 0);
    require(extent(ends, 0) == count, "ends: expected one for every start");
    for (index_t i = 0; i < count; ++i)
        require(0 <= starts.data()[i] && starts.data()[i] <= ends.data()[i] && ends.data()[i] <= length,
                "histories: expected 0 <= start <= end <= items");
    for (index_t history = 0; history < count; ++history)
        for (std::int64_t i = starts.data()[history]; i < ends.data()[history]; ++i)
            require(0 <= items.data()[i] && items.data()[i] < num_items, "histories: expected items of the tree");
}

inline void require_histories(const Network<float>& net, const Tree& tree, const Array2<std::int32_t>& histories) {
    const index_t length = net.sizes.history();
    require(extent(histories, 1) == length,
            "histories: expected " + std::to_string(length) + " positions, got " + std::to_string(histories.shape(1)));
    require_range(histories, -1, tree.items, "histories");
}

}  // namespace beamtree
