// A model as Python hands it over: a tree, tables that fit it, and histories of its items.
#pragma once

#include <nanobind/stl/optional.h>

#include <optional>

#include "arrays.hpp"
#include "score.hpp"

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

inline Tables tables_of(const AnyTable& nodes, const std::optional<AnyTable>& items, index_t width, const Tree& tree) {
    const Tables tables = tables_of(nodes, items, width);
    require(tables.nodes.rows == tree.num_nodes(), "node_table: expected " + std::to_string(tree.num_nodes()) +
                                                       " rows, got " + std::to_string(tables.nodes.rows));
    require(!items || tables.items.rows == tree.items, "item_table: expected one row per item");
    return tables;
}

inline Attention<float> attention_of(const Network<float>& net, const PyTree& tree, const AnyTable& nodes,
                                     const std::optional<AnyTable>& items) {
    return Attention<float>{net, tables_of(nodes, items, net.d, tree.tree)};
}

inline void require_histories(const Network<float>& net, const PyTree& tree, const Array2<std::int32_t>& histories) {
    const index_t length = net.sizes.history();
    require(extent(histories, 1) == length,
            "histories: expected " + std::to_string(length) + " positions, got " + std::to_string(histories.shape(1)));
    require_range(histories, -1, tree.tree.items, "histories");
}

}  // namespace beamtree
