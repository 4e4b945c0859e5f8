// The tree as arithmetic: C leaves, branching B, H levels; every node's place follows from its index.
#pragma once

#include <cstdint>
#include <vector>

#include "simd.hpp"

namespace beamtree {

// Rank over a set of leaves: how many of the first n leaves are in it.
class LeafSet {
   public:
    LeafSet() = default;

    template <class Contains>
    LeafSet(index_t leaves, Contains&& contains) {
        words_.assign(static_cast<std::size_t>(leaves / 64 + 1), 0);
        before_.assign(words_.size(), 0);
        for (index_t leaf = 0; leaf < leaves; ++leaf)
            if (contains(leaf)) words_[static_cast<std::size_t>(leaf / 64)] |= 1ull << (leaf % 64);
        for (std::size_t i = 1; i < words_.size(); ++i)
            before_[i] = before_[i - 1] + static_cast<std::uint32_t>(__builtin_popcountll(words_[i - 1]));
    }

    // The 64 leaves from 64 * i on, a bit for each.
    std::uint64_t word(index_t i) const { return words_[static_cast<std::size_t>(i)]; }

    bool contains(index_t leaf) const { return (words_[static_cast<std::size_t>(leaf / 64)] >> (leaf % 64)) & 1; }

    index_t rank(index_t leaf) const {
        const std::size_t word = static_cast<std::size_t>(leaf / 64);
        const std::uint64_t below = words_[word] & ((1ull << (leaf % 64)) - 1);
        return static_cast<index_t>(before_[word]) + __builtin_popcountll(below);
    }

    index_t count(index_t first, index_t end) const { return rank(end) - rank(first); }

    template <class Visit>
    void for_each(Visit&& visit) const {
        for (std::size_t i = 0; i < words_.size(); ++i)
            for (std::uint64_t word = words_[i]; word != 0; word &= word - 1)
                visit(static_cast<index_t>(i * 64) + __builtin_ctzll(word));
    }

   private:
    std::vector<std::uint64_t> words_;
    std::vector<std::uint32_t> before_;
};

class Tree {
   public:
    index_t branching = 0;
    index_t leaves = 0;
    index_t height = 0;
    std::vector<index_t> sizes;    // (H + 1,) nodes per level
    std::vector<index_t> offsets;  // (H + 2,) first row of each level in the node table
    const std::int32_t* item_at_leaf = nullptr;  // (C,) -1 = vacant
    const std::int32_t* leaf_of_item = nullptr;  // (items,)
    index_t items = 0;
    bool has_vacancies = false;
    LeafSet occupied_leaves;                     // only with vacancies
    std::vector<index_t> occupied_sizes;         // (H + 1,) nodes per level with an item below them

    Tree(index_t branching_, index_t leaves_, const std::int32_t* item_at_leaf_, const std::int32_t* leaf_of_item_,
         index_t items_)
        : branching(branching_), leaves(leaves_), item_at_leaf(item_at_leaf_), leaf_of_item(leaf_of_item_), items(items_) {
        sizes.push_back(1);
        for (index_t nodes = 1; nodes < leaves || height == 0; nodes *= branching) {
            ++height;
            sizes.push_back(nodes * branching);
        }
        sizes.back() = leaves;
        offsets.push_back(0);
        for (index_t size : sizes) offsets.push_back(offsets.back() + size);
        for (index_t leaf = 0; leaf < leaves && !has_vacancies; ++leaf) has_vacancies = item_at_leaf[leaf] < 0;
        occupied_sizes = sizes;
        if (!has_vacancies) return;
        occupied_leaves = LeafSet(leaves, [&](index_t leaf) { return item_at_leaf[leaf] >= 0; });
        for (index_t level = 0; level <= height; ++level) {
            index_t& count = occupied_sizes[static_cast<std::size_t>(level)];
            count = 0;
            for (index_t node = 0; node < size(level); ++node) count += occupied(node, level);
        }
    }

    index_t occupied_size(index_t level) const { return occupied_sizes[static_cast<std::size_t>(level)]; }
    index_t size(index_t level) const { return sizes[static_cast<std::size_t>(level)]; }
    index_t offset(index_t level) const { return offsets[static_cast<std::size_t>(level)]; }
    index_t num_nodes() const { return offsets.back(); }

    index_t ancestor(index_t leaf, index_t level) const { return level == height ? leaf : leaf * size(level) / leaves; }

    index_t first_leaf(index_t node, index_t level) const {
        return level == height ? node : (node * leaves + size(level) - 1) / size(level);
    }

    index_t first_child(index_t node, index_t level) const {
        return level + 1 == height ? first_leaf(node, level) : node * branching;
    }

    index_t parent(index_t node, index_t level) const {
        return level == height ? ancestor(node, level - 1) : node / branching;
    }

    // First descendant on a level below.
    index_t first_descendant(index_t node, index_t level, index_t below) const {
        if (below == height) return first_leaf(node, level);
        for (; level < below; ++level) node *= branching;
        return node;
    }

    bool occupied(index_t node, index_t level) const {
        return !has_vacancies || occupied_leaves.count(first_leaf(node, level), first_leaf(node + 1, level)) > 0;
    }

    // Rows of the history's ancestors in the node table; negative items stay negative.
    void history_rows(const std::int32_t* history, index_t length, index_t level, index_t* rows) const {
        for (index_t k = 0; k < length; ++k) {
            const index_t leaf = history[k] < 0 ? -1 : leaf_of_item[history[k]];
            rows[k] = leaf < 0 ? -1 : offset(level) + ancestor(leaf, level);
        }
    }
};

}  // namespace beamtree
