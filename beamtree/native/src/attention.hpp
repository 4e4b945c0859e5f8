// The attention network and the tables that its vectors come from: what search, relearning and training take alike.
#pragma once

#include <algorithm>

#include "forward.hpp"
#include "tree.hpp"

namespace beamtree {

template <class T>
struct Attention {
    const Network<T>& net;
    Tables tables;

    // Prepares the latest items (length,) of a history for one level; what is missing in front of them is padding.
    // layer_offset: as in History.
    void prepare(const Tree& tree, const std::int32_t* items, index_t length, index_t level, const T* layer_offset,
                 History<T>& history, std::vector<index_t>& rows) const {
        const index_t positions = net.sizes.history();
        const index_t known = std::min(length, positions);
        const std::int32_t* latest = items + (length - known);
        rows.assign(static_cast<std::size_t>(positions), -1);
        index_t* known_rows = rows.data() + (positions - known);
        if (tables.separate)
            std::copy(latest, latest + known, known_rows);
        else
            tree.history_rows(latest, known, level, known_rows);
        history.prepare(net, tables.history(), rows.data(), layer_offset);
    }
};

}  // namespace beamtree
