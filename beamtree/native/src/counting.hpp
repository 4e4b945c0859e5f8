// Counting in a log: how often did which item follow which, and how often did two come together?
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
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

// What an interaction counts as something that is met: one, or the weight of its place in the flat sequences, 0 or more.
struct Once {
    using Count = std::uint32_t;
    Count operator()(std::int64_t) const { return 1; }
};
struct Weighted {
    using Count = double;
    const double* weights;
    Count operator()(std::int64_t position) const { return weights[position]; }
};

// Counted pairs: the list of item i is items[offsets[i] .. offsets[i + 1] - 1], rising, with how often each was met, or the
// sum of the weights with which it was.
template <class Count>
struct Pairs {
    std::vector<std::int64_t> offsets;
    std::vector<std::int32_t> items;
    std::vector<Count> counts;
};

// Where an item stands in the log, and where that stretch begins and ends.
struct Place {
    std::int64_t position, start, end;
};

// For every item, what stands at the positions [first, end) that range(place) gives for each of its places, itself left out,
// and of these the `most` that rank highest by better(a, count of a, b, count of b). Sums are added in the order of the log,
// so that they are the same on every machine; what counts 0 is not met. Memory: the places of the log, and the result.
template <class Amount, class Range, class Better>
Pairs<typename Amount::Count> count_pairs(const Stretches& log, const Amount& amount, index_t num_items, index_t most,
                                          Range&& range, Better&& better) {
    using Count = typename Amount::Count;
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
    std::vector<Pairs<Count>> parts(static_cast<std::size_t>(tasks));
    ThreadPool::shared().run(tasks, [&](index_t task, int) {
        static thread_local std::vector<Count> times;
        static thread_local std::vector<std::int32_t> met;
        if (static_cast<index_t>(times.size()) < num_items) times.resize(static_cast<std::size_t>(num_items), 0);
        Pairs<Count>& part = parts[static_cast<std::size_t>(task)];
        for (index_t item = task * items_per_task; item < std::min(num_items, (task + 1) * items_per_task); ++item) {
            met.clear();
            for (std::int64_t p = first[static_cast<std::size_t>(item)]; p < first[static_cast<std::size_t>(item) + 1]; ++p) {
                const auto [begin, end] = range(places[static_cast<std::size_t>(p)]);
                for (std::int64_t i = begin; i < end; ++i) {
                    const std::int32_t other = log.items[i];
                    const Count counted = amount(i);
                    if (other == item || !(counted > 0)) continue;
                    Count& so_far = times[static_cast<std::size_t>(other)];
                    if (so_far == 0) met.push_back(other);
                    so_far += counted;
                }
            }
            const std::size_t kept = std::min(met.size(), static_cast<std::size_t>(most));
            if (kept < met.size())
                std::nth_element(met.begin(), met.begin() + most, met.end(), [&](std::int32_t a, std::int32_t b) {
                    return better(a, times[static_cast<std::size_t>(a)], b, times[static_cast<std::size_t>(b)]);
                });
            std::sort(met.begin(), met.begin() + static_cast<std::ptrdiff_t>(kept));
            for (std::size_t i = 0; i < met.size(); ++i) {
                Count& count = times[static_cast<std::size_t>(met[i])];
                if (i < kept) {
                    part.items.push_back(met[i]);
                    part.counts.push_back(count);
                }
                count = 0;
            }
            part.offsets.push_back(static_cast<std::int64_t>(part.items.size()));
        }
    });
    Pairs<Count> all;
    all.offsets.push_back(0);
    for (Pairs<Count>& part : parts) {
        const std::int64_t before = all.offsets.back();
        for (std::int64_t end : part.offsets) all.offsets.push_back(before + end);
        all.items.insert(all.items.end(), part.items.begin(), part.items.end());
        all.counts.insert(all.counts.end(), part.counts.begin(), part.counts.end());
        part = Pairs<Count>();
    }
    return all;
}

// What came within `window` interactions after each item in the same stretch; the most frequent are kept, equal counts
// going to the lower item.
template <class Amount>
Pairs<typename Amount::Count> count_followers(const Stretches& log, const Amount& amount, index_t num_items, index_t window,
                                              index_t most) {
    using Count = typename Amount::Count;
    return count_pairs(
        log, amount, num_items, most,
        [&](const Place& place) {
            return std::pair(place.position + 1, std::min<std::int64_t>(place.end, place.position + 1 + window));
        },
        [](std::int32_t a, Count of_a, std::int32_t b, Count of_b) { return of_a != of_b ? of_a > of_b : a < b; });
}

// What stands in the same stretches as each item, which hold an item once at most. Those with the highest count over the
// root of their own total are kept: the order of cosines. totals: (items,), in how many stretches each item is, or the sum
// of its squared weights.
template <class Amount, class Total>
Pairs<typename Amount::Count> count_company(const Stretches& log, const Amount& amount, const Total* totals,
                                            index_t num_items, index_t most) {
    using Count = typename Amount::Count;
    std::vector<double> root(static_cast<std::size_t>(num_items));
    for (index_t i = 0; i < num_items; ++i)
        root[static_cast<std::size_t>(i)] = std::sqrt(totals[i] > 0 ? static_cast<double>(totals[i]) : 1.0);
    return count_pairs(
        log, amount, num_items, most, [](const Place& place) { return std::pair(place.start, place.end); },
        [&](std::int32_t a, Count of_a, std::int32_t b, Count of_b) {
            const double rank_a = of_a / root[static_cast<std::size_t>(a)], rank_b = of_b / root[static_cast<std::size_t>(b)];
            return rank_a != rank_b ? rank_a > rank_b : a < b;
        });
}

}  // namespace beamtree
