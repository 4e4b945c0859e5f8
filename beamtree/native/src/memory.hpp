// Memory: evidence that was counted in the log. Which leaves does a history point to, and how strongly?
//
// A leaf's evidence adds up what every kind of count says of it; an inner node has the maximum over the eligible leaves
// below it, and at least 0. Adding first and pooling after makes the evidence an exact max-heap on every level: by itself it leads a
// beam of k or more to the k best leaves, ties included, because equal nodes and equal leaves both fall to the lower index.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "eligible.hpp"
#include "sparse_level.hpp"

namespace beamtree {

// Lists of items, one for every item: what it points to, and how strongly.
struct Links {
    const std::int64_t* offsets = nullptr;  // (items + 1,)
    const std::int32_t* items = nullptr;    // (offsets[items],)
    const _Float16* strengths = nullptr;    // likewise
    float weight = 0;                       // of this kind of evidence
    float fade = 1;                         // what an item of the history counts, against the one after it
    index_t depth = 0;                      // number of latest items that are read,
    bool distinct = false;                  // each of them once, at its latest place, or every time
};

struct Memory {
    std::vector<Links> links;
    float repeat_weight = 0;                  // of the request's own earlier items, below 0 where they speak against themselves,
    float repeat_fade = 1;                    // each occurrence counting fade^age: ln(1 + sum) * returns
    const float* returns = nullptr;           // (items,) the repeat rate of each item
    float popularity_weight = 0;              // of ln(1 + count), for the most popular eligible items
    std::vector<std::int32_t> popular_leaves;    // (items,) of the most popular item first
    std::vector<float> popularity;               // (C,) ln(1 + count) of the item at a leaf, 0 where there is none
    std::vector<float> gates;                    // (H + 1,) what the pooled evidence of a level is multiplied with
};

// So many popular items take part on their own, so that a request with little evidence still gets sensible answers.
inline constexpr index_t popular_items = 500;

// The evidence of one request on all levels from a first one down.
class Evidence {
   public:
    void collect(const Memory& memory, const Tree& tree, const std::int32_t* history, index_t length,
                 const Eligible& eligible, index_t first_level) {
        gates_ = memory.gates.data();
        levels_.resize(static_cast<std::size_t>(tree.height) + 1);
        for (index_t level = first_level; level <= tree.height; ++level) at(level).reset(tree.size(level));
        SparseLevel& leaves = at(tree.height);
        for (const Links& kind : memory.links) follow(kind, tree, history, length, leaves);
        if (memory.repeat_weight != 0) repeat(memory, tree, history, length, leaves);
        eligible.keep(leaves);
        if (memory.popularity_weight > 0) add_popular(memory, tree, eligible, leaves);
        for (index_t level = tree.height - 1; level >= first_level; --level) {
            const bool above_leaves = level + 1 == tree.height;
            at(level).raise_to(at(level + 1), above_leaves ? tree.size(level) : 1,
                               above_leaves ? tree.leaves : tree.branching);
        }
    }

    // Adds the gated evidence to the scores (count,) of nodes (count,) of a level.
    void add(index_t level, const index_t* nodes, index_t count, float* scores) const {
        const SparseLevel& values = levels_[static_cast<std::size_t>(level)];
        const float gate = gates_[level];
        for (index_t i = 0; i < count; ++i) scores[i] += gate * values[nodes[i]];
    }

   private:
    SparseLevel& at(index_t level) { return levels_[static_cast<std::size_t>(level)]; }

    static void follow(const Links& kind, const Tree& tree, const std::int32_t* history, index_t length,
                       SparseLevel& leaves) {
        if (!(kind.weight > 0)) return;
        float weight = kind.weight;
        for (index_t age = 0; age < std::min(length, kind.depth); ++age, weight *= kind.fade) {
            const std::int32_t* source = history + (length - 1 - age);
            if (kind.distinct && std::find(source + 1, history + length, *source) != history + length) continue;
            if (age + 1 < length) fetch(kind, source[-1]);
            const std::int64_t first = kind.offsets[*source], end = kind.offsets[*source + 1];
            leaves.add(end - first, [=, items = kind.items + first, strengths = kind.strengths + first,
                                     leaf_of_item = tree.leaf_of_item](std::int64_t i) {
                return std::pair{leaf_of_item[items[i]], weight * static_cast<float>(strengths[i])};
            });
        }
    }

    // Asks for the list of an item ahead of its use: lists lie anywhere, and are short.
    static void fetch(const Links& kind, std::int32_t item) {
        const std::int64_t first = kind.offsets[item], end = kind.offsets[item + 1];
        for (std::int64_t i = first; i < end; i += 16) __builtin_prefetch(kind.items + i);
        for (std::int64_t i = first; i < end; i += 32) __builtin_prefetch(kind.strengths + i);
    }

    void repeat(const Memory& memory, const Tree& tree, const std::int32_t* history, index_t length, SparseLevel& leaves) {
        own_.clear();
        float weight = 1;
        for (index_t age = 0; age < length; ++age, weight *= memory.repeat_fade)
            own_.emplace_back(history[length - 1 - age], weight);
        std::stable_sort(own_.begin(), own_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
        for (std::size_t i = 0; i < own_.size();) {
            const std::int32_t item = own_[i].first;
            float sum = 0;
            for (; i < own_.size() && own_[i].first == item; ++i) sum += own_[i].second;
            const index_t leaf = tree.leaf_of_item[item];
            if (leaf >= 0) *leaves.touch(leaf) += memory.repeat_weight * memory.returns[item] * std::log1p(sum);
        }
    }

    // What is popular adds to what was pointed to; besides, the most popular eligible items take part on their own.
    static void add_popular(const Memory& memory, const Tree& tree, const Eligible& eligible, SparseLevel& leaves) {
        const float* popularity = memory.popularity.data();
        leaves.for_each_chunk([&](index_t first) {
            float* values = leaves.touch(first);
            for (index_t i = 0; i < std::min(SparseLevel::chunk, tree.leaves - first); ++i)
                if (values[i] > 0) values[i] += memory.popularity_weight * popularity[first + i];
        });
        index_t found = 0;
        for (index_t leaf : memory.popular_leaves) {
            if (!eligible.contains(leaf)) continue;
            if (leaves[leaf] <= 0) *leaves.touch(leaf) += memory.popularity_weight * popularity[leaf];
            if (++found == popular_items) break;
        }
    }

    const float* gates_ = nullptr;
    std::vector<SparseLevel> levels_;
    std::vector<std::pair<std::int32_t, float>> own_;
};

}  // namespace beamtree
