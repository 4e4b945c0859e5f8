// Scores of items for their candidate places in a new tree.
#include "bindings.hpp"
#include "model_arrays.hpp"
#include "relearn.hpp"

namespace beamtree {
namespace {

template <class Sum>
void relearn(const PyAttention<float>& given, const PyTree& of_tree, Writable2<Sum> sums,
             const Array2<std::int32_t>& histories, const Array1<std::int32_t>& targets, const Array1<std::int64_t>& groups,
             const std::optional<Array2<float>>& layer_offsets, index_t upper, index_t lower) {
    const Tree& tree = of_tree.tree;
    const Attention<float>& attention = fitting(given, tree);
    require_histories(attention.net, tree, histories);
    const index_t instances = extent(histories, 0), items = tree.items, columns = extent(sums, 1);
    require(has_shape(targets, {instances}), "targets: expected one per history");
    require_range(targets, 0, items, "targets");
    require(0 <= upper && upper < lower && lower <= tree.height, "levels: expected 0 <= upper < lower <= height");
    require(!layer_offsets || has_shape(*layer_offsets, {instances, attention.net.m[0]}),
            "layer_offsets: expected one per history, of the first layer's width");
    require(has_shape(groups, {items}), "groups: expected one per item");
    require_range(groups, -1, tree.size(upper), "groups");
    require(extent(sums, 0) == items, "sums: expected one row per item");
    auto first_candidate = [&](index_t group) { return tree.first_descendant(group, upper, lower); };
    for (index_t i = 0; i < instances; ++i) {
        const index_t group = static_cast<index_t>(groups.data()[targets.data()[i]]);
        require(group < 0 || first_candidate(group + 1) - first_candidate(group) <= columns,
                "sums: too few columns for the candidates of a group");
    }
    nb::gil_scoped_release release;
    const Followed followed{histories.data(), targets.data(), layer_offsets ? layer_offsets->data() : nullptr, instances};
    score_candidates(attention, tree, Stage{groups.data(), upper, lower, columns}, followed, sums.data());
}

template <class Sum>
void bind(nb::module_& m) {
    m.def("relearn", &relearn<Sum>, "attention"_a, "tree"_a, "sums"_a, nb::kw_only(), "histories"_a, "targets"_a, "groups"_a,
          "layer_offsets"_a.none(), "upper"_a, "lower"_a);
}

}  // namespace

void bind_relearn(nb::module_& m) {
    bind<float>(m);
    bind<double>(m);
}

}  // namespace beamtree
