// A table of embeddings, one row per node or item, read where it lies: in memory or in a mapped file.
#pragma once

#include "simd.hpp"

namespace beamtree {

enum class Storage { float16, float32, float64 };

struct Table {
    const void* data = nullptr;
    index_t rows = 0;
    index_t width = 0;
    Storage storage = Storage::float32;

    void prefetch(index_t row) const {
        const index_t size = storage == Storage::float16 ? 2 : storage == Storage::float32 ? 4 : 8;
        const char* first = static_cast<const char*>(data) + row * width * size;
        for (index_t byte = 0; byte < width * size; byte += 64) __builtin_prefetch(first + byte);
        __builtin_prefetch(first + width * size - 1);
    }

    // Copies one row to out and fills up to padded with zeros.
    template <class T>
    void copy_row(index_t row, T* out, index_t padded) const {
        if (storage == Storage::float32) {
            const float* from = static_cast<const float*>(data) + row * width;
            for (index_t j = 0; j < width; ++j) out[j] = static_cast<T>(from[j]);
        } else if (storage == Storage::float16) {
            const _Float16* from = static_cast<const _Float16*>(data) + row * width;
            for (index_t j = 0; j < width; ++j) out[j] = static_cast<T>(static_cast<float>(from[j]));
        } else {
            const double* from = static_cast<const double*>(data) + row * width;
            for (index_t j = 0; j < width; ++j) out[j] = static_cast<T>(from[j]);
        }
        for (index_t j = width; j < padded; ++j) out[j] = 0;
    }
};

// Where the history's vectors come from: the node table (ancestors), or a table of their own.
struct Tables {
    Table nodes;
    Table items;
    bool separate = false;

    const Table& history() const { return separate ? items : nodes; }
};

}  // namespace beamtree
