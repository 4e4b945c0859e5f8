// The score of a node for a request: a sum of parts, any of which may be absent.
#pragma once

#include <algorithm>
#include <memory>

#include "attention.hpp"
#include "memory.hpp"
#include "threads.hpp"
#include "tower.hpp"

namespace beamtree {

struct Score {
    const Tree& tree;
    const Attention<float>* attention = nullptr;
    const Memory* memory = nullptr;
    const Tower* tower = nullptr;
    index_t attention_from = 0;  // the first level that the attention network looks at

    bool attends(index_t level) const { return attention != nullptr && level >= attention_from; }
};

// What is known of one request beforehand, for all levels from a first one down, and the scores that follow from it.
class RequestScores {
   public:
    // Where one request has all threads: more than one piece each, so that a thread that is held up delays less.
    static constexpr index_t tasks_per_thread = 2;

    void prepare(const Score& score, const Asked& asked, const Eligible& eligible, index_t level, bool spread) {
        score_ = &score;
        const HistorySpan& history = asked.history;
        if (score.memory != nullptr)
            evidence_.collect(*score.memory, score.tree, history.items, history.length, eligible, level);
        if (score.tower != nullptr) encoded_.prepare(*score.tower, score.tree, history, asked.tower_offset);
        if (score.attention == nullptr) return;
        first_attended_ = std::max(level, score.attention_from);
        // From a table of its own the history is the same on all levels.
        const index_t levels = score.attention->tables.separate ? 1 : score.tree.height - first_attended_ + 1;
        while (static_cast<index_t>(histories_.size()) < levels) histories_.push_back(std::make_unique<History<float>>());
        in_pieces(levels, spread, [&](index_t i) {
            static thread_local std::vector<index_t> rows;
            score.attention->prepare(score.tree, history.items, history.length, first_attended_ + i, asked.layer_offset,
                                     *histories_[static_cast<std::size_t>(i)], rows);
        });
    }

    // Scores (count,) of nodes (count,) of a level.
    void score(index_t level, const index_t* nodes, index_t count, float* scores, bool spread) {
        if (score_->attends(level))
            attend_to(level, nodes, count, scores, spread);
        else
            std::fill(scores, scores + count, 0.0f);
        if (score_->memory != nullptr) evidence_.add(level, nodes, count, scores);
        if (score_->tower != nullptr) encoded_.add(level, nodes, count, scores);
    }

   private:
    template <class Body>
    static void in_pieces(index_t count, bool spread, Body&& body) {
        if (spread)
            ThreadPool::shared().run(count, [&](index_t i, int) { body(i); });
        else
            for (index_t i = 0; i < count; ++i) body(i);
    }

    void attend_to(index_t level, const index_t* nodes, index_t count, float* scores, bool spread) {
        const Attention<float>& attention = *score_->attention;
        const index_t prepared = attention.tables.separate ? 0 : level - first_attended_;
        const History<float>& history = *histories_[static_cast<std::size_t>(prepared)];
        const index_t offset = score_->tree.offset(level);
        const index_t vectors = (count + lanes<float> - 1) / lanes<float>;
        index_t tasks = (count + columns_in_cache - 1) / columns_in_cache;
        if (spread) tasks = std::min(vectors, std::max<index_t>(tasks, tasks_per_thread * ThreadPool::shared().size()));
        in_pieces(tasks, spread, [&](index_t task) {
            static thread_local NodeBlock<float> block;
            static thread_local std::vector<index_t> rows;
            const index_t first = vectors * task / tasks * lanes<float>;
            const index_t end = std::min(count, vectors * (task + 1) / tasks * lanes<float>);
            rows.clear();
            for (index_t i = first; i < end; ++i) rows.push_back(offset + nodes[i]);
            score_nodes(attention.net, history, attention.tables.nodes, rows.data(), end - first, block, scores + first);
        });
    }

    const Score* score_ = nullptr;
    index_t first_attended_ = 0;
    std::vector<std::unique_ptr<History<float>>> histories_;
    Evidence evidence_;
    EncodedRequest encoded_;
};

}  // namespace beamtree
