// The leaves that one request may return.
#pragma once

#include <algorithm>
#include <vector>

#include "sparse_level.hpp"

namespace beamtree {

// Those of a shared set, if there is one, without the request's own exclusions.
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

    bool contains(index_t leaf) const {
        if (shared_ && !shared_->contains(leaf)) return false;
        return !std::binary_search(excluded_.begin(), excluded_.end(), leaf);
    }

    // Sets the values of all other leaves to zero.
    void keep(SparseLevel& values) const {
        if (shared_)
            values.for_each_chunk([&](index_t first) {
                const std::uint64_t members = shared_->word(first / 64) >> (first % 64);
                float* of_chunk = values.touch(first);
                for (index_t i = 0; i < SparseLevel::chunk; ++i)
                    if (!(members >> i & 1)) of_chunk[i] = 0;
            });
        for (index_t leaf : excluded_) *values.touch(leaf) = 0;
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

}  // namespace beamtree
