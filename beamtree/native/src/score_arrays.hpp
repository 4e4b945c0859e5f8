// A score as Python hands it over: its parts with the arrays that they read, kept alive.
#pragma once

#include <nanobind/stl/vector.h>

#include "model_arrays.hpp"
#include "score.hpp"
#include "tower_arrays.hpp"

namespace beamtree {

struct PyLinks {
    Array1<std::int64_t> offsets;
    Array1<std::int32_t> items;
    nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu> strengths;  // float16
    float weight, fade;
    index_t depth;
    bool distinct;

    Links of(index_t num_items) const {
        require(extent(offsets, 0) == num_items + 1, "links: expected one list for every item");
        require_aligned(offsets, "links");
        require_aligned(items, "links");
        require_aligned(strengths, "links");
        const std::int64_t* at = offsets.data();
        require(at[0] == 0 && at[num_items] == extent(items, 0), "links: offsets leave the items");
        for (index_t i = 0; i < num_items; ++i) require(at[i] <= at[i + 1], "links: offsets must not fall");
        require_range(items, 0, num_items, "links");
        const bool is_float = strengths.dtype().code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float);
        require(extent(strengths, 0) == extent(items, 0) && is_float && strengths.dtype().bits == 16,
                "links: expected a float16 for every item");
        const auto* values = static_cast<const _Float16*>(strengths.data());
        for (index_t i = 0; i < extent(items, 0); ++i)
            require(static_cast<float>(values[i]) >= 0, "links: expected strengths of at least 0");
        return Links{at, items.data(), values, weight, fade, depth, distinct};
    }
};

struct PyMemory {
    std::vector<PyLinks> links;
    float repeat_weight, repeat_fade;
    Array1<float> returns;
    float popularity_weight;
    Array1<std::int32_t> most_popular;
    Array1<float> popularity;
    std::vector<float> gates;

    Memory of(const Tree& tree) const {
        Memory memory;
        for (const PyLinks& kind : links) memory.links.push_back(kind.of(tree.items));
        require(extent(most_popular, 0) == tree.items && extent(popularity, 0) == tree.items,
                "popularity: expected one for every item");
        require(extent(returns, 0) == tree.items, "returns: expected one for every item");
        require_aligned(most_popular, "most_popular");
        require_aligned(popularity, "popularity");
        require_aligned(returns, "returns");
        require_range(most_popular, 0, tree.items, "most_popular");
        require(static_cast<index_t>(gates.size()) == tree.height + 1, "gates: expected one for every level");
        memory.repeat_weight = repeat_weight;
        memory.repeat_fade = repeat_fade;
        memory.returns = returns.data();
        memory.popularity_weight = popularity_weight;
        memory.popularity.assign(static_cast<std::size_t>(tree.leaves), 0.0f);
        for (index_t place = 0; place < tree.items; ++place) {
            const std::int32_t item = most_popular.data()[place], leaf = tree.leaf_of_item[item];
            memory.popular_leaves.push_back(leaf);
            memory.popularity[static_cast<std::size_t>(leaf)] = popularity.data()[item];
        }
        memory.gates = gates;
        return memory;
    }
};

struct PyScore {
    std::shared_ptr<PyTree> tree;
    std::shared_ptr<PyAttention<float>> kept_attention;
    std::optional<PyMemory> kept_memory;
    std::shared_ptr<PyTower> kept_tower;
    index_t attention_from = 0;
    const Attention<float>* attention = nullptr;
    std::optional<Memory> memory;

    PyScore(std::shared_ptr<PyTree> of_tree, std::shared_ptr<PyAttention<float>> attending,
            std::optional<PyMemory> remembered, std::shared_ptr<PyTower> encoding, index_t from)
        : tree(of_tree), kept_attention(attending), kept_memory(remembered), kept_tower(encoding), attention_from(from) {
        require(kept_attention != nullptr || kept_memory || kept_tower != nullptr, "score: expected at least one part");
        require(attention_from >= 0, "attention_from: expected a level");
        require(kept_tower == nullptr || kept_tower->tree.get() == tree.get(), "tower: made for another tree");
        if (kept_attention != nullptr) attention = &fitting(*kept_attention, tree->tree);
        if (kept_memory) memory.emplace(kept_memory->of(tree->tree));
    }

    Score score() const {
        return Score{tree->tree, attention, memory ? &*memory : nullptr, kept_tower ? &kept_tower->tower : nullptr,
                     attention_from};
    }
};

}  // namespace beamtree
