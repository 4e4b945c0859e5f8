// Counts of the log, as arrays.
#include "arrays.hpp"
#include "bindings.hpp"
#include "counting.hpp"

namespace beamtree {
namespace {

Stretches stretches_of(const Array1<std::int32_t>& items, const Array1<std::int64_t>& starts,
                       const Array1<std::int64_t>& ends, index_t num_items) {
    const index_t count = extent(starts, 0), length = extent(items, 0);
    require(extent(ends, 0) == count, "ends: expected one for every start");
    for (index_t s = 0; s < count; ++s)
        require(0 <= starts.data()[s] && starts.data()[s] <= ends.data()[s] && ends.data()[s] <= length,
                "spans: expected 0 <= start <= end <= items");
    require_range(items, 0, num_items, "items");
    return Stretches{items.data(), starts.data(), ends.data(), count};
}

nb::tuple to_arrays(Pairs&& pairs, index_t num_items) {
    const index_t total = static_cast<index_t>(pairs.items.size());
    return nb::make_tuple(to_numpy(std::move(pairs.offsets), {num_items + 1}), to_numpy(std::move(pairs.items), {total}),
                          to_numpy(std::move(pairs.counts), {total}));
}

nb::tuple followers(const Array1<std::int32_t>& items, const Array1<std::int64_t>& starts, const Array1<std::int64_t>& ends,
                    index_t num_items, index_t window, index_t most) {
    require(window >= 1 && most >= 1, "window, most: expected at least 1");
    const Stretches log = stretches_of(items, starts, ends, num_items);
    Pairs found;
    {
        nb::gil_scoped_release release;
        found = count_followers(log, num_items, window, most);
    }
    return to_arrays(std::move(found), num_items);
}

nb::tuple company(const Array1<std::int32_t>& items, const Array1<std::int64_t>& starts, const Array1<std::int64_t>& ends,
                  const Array1<std::int64_t>& totals, index_t most) {
    const index_t num_items = extent(totals, 0);
    require(most >= 1, "most: expected at least 1");
    const Stretches log = stretches_of(items, starts, ends, num_items);
    Pairs found;
    {
        nb::gil_scoped_release release;
        found = count_company(log, totals.data(), num_items, most);
    }
    return to_arrays(std::move(found), num_items);
}

}  // namespace

void bind_counting(nb::module_& m) {
    m.def("count_followers", &followers, "items"_a, "starts"_a, "ends"_a, "num_items"_a, "window"_a, "most"_a);
    m.def("count_company", &company, "items"_a, "starts"_a, "ends"_a, "totals"_a, "most"_a);
}

}  // namespace beamtree
