// Beam search down the tree and the exact scan of its leaves, with filters inside the search.
#pragma once

#include <algorithm>
#include <limits>

#include "forward.hpp"
#include "threads.hpp"
#include "tree.hpp"

namespace beamtree {

// A model ready to be searched.
template <class T>
struct Model {
    const Network<T>& net;
    const Tree& tree;
    Table nodes;
    Table items;
    bool separate = false;

    // Prepares the history (K,) of dense items for one level.
    void prepare(const std::int32_t* items_of_history, index_t level, History<T>& history,
                 std::vector<index_t>& rows) const {
        const index_t length = static_cast<index_t>(net.window_of.size());
        rows.resize(static_cast<std::size_t>(length));
        if (separate)
            for (index_t k = 0; k < length; ++k) rows[static_cast<std::size_t>(k)] = items_of_history[k];
        else
            tree.history_rows(items_of_history, length, level, rows.data());
        history.prepare(net, separate ? items : nodes, rows.data());
    }
};

// The leaves that one request may return: those of a shared set, if there is one, without its own exclusions.
class Eligible {
   public:
    Eligible(const Tree& tree, const LeafSet* shared, std::vector<index_t>&& excluded)
        : tree_(tree), shared_(shared), excluded_(std::move(excluded)) {
        std::sort(excluded_.begin(), excluded_.end());
        excluded_.erase(std::unique(excluded_.begin(), excluded_.end()), excluded_.end());
        std::erase_if(excluded_, [&](index_t leaf) { return leaf < 0 || (shared_ && !shared_->contains(leaf)); });
    }

    index_t excluded() const { return static_cast<index_t>(excluded_.size()); }
    index_t total() const { return (shared_ ? shared_->count(0, tree_.leaves) : tree_.leaves) - excluded(); }

    // Whether a node of a level has an eligible leaf below it.
    bool enters(index_t node, index_t level) const {
        if (!shared_ && excluded_.empty()) return true;
        const index_t first = tree_.first_leaf(node, level), end = tree_.first_leaf(node + 1, level);
        index_t count = shared_ ? shared_->count(first, end) : end - first;
        if (count > 0 && !excluded_.empty()) {
            auto low = std::lower_bound(excluded_.begin(), excluded_.end(), first);
            count -= std::lower_bound(low, excluded_.end(), end) - low;
        }
        return count > 0;
    }

    // All eligible leaves, ascending.
    std::vector<index_t> leaves() const {
        std::vector<index_t> found;
        auto next = excluded_.begin();
        auto visit = [&](index_t leaf) {
            while (next != excluded_.end() && *next < leaf) ++next;
            if (next == excluded_.end() || *next != leaf) found.push_back(leaf);
        };
        if (shared_)
            shared_->for_each(visit);
        else
            for (index_t leaf = 0; leaf < tree_.leaves; ++leaf) visit(leaf);
        return found;
    }

   private:
    const Tree& tree_;
    const LeafSet* shared_;
    std::vector<index_t> excluded_;
};

// A key that sorts by falling score, then by rising position.
inline std::uint64_t rank_key(float score, index_t position) {
    std::uint32_t bits;
    if (!(score == score)) score = -std::numeric_limits<float>::infinity();
    if (score == 0) score = 0;
    std::memcpy(&bits, &score, sizeof(bits));
    bits = bits & 0x80000000u ? bits : ~bits & 0x7fffffffu;
    return static_cast<std::uint64_t>(bits) << 32 | static_cast<std::uint64_t>(position);
}

inline index_t position_of(std::uint64_t key) { return static_cast<index_t>(key & 0xffffffffu); }

inline float score_of(std::uint64_t key) {
    std::uint32_t bits = static_cast<std::uint32_t>(key >> 32);
    bits = bits & 0x80000000u ? bits : ~bits & 0x7fffffffu;
    float score;
    std::memcpy(&score, &bits, sizeof(score));
    return score;
}

struct Found {
    std::int32_t* items;  // (k,)
    float* scores;        // (k,)
};

class BeamSearch {
   public:
    // Searches for one request on the calling thread, or with all threads when spread is set.
    void run(const Model<float>& model, const std::int32_t* history, const Eligible& eligible, index_t beam, index_t k,
             bool spread, Found found) {
        const Tree& tree = model.tree;
        index_t level = tree.height;
        if (eligible.total() <= beam) {
            nodes_ = eligible.leaves();
        } else {
            level = 0;
            while (level < tree.height && tree.size(level) <= beam) ++level;
            nodes_.clear();
            for (index_t node = 0; node < tree.size(level); ++node)
                if (eligible.enters(node, level)) nodes_.push_back(node);
        }
        prepare(model, history, level, spread);
        for (index_t first = level;; ++level) {
            const index_t prepared = model.separate ? 0 : level - first;
            score_level(model, level, *histories_[static_cast<std::size_t>(prepared)], spread);
            if (level == tree.height) break;
            keep_best(beam);
            children_.clear();
            for (index_t node : nodes_) {
                const index_t end = tree.first_child(node + 1, level);
                for (index_t child = tree.first_child(node, level); child < end; ++child)
                    if (eligible.enters(child, level + 1)) children_.push_back(child);
            }
            nodes_.swap(children_);
        }
        report(model.tree, k, found);
    }

   private:
    // Where one request has all threads: more than one piece each, so that a thread that is held up delays less.
    static constexpr index_t tasks_per_thread = 2;

    std::vector<index_t> nodes_, children_, rows_;
    std::vector<float> scores_;
    std::vector<std::uint64_t> keys_;
    std::vector<std::unique_ptr<History<float>>> histories_;

    // The history of every level that will be searched does not depend on the beam: it is prepared beforehand. From a table
    // of its own it is the same for all of them.
    void prepare(const Model<float>& model, const std::int32_t* history, index_t level, bool spread) {
        const index_t levels = model.separate ? 1 : model.tree.height - level + 1;
        while (static_cast<index_t>(histories_.size()) < levels) histories_.push_back(std::make_unique<History<float>>());
        auto body = [&](index_t i, int) {
            static thread_local std::vector<index_t> rows;
            model.prepare(history, level + i, *histories_[static_cast<std::size_t>(i)], rows);
        };
        if (spread)
            ThreadPool::shared().run(levels, body);
        else
            for (index_t i = 0; i < levels; ++i) body(i, 0);
    }

    void score_level(const Model<float>& model, index_t level, const History<float>& history, bool spread) {
        const index_t count = static_cast<index_t>(nodes_.size());
        const index_t offset = model.tree.offset(level);
        rows_.resize(nodes_.size());
        for (std::size_t i = 0; i < nodes_.size(); ++i) rows_[i] = offset + nodes_[i];
        scores_.resize(nodes_.size());
        const index_t vectors = (count + lanes<float> - 1) / lanes<float>;
        index_t tasks = (count + columns_in_cache - 1) / columns_in_cache;
        if (spread) tasks = std::min(vectors, std::max<index_t>(tasks, tasks_per_thread * ThreadPool::shared().size()));
        auto body = [&](index_t task, int) {
            static thread_local NodeBlock<float> block;
            const index_t first = vectors * task / tasks * lanes<float>;
            const index_t end = std::min(count, vectors * (task + 1) / tasks * lanes<float>);
            score_nodes(model.net, history, model.nodes, rows_.data() + first, end - first, block, scores_.data() + first);
        };
        if (spread)
            ThreadPool::shared().run(tasks, body);
        else
            for (index_t task = 0; task < tasks; ++task) body(task, 0);
    }

    void rank() {
        keys_.resize(nodes_.size());
        for (std::size_t i = 0; i < nodes_.size(); ++i) keys_[i] = rank_key(scores_[i], static_cast<index_t>(i));
    }

    // Reduces nodes_ to the best, in rising order of their indices.
    void keep_best(index_t beam) {
        if (static_cast<index_t>(nodes_.size()) <= beam) return;
        rank();
        std::nth_element(keys_.begin(), keys_.begin() + (beam - 1), keys_.end());
        keys_.resize(static_cast<std::size_t>(beam));
        std::sort(keys_.begin(), keys_.end(), [](std::uint64_t a, std::uint64_t b) { return position_of(a) < position_of(b); });
        for (index_t i = 0; i < beam; ++i) {
            const std::size_t at = static_cast<std::size_t>(i);
            nodes_[at] = nodes_[static_cast<std::size_t>(position_of(keys_[at]))];
        }
        nodes_.resize(static_cast<std::size_t>(beam));
    }

    void report(const Tree& tree, index_t k, Found found) {
        rank();
        const index_t count = std::min(k, static_cast<index_t>(keys_.size()));
        std::partial_sort(keys_.begin(), keys_.begin() + count, keys_.end());
        for (index_t i = 0; i < k; ++i) {
            if (i < count) {
                const std::size_t at = static_cast<std::size_t>(position_of(keys_[static_cast<std::size_t>(i)]));
                found.items[i] = tree.item_at_leaf[nodes_[at]];
                found.scores[i] = scores_[at];
            } else {
                found.items[i] = -1;
                found.scores[i] = -std::numeric_limits<float>::infinity();
            }
        }
    }
};

// The best k of all eligible leaves, each scored.
inline void exact_scan(const Model<float>& model, const std::int32_t* history_items, const Eligible& eligible, bool all,
                       index_t k, Found found) {
    const Tree& tree = model.tree;
    History<float> history;
    std::vector<index_t> rows, leaves;
    model.prepare(history_items, tree.height, history, rows);
    if (!all) leaves = eligible.leaves();
    const index_t count = all ? tree.leaves : static_cast<index_t>(leaves.size());
    const index_t offset = tree.offset(tree.height);
    constexpr index_t share = 8 * columns_in_cache;
    const index_t tasks = (count + share - 1) / share;
    std::vector<std::vector<std::uint64_t>> best(static_cast<std::size_t>(ThreadPool::shared().size()));
    auto prune = [&](std::vector<std::uint64_t>& keys) {
        if (static_cast<index_t>(keys.size()) <= k) return;
        std::nth_element(keys.begin(), keys.begin() + (k - 1), keys.end());
        keys.resize(static_cast<std::size_t>(k));
    };
    ThreadPool::shared().run(tasks, [&](index_t task, int worker) {
        static thread_local NodeBlock<float> block;
        static thread_local std::vector<float> scores(share);
        static thread_local std::vector<index_t> table_rows(share);
        const index_t first = task * share, end = std::min(count, first + share);
        for (index_t i = first; i < end; ++i)
            table_rows[static_cast<std::size_t>(i - first)] = offset + (all ? i : leaves[static_cast<std::size_t>(i)]);
        score_nodes(model.net, history, model.nodes, table_rows.data(), end - first, block, scores.data());
        auto& mine = best[static_cast<std::size_t>(worker)];
        for (std::size_t i = 0; i < static_cast<std::size_t>(end - first); ++i)
            mine.push_back(rank_key(scores[i], table_rows[i] - offset));
        if (static_cast<index_t>(mine.size()) > 4 * share + 2 * k) prune(mine);
    });
    std::vector<std::uint64_t> keys;
    for (auto& part : best) keys.insert(keys.end(), part.begin(), part.end());
    prune(keys);
    std::sort(keys.begin(), keys.end());
    for (index_t i = 0; i < k; ++i) {
        const bool present = i < static_cast<index_t>(keys.size());
        found.items[i] = present ? tree.item_at_leaf[position_of(keys[static_cast<std::size_t>(i)])] : -1;
        found.scores[i] = present ? score_of(keys[static_cast<std::size_t>(i)]) : -std::numeric_limits<float>::infinity();
    }
}

}  // namespace beamtree
