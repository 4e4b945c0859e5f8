// A request's history: whole, oldest item first.
#pragma once

#include <cstdint>

#include "simd.hpp"

namespace beamtree {

struct HistorySpan {
    const std::int32_t* items;
    index_t length;
};

}  // namespace beamtree
