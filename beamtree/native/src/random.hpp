// Randomness without state: every draw is a hash of what it is for, so results do not depend on threads or order.
#pragma once

#include <cstdint>

#include "simd.hpp"

namespace beamtree {

BEAMTREE_INLINE std::uint64_t mix64(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

BEAMTREE_INLINE std::uint64_t key_of(std::uint64_t seed, std::uint64_t a, std::uint64_t b) {
    return mix64(mix64(mix64(seed) ^ a) ^ b);
}

BEAMTREE_INLINE std::uint32_t mix32(std::uint32_t x) {
    x ^= x >> 16;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    return x ^ (x >> 16);
}

// A stream of uniform numbers for one purpose, e.g. (instance, level).
class Draws {
   public:
    Draws(std::uint64_t seed, std::uint64_t instance, std::uint64_t level) : key_(key_of(seed, instance, level)) {}

    std::uint64_t next() { return mix64(key_ + 0x632be59bd9b4e019ull * ++counter_); }
    // In [0, 1).
    double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
    // In 0 .. bound - 1.
    index_t below(index_t bound) {
        return static_cast<index_t>((static_cast<unsigned __int128>(next()) * static_cast<std::uint64_t>(bound)) >> 64);
    }

   private:
    std::uint64_t key_;
    std::uint64_t counter_ = 0;
};

// Which (column, unit) of a row are dropped, and the factor that makes up for them.
class DropoutMask {
   public:
    DropoutMask(std::uint64_t seed, index_t row, float rate)
        : key_(static_cast<std::uint32_t>(key_of(seed, static_cast<std::uint64_t>(row), 0x64726f70u))),
          threshold_(static_cast<std::uint32_t>(static_cast<double>(rate) * 4294967296.0)),
          factor_(1.0f / (1.0f - rate)) {}

    float factor(index_t column, index_t unit) const {
        std::uint32_t hash = mix32(key_ + static_cast<std::uint32_t>(column) * 0x9e3779b1u +
                                   static_cast<std::uint32_t>(unit) * 0x7feb352du);
        return hash < threshold_ ? 0.0f : factor_;
    }

    template <class T>
    void apply(T* values, index_t columns, index_t unit) const {
        for (index_t n = 0; n < columns; ++n) values[n] *= static_cast<T>(factor(n, unit));
    }

   private:
    std::uint32_t key_;
    std::uint32_t threshold_;
    float factor_;
};

}  // namespace beamtree
