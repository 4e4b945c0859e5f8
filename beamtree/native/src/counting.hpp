// Counting in a log: how often did which item follow which, and how often did two come together?
#pragma once

#include <algorithm>
#include <cmath>
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

// Counted pairs: the list of item i is items[offsets[i] .. offsets[i + 1] - 1], rising, with how often each was met.
struct Pairs {
    std::vector<std::int64_t> offsets;
    std::vector<std::int32_t> items;
    std::vector<std::uint32_t> counts;
};

// Where an item stands in the log, and where that stretch begins and ends.
struct Place {
    std::int64_t position, start, end;
};

// For every item, the items that visit(place, meet) names at each of its places, itself left out, and of these the `most`
// that rank highest by better(item, a, count of a, b, count of b). Memory: the places of the log, and the result.
template <class Visit, class Better>
Pairs count_pairs(const Stretches& log, index_t num_items, index_t most, Visit&& visit, Better&& better) {
    std::vector<std::int64_t> first(static_cast<std::size_t>(num_items) + 1, 0);
    for (index_t s = 0; s < log.count; ++s)
        for (std::int64_t i = log.starts[s]; i < log.ends[s]; ++i) ++first[static_cast<std::size_t>(log.items[i]) + 1];
    for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    std::vector<Place> places(static_cast<std::size_t>(first.back()));
    std::vector<std::int64_t> next(first.begin(), first.end() - 1);
    for (index_t s = 0; s < log.count; ++s)
        for (std::int64_t i = log.starts[s]; i < log.ends[s]; ++i)
            places[static_cast<std::size_t>(next[static_cast<std::size_t>(log.items[i])]++)] = {i, log.starts[s], log.ends[s]};

    constexpr index_t items_per_task = 256;
    const index_t tasks = (num_items + items_per_task - 1) / items_per_task;
    std::vector<Pairs> parts(static_cast<std::size_t>(tasks));
    ThreadPool::shared().run(tasks, [&](index_t task, int) {
        static thread_local std::vector<std::uint32_t> times;
        static thread_local std::vector<std::int32_t> met;
        if (static_cast<index_t>(times.size()) < num_items) times.resize(static_cast<std::size_t>(num_items), 0);
        Pairs& part = parts[static_cast<std::size_t>(task)];
        for (index_t item = task * items_per_task; item < std::min(num_items, (task + 1) * items_per_task); ++item) {
            met.clear();
            auto meet = [&](std::int32_t other) {
                if (other != item && times[static_cast<std::size_t>(other)]++ == 0) met.push_back(other);
            };
            for (std::int64_t p = first[static_cast<std::size_t>(item)]; p < first[static_cast<std::size_t>(item) + 1]; ++p)
                visit(places[static_cast<std::size_t>(p)], meet);
            const std::size_t kept = std::min(met.size(), static_cast<std::size_t>(most));
            if (kept < met.size())
                std::nth_element(met.begin(), met.begin() + most, met.end(), [&](std::int32_t a, std::int32_t b) {
                    return better(a, times[static_cast<std::size_t>(a)], b, times[static_cast<std::size_t>(b)]);
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
    Pairs all;
    all.offsets.push_back(0);
    for (Pairs& part : parts) {
        const std::int64_t before = all.offsets.back();
        for (std::int64_t end : part.offsets) all.offsets.push_back(before + end);
        all.items.insert(all.items.end(), part.items.begin(), part.items.end());
        all.counts.insert(all.counts.end(), part.counts.begin(), part.counts.end());
        part = Pairs();
    }
    return all;
}

// What came within `window` interactions after each item in the same stretch; the most frequent are kept, equal counts
// going to the lower item.
inline Pairs count_followers(const Stretches& log, index_t num_items, index_t window, index_t most) {
    return count_pairs(
        log, num_items, most,
        [&](const Place& place, auto&& meet) {
            const std::int64_t end = std::min<std::int64_t>(place.end, place.position + 1 + window);
            for (std::int64_t i = place.position + 1; i < end; ++i) meet(log.items[i]);
        },
        [](std::int32_t a, std::uint32_t of_a, std::int32_t b, std::uint32_t of_b) {
            return of_a != of_b ? of_a > of_b : a < b;
        });
}

// What stands in the same stretches as each item, which hold an item once at most. Those with the highest count over the
// root of their own number of stretches are kept: the order of cosines. totals: (items,), these numbers.
inline Pairs count_company(const Stretches& log, const std::int64_t* totals, index_t num_items, index_t most) {
    std::vector<double> root(static_cast<std::size_t>(num_items));
    for (index_t i = 0; i < num_items; ++i)
        root[static_cast<std::size_t>(i)] = std::sqrt(static_cast<double>(std::max<std::int64_t>(totals[i], 1)));
    return count_pairs(
        log, num_items, most,
        [&](const Place& place, auto&& meet) {
            for (std::int64_t i = place.start; i < place.end; ++i) meet(log.items[i]);
        },
        [&](std::int32_t a, std::uint32_t of_a, std::int32_t b, std::uint32_t of_b) {
            const double rank_a = of_a / root[static_cast<std::size_t>(a)], rank_b = of_b / root[static_cast<std::size_t>(b)];
            return rank_a != rank_b ? rank_a > rank_b : a < b;
        });
}

}  // namespace beamtree
