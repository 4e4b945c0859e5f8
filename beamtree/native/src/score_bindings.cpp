// Scores: the parts that a search adds up.
#include "bindings.hpp"
#include "score_arrays.hpp"

namespace beamtree {

void bind_score(nb::module_& m) {
    nb::class_<PyLinks>(m, "Links")
        .def(
            "__init__",
            [](PyLinks* self, Array1<std::int64_t> offsets, Array1<std::int32_t> items,
               nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu> strengths, float weight, float fade,
               index_t depth, bool distinct) {
                new (self) PyLinks{offsets, items, strengths, weight, fade, depth, distinct};
            },
            "offsets"_a, "items"_a, "strengths"_a, "weight"_a, "fade"_a, "depth"_a, "distinct"_a);
    nb::class_<PyMemory>(m, "Memory")
        .def(
            "__init__",
            [](PyMemory* self, std::vector<PyLinks> links, float repeat_weight, float repeat_fade,
               Array1<float> returns, float popularity_weight, Array1<std::int32_t> most_popular,
               Array1<float> popularity, std::vector<float> gates) {
                new (self) PyMemory{links, repeat_weight, repeat_fade, returns, popularity_weight, most_popular, popularity,
                                    gates};
            },
            "links"_a, "repeat_weight"_a, "repeat_fade"_a, "returns"_a, "popularity_weight"_a, "most_popular"_a,
            "popularity"_a, "gates"_a);
    nb::class_<PyScore>(m, "Score")
        .def(nb::init<std::shared_ptr<PyTree>, std::shared_ptr<PyAttention<float>>, std::optional<PyMemory>,
                      std::shared_ptr<PyTower>, index_t>(),
             "tree"_a, nb::kw_only(), "attention"_a.none(), "memory"_a.none(), "tower"_a.none(), "attention_from"_a);
}

}  // namespace beamtree
