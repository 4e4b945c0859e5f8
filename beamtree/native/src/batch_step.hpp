// A training step from histories and targets alone: negatives are drawn, scored and learned from in one pass per instance.
#pragma once

#include <optional>

#include "drawing.hpp"
#include "select.hpp"
#include "training.hpp"

namespace beamtree {

struct BatchStep {
    const Attention<float>& attention;
    const Tree& tree;
    Batch batch;
    Sampling sampling;
    Dropout dropout;
    index_t first_level = 1;  // levels above it are neither drawn on, scored nor learned

    index_t learned_levels() const { return tree.height - first_level + 1; }
};

// What was drawn for one row, for inspection: column 0 is the positive.
struct DrawnRow {
    index_t row;
    std::vector<index_t> node_rows;
    std::vector<float> correction;
};

class InstanceLearner {
   public:
    // With seen, the candidates of each row are put there and nothing is learned.
    InstanceLearner(const BatchStep& step, index_t instance, typename Chunks<float>::Chunk& chunk,
                    std::vector<DrawnRow>* seen)
        : attention_(step.attention), net_(step.attention.net), tree_(step.tree), batch_(step.batch),
          sampling_(step.sampling), dropout_(step.dropout), first_level_(step.first_level),
          rows_of_mean_(static_cast<double>(step.batch.instances * step.learned_levels())), instance_(instance),
          chunk_(chunk), seen_(seen), scratch_(Scratch<float>::of_this_thread()),
          targets_(step.tree, step.batch, instance) {}

    void run() {
        last_level_ = tree_.height;
        while (last_level_ > 0 && !targets_.has_weight_on(last_level_)) --last_level_;
        if (sampling_.sampler == Sampler::uniform)
            for (index_t level = first_level_; level <= last_level_; ++level) uniform(level);
        else
            top_down();
    }

   private:
    index_t row(index_t level) const { return instance_ * tree_.height + level - 1; }

    void prepare(index_t level) {
        if (attention_.tables.separate && prepared_) return;
        const index_t length = net_.sizes.history();
        const float* layer_offset =
            batch_.layer_offsets == nullptr ? nullptr : batch_.layer_offsets + instance_ * net_.m[0];
        attention_.prepare(tree_, batch_.histories + instance_ * length, length, level, layer_offset, scratch_.history,
                           scratch_.history_rows);
        chunk_.work.prepared += static_cast<double>(scratch_.history.count);
        prepared_ = true;
    }

    // Attention of nodes_ on a level; the scores follow when asked for.
    void attend_to_nodes(index_t level) {
        prepare(level);
        rows_.clear();
        for (index_t node : nodes_) rows_.push_back(tree_.offset(level) + node);
        scratch_.attend_to(attention_, rows_, chunk_);
    }

    // Learns from all columns of a block, whose nodes are given, ascending; scratch_.correction has that of each column,
    // infinite where it was not drawn. shift(column, target): what is subtracted from all other columns besides.
    template <class Shift>
    void learn(index_t level, NodeBlock<float>& block, const std::vector<index_t>& nodes, Shift&& shift) {
        scratch_.node_rows.clear();
        for (index_t node : nodes) scratch_.node_rows.push_back(tree_.offset(level) + node);
        scratch_.positives.clear();
        for (const Target& target : targets_) {
            const double weight = targets_.weight(target, level);
            if (weight == 0) continue;
            const auto at = std::lower_bound(nodes.begin(), nodes.end(), targets_.ancestor(target, level));
            const index_t column = static_cast<index_t>(at - nodes.begin());
            const double share = weight / rows_of_mean_;
            if (std::optional<double> shifted = shift(column, target))
                scratch_.positives.push_back(Positive{column, share, *shifted});
        }
        if (scratch_.positives.empty()) return;
        if (seen_ != nullptr) return show(level);
        scratch_.learn(attention_, block, dropout_, row(level), chunk_);
    }

    // Keeps the candidates of the first target for inspection.
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

    // ln q - ln count of every candidate.
    void list_corrections() {
        scratch_.correction.clear();
        for (const DrawnNode& at : candidates_)
            scratch_.correction.push_back(static_cast<float>(at.log_q - std::log(static_cast<double>(at.count))));
    }

    // ln M_eff + ln of what q is scaled with, for the candidate in a column; none where no draw but of itself is left.
    std::optional<double> shift_by(index_t draws, index_t column, double log_scale) const {
        const index_t effective = draws - candidates_[static_cast<std::size_t>(column)].count;
        if (effective == 0) return std::nullopt;
        return std::log(static_cast<double>(effective)) + log_scale;
    }

    void uniform(index_t level) {
        if (!targets_.has_weight_on(level) || tree_.occupied_size(level) < 2) return;
        if (sampling_.takes_whole(tree_, level)) {
            list_level(level);
            attend_to_nodes(level);
            return learn_whole(level);
        }
        draw_uniform(tree_, sampling_, instance_, level, candidates_);
        learn_uniform(level);
    }

    // candidates_ has the uniform draws of a level: learns from them and the targets' ancestors.
    void learn_uniform(index_t level) {
        for (const Target& target : targets_)
            if (targets_.weight(target, level) != 0) insert_undrawn(targets_.ancestor(target, level), candidates_);
        nodes_.clear();
        for (const DrawnNode& at : candidates_) nodes_.push_back(at.node);
        list_corrections();
        if (seen_ == nullptr) {
            attend_to_nodes(level);
            score<true>(net_, scratch_.history, scratch_.block, dropout_, row(level));
        }
        const double log_others = std::log(static_cast<double>(tree_.occupied_size(level) - 1));
        learn(level, scratch_.block, nodes_,
              [&](index_t column, const Target&) { return shift_by(sampling_.draws(level), column, -log_others); });
    }

    void top_down() {
        TopDownPaths paths(tree_, sampling_, instance_, targets_);
        const bool from_root = sampling_.start == PathStart::root;
        index_t level = first_level_;
        for (; level <= last_level_ && sampling_.takes_whole(tree_, level); ++level) {
            const bool learned = targets_.has_weight_on(level) && tree_.occupied_size(level) > 1;
            if (!learned && !from_root) continue;
            list_level(level);
            attend_to_nodes(level);
            if (from_root) paths.spread_over(level, score_for_draws(level));
            if (learned) learn_whole(level);
        }
        if (level > last_level_) return;
        if (from_root) paths.draw_starts(level);
        bool starting = !from_root;
        if (level == first_level_ && sampling_.starts_uniformly(level)) {
            draw_uniform(tree_, sampling_, instance_, level, candidates_);
            paths.start_from(level, candidates_);
            if (targets_.has_weight_on(level)) learn_uniform(level);
            starting = false;
            ++level;
        }
        for (; level <= last_level_; ++level) {
            starting ? list_level(level) : paths.list_children(level, nodes_);
            attend_to_nodes(level);
            const TopDownPaths::Scored scored = score_for_draws(level);
            starting ? paths.start_at(level, scored) : paths.descend(level, scored);
            if (targets_.has_weight_on(level)) learn_drawn(level, paths.reached());
            starting = sampling_.start == PathStart::every;
        }
    }

    TopDownPaths::Scored score_for_draws(index_t level) {
        score<true>(net_, scratch_.history, scratch_.block, sampling_.with_dropout ? dropout_ : Dropout{}, row(level));
        return TopDownPaths::Scored{nodes_, scratch_.block.score.data()};
    }

    // reached has one entry per column of the block: learns from the drawn ones and the targets' ancestors.
    void learn_drawn(index_t level, const std::vector<DrawnNode>& reached) {
        columns_.clear();
        drawn_.clear();
        candidates_.clear();
        index_t draws_made = 0;
        for (const DrawnNode& at : reached) draws_made += at.count;
        for (std::size_t n = 0; n < reached.size(); ++n) {
            if (reached[n].count == 0 && !targets_.has_positive(reached[n].node, level)) continue;
            columns_.push_back(static_cast<index_t>(n));
            drawn_.push_back(reached[n].node);
            candidates_.push_back(reached[n]);
        }
        list_corrections();
        if (seen_ == nullptr) {
            const bool dropping = dropout_.rate > 0;
            select_columns(net_, scratch_.block, columns_, !dropping, scratch_.selected);
            if (dropping) score<true>(net_, scratch_.history, scratch_.selected, dropout_, row(level));
        }
        learn(level, scratch_.selected, drawn_, [&](index_t column, const Target& target) {
            return shift_by(draws_made, column, sampling_.correct_positive ? -std::log(target.left_to_others) : 0.0);
        });
    }

    const Attention<float>& attention_;
    const Network<float>& net_;
    const Tree& tree_;
    const Batch& batch_;
    const Sampling& sampling_;
    const Dropout& dropout_;
    const index_t first_level_;
    const double rows_of_mean_;  // instances x learned levels
    const index_t instance_;
    typename Chunks<float>::Chunk& chunk_;
    std::vector<DrawnRow>* seen_;
    Scratch<float>& scratch_;
    Targets targets_;
    bool prepared_ = false;
    index_t last_level_ = 0;
    std::vector<index_t> nodes_, rows_, drawn_, columns_;
    std::vector<DrawnNode> candidates_;
};

// Loss and gradients, the mean over all instances and learned levels.
inline StepResult<float> step_on_batch(const BatchStep& step) {
    Chunks<float> chunks(step.attention.net, step.batch.instances);
    return chunks.run(step.batch.layer_offsets != nullptr, [&](index_t instance, typename Chunks<float>::Chunk& chunk) {
        InstanceLearner(step, instance, chunk, nullptr).run();
    });
}

// What that step would draw, in order of rows.
inline std::vector<DrawnRow> draw_batch(const BatchStep& step) {
    Gradients<float> sums(step.attention.net);
    RowList<float> nodes, items;
    double loss = 0;
    Work work;
    typename Chunks<float>::Chunk chunk{sums, nodes, items, loss, work};
    std::vector<DrawnRow> seen;
    for (index_t instance = 0; instance < step.batch.instances; ++instance)
        InstanceLearner(step, instance, chunk, &seen).run();
    return seen;
}

}  // namespace beamtree
