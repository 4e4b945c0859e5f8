// Counts of the log, as arrays.
#include "arrays.hpp"
#include "bindings.hpp"
#include "counting.hpp"

namespace beamtree {
namespace {

nb::tuple followers(const Array1<std::int32_t>& items, const Array1<std::int64_t>& starts, const Array1<std::int64_t>& ends,
                    index_t num_items, index_t window, index_t most) {
    const index_t count = extent(starts, 0), length = extent(items, 0);
    require(extent(ends, 0) == count, "ends: expected one for every start");
    require(window >= 1 && most >= 1, "window, most: expected at least 1");
    for (index_t s = 0; s < count; ++s)
        require(0 <= starts.data()[s] && starts.data()[s] <= ends.data()[s] && ends.data()[s] <= length,
                "spans: expected 0 <= start <= end <= items");
    require_range(items, 0, num_items, "items");
    Followers found;
    {
        nb::gil_scoped_release release;
        found = count_followers(Stretches{items.data(), starts.data(), ends.data(), count}, num_items, window, most);
    }
    const index_t total = static_cast<index_t>(found.items.size());
    return nb::make_tuple(to_numpy(std::move(found.offsets), {num_items + 1}), to_numpy(std::move(found.items), {total}),
                          to_numpy(std::move(found.counts), {total}));
}

}  // namespace

void bind_counting(nb::module_& m) {
    m.def("count_followers", &followers, "items"_a, "starts"_a, "ends"_a, "num_items"_a, "window"_a, "most"_a);
}

}  // namespace beamtree
