// Adam on some rows of a table, in place.
#include "adam.hpp"
#include "arrays.hpp"
#include "bindings.hpp"

namespace beamtree {
namespace {

template <class T>
void adam(Writable2<T> table, Writable2<T> first, Writable2<T> second, const Array1<std::int64_t>& rows,
          const Array2<T>& gradients, const AdamSettings& settings) {
    const index_t height = extent(table, 0), width = extent(table, 1), count = extent(rows, 0);
    for (const auto& moment : {first, second})
        require(has_shape(moment, {height, width}), "moments: expected the shape of the table");
    require(has_shape(gradients, {count, width}), "gradients: expected (rows, width)");
    require_range(rows, 0, height, "rows");
    for (index_t i = 1; i < count; ++i) require(rows.data()[i - 1] < rows.data()[i], "rows: expected to rise, without repeats");
    nb::gil_scoped_release release;
    adam_rows(table.data(), first.data(), second.data(), rows.data(), gradients.data(), count, width, settings);
}

template <class T>
void bind(nb::module_& m) {
    m.def("adam", &adam<T>, "table"_a, nb::kw_only(), "first_moment"_a, "second_moment"_a, "rows"_a, "gradients"_a,
          "settings"_a);
}

}  // namespace

void bind_adam(nb::module_& m) {
    nb::class_<AdamSettings>(m, "AdamSettings")
        .def(
            "__init__",
            [](AdamSettings* self, double learning_rate, double beta1, double beta2, double epsilon, double weight_decay,
               bool decoupled, std::int64_t step) {
                require(step >= 1, "step: expected to count from 1");
                new (self) AdamSettings{learning_rate, beta1, beta2, epsilon, weight_decay, decoupled, step};
            },
            nb::kw_only(), "learning_rate"_a, "beta1"_a, "beta2"_a, "epsilon"_a, "weight_decay"_a, "decoupled"_a, "step"_a);
    bind<float>(m);
    bind<double>(m);
}

}  // namespace beamtree
