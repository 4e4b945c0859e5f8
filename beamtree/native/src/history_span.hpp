// What a request is scored by: its whole history, oldest item first, and who asks in which context.
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
    const float* offset = nullptr;  // (width of the tower,), what users' features and the context add; null = nothing
};

}  // namespace beamtree
