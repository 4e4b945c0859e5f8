// Trees, sets of leaves that may be returned, and the search for many requests at once.
#include <nanobind/stl/shared_ptr.h>

#include "bindings.hpp"
#include "model_arrays.hpp"

namespace beamtree {
namespace {

struct PyLeafSet {
    LeafSet leaves;
    index_t size;
};

// Leaves that any request may return: occupied, and their item allowed.
std::shared_ptr<PyLeafSet> allow(const PyTree& tree, const Array1<bool>& allowed_items) {
    require(extent(allowed_items, 0) == tree.tree.items, "allowed_items: expected one entry per item");
    const std::int32_t* at_leaf = tree.item_at_leaf.data();
    const bool* allowed = allowed_items.data();
    nb::gil_scoped_release release;
    return std::make_shared<PyLeafSet>(PyLeafSet{
        LeafSet(tree.tree.leaves, [&](index_t leaf) { return at_leaf[leaf] >= 0 && allowed[at_leaf[leaf]]; }),
        tree.tree.leaves});
}

// The items that each request must not return: items[offsets[request] .. offsets[request + 1] - 1]; null = none at all.
struct Exclusions {
    const std::int32_t* items = nullptr;
    const std::int64_t* offsets = nullptr;

    std::vector<index_t> leaves(const Tree& tree, index_t request) const {
        std::vector<index_t> found;
        if (offsets == nullptr) return found;
        for (std::int64_t i = offsets[request]; i < offsets[request + 1]; ++i)
            if (items[i] >= 0) found.push_back(tree.leaf_of_item[items[i]]);
        return found;
    }
};

Exclusions exclusions_of(const std::optional<Array1<std::int32_t>>& items,
                         const std::optional<Array1<std::int64_t>>& offsets, index_t requests, const Tree& tree) {
    require(items.has_value() == offsets.has_value(), "excluded: expected items and offsets");
    if (!items) return Exclusions{};
    const std::int64_t* at = offsets->data();
    require(extent(*offsets, 0) == requests + 1, "excluded: expected requests + 1 offsets");
    require(at[0] >= 0 && at[requests] <= extent(*items, 0), "excluded: offsets leave the items");
    for (index_t r = 0; r < requests; ++r) require(at[r] <= at[r + 1], "excluded: offsets must not fall");
    require_range(*items, -1, tree.items, "excluded");
    return Exclusions{items->data(), at};
}

// What is asked of a model: for every request its k best items.
struct Requests {
    const std::int32_t* histories;  // (count, K)
    const std::int64_t* beams;      // (count,), null = the exact scan
    index_t count;
    index_t k;
    bool widen;             // a beam grows by the leaves that its request excludes, at most to twice its width
    const LeafSet* shared;  // leaves that any request may return, null = all
    Exclusions excluded;
};

// items, scores: (count, k).
void answer(const Model<float>& model, const Requests& asked, std::int32_t* items, float* scores) {
    const index_t length = model.net.sizes.history();
    auto history_of = [&](index_t request) { return asked.histories + request * length; };
    auto eligible_of = [&](index_t request) {
        return Eligible(model.tree, asked.shared, asked.excluded.leaves(model.tree, request));
    };
    auto found_of = [&](index_t request) { return Found{items + request * asked.k, scores + request * asked.k}; };
    auto scan = [&](index_t request) {
        const Eligible eligible = eligible_of(request);
        const bool all = eligible.total() == model.tree.leaves;
        exact_scan(model, history_of(request), eligible, all, asked.k, found_of(request));
    };
    auto descend = [&](index_t request, bool spread) {
        static thread_local BeamSearch searcher;
        const Eligible eligible = eligible_of(request);
        index_t beam = static_cast<index_t>(asked.beams[request]);
        if (asked.widen) beam += std::min(eligible.excluded(), beam);
        searcher.run(model, history_of(request), eligible, beam, asked.k, spread, found_of(request));
    };
    if (asked.beams == nullptr)
        for (index_t request = 0; request < asked.count; ++request) scan(request);
    else if (asked.count < ThreadPool::shared().size())
        for (index_t request = 0; request < asked.count; ++request) descend(request, true);
    else
        ThreadPool::shared().run(asked.count, [&](index_t request, int) { descend(request, false); });
}

nb::tuple search(const Network<float>& net, const PyTree& tree, const AnyTable& node_table,
                 const std::optional<AnyTable>& item_table, const Array2<std::int32_t>& histories,
                 const std::optional<Array1<std::int64_t>>& beams, index_t k, bool widen, const PyLeafSet* allowed,
                 const std::optional<Array1<std::int32_t>>& excluded_items,
                 const std::optional<Array1<std::int64_t>>& excluded_offsets) {
    const Model<float> model = model_of(net, tree, node_table, item_table);
    require_histories(net, tree, histories);
    const index_t count = extent(histories, 0);
    require(k >= 1, "k: expected at least 1");
    require(allowed == nullptr || allowed->size == tree.tree.leaves, "allowed: made for another tree");
    if (beams) {
        require(extent(*beams, 0) == count, "beam_widths: expected one per request");
        require_range(*beams, 1, std::numeric_limits<std::int32_t>::max(), "beam_widths");
    }
    const LeafSet* occupied = tree.tree.has_vacancies ? &tree.tree.occupied_leaves : nullptr;
    const Requests asked{histories.data(),
                         beams ? beams->data() : nullptr,
                         count,
                         k,
                         widen,
                         allowed != nullptr ? &allowed->leaves : occupied,
                         exclusions_of(excluded_items, excluded_offsets, count, tree.tree)};
    auto items = values_for<std::int32_t>({count, k});
    auto scores = values_for<float>({count, k});
    {
        nb::gil_scoped_release release;
        answer(model, asked, items.data(), scores.data());
    }
    return nb::make_tuple(to_numpy(std::move(items), {count, k}), to_numpy(std::move(scores), {count, k}));
}

}  // namespace

void bind_search(nb::module_& m) {
    nb::class_<PyTree>(m, "Tree").def(nb::init<index_t, Array1<std::int32_t>, Array1<std::int32_t>>());
    nb::class_<PyLeafSet>(m, "LeafSet");
    m.def("allow", &allow);
    m.def("search", &search, "network"_a, "tree"_a, "node_table"_a, "item_table"_a.none(), "histories"_a,
          "beam_widths"_a.none(), "k"_a, "widen"_a, "allowed"_a.none(), "excluded_items"_a.none(),
          "excluded_offsets"_a.none());
}

}  // namespace beamtree
