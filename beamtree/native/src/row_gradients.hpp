// Gradients of table rows: collected where they arise, then summed per row in a fixed order.
#pragma once

#include <cstdint>
#include <vector>

#include "simd.hpp"
#include "threads.hpp"

namespace beamtree {

// What one chunk of a batch found: a row may occur many times.
template <class T>
struct RowList {
    std::vector<std::uint32_t> rows;
    std::vector<T> values;  // (rows, width)

    void clear() {
        rows.clear();
        values.clear();
    }

    void append(index_t row, const T* gradient, index_t width) {
        rows.push_back(static_cast<std::uint32_t>(row));
        values.insert(values.end(), gradient, gradient + width);
    }
};

template <class T>
struct RowSums {
    std::vector<std::int64_t> rows;  // ascending, distinct
    std::vector<T> values;           // (rows, width)
};

// Sums the lists per row; the order of the additions is that of the lists, whatever the number of threads.
template <class T>
RowSums<T> sum_rows(const std::vector<RowList<T>>& lists, index_t width) {
    index_t total = 0;
    std::uint32_t highest = 0;
    for (const auto& list : lists) total += static_cast<index_t>(list.rows.size());
    std::vector<std::uint64_t> keys, other(static_cast<std::size_t>(total));
    std::vector<const T*> source;
    keys.reserve(static_cast<std::size_t>(total));
    source.reserve(static_cast<std::size_t>(total));
    for (const auto& list : lists)
        for (std::size_t i = 0; i < list.rows.size(); ++i) {
            keys.push_back(static_cast<std::uint64_t>(list.rows[i]) << 32 | keys.size());
            source.push_back(list.values.data() + static_cast<index_t>(i) * width);
            if (list.rows[i] > highest) highest = list.rows[i];
        }
    constexpr int digit = 11;
    for (int shift = 32; shift < 64 && (static_cast<std::uint64_t>(highest) << 32) >> shift != 0; shift += digit) {
        std::vector<index_t> starts((1u << digit) + 1, 0);
        for (std::uint64_t key : keys) ++starts[((key >> shift) & ((1u << digit) - 1)) + 1];
        for (std::size_t i = 1; i < starts.size(); ++i) starts[i] += starts[i - 1];
        for (std::uint64_t key : keys)
            other[static_cast<std::size_t>(starts[(key >> shift) & ((1u << digit) - 1)]++)] = key;
        keys.swap(other);
    }
    RowSums<T> sums;
    std::vector<index_t> firsts;
    for (index_t i = 0; i < total; ++i) {
        const std::int64_t row = static_cast<std::int64_t>(keys[static_cast<std::size_t>(i)] >> 32);
        if (sums.rows.empty() || sums.rows.back() != row) {
            sums.rows.push_back(row);
            firsts.push_back(i);
        }
    }
    firsts.push_back(total);
    const index_t distinct = static_cast<index_t>(sums.rows.size());
    sums.values.resize(static_cast<std::size_t>(distinct * width));
    constexpr index_t share = 512;
    ThreadPool::shared().run((distinct + share - 1) / share, [&](index_t task, int) {
        for (index_t r = task * share; r < std::min(distinct, (task + 1) * share); ++r) {
            T* out = sums.values.data() + r * width;
            for (index_t j = 0; j < width; ++j) out[j] = 0;
            for (index_t i = firsts[static_cast<std::size_t>(r)]; i < firsts[static_cast<std::size_t>(r) + 1]; ++i) {
                const T* in = source[static_cast<std::size_t>(keys[static_cast<std::size_t>(i)] & 0xffffffffu)];
                for (index_t j = 0; j < width; ++j) out[j] += in[j];
            }
        }
    });
    return sums;
}

}  // namespace beamtree
