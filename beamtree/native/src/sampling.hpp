// What a training step learns from: histories with their targets, and how negatives are drawn for them.
#pragma once

#include <algorithm>
#include <vector>

#include "tree.hpp"

namespace beamtree {

enum class Sampler { uniform, top_down };

// Where top-down draws begin: at the exact softmax of the first sampled level, at the root, or again on every level.
enum class PathStart { level, root, every };

struct Sampling {
    Sampler sampler = Sampler::uniform;
    PathStart start = PathStart::level;
    bool correct_positive = true;    // divide q by 1 - q_pos, as q is meant over the negatives
    bool with_dropout = false;       // top-down: draws go by scores with dropout, as in training
    std::vector<index_t> negatives;  // (H + 1,) draws per level; entry 0 is not used
    std::uint64_t seed = 0;

    index_t draws(index_t level) const { return negatives[static_cast<std::size_t>(level)]; }
    bool takes_whole(const Tree& tree, index_t level) const { return tree.occupied_size(level) <= draws(level) + 1; }

    // Whether paths whose first level this is begin at any of its nodes alike: nothing above it has a score to descend by,
    // and its own softmax would take scoring all of it. On level 1 it has the root alone above it.
    bool starts_uniformly(index_t first_level) const { return first_level > 1 && start == PathStart::level; }
};

// The targets of one history share its preparation and its negatives. Each target has a softmax of its own, in which the
// other targets take part as far as they were drawn.
struct Batch {
    const std::int32_t* histories;  // (instances, K) items, -1 = padding
    const std::int32_t* targets;    // (instances, targets_each) items, -1 = none
    const float* weights;           // (instances, targets_each, H) of levels 1 .. H; null = a history's targets share 1
    const float* layer_offsets;     // (instances, m1) added to the first layer of the attention network, null = nothing
    index_t instances;
    index_t targets_each;
};

// A target on its way down: its place among the history's targets, and what top-down sampling makes of its ancestor.
struct Target {
    index_t leaf;
    index_t place;
    double log_q = 0.0;
    double left_to_others = 0.0;  // 1 - q
};

// The targets of one instance of a batch.
class Targets {
   public:
    Targets(const Tree& tree, const Batch& batch, index_t instance) : tree_(tree), batch_(batch), instance_(instance) {
        const std::int32_t* items = batch.targets + instance * batch.targets_each;
        for (index_t i = 0; i < batch.targets_each; ++i)
            if (items[i] >= 0) targets_.push_back(Target{tree.leaf_of_item[items[i]], i});
    }

    auto begin() { return targets_.begin(); }
    auto end() { return targets_.end(); }

    double weight(const Target& target, index_t level) const {
        if (batch_.weights == nullptr) return 1.0 / static_cast<double>(targets_.size());
        return batch_.weights[((instance_ * batch_.targets_each) + target.place) * tree_.height + level - 1];
    }
    index_t ancestor(const Target& target, index_t level) const { return tree_.ancestor(target.leaf, level); }

    // Whether any target has a weight, an ancestor, or an ancestor with a weight there.
    bool has_weight_on(index_t level) const {
        return any([&](const Target& target) { return weight(target, level) != 0; });
    }
    bool has_ancestor(index_t node, index_t level) const {
        return any([&](const Target& target) { return ancestor(target, level) == node; });
    }
    bool has_positive(index_t node, index_t level) const {
        return any([&](const Target& target) { return weight(target, level) != 0 && ancestor(target, level) == node; });
    }

   private:
    template <class Holds>
    bool any(Holds&& holds) const {
        return std::any_of(targets_.begin(), targets_.end(), holds);
    }

    const Tree& tree_;
    const Batch& batch_;
    const index_t instance_;
    std::vector<Target> targets_;
};

}  // namespace beamtree
