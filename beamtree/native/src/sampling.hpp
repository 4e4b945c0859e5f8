// Training from histories and targets alone: negatives are drawn, scored and learned from in one pass per instance.
#pragma once

#include <optional>

#include "random.hpp"
#include "select.hpp"
#include "training.hpp"
#include "tree.hpp"

namespace beamtree {

enum class Sampler { uniform, top_down };

// Where top-down draws begin: at the exact softmax of the first sampled level, at the root, or anew on every level.
enum class PathStart { level, root, every };

struct Sampling {
    Sampler sampler = Sampler::uniform;
    PathStart start = PathStart::level;
    bool correct_positive = true;    // divide q by 1 - q_pos, as q is meant over the negatives
    bool with_dropout = false;       // top-down: draws go by scores with dropout, as in training
    std::vector<index_t> negatives;  // (H + 1,) draws per level; entry 0 is not used
    std::uint64_t seed = 0;
};

// The targets of one history share its preparation and its negatives. Each target has a softmax of its own, in which the
// other targets take part as far as they were drawn.
struct Batch {
    const std::int32_t* histories;  // (instances, K) items, -1 = padding
    const std::int32_t* targets;    // (instances, targets_each) items, -1 = none
    const float* weights;           // (instances, targets_each, H) of levels 1 .. H; null = a history's targets share 1
    index_t instances;
    index_t targets_each;
};

// What was drawn for one row, for those who want to see it: column 0 is the positive.
struct DrawnRow {
    index_t row;
    std::vector<index_t> node_rows;
    std::vector<float> correction;
};

class InstanceLearner {
   public:
    InstanceLearner(const Network<float>& net, const Tables& tables, const Tree& tree, const Batch& batch,
                    const Sampling& sampling, const Dropout& dropout, index_t instance,
                    typename Chunks<float>::Chunk& chunk, std::vector<DrawnRow>* seen)
        : net_(net), tables_(tables), tree_(tree), batch_(batch), sampling_(sampling), dropout_(dropout),
          instance_(instance), chunk_(chunk), seen_(seen), scratch_(Scratch<float>::of_this_thread()) {
        const std::int32_t* items = batch.targets + instance * batch.targets_each;
        for (index_t i = 0; i < batch.targets_each; ++i)
            if (items[i] >= 0) targets_.push_back(Target{tree.leaf_of_item[items[i]], i, 0.0, 0.0});
    }

    void run() {
        last_level_ = tree_.height;
        while (last_level_ > 0 && !learns(last_level_)) --last_level_;
        if (sampling_.sampler == Sampler::uniform)
            for (index_t level = 1; level <= last_level_; ++level) uniform(level);
        else
            top_down();
    }

   private:
    // Nodes that paths stand on, ascending: how many paths, and the logarithm of the probability to get there.
    struct Path {
        index_t node;
        index_t count;
        double log_q;
    };

    // A target on its way down: its place among the history's targets, and what top-down sampling makes of its ancestor.
    struct Target {
        index_t leaf;
        index_t place;
        double log_q;
        double left_to_others;  // 1 - q
    };

    double weight(const Target& target, index_t level) const {
        if (batch_.weights == nullptr) return 1.0 / static_cast<double>(targets_.size());
        return batch_.weights[((instance_ * batch_.targets_each) + target.place) * tree_.height + level - 1];
    }
    bool learns(index_t level) const {
        return std::any_of(targets_.begin(), targets_.end(), [&](const Target& t) { return weight(t, level) != 0; });
    }
    index_t ancestor(const Target& target, index_t level) const { return tree_.ancestor(target.leaf, level); }
    bool is_ancestor(index_t node, index_t level) const {
        return std::any_of(targets_.begin(), targets_.end(), [&](const Target& t) { return ancestor(t, level) == node; });
    }
    bool is_positive(index_t node, index_t level) const {
        return std::any_of(targets_.begin(), targets_.end(),
                           [&](const Target& t) { return weight(t, level) != 0 && ancestor(t, level) == node; });
    }
    index_t row(index_t level) const { return instance_ * tree_.height + level - 1; }
    index_t draws(index_t level) const { return sampling_.negatives[static_cast<std::size_t>(level)]; }
    bool whole(index_t level) const { return tree_.occupied_size(level) <= draws(level) + 1; }

    void prepare(index_t level) {
        const index_t length = static_cast<index_t>(net_.window_of.size());
        const std::int32_t* items = batch_.histories + instance_ * length;
        if (tables_.separate && prepared_) return;
        scratch_.history_rows.resize(static_cast<std::size_t>(length));
        if (tables_.separate)
            for (index_t k = 0; k < length; ++k) scratch_.history_rows[static_cast<std::size_t>(k)] = items[k];
        else
            tree_.history_rows(items, length, level, scratch_.history_rows.data());
        scratch_.history.prepare(net_, tables_.history(), scratch_.history_rows.data());
        chunk_.work.prepared += static_cast<double>(scratch_.history.count);
        prepared_ = true;
    }

    // Attention of nodes_ on a level; the scores follow when asked for.
    void attend_to_nodes(index_t level) {
        prepare(level);
        rows_.clear();
        for (index_t node : nodes_) rows_.push_back(tree_.offset(level) + node);
        scratch_.attend_to(net_, tables_.nodes, rows_, chunk_);
    }

    // Learns from all columns of a block, whose nodes are given, ascending; scratch_.correction has that of each column,
    // infinite where it was not drawn. shift(column, target): what is subtracted from all other columns besides.
    template <class Shift>
    void learn(index_t level, NodeBlock<float>& block, const std::vector<index_t>& nodes, Shift&& shift) {
        scratch_.node_rows.clear();
        for (index_t node : nodes) scratch_.node_rows.push_back(tree_.offset(level) + node);
        scratch_.positives.clear();
        for (const Target& target : targets_) {
            if (weight(target, level) == 0) continue;
            const auto at = std::lower_bound(nodes.begin(), nodes.end(), ancestor(target, level));
            const index_t column = static_cast<index_t>(at - nodes.begin());
            const double share = weight(target, level) / static_cast<double>(batch_.instances * tree_.height);
            if (std::optional<double> shifted = shift(column, target))
                scratch_.positives.push_back(Positive{column, share, *shifted});
        }
        if (scratch_.positives.empty()) return;
        if (seen_ != nullptr) return show(level);
        scratch_.learn(net_, tables_, block, dropout_, row(level), chunk_);
    }

    // Keeps the candidates of the first target for those who want to see them.
    void show(index_t level) {
        const Positive& positive = scratch_.positives.front();
        DrawnRow drawn{row(level), {scratch_.node_rows[static_cast<std::size_t>(positive.column)]}, {0.0f}};
        for (std::size_t n = 0; n < scratch_.node_rows.size(); ++n) {
            if (static_cast<index_t>(n) == positive.column || std::isinf(scratch_.correction[n])) continue;
            drawn.node_rows.push_back(scratch_.node_rows[n]);
            drawn.correction.push_back(static_cast<float>(scratch_.correction[n] + positive.shift));
        }
        seen_->push_back(std::move(drawn));
    }

    void list_level(index_t level) {
        nodes_.clear();
        for (index_t node = 0; node < tree_.size(level); ++node)
            if (tree_.occupied(node, level)) nodes_.push_back(node);
    }

    void learn_whole(index_t level) {
        scratch_.correction.assign(nodes_.size(), 0.0f);
        score<true>(net_, scratch_.history, scratch_.block, dropout_, row(level));
        learn(level, scratch_.block, nodes_, [](index_t, const Target&) { return std::optional<double>(0.0); });
    }

    void uniform(index_t level) {
        if (!learns(level) || tree_.occupied_size(level) < 2) return;
        if (whole(level)) {
            list_level(level);
            attend_to_nodes(level);
            return learn_whole(level);
        }
        Draws random(sampling_.seed, static_cast<std::uint64_t>(instance_), static_cast<std::uint64_t>(level));
        const index_t size = tree_.size(level);
        drawn_.clear();
        for (index_t i = 0; i < draws(level); ++i) {
            index_t node = random.below(size);
            while (!tree_.occupied(node, level)) node = random.below(size);
            drawn_.push_back(node);
        }
        std::sort(drawn_.begin(), drawn_.end());
        paths_.clear();
        for (index_t node : drawn_)
            if (!paths_.empty() && paths_.back().node == node)
                ++paths_.back().count;
            else
                paths_.push_back(Path{node, 1, 0.0});
        for (const Target& target : targets_) {
            if (weight(target, level) == 0) continue;
            const index_t node = ancestor(target, level);
            const auto at = std::lower_bound(paths_.begin(), paths_.end(), node,
                                             [](const Path& path, index_t wanted) { return path.node < wanted; });
            if (at == paths_.end() || at->node != node) paths_.insert(at, Path{node, 0, 0.0});
        }
        nodes_.clear();
        for (const Path& path : paths_) nodes_.push_back(path.node);
        list_corrections(paths_);
        if (seen_ == nullptr) {
            attend_to_nodes(level);
            score<true>(net_, scratch_.history, scratch_.block, dropout_, row(level));
        }
        const double log_others = std::log(static_cast<double>(tree_.occupied_size(level) - 1));
        learn(level, scratch_.block, nodes_, [&](index_t column, const Target&) {
            return shift_by(draws(level) - paths_[static_cast<std::size_t>(column)].count, -log_others);
        });
    }

    // ln q - ln count of every column.
    void list_corrections(const std::vector<Path>& columns) {
        scratch_.correction.clear();
        for (const Path& path : columns)
            scratch_.correction.push_back(static_cast<float>(path.log_q - std::log(static_cast<double>(path.count))));
    }

    // ln M_eff + ln of what q is scaled with; none where no draw is left.
    static std::optional<double> shift_by(index_t effective, double log_scale) {
        if (effective == 0) return std::nullopt;
        return std::log(static_cast<double>(effective)) + log_scale;
    }

    void top_down() {
        const bool from_root = sampling_.start == PathStart::root;
        index_t level = 1;
        paths_.assign(1, Path{0, draws(1), 0.0});
        for (; level <= last_level_ && whole(level); ++level) {
            const bool learned = learns(level) && tree_.occupied_size(level) > 1;
            if (!learned && !from_root) continue;
            list_level(level);
            attend_to_nodes(level);
            if (from_root) {
                score_for_draws(level);
                spread_over_level(level);
            }
            if (learned) learn_whole(level);
        }
        if (level > last_level_) return;
        if (from_root) draw_paths(level);
        bool starting = !from_root;
        for (; level <= last_level_; ++level) {
            starting ? list_level(level) : list_children(level);
            score_nodes_of(level);
            starting ? start_at(level) : descend(level);
            learn_drawn(level);
            starting = sampling_.start == PathStart::every;
        }
    }

    void score_nodes_of(index_t level) {
        attend_to_nodes(level);
        score_for_draws(level);
    }

    void score_for_draws(index_t level) {
        score<true>(net_, scratch_.history, scratch_.block, sampling_.with_dropout ? dropout_ : Dropout{}, row(level));
    }

    double exponent(index_t column, double highest) const {
        return std::exp(static_cast<double>(scratch_.block.score[column]) - highest);
    }

    // Exact softmax over nodes_, which is the whole level: all paths start here, whatever led to the level above.
    void start_at(index_t level) {
        double highest = -std::numeric_limits<double>::infinity(), sum = 0;
        const index_t count = static_cast<index_t>(nodes_.size());
        for (index_t n = 0; n < count; ++n) highest = std::max(highest, static_cast<double>(scratch_.block.score[n]));
        cumulated_.clear();
        for (index_t n = 0; n < count; ++n) cumulated_.push_back(sum += exponent(n, highest));
        counts_.assign(nodes_.size(), 0);
        Draws random(sampling_.seed, static_cast<std::uint64_t>(instance_), static_cast<std::uint64_t>(level));
        for (index_t i = 0; i < draws(level); ++i) {
            const double u = random.uniform() * sum;
            auto at = std::upper_bound(cumulated_.begin(), cumulated_.end(), u) - cumulated_.begin();
            ++counts_[static_cast<std::size_t>(std::min<std::ptrdiff_t>(at, count - 1))];
        }
        const double log_sum = highest + std::log(sum);
        for (Target& target : targets_) target.log_q = target.left_to_others = 0.0;
        follow_targets(level, 0, count, highest);
        next_.clear();
        for (index_t n = 0; n < count; ++n) {
            const index_t node = nodes_[static_cast<std::size_t>(n)];
            const double log_q = static_cast<double>(scratch_.block.score[n]) - log_sum;
            next_.push_back(Path{node, counts_[static_cast<std::size_t>(n)], log_q});
        }
    }

    // The targets whose ancestor is among the columns first .. end - 1, which share the probability of one parent: what is
    // left to the others is summed up, because 1 - q would lose all digits where q is nearly 1.
    void follow_targets(index_t level, index_t first, index_t end, double highest) {
        for (Target& target : targets_) {
            const index_t node = ancestor(target, level);
            if (node < nodes_[static_cast<std::size_t>(first)] || node > nodes_[static_cast<std::size_t>(end - 1)]) continue;
            double own = 0, others = 0;
            for (index_t n = first; n < end; ++n)
                (nodes_[static_cast<std::size_t>(n)] == node ? own : others) += exponent(n, highest);
            target.left_to_others += std::exp(target.log_q) * others / (own + others);
            target.log_q += std::log(own / (own + others));
        }
    }

    // Levels taken whole, from the root: the probability of every node, without draws yet.
    void spread_over_level(index_t level) {
        walk_siblings(level, [&](const Path& parent, index_t first, index_t end, double log_sum) {
            for (index_t n = first; n < end; ++n) {
                const double log_p = static_cast<double>(scratch_.block.score[n]) - log_sum;
                next_.push_back(Path{nodes_[static_cast<std::size_t>(n)], 0, parent.log_q + log_p});
            }
        });
        paths_.swap(next_);
    }

    // Draws the paths among nodes whose probabilities are all known: the last whole level, or the root.
    void draw_paths(index_t level) {
        double sum = 0;
        cumulated_.clear();
        for (Path& path : paths_) {
            path.count = 0;
            cumulated_.push_back(sum += std::exp(path.log_q));
        }
        Draws random(sampling_.seed, static_cast<std::uint64_t>(instance_), 0);
        for (index_t i = 0; i < draws(level); ++i) {
            auto at = std::upper_bound(cumulated_.begin(), cumulated_.end(), random.uniform() * sum) - cumulated_.begin();
            ++paths_[static_cast<std::size_t>(std::min<std::ptrdiff_t>(at, static_cast<std::ptrdiff_t>(paths_.size()) - 1))].count;
        }
    }

    // Occupied children of all nodes with paths, and of the targets' ancestors.
    void list_children(index_t level) {
        std::erase_if(paths_, [&](const Path& path) { return path.count == 0 && !is_ancestor(path.node, level - 1); });
        nodes_.clear();
        for (const Path& path : paths_)
            for (index_t child = tree_.first_child(path.node, level - 1); child < tree_.first_child(path.node + 1, level - 1);
                 ++child)
                if (tree_.occupied(child, level)) nodes_.push_back(child);
    }

    // Calls body(parent, first, end, log_sum) for the columns of each path's children; follows the targets.
    template <class Body>
    void walk_siblings(index_t level, Body&& body) {
        next_.clear();
        index_t column = 0;
        for (const Path& parent : paths_) {
            const index_t first = column, end_node = tree_.first_child(parent.node + 1, level - 1);
            double highest = -std::numeric_limits<double>::infinity(), sum = 0;
            while (column < static_cast<index_t>(nodes_.size()) && nodes_[static_cast<std::size_t>(column)] < end_node)
                highest = std::max(highest, static_cast<double>(scratch_.block.score[column++]));
            for (index_t n = first; n < column; ++n) sum += exponent(n, highest);
            follow_targets(level, first, column, highest);
            body(parent, first, column, highest + std::log(sum));
        }
    }

    // Every path picks one child by the softmax over its siblings.
    void descend(index_t level) {
        Draws random(sampling_.seed, static_cast<std::uint64_t>(instance_), static_cast<std::uint64_t>(level));
        walk_siblings(level, [&](const Path& parent, index_t first, index_t end, double log_sum) {
            counts_.assign(static_cast<std::size_t>(end - first), 0);
            cumulated_.clear();
            double sum = 0;
            for (index_t n = first; n < end; ++n) cumulated_.push_back(sum += exponent(n, log_sum));
            for (index_t i = 0; i < parent.count; ++i) {
                const double u = random.uniform() * sum;
                index_t at = 0;
                while (at < end - first - 1 && u >= cumulated_[static_cast<std::size_t>(at)]) ++at;
                ++counts_[static_cast<std::size_t>(at)];
            }
            for (index_t n = first; n < end; ++n) {
                const double log_p = static_cast<double>(scratch_.block.score[n]) - log_sum;
                next_.push_back(Path{nodes_[static_cast<std::size_t>(n)], counts_[static_cast<std::size_t>(n - first)],
                                     parent.log_q + log_p});
            }
        });
    }

    // next_ holds one entry per column: learn from the drawn ones and the targets' ancestors, then go on from them.
    void learn_drawn(index_t level) {
        if (learns(level)) {
            columns_.clear();
            drawn_.clear();
            paths_.clear();
            index_t draws_made = 0;
            for (const Path& path : next_) draws_made += path.count;
            for (std::size_t n = 0; n < next_.size(); ++n) {
                if (next_[n].count == 0 && !is_positive(next_[n].node, level)) continue;
                columns_.push_back(static_cast<index_t>(n));
                drawn_.push_back(next_[n].node);
                paths_.push_back(next_[n]);
            }
            list_corrections(paths_);
            if (seen_ == nullptr) {
                const bool dropping = dropout_.rate > 0;
                select_columns(net_, scratch_.block, columns_, !dropping, scratch_.selected);
                if (dropping) score<true>(net_, scratch_.history, scratch_.selected, dropout_, row(level));
            }
            learn(level, scratch_.selected, drawn_, [&](index_t column, const Target& target) {
                return shift_by(draws_made - paths_[static_cast<std::size_t>(column)].count,
                                sampling_.correct_positive ? -std::log(target.left_to_others) : 0.0);
            });
        }
        paths_.swap(next_);
    }

    const Network<float>& net_;
    const Tables& tables_;
    const Tree& tree_;
    const Batch& batch_;
    const Sampling& sampling_;
    const Dropout& dropout_;
    const index_t instance_;
    typename Chunks<float>::Chunk& chunk_;
    std::vector<DrawnRow>* seen_;
    Scratch<float>& scratch_;
    std::vector<Target> targets_;
    bool prepared_ = false;
    index_t last_level_ = 0;
    std::vector<index_t> nodes_, rows_, drawn_, columns_, counts_;
    std::vector<double> cumulated_;
    std::vector<Path> paths_, next_;
};

// One training step from histories and targets: loss and gradients, the mean over all instances and levels.
inline StepResult<float> step_on_batch(const Network<float>& net, const Tables& tables, const Tree& tree, const Batch& batch,
                                       const Sampling& sampling, const Dropout& dropout) {
    Chunks<float> chunks(net, batch.instances);
    return chunks.run([&](index_t instance, typename Chunks<float>::Chunk& chunk) {
        InstanceLearner(net, tables, tree, batch, sampling, dropout, instance, chunk, nullptr).run();
    });
}

// What that step would draw, in order of rows.
inline std::vector<DrawnRow> draw_batch(const Network<float>& net, const Tables& tables, const Tree& tree,
                                        const Batch& batch, const Sampling& sampling, const Dropout& dropout) {
    Gradients<float> sums(net);
    RowList<float> nodes, items;
    double loss = 0;
    Work work;
    typename Chunks<float>::Chunk chunk{sums, nodes, items, loss, work};
    std::vector<DrawnRow> seen;
    for (index_t instance = 0; instance < batch.instances; ++instance)
        InstanceLearner(net, tables, tree, batch, sampling, dropout, instance, chunk, &seen).run();
    return seen;
}

}  // namespace beamtree
