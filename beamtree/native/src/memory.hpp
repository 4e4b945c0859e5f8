// Memory: evidence that was counted in the log. Which leaves does a history point to, and how strongly?
//
// A leaf's evidence adds up what every kind of count says of it; an inner node has the maximum over the eligible leaves
// below it. Adding first and pooling after makes the evidence an exact max-heap on every level: by itself it leads a
// beam of k or more to the k best leaves, ties included, because equal nodes and equal leaves both fall to the lower index.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "eligible.hpp"

namespace beamtree {

// Lists of items, one for every item: what it points to, and how strongly.
struct Links {
    const std::int64_t* offsets = nullptr;  // (items + 1,)
    const std::int32_t* items = nullptr;    // (offsets[items],)
    const _Float16* strengths = nullptr;    // likewise
    float weight = 0;                       // of this kind of evidence
    float fade = 1;                         // what an item of the history counts, against the one after it
    index_t depth = 0;                      // so many of the latest items are asked,
    bool distinct = false;                  // each of them once, at its latest place, or every time
};

struct Memory {
    std::vector<Links> links;
    float repeat_weight = 0;                  // of the request's own earlier items,
    float repeat_fade = 1;                    // each occurrence counting fade^age: ln(1 + sum)
    float popularity_weight = 0;              // of ln(1 + count), for the most popular eligible items
    const std::int32_t* most_popular = nullptr;  // (items,) the most popular first
    const float* popularity = nullptr;           // (items,) ln(1 + count)
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
        Scratch& scratch = Scratch::of_this_thread(tree.leaves);
        for (const Links& kind : memory.links) follow(kind, tree, history, length, scratch);
        if (memory.repeat_weight > 0) repeat(memory, tree, history, length, scratch);
        if (memory.popularity_weight > 0) add_popular(memory, tree, eligible, scratch);
        std::erase_if(scratch.touched, [&](index_t leaf) {
            if (eligible.contains(leaf)) return false;
            scratch.strength[static_cast<std::size_t>(leaf)] = 0;
            return true;
        });
        scratch.order(tree.leaves);
        levels_.resize(static_cast<std::size_t>(tree.height) + 1);
        Level& leaves = levels_.back();
        leaves.nodes = scratch.touched;
        leaves.strengths.clear();
        for (index_t leaf : scratch.touched) {
            leaves.strengths.push_back(scratch.strength[static_cast<std::size_t>(leaf)]);
            scratch.strength[static_cast<std::size_t>(leaf)] = 0;
        }
        scratch.touched.clear();
        for (index_t level = tree.height - 1; level >= first_level; --level) pool(tree, level);
    }

    // Adds the gated evidence to the scores (count,) of nodes (count,) of a level; rising nodes are found fastest.
    void add(index_t level, const index_t* nodes, index_t count, float* scores) const {
        const Level& at = levels_[static_cast<std::size_t>(level)];
        const float gate = gates_[level];
        auto from = at.nodes.begin();
        for (index_t i = 0; i < count; ++i) {
            if (i > 0 && nodes[i] < nodes[i - 1]) from = at.nodes.begin();
            from = advance(from, at.nodes.end(), nodes[i]);
            if (from != at.nodes.end() && *from == nodes[i])
                scores[i] += gate * at.strengths[static_cast<std::size_t>(from - at.nodes.begin())];
        }
    }

   private:
    struct Level {
        std::vector<index_t> nodes;    // rising
        std::vector<float> strengths;  // above zero
    };

    // A sum for every leaf, zero where nothing points; kept by the thread, because clearing it would cost what a search does.
    struct Scratch {
        std::vector<float> strength;
        std::vector<index_t> touched;
        std::vector<std::uint64_t> marks;

        void add(index_t leaf, float value) {
            if (leaf < 0 || !(value > 0)) return;
            float& sum = strength[static_cast<std::size_t>(leaf)];
            if (sum == 0) touched.push_back(leaf);
            sum += value;
        }

        // Puts what was touched in rising order: by a mark for every leaf, unless few of very many leaves were touched.
        void order(index_t leaves) {
            const std::size_t words = static_cast<std::size_t>(leaves) / 64 + 1;
            if (touched.size() * 16 < words) return std::sort(touched.begin(), touched.end());
            if (marks.size() < words) marks.resize(words, 0);
            for (index_t leaf : touched) marks[static_cast<std::size_t>(leaf) / 64] |= std::uint64_t{1} << (leaf % 64);
            touched.clear();
            for (std::size_t word = 0; word < words; ++word) {
                for (std::uint64_t left = marks[word]; left != 0; left &= left - 1)
                    touched.push_back(static_cast<index_t>(word) * 64 + std::countr_zero(left));
                marks[word] = 0;
            }
        }

        static Scratch& of_this_thread(index_t leaves) {
            static thread_local Scratch scratch;
            if (static_cast<index_t>(scratch.strength.size()) < leaves) scratch.strength.resize(static_cast<std::size_t>(leaves), 0);
            return scratch;
        }
    };

    static void follow(const Links& kind, const Tree& tree, const std::int32_t* history, index_t length, Scratch& scratch) {
        if (!(kind.weight > 0)) return;
        float weight = kind.weight;
        for (index_t age = 0; age < std::min(length, kind.depth); ++age, weight *= kind.fade) {
            const std::int32_t* at = history + (length - 1 - age);
            const std::int32_t item = *at;
            if (kind.distinct && std::find(at + 1, history + length, item) != history + length) continue;
            for (std::int64_t i = kind.offsets[item]; i < kind.offsets[item + 1]; ++i)
                scratch.add(tree.leaf_of_item[kind.items[i]], weight * static_cast<float>(kind.strengths[i]));
        }
    }

    void repeat(const Memory& memory, const Tree& tree, const std::int32_t* history, index_t length, Scratch& scratch) {
        own_.clear();
        float weight = 1;
        for (index_t age = 0; age < length; ++age, weight *= memory.repeat_fade)
            own_.emplace_back(tree.leaf_of_item[history[length - 1 - age]], weight);
        std::stable_sort(own_.begin(), own_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
        for (std::size_t i = 0; i < own_.size();) {
            const index_t leaf = own_[i].first;
            float sum = 0;
            for (; i < own_.size() && own_[i].first == leaf; ++i) sum += own_[i].second;
            scratch.add(leaf, memory.repeat_weight * std::log1p(sum));
        }
    }

    // What is popular adds to what was pointed to; besides, the most popular eligible items take part on their own.
    static void add_popular(const Memory& memory, const Tree& tree, const Eligible& eligible, Scratch& scratch) {
        auto add = [&](std::int32_t item) {
            scratch.add(tree.leaf_of_item[item], memory.popularity_weight * memory.popularity[item]);
        };
        const std::size_t pointed_to = scratch.touched.size();
        for (index_t place = 0, found = 0; place < tree.items && found < popular_items; ++place) {
            const std::int32_t item = memory.most_popular[place];
            const index_t leaf = tree.leaf_of_item[item];
            if (!eligible.contains(leaf)) continue;
            ++found;
            if (scratch.strength[static_cast<std::size_t>(leaf)] == 0) add(item);
        }
        for (std::size_t i = 0; i < pointed_to; ++i) add(tree.item_at_leaf[scratch.touched[i]]);
    }

    void pool(const Tree& tree, index_t level) {
        const Level& below = levels_[static_cast<std::size_t>(level) + 1];
        Level& here = levels_[static_cast<std::size_t>(level)];
        here.nodes.clear();
        here.strengths.clear();
        for (std::size_t i = 0; i < below.nodes.size(); ++i) {
            const index_t node = tree.parent(below.nodes[i], level + 1);
            if (here.nodes.empty() || here.nodes.back() != node) {
                here.nodes.push_back(node);
                here.strengths.push_back(below.strengths[i]);
            } else {
                here.strengths.back() = std::max(here.strengths.back(), below.strengths[i]);
            }
        }
    }

    // The first node that is not below the wanted one, by ever larger leaps and then by halves.
    static std::vector<index_t>::const_iterator advance(std::vector<index_t>::const_iterator from,
                                                        std::vector<index_t>::const_iterator end, index_t wanted) {
        std::ptrdiff_t leap = 1;
        while (leap < end - from && from[leap] < wanted) leap *= 2;
        return std::lower_bound(from + leap / 2, from + std::min<std::ptrdiff_t>(leap + 1, end - from), wanted);
    }

    const float* gates_ = nullptr;
    std::vector<Level> levels_;
    std::vector<std::pair<index_t, float>> own_;
};

}  // namespace beamtree
