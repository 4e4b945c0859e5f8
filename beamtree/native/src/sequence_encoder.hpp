// A sequence encoder of either kind: from the vectors of a history to the one of what comes next.
#pragma once

#include <variant>

#include "recurrent.hpp"
#include "self_attention.hpp"

namespace beamtree {

class SequenceEncoder {
   public:
    template <class Network>
    explicit SequenceEncoder(Network network)
        : width(network.width), history_length(network.history_length), network_(std::move(network)) {}

    const index_t width;
    const index_t history_length;  // number of latest items that are read

    // What comes after a history, to out (width,), up to whole vectors. copy_row(i, to) writes the vector (width,) of the
    // i-th of its items, oldest first; no more of them than history_length.
    template <class CopyRow>
    void encode(index_t items, CopyRow&& copy_row, float* out) const {
        std::visit([&](const auto& network) { network.encode(items, copy_row, out); }, network_);
    }

   private:
    std::variant<SelfAttention, Recurrent> network_;
};

}  // namespace beamtree
