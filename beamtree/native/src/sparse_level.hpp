// A value for every node of a level, of which few are not zero: found, pooled and cleared by chunks of 16 nodes, a line of the cache.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tree.hpp"

namespace beamtree {

class SparseLevel {
   public:
    static constexpr index_t chunk = 16;

    // All zero, for a number of nodes.
    void reset(index_t nodes) {
        if (nodes != nodes_) {
            nodes_ = nodes;
            const index_t chunks = nodes / chunk + 1;
            values_.assign(static_cast<std::size_t>(chunks * chunk), 0.0f);
            marks_.assign(static_cast<std::size_t>((chunks + 7) / 8 * 8), 0);
        } else {
            for_each_chunk([&](index_t first) { std::fill_n(values_.begin() + first, chunk, 0.0f); });
            std::fill(marks_.begin(), marks_.end(), std::uint8_t{0});
        }
    }

    float operator[](index_t node) const { return values_[static_cast<std::size_t>(node)]; }
    const float* values(index_t node) const { return values_.data() + node; }
    float* touch(index_t node) {
        marks_[static_cast<std::size_t>(node / chunk)] = 1;
        return values_.data() + node;
    }

    // Adds count values: pair(i) is the node, -1 for none, and the value.
    template <class Pair>
    void add(std::int64_t count, Pair&& pair) {
        float* values = values_.data();
        std::uint8_t* marks = marks_.data();  // in locals: a store to a mark might else change anything
        for (std::int64_t i = 0; i < count; ++i) {
            const auto [node, value] = pair(i);
            if (node < 0) continue;
            marks[node / chunk] = 1;
            values[node] += value;
        }
    }

    // Calls visit(first) with the first node of each chunk that was touched, rising; the nodes behind the last are zero.
    template <class Visit>
    void for_each_chunk(Visit&& visit) const {
        for (std::size_t at = 0; at < marks_.size(); at += 8) {
            std::uint64_t eight;
            std::memcpy(&eight, marks_.data() + at, sizeof(eight));
            for (; eight != 0; eight &= eight - 1)
                visit(static_cast<index_t>(at + static_cast<std::size_t>(std::countr_zero(eight)) / 8) * chunk);
        }
    }

    // Raises each node of this level, which is 0, to the largest value of its children where that is more; their parents are child * up / down.
    void raise_to(const SparseLevel& children, index_t up, index_t down) {
        // A product with a fraction of 64 bits is exact: children are fewer than 2^31.
        const std::uint64_t fraction = static_cast<std::uint64_t>((static_cast<unsigned __int128>(up) << 64) / down) + 1;
        children.for_each_chunk([&](index_t first) {
            const float* values = children.values(first);
            if (up * 2 == down) {
                float* half = touch(first / 2);
                for (index_t i = 0; i < chunk / 2; ++i) half[i] = std::max(std::max(values[2 * i], values[2 * i + 1]), 0.0f);
                return;
            }
            for (index_t i = 0; i < chunk; ++i) {
                if (values[i] == 0) continue;
                const auto child = static_cast<unsigned __int128>(first + i);
                float* parent = touch(static_cast<index_t>(child * fraction >> 64));
                *parent = std::max(*parent, values[i]);
            }
        });
    }

   private:
    index_t nodes_ = -1;
    std::vector<float> values_;        // zero in every chunk without a mark
    std::vector<std::uint8_t> marks_;  // one for each chunk
};

}  // namespace beamtree
