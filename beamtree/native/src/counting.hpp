// Counting in a log: how often did which item follow which?
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "threads.hpp"
#include "tree.hpp"

namespace beamtree {

// Stretches of flat sequences: items[starts[s] .. ends[s] - 1], oldest first.
struct Stretches {
    const std::int32_t* items;
    const std::int64_t* starts;
    const std::int64_t* ends;
    index_t count;
};

// The list of item i is items[offsets[i] .. offsets[i + 1] - 1], rising, with how often each followed it.
struct Followers {
    std::vector<std::int64_t> offsets;
    std::vector<std::int32_t> items;
    std::vector<std::uint32_t> counts;
};

// For every item what came within `window` interactions after it in the same stretch, itself left out, and of that the
// `most` frequent; equal counts go to the lower item. Memory: the positions of the log, once more, and the result.
inline Followers count_followers(const Stretches& log, index_t num_items, index_t window, index_t most) {
    struct Place {
        std::int64_t position, end;
    };
    std::vector<std::int64_t> first(static_cast<std::size_t>(num_items) + 1, 0);
    for (index_t s = 0; s < log.count; ++s)
        for (std::int64_t i = log.starts[s]; i < log.ends[s]; ++i) ++first[static_cast<std::size_t>(log.items[i]) + 1];
    for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    std::vector<Place> places(static_cast<std::size_t>(first.back()));
    std::vector<std::int64_t> next(first.begin(), first.end() - 1);
    for (index_t s = 0; s < log.count; ++s)
        for (std::int64_t i = log.starts[s]; i < log.ends[s]; ++i)
            places[static_cast<std::size_t>(next[static_cast<std::size_t>(log.items[i])]++)] = {i, log.ends[s]};

    constexpr index_t items_per_task = 256;
    const index_t tasks = (num_items + items_per_task - 1) / items_per_task;
    std::vector<Followers> parts(static_cast<std::size_t>(tasks));
    ThreadPool::shared().run(tasks, [&](index_t task, int) {
        static thread_local std::vector<std::uint32_t> times;
        static thread_local std::vector<std::int32_t> met;
        if (static_cast<index_t>(times.size()) < num_items) times.resize(static_cast<std::size_t>(num_items), 0);
        Followers& part = parts[static_cast<std::size_t>(task)];
        for (index_t item = task * items_per_task; item < std::min(num_items, (task + 1) * items_per_task); ++item) {
            met.clear();
            for (std::int64_t p = first[static_cast<std::size_t>(item)]; p < first[static_cast<std::size_t>(item) + 1]; ++p) {
                const Place& place = places[static_cast<std::size_t>(p)];
                const std::int64_t end = std::min<std::int64_t>(place.end, place.position + 1 + window);
                for (std::int64_t i = place.position + 1; i < end; ++i) {
                    const std::int32_t follower = log.items[i];
                    if (follower == item) continue;
                    if (times[static_cast<std::size_t>(follower)]++ == 0) met.push_back(follower);
                }
            }
            const std::size_t kept = std::min(met.size(), static_cast<std::size_t>(most));
            if (kept < met.size())
                std::nth_element(met.begin(), met.begin() + most, met.end(), [&](std::int32_t a, std::int32_t b) {
                    const std::uint32_t of_a = times[static_cast<std::size_t>(a)], of_b = times[static_cast<std::size_t>(b)];
                    return of_a != of_b ? of_a > of_b : a < b;
                });
            std::sort(met.begin(), met.begin() + static_cast<std::ptrdiff_t>(kept));
            for (std::size_t i = 0; i < met.size(); ++i) {
                std::uint32_t& count = times[static_cast<std::size_t>(met[i])];
                if (i < kept) {
                    part.items.push_back(met[i]);
                    part.counts.push_back(count);
                }
                count = 0;
            }
            part.offsets.push_back(static_cast<std::int64_t>(part.items.size()));
        }
    });
    Followers all;
    all.offsets.push_back(0);
    for (Followers& part : parts) {
        const std::int64_t before = all.offsets.back();
        for (std::int64_t end : part.offsets) all.offsets.push_back(before + end);
        all.items.insert(all.items.end(), part.items.begin(), part.items.end());
        all.counts.insert(all.counts.end(), part.counts.begin(), part.counts.end());
        part = Followers();
    }
    return all;
}

}  // namespace beamtree
