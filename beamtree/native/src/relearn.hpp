// Scores of items for candidate places in a new tree: log-softmax over the candidates, summed over an item's instances.
#pragma once

#include <cmath>
#include <vector>

#include "attention.hpp"
#include "threads.hpp"

namespace beamtree {

// Where an item may go: every item is below one node of the upper level, its group, and is assigned to one of the group's
// descendants on the lower level.
struct Stage {
    const std::int64_t* group_of_item;  // (items,) node of the upper level, -1 = leave the item out
    index_t upper;
    index_t lower;
    index_t candidates;  // columns of the sums: the most descendants that a group has
};

// What is asked: histories (instances, K) of items, their targets (instances,), and what each adds to the first layer of the
// attention network, (instances, m1), null = nothing.
struct Followed {
    const std::int32_t* histories;
    const std::int32_t* targets;
    const float* layer_offsets;
    index_t instances;
};

// sums: (items, candidates), added to in order of the instances;
// columns behind a group's last descendant are left alone.
template <class Sum>
void score_candidates(const Attention<float>& attention, const Tree& tree, const Stage& stage,
                      const Followed& followed, Sum* sums) {
    const index_t length = attention.net.sizes.history(), columns = stage.candidates, instances = followed.instances;
    const std::int32_t* targets = followed.targets;
    constexpr index_t at_a_time = 2048;
    std::vector<float> logs(static_cast<std::size_t>(std::min(instances, at_a_time) * columns));
    for (index_t start = 0; start < instances; start += at_a_time) {
        const index_t count = std::min(at_a_time, instances - start);
        auto range = [&](index_t instance, index_t& first, index_t& end) {
            const index_t group = static_cast<index_t>(stage.group_of_item[targets[instance]]);
            first = group < 0 ? 0 : tree.first_descendant(group, stage.upper, stage.lower);
            end = group < 0 ? 0 : tree.first_descendant(group + 1, stage.upper, stage.lower);
        };
        ThreadPool::shared().run(count, [&](index_t i, int) {
            static thread_local History<float> history;
            static thread_local NodeBlock<float> block;
            static thread_local std::vector<index_t> rows;
            index_t first, end;
            range(start + i, first, end);
            if (end <= first) return;
            const float* layer_offset =
                followed.layer_offsets == nullptr ? nullptr : followed.layer_offsets + (start + i) * attention.net.m[0];
            attention.prepare(tree, followed.histories + (start + i) * length, length, stage.lower, layer_offset, history,
                              rows);
            rows.clear();
            for (index_t node = first; node < end; ++node) rows.push_back(tree.offset(stage.lower) + node);
            float* out = logs.data() + i * columns;
            score_nodes(attention.net, history, attention.tables.nodes, rows.data(), end - first, block, out);
            double highest = out[0], sum = 0;
            for (index_t n = 0; n < end - first; ++n) highest = std::max(highest, static_cast<double>(out[n]));
            for (index_t n = 0; n < end - first; ++n) sum += std::exp(static_cast<double>(out[n]) - highest);
            const double log_sum = highest + std::log(sum);
            for (index_t n = 0; n < end - first; ++n) out[n] = static_cast<float>(static_cast<double>(out[n]) - log_sum);
        });
        for (index_t i = 0; i < count; ++i) {
            index_t first, end;
            range(start + i, first, end);
            Sum* row = sums + targets[start + i] * columns;
            for (index_t n = 0; n < end - first; ++n) row[n] += static_cast<Sum>(logs[static_cast<std::size_t>(i * columns + n)]);
        }
    }
}

}  // namespace beamtree
