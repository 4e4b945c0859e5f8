// Towers, and the vectors that they make of many histories at once.
#include "bindings.hpp"
#include "threads.hpp"
#include "tower_arrays.hpp"

namespace beamtree {
namespace {

// Vectors (histories, width); history i has items[starts[i] .. ends[i] - 1], oldest first.
nb::object encode_histories(const PyTower& given, const Array1<std::int32_t>& items, const Array1<std::int64_t>& starts,
                            const Array1<std::int64_t>& ends) {
    const index_t width = given.encoder->width, count = extent(starts, 0);
    const Tree& tree = given.tree->tree;
    require_spans(items, starts, ends, tree.items);
    auto vectors = values_for<float>({count, width});
    {
        nb::gil_scoped_release release;
        ThreadPool::shared().run(count, [&](index_t i, int) {
            static thread_local Buffer<float> vector;
            vector.resize(round_up(width, lanes<float>));
            const std::int64_t start = starts.data()[i];
            given.tower.encode(tree, HistorySpan{items.data() + start, static_cast<index_t>(ends.data()[i] - start)},
                               vector.data());
            std::copy_n(vector.data(), width, vectors.data() + i * width);
        });
    }
    return to_numpy(std::move(vectors), {count, width});
}

}  // namespace

void bind_tower(nb::module_& m) {
    nb::class_<SequenceEncoder>(m, "Encoder");
    m.def("self_attention_encoder", &pack_self_attention, "weights"_a, nb::kw_only(), "width"_a, "heads"_a, "layers"_a,
          "history_length"_a);
    m.def("recurrent_encoder", &pack_recurrent, "weights"_a, nb::kw_only(), "width"_a, "hidden"_a, "layers"_a,
          "history_length"_a);
    nb::class_<PyTower>(m, "Tower")
        .def(nb::init<std::shared_ptr<PyTree>, std::shared_ptr<SequenceEncoder>, Array2<float>, float>(), "tree"_a, "encoder"_a,
             nb::kw_only(), "node_table"_a, "weight"_a)
        .def("encode", &encode_histories, nb::kw_only(), "items"_a, "starts"_a, "ends"_a);
}

}  // namespace beamtree
