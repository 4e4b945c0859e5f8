// The input of a request: its whole history, oldest item first, and the features of user and context.
#pragma once

#include <cstdint>

#include "simd.hpp"

namespace beamtree {

struct HistorySpan {
    const std::int32_t* items;
    index_t length;
};

struct Asked {
    HistorySpan history;
    // What features of the user and of the context add; null = nothing.
    const float* tower_offset = nullptr;  // (width of the tower,), to the encoded history
    const float* layer_offset = nullptr;  // (m1,), to the first perceptron layer of the attention network
};

}  // namespace beamtree
