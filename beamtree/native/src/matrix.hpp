// Matrices as the kernels keep them: rows of whole cache lines.
#pragma once

#include "simd.hpp"

namespace beamtree {

// Rows of a fixed stride.
template <class T>
struct Matrix {
    Buffer<T> values;
    index_t stride = 0;

    // All zero.
    void allocate(index_t rows, index_t columns) {
        stride = row_stride<T>(columns);
        values.zeroed(rows * stride + 2 * lanes<T>);
    }
    // To be filled by the caller.
    void reserve(index_t rows, index_t columns) {
        stride = row_stride<T>(columns);
        values.resize(rows * stride + 2 * lanes<T>);
    }
    T* row(index_t r) { return values.data() + r * stride; }
    const T* row(index_t r) const { return values.data() + r * stride; }
};

}  // namespace beamtree
