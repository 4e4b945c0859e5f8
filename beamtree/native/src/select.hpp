// Some columns of a scored block as a block of their own, so that what sampling computed serves the gradients too.
#pragma once

#include "forward.hpp"

namespace beamtree {

// The bits of word at the places of chosen, moved together.
BEAMTREE_INLINE std::uint64_t extract_bits(std::uint64_t word, std::uint64_t chosen) {
#if defined(__BMI2__) && defined(__x86_64__)
    return __builtin_ia32_pext_di(word, chosen);
#else
    std::uint64_t out = 0;
    for (int at = 0; chosen != 0; chosen &= chosen - 1, ++at) out |= ((word >> __builtin_ctzll(chosen)) & 1) << at;
    return out;
#endif
}

// columns: (count,) ascending. What attend<true> left in the block is copied; with scores, also what score<true> left.
inline void select_columns(const Network<float>& net, const NodeBlock<float>& from, const std::vector<index_t>& columns,
                           bool with_scores, NodeBlock<float>& to) {
    const index_t count = static_cast<index_t>(columns.size());
    to.resize(net, count);
    to.history = from.history;
    const index_t dp = net.dp, padded = to.padded;
    for (index_t n = 0; n < padded; ++n) {
        if (n < count)
            std::memcpy(to.w.row(n), from.w.row(columns[static_cast<std::size_t>(n)]),
                        static_cast<std::size_t>(dp) * sizeof(float));
        else
            std::memset(to.w.row(n), 0, static_cast<std::size_t>(dp) * sizeof(float));
    }
    auto copy_rows = [&](Buffer<float>& out, const Buffer<float>& in, index_t rows) {
        out.resize(rows * to.stride + 2 * lanes<float>);
        for (index_t r = 0; r < rows; ++r) {
            const float* source = in.data() + r * from.stride;
            float* target = out.data() + r * to.stride;
            for (index_t n = 0; n < count; ++n) target[n] = source[columns[static_cast<std::size_t>(n)]];
            for (index_t n = count; n < padded; ++n) target[n] = 0;
        }
    };
    copy_rows(to.y0, from.y0, from.history + net.d);
    copy_rows(to.t, from.t, from.history);
    if (with_scores) {
        for (std::size_t layer = 0; layer < net.layers; ++layer) {
            copy_rows(to.pre[layer], from.pre[layer], net.m[layer]);
            copy_rows(to.out[layer], from.out[layer], net.m[layer]);
            if (net.sizes.normalisation == Normalisation::layer) {
                copy_rows(to.hat[layer], from.hat[layer], net.m[layer]);
                copy_rows(to.inverse[layer], from.inverse[layer], 1);
            }
        }
        copy_rows(to.score, from.score, 1);
    }
    // Signs: eight columns to a byte, so a row is a string of bits.
    static_assert(lanes<float> == 8);
    to.bits_stride = round_up(to.padded / lanes<float>, 8);
    const index_t words_in = from.bits_stride / 8, words_out = to.bits_stride / 8;
    std::vector<std::uint64_t> chosen(static_cast<std::size_t>(words_in), 0);
    for (index_t column : columns) chosen[static_cast<std::size_t>(column / 64)] |= 1ull << (column % 64);
    to.bits.resize(from.history * net.h * to.bits_stride);
    for (index_t r = 0; r < from.history * net.h; ++r) {
        std::uint64_t gathered = 0;
        int filled = 0;
        index_t out = 0;
        std::uint8_t* target = to.bits.data() + r * to.bits_stride;
        auto flush = [&](std::uint64_t word) { std::memcpy(target + 8 * out++, &word, sizeof(word)); };
        for (index_t i = 0; i < words_in; ++i) {
            const std::uint64_t mask = chosen[static_cast<std::size_t>(i)];
            if (mask == 0) continue;
            std::uint64_t word;
            std::memcpy(&word, from.bits.data() + r * from.bits_stride + 8 * i, sizeof(word));
            const std::uint64_t taken = extract_bits(word, mask);
            const int size = __builtin_popcountll(mask);
            gathered |= taken << filled;
            if (filled + size >= 64) {
                flush(gathered);
                gathered = filled == 0 ? 0 : taken >> (64 - filled);
                filled += size - 64;
            } else {
                filled += size;
            }
        }
        while (out < words_out) {
            flush(gathered);
            gathered = 0;
        }
    }
}

}  // namespace beamtree
