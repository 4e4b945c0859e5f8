// Trees, sets of leaves that may be returned, and the search for many requests at once.
#include <nanobind/stl/shared_ptr.h>

#include "bindings.hpp"
#include "score_arrays.hpp"
#include "search.hpp"

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

// A row of width numbers for every request; null = none at all.
struct Rows {
    const float* values = nullptr;
    index_t width = 0;

    const float* row(index_t request) const { return values == nullptr ? nullptr : values + request * width; }
};

Rows offsets_of(const std::optional<Array2<float>>& offsets, index_t count, index_t width, const char* name) {
    if (!offsets) return Rows{};
    require(width > 0, std::string(name) + ": the score has no part to add them to");
    require(has_shape(*offsets, {count, width}), std::string(name) + ": expected one per request, rows of " +
                                                     std::to_string(width) + " values");
    return Rows{offsets->data(), width};
}

// What is asked: for every request its k best items.
struct Requests {
    const std::int32_t* items;   // flat histories: request r has items[starts[r] .. ends[r] - 1], oldest first
    const std::int64_t* starts;  // (count,)
    const std::int64_t* ends;    // (count,)
    index_t count;
    const LeafSet* shared;  // leaves that any request may return, null = all
    Exclusions excluded;
    Rows tower_offsets, layer_offsets;

    Asked one(index_t request) const {
        return Asked{HistorySpan{items + starts[request], static_cast<index_t>(ends[request] - starts[request])},
                     tower_offsets.row(request), layer_offsets.row(request)};
    }
    Eligible eligible(const Tree& tree, index_t request) const {
        return Eligible(tree, shared, excluded.leaves(tree, request));
    }
};

// Requests as Python hands them over; the arrays stay alive with it.
struct PyRequests {
    Array1<std::int32_t> items;
    Array1<std::int64_t> starts, ends;
    std::shared_ptr<PyLeafSet> allowed;
    std::optional<Array1<std::int32_t>> excluded_items;
    std::optional<Array1<std::int64_t>> excluded_offsets;
    std::optional<Array2<float>> tower_offsets, layer_offsets;

    Requests of(const PyScore& score) const {
        const Tree& tree = score.tree->tree;
        const index_t count = extent(starts, 0);
        const index_t tower_width = score.kept_tower == nullptr ? 0 : score.kept_tower->encoder->width;
        const index_t layer_width = score.attention == nullptr ? 0 : score.attention->net.m[0];
        require_spans(items, starts, ends, tree.items);
        require(!allowed || allowed->size == tree.leaves, "allowed: made for another tree");
        const LeafSet* occupied = tree.has_vacancies ? &tree.occupied_leaves : nullptr;
        return Requests{items.data(), starts.data(), ends.data(), count, allowed ? &allowed->leaves : occupied,
                        exclusions_of(excluded_items, excluded_offsets, count, tree),
                        offsets_of(tower_offsets, count, tower_width, "tower_offsets"),
                        offsets_of(layer_offsets, count, layer_width, "layer_offsets")};
    }
};

// How a request is searched. beams: (count,), null = the exact scan; widen: a beam grows by the leaves that its request
// excludes, at most to twice its width.
struct How {
    const std::int64_t* beams;
    index_t k;
    bool widen;
};

// items, scores: (count, k).
void answer(const Score& score, const Requests& asked, const How& how, std::int32_t* items, float* scores) {
    auto found_of = [&](index_t request) { return Found{items + request * how.k, scores + request * how.k}; };
    auto descend = [&](index_t request, bool spread) {
        static thread_local BeamSearch searcher;
        const Eligible eligible = asked.eligible(score.tree, request);
        index_t beam = static_cast<index_t>(how.beams[request]);
        if (how.widen) beam += std::min(eligible.excluded(), beam);
        searcher.run(score, asked.one(request), eligible, beam, how.k, spread, found_of(request));
    };
    if (how.beams == nullptr)
        for (index_t request = 0; request < asked.count; ++request)
            exact_scan(score, asked.one(request), asked.eligible(score.tree, request), how.k, found_of(request));
    else if (asked.count < ThreadPool::shared().size())
        for (index_t request = 0; request < asked.count; ++request) descend(request, true);
    else
        ThreadPool::shared().run(asked.count, [&](index_t request, int) { descend(request, false); });
}

nb::tuple search(const PyScore& score, const PyRequests& requests, const std::optional<Array1<std::int64_t>>& beams,
                 index_t k, bool widen) {
    const Requests asked = requests.of(score);
    require(1 <= k && k <= std::numeric_limits<std::int32_t>::max(), "k: expected from 1 to 2^31 - 1");
    if (beams) {
        require(extent(*beams, 0) == asked.count, "beam_widths: expected one per request");
        require_range(*beams, 1, std::numeric_limits<std::int32_t>::max(), "beam_widths");
    }
    auto items = values_for<std::int32_t>({asked.count, k});
    auto scores = values_for<float>({asked.count, k});
    {
        nb::gil_scoped_release release;
        answer(score.score(), asked, How{beams ? beams->data() : nullptr, k, widen}, items.data(), scores.data());
    }
    return nb::make_tuple(to_numpy(std::move(items), {asked.count, k}), to_numpy(std::move(scores), {asked.count, k}));
}

// Scores (nodes,) of some nodes of a level for one of the requests.
nb::object score_nodes_of(const PyScore& score, const PyRequests& requests, index_t request, index_t level,
                          const Array1<std::int64_t>& nodes) {
    const Tree& tree = score.tree->tree;
    const Requests asked = requests.of(score);
    require(0 <= request && request < asked.count, "request: there is none of this number");
    require(0 <= level && level <= tree.height, "level: expected one of the tree");
    require_range(nodes, 0, tree.size(level), "nodes");
    const std::vector<index_t> places(nodes.data(), nodes.data() + extent(nodes, 0));
    auto scores = values_for<float>({extent(nodes, 0)});
    {
        nb::gil_scoped_release release;
        RequestScores prepared;
        const Score whole = score.score();
        prepared.prepare(whole, asked.one(request), asked.eligible(tree, request), level, true);
        prepared.score(level, places.data(), extent(nodes, 0), scores.data(), true);
    }
    return to_numpy(std::move(scores), {extent(nodes, 0)});
}

}  // namespace

void bind_search(nb::module_& m) {
    nb::class_<PyTree>(m, "Tree").def(nb::init<index_t, Array1<std::int32_t>, Array1<std::int32_t>>());
    nb::class_<PyLeafSet>(m, "LeafSet");
    nb::class_<PyRequests>(m, "Requests")
        .def(
            "__init__",
            [](PyRequests* self, Array1<std::int32_t> items, Array1<std::int64_t> starts, Array1<std::int64_t> ends,
               std::shared_ptr<PyLeafSet> allowed, std::optional<Array1<std::int32_t>> excluded_items,
               std::optional<Array1<std::int64_t>> excluded_offsets, std::optional<Array2<float>> tower_offsets,
               std::optional<Array2<float>> layer_offsets) {
                new (self) PyRequests{items,          starts,           ends,          allowed,
                                      excluded_items, excluded_offsets, tower_offsets, layer_offsets};
            },
            "items"_a, "starts"_a, "ends"_a, nb::kw_only(), "allowed"_a.none(), "excluded_items"_a.none(),
            "excluded_offsets"_a.none(), "tower_offsets"_a.none(), "layer_offsets"_a.none());
    m.def("allow", &allow);
    m.def("search", &search, "score"_a, "requests"_a, "beam_widths"_a.none(), "k"_a, "widen"_a);
    m.def("score_nodes", &score_nodes_of, "score"_a, "requests"_a, "request"_a, "level"_a, "nodes"_a);
}

}  // namespace beamtree
