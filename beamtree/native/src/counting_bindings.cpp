// Counts of the log, as arrays.
#include <nanobind/stl/optional.h>

#include <cmath>
#include <optional>

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

// The weights of all places of the flat sequences.
Weighted weights_of(const Array1<double>& weights, const Stretches& log, index_t length) {
    require(extent(weights, 0) == length, "weights: expected one for every item");
    for (index_t s = 0; s < log.count; ++s)
        for (std::int64_t i = log.starts[s]; i < log.ends[s]; ++i)
            require(weights.data()[i] >= 0.0 && std::isfinite(weights.data()[i]), "weights: expected finite ones of 0 or more");
    return Weighted{weights.data()};
}

// The pairs that count() finds, as arrays; it runs without Python's lock.
template <class Count>
nb::tuple counted(Count&& count, index_t num_items) {
    auto pairs = [&] {
        nb::gil_scoped_release release;
        return count();
    }();
    const index_t total = static_cast<index_t>(pairs.items.size());
    return nb::make_tuple(to_numpy(std::move(pairs.offsets), {num_items + 1}), to_numpy(std::move(pairs.items), {total}),
                          to_numpy(std::move(pairs.counts), {total}));
}

nb::tuple followers(const Array1<std::int32_t>& items, const Array1<std::int64_t>& starts, const Array1<std::int64_t>& ends,
                    index_t num_items, index_t window, index_t most, const std::optional<Array1<double>>& weights) {
    require(window >= 1 && most >= 1, "window, most: expected at least 1");
    const Stretches log = stretches_of(items, starts, ends, num_items);
    if (!weights) return counted([&] { return count_followers(log, Once{}, num_items, window, most); }, num_items);
    const Weighted amount = weights_of(*weights, log, extent(items, 0));
    return counted([&] { return count_followers(log, amount, num_items, window, most); }, num_items);
}

nb::tuple company(const Array1<std::int32_t>& items, const Array1<std::int64_t>& starts, const Array1<std::int64_t>& ends,
                  const Array1<double>& norms, index_t most, const std::optional<Array1<double>>& weights) {
    const index_t num_items = extent(norms, 0);
    require(most >= 1, "most: expected at least 1");
    for (index_t i = 0; i < num_items; ++i)
        require(norms.data()[i] > 0.0 && std::isfinite(norms.data()[i]), "norms: expected finite ones above 0");
    const Stretches log = stretches_of(items, starts, ends, num_items);
    if (!weights) return counted([&] { return count_company(log, Once{}, norms.data(), num_items, most); }, num_items);
    const Weighted amount = weights_of(*weights, log, extent(items, 0));
    return counted([&] { return count_company(log, amount, norms.data(), num_items, most); }, num_items);
}

}  // namespace

void bind_counting(nb::module_& m) {
    m.def("count_followers", &followers, "items"_a, "starts"_a, "ends"_a, "num_items"_a, "window"_a, "most"_a,
          "weights"_a = nb::none());
    m.def("count_company", &company, "items"_a, "starts"_a, "ends"_a, "norms"_a, "most"_a, "weights"_a = nb::none());
}

}  // namespace beamtree
