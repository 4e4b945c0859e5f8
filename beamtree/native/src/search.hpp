// Beam search down the tree and the exact scan of its leaves, with filters inside the search.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>

#include "score.hpp"

namespace beamtree {

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
    void run(const Score& score, const Asked& asked, const Eligible& eligible, index_t beam, index_t k, bool spread,
             Found found) {
        const Tree& tree = score.tree;
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
        request_.prepare(score, asked, eligible, level, spread);
        for (;; ++level) {
            scores_.resize(nodes_.size());
            request_.score(level, nodes_.data(), static_cast<index_t>(nodes_.size()), scores_.data(), spread);
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
        report(tree, k, found);
    }

   private:
    std::vector<index_t> nodes_, children_;
    std::vector<float> scores_;
    std::vector<std::uint64_t> keys_, partitioned_;
    RequestScores request_;

    void rank() {
        keys_.resize(nodes_.size());
        for (std::size_t i = 0; i < nodes_.size(); ++i) keys_[i] = rank_key(scores_[i], static_cast<index_t>(i));
    }

    // Reduces nodes_ to the best, in rising order of their indices.
    void keep_best(index_t beam) {
        if (static_cast<index_t>(nodes_.size()) <= beam) return;
        rank();
        partitioned_ = keys_;
        std::nth_element(partitioned_.begin(), partitioned_.begin() + (beam - 1), partitioned_.end());
        const std::uint64_t last = partitioned_[static_cast<std::size_t>(beam - 1)];  // no two keys are equal
        std::size_t kept = 0;
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            nodes_[kept] = nodes_[i];
            kept += keys_[i] <= last;
        }
        nodes_.resize(kept);
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
inline void exact_scan(const Score& score, const Asked& asked, const Eligible& eligible, index_t k, Found found) {
    const Tree& tree = score.tree;
    RequestScores request;
    request.prepare(score, asked, eligible, tree.height, false);
    const bool all = eligible.total() == tree.leaves;
    const std::vector<index_t> leaves = all ? std::vector<index_t>() : eligible.leaves();
    const index_t count = all ? tree.leaves : static_cast<index_t>(leaves.size());
    constexpr index_t share = 8 * columns_in_cache;
    const index_t tasks = (count + share - 1) / share;
    std::vector<std::vector<std::uint64_t>> best(static_cast<std::size_t>(ThreadPool::shared().size()));
    auto prune = [&](std::vector<std::uint64_t>& keys) {
        if (static_cast<index_t>(keys.size()) <= k) return;
        std::nth_element(keys.begin(), keys.begin() + (k - 1), keys.end());
        keys.resize(static_cast<std::size_t>(k));
    };
    ThreadPool::shared().run(tasks, [&](index_t task, int worker) {
        static thread_local std::vector<float> scores(share);
        static thread_local std::vector<index_t> nodes(share);
        const index_t first = task * share, end = std::min(count, first + share);
        for (index_t i = first; i < end; ++i)
            nodes[static_cast<std::size_t>(i - first)] = all ? i : leaves[static_cast<std::size_t>(i)];
        request.score(tree.height, nodes.data(), end - first, scores.data(), false);
        auto& mine = best[static_cast<std::size_t>(worker)];
        for (std::size_t i = 0; i < static_cast<std::size_t>(end - first); ++i)
            mine.push_back(rank_key(scores[i], nodes[i]));
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
