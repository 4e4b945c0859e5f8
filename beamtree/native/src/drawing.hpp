// Negatives of one instance: nodes drawn uniformly over a level, or down the tree by the scores of the model itself.
#pragma once

#include <cmath>
#include <limits>

#include "random.hpp"
#include "sampling.hpp"

namespace beamtree {

// A node of a level, how often it was drawn, and the logarithm of the probability of one draw.
struct DrawnNode {
    index_t node;
    index_t count;
    double log_q;
};

// Adds up draws of the occupied nodes of a level: ascending, each node once, log_q left at 0.
inline void draw_uniform(const Tree& tree, const Sampling& sampling, index_t instance, index_t level,
                         std::vector<DrawnNode>& drawn) {
    Draws random(sampling.seed, static_cast<std::uint64_t>(instance), static_cast<std::uint64_t>(level));
    const index_t size = tree.size(level);
    std::vector<index_t> nodes;
    for (index_t i = 0; i < sampling.draws(level); ++i) {
        index_t node = random.below(size);
        while (!tree.occupied(node, level)) node = random.below(size);
        nodes.push_back(node);
    }
    std::sort(nodes.begin(), nodes.end());
    drawn.clear();
    for (index_t node : nodes)
        if (!drawn.empty() && drawn.back().node == node)
            ++drawn.back().count;
        else
            drawn.push_back(DrawnNode{node, 1, 0.0});
}

// Puts a node among drawn ones, ascending, unless it is there.
inline void insert_undrawn(index_t node, std::vector<DrawnNode>& drawn) {
    const auto at = std::lower_bound(drawn.begin(), drawn.end(), node,
                                     [](const DrawnNode& other, index_t wanted) { return other.node < wanted; });
    if (at == drawn.end() || at->node != node) drawn.insert(at, DrawnNode{node, 0, 0.0});
}

// Draws that go down the tree together. On every level the caller scores some nodes, ascending, and the paths choose among
// them; what the targets' ancestors have as q is followed beside them.
class TopDownPaths {
   public:
    TopDownPaths(const Tree& tree, const Sampling& sampling, index_t instance, Targets& targets)
        : tree_(tree), sampling_(sampling), instance_(instance), targets_(targets),
          reached_(1, DrawnNode{0, sampling.draws(1), 0.0}) {}

    // Nodes of a level and their scores.
    struct Scored {
        const std::vector<index_t>& nodes;
        const float* scores;

        index_t size() const { return static_cast<index_t>(nodes.size()); }
        index_t node(index_t n) const { return nodes[static_cast<std::size_t>(n)]; }
        double score(index_t n) const { return static_cast<double>(scores[n]); }
        double exponent(index_t n, double highest) const { return std::exp(score(n) - highest); }
    };

    // The nodes that were scored last, ascending, and how many paths reached each.
    const std::vector<DrawnNode>& reached() const { return reached_; }

    // Occupied children of all nodes with paths, and of the targets' ancestors.
    void list_children(index_t level, std::vector<index_t>& nodes) {
        std::erase_if(reached_, [&](const DrawnNode& at) {
            return at.count == 0 && !targets_.has_ancestor(at.node, level - 1);
        });
        nodes.clear();
        for (const DrawnNode& parent : reached_) {
            const index_t end = tree_.first_child(parent.node + 1, level - 1);
            for (index_t child = tree_.first_child(parent.node, level - 1); child < end; ++child)
                if (tree_.occupied(child, level)) nodes.push_back(child);
        }
    }

    // Exact softmax over a whole level: all paths start here, whatever led to the level above.
    void start_at(index_t level, const Scored& at) {
        double highest = -std::numeric_limits<double>::infinity(), sum = 0;
        const index_t count = at.size();
        for (index_t n = 0; n < count; ++n) highest = std::max(highest, at.score(n));
        cumulated_.clear();
        for (index_t n = 0; n < count; ++n) cumulated_.push_back(sum += at.exponent(n, highest));
        counts_.assign(at.nodes.size(), 0);
        Draws random = draws_for(level);
        for (index_t i = 0; i < sampling_.draws(level); ++i) ++counts_[drawn_by(random.uniform() * sum)];
        const double log_sum = highest + std::log(sum);
        for (Target& target : targets_) target.log_q = target.left_to_others = 0.0;
        follow_targets(level, at, 0, count, highest);
        reached_.clear();
        for (index_t n = 0; n < count; ++n)
            reached_.push_back(DrawnNode{at.node(n), counts_[static_cast<std::size_t>(n)], at.score(n) - log_sum});
    }

    // Uniform draws over the occupied nodes of a level: all paths start there.
    void start_from(index_t level, const std::vector<DrawnNode>& drawn) {
        const double size = static_cast<double>(tree_.occupied_size(level));
        reached_ = drawn;
        for (Target& target : targets_) {
            target.log_q = -std::log(size);
            target.left_to_others = (size - 1) / size;
            insert_undrawn(targets_.ancestor(target, level), reached_);
        }
        for (DrawnNode& at : reached_) at.log_q = -std::log(size);
    }

    // Levels taken whole, from the root: the probability of every node, without draws yet.
    void spread_over(index_t level, const Scored& at) {
        walk_siblings(level, at, [&](const DrawnNode& parent, index_t first, index_t end, double log_sum) {
            for (index_t n = first; n < end; ++n) {
                const double log_p = at.score(n) - log_sum;
                next_.push_back(DrawnNode{at.node(n), 0, parent.log_q + log_p});
            }
        });
    }

    // Draws the paths of a level among nodes whose probabilities are all known: the last whole level, or the root.
    void draw_starts(index_t level) {
        double sum = 0;
        cumulated_.clear();
        for (DrawnNode& at : reached_) {
            at.count = 0;
            cumulated_.push_back(sum += std::exp(at.log_q));
        }
        Draws random = draws_for(0);
        for (index_t i = 0; i < sampling_.draws(level); ++i) ++reached_[drawn_by(random.uniform() * sum)].count;
    }

    // Every path picks one child by the softmax over its siblings.
    void descend(index_t level, const Scored& at) {
        Draws random = draws_for(level);
        walk_siblings(level, at, [&](const DrawnNode& parent, index_t first, index_t end, double log_sum) {
            counts_.assign(static_cast<std::size_t>(end - first), 0);
            cumulated_.clear();
            double sum = 0;
            for (index_t n = first; n < end; ++n) cumulated_.push_back(sum += at.exponent(n, log_sum));
            for (index_t i = 0; i < parent.count; ++i) {
                const double u = random.uniform() * sum;
                index_t child = 0;
                while (child < end - first - 1 && u >= cumulated_[static_cast<std::size_t>(child)]) ++child;
                ++counts_[static_cast<std::size_t>(child)];
            }
            for (index_t n = first; n < end; ++n) {
                const double log_p = at.score(n) - log_sum;
                next_.push_back(DrawnNode{at.node(n), counts_[static_cast<std::size_t>(n - first)], parent.log_q + log_p});
            }
        });
    }

   private:
    Draws draws_for(index_t level) const {
        return Draws(sampling_.seed, static_cast<std::uint64_t>(instance_), static_cast<std::uint64_t>(level));
    }

    // The column that a draw u of the cumulated sums falls into.
    std::size_t drawn_by(double u) const {
        const auto at = std::upper_bound(cumulated_.begin(), cumulated_.end(), u) - cumulated_.begin();
        return static_cast<std::size_t>(std::min<std::ptrdiff_t>(at, static_cast<std::ptrdiff_t>(cumulated_.size()) - 1));
    }

    // The targets whose ancestor is among the columns first .. end - 1, which share the probability of one parent: what is
    // left to the others is summed up, because 1 - q would lose all digits where q is nearly 1.
    void follow_targets(index_t level, const Scored& at, index_t first, index_t end, double highest) {
        for (Target& target : targets_) {
            const index_t node = targets_.ancestor(target, level);
            if (node < at.node(first) || node > at.node(end - 1)) continue;
            double own = 0, others = 0;
            for (index_t n = first; n < end; ++n) (at.node(n) == node ? own : others) += at.exponent(n, highest);
            target.left_to_others += std::exp(target.log_q) * others / (own + others);
            target.log_q += std::log(own / (own + others));
        }
    }

    // Calls body(parent, first, end, log_sum) for the columns of each parent's children, which it adds to next_; follows the
    // targets.
    template <class Body>
    void walk_siblings(index_t level, const Scored& at, Body&& body) {
        next_.clear();
        index_t column = 0;
        for (const DrawnNode& parent : reached_) {
            const index_t first = column, end_node = tree_.first_child(parent.node + 1, level - 1);
            double highest = -std::numeric_limits<double>::infinity(), sum = 0;
            while (column < at.size() && at.node(column) < end_node) highest = std::max(highest, at.score(column++));
            for (index_t n = first; n < column; ++n) sum += at.exponent(n, highest);
            follow_targets(level, at, first, column, highest);
            body(parent, first, column, highest + std::log(sum));
        }
        reached_.swap(next_);
    }

    const Tree& tree_;
    const Sampling& sampling_;
    const index_t instance_;
    Targets& targets_;
    std::vector<DrawnNode> reached_, next_;
    std::vector<index_t> counts_;
    std::vector<double> cumulated_;
};

}  // namespace beamtree
