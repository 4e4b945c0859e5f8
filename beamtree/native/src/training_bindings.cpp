// Training steps: on candidates given by the caller, or on negatives drawn from histories and targets.
#include <nanobind/stl/string.h>

#include "batch_step.hpp"
#include "bindings.hpp"
#include "model_arrays.hpp"
#include "weights.hpp"

namespace beamtree {
namespace {

Dropout dropout_of(float rate, std::uint64_t seed) {
    require(rate >= 0 && rate < 1, "dropout: expected a rate in [0, 1)");
    return Dropout{rate, seed};
}

// Factors (columns, units) by which dropout multiplies one row's activations.
nb::object dropout_factors(const Dropout& dropout, index_t row, index_t columns, index_t units) {
    const DropoutMask mask(dropout.seed, row, dropout.rate);
    std::vector<float> factors;
    for (index_t column = 0; column < columns; ++column)
        for (index_t unit = 0; unit < units; ++unit) factors.push_back(mask.factor(column, unit));
    return to_numpy(std::move(factors), {columns, units});
}

// Gradients (rows, m1) of what the rows of a step add to the first layer; None where they add nothing.
template <class T>
nb::object unpack_offsets(const Network<T>& net, std::vector<T>&& layer_offsets) {
    if (layer_offsets.empty()) return nb::none();
    const index_t m1 = net.m[0], rows = static_cast<index_t>(layer_offsets.size()) / m1;
    return to_numpy(std::move(layer_offsets), {rows, m1});
}

template <class T>
void require_offsets(const Network<T>& net, const std::optional<Array2<T>>& layer_offsets, index_t rows) {
    require(!layer_offsets || has_shape(*layer_offsets, {rows, net.m[0]}),
            "layer_offsets: expected one per row, of the first layer's width");
}

template <class T>
nb::tuple unpack_step(const Network<T>& net, StepResult<T>&& result) {
    nb::dict work;
    work["forward_pairs"] = result.work.forward_pairs;
    work["forward_nodes"] = result.work.forward_nodes;
    work["backward_pairs"] = result.work.backward_pairs;
    work["backward_nodes"] = result.work.backward_nodes;
    work["prepared"] = result.work.prepared;
    work["learned"] = result.work.learned;
    const index_t nodes = static_cast<index_t>(result.nodes.rows.size());
    const index_t items = static_cast<index_t>(result.items.rows.size());
    return nb::make_tuple(result.loss, unpack(net, *result.weights), to_numpy(std::move(result.nodes.rows), {nodes}),
                          to_numpy(std::move(result.nodes.values), {nodes, net.d}),
                          to_numpy(std::move(result.items.rows), {items}),
                          to_numpy(std::move(result.items.values), {items, net.d}),
                          unpack_offsets(net, std::move(result.layer_offsets)), work);
}

template <class T>
nb::tuple candidates_step(const PyAttention<T>& given, const Array2<std::int64_t>& node_rows, const Array2<T>& correction,
                          const Array2<std::int64_t>& history_rows, const Array1<T>& weights,
                          const std::optional<Array2<T>>& layer_offsets, const Dropout& dropout) {
    const Attention<T>& attention = given.attention;
    const index_t rows = extent(node_rows, 0), columns = extent(node_rows, 1);
    require(rows > 0 && columns > 0, "node_rows: expected at least one row and one column");
    require(has_shape(correction, {rows, columns}), "log_correction: expected the shape of node_rows");
    require(has_shape(history_rows, {rows, attention.net.sizes.history()}), "history_rows: expected (rows, history)");
    require(has_shape(weights, {rows}), "weights: expected one per row");
    require_offsets(attention.net, layer_offsets, rows);
    require_range(node_rows, -1, attention.tables.nodes.rows, "node_rows");
    require_range(history_rows, -1, attention.tables.history().rows, "history_rows");
    const Candidates<T> candidates{node_rows.data(),
                                   correction.data(),
                                   history_rows.data(),
                                   weights.data(),
                                   layer_offsets ? layer_offsets->data() : nullptr,
                                   rows,
                                   columns};
    StepResult<T> result;
    {
        nb::gil_scoped_release release;
        result = step_on_candidates(attention, candidates, dropout);
    }
    return unpack_step(attention.net, std::move(result));
}

Sampling sampling_of(const std::string& sampler, const Array1<std::int64_t>& negatives, const std::string& start,
                     bool correct_positive, bool with_dropout, std::uint64_t seed) {
    require(sampler == "uniform" || sampler == "top_down", "sampler: expected uniform or top_down, got " + sampler);
    require(start == "level" || start == "root" || start == "every", "start: expected level, root or every, got " + start);
    require_range(negatives, 1, std::numeric_limits<std::int32_t>::max(), "negatives");
    Sampling sampling;
    sampling.sampler = sampler == "uniform" ? Sampler::uniform : Sampler::top_down;
    sampling.start = start == "level" ? PathStart::level : start == "root" ? PathStart::root : PathStart::every;
    sampling.correct_positive = correct_positive;
    sampling.with_dropout = with_dropout;
    sampling.seed = seed;
    sampling.negatives.push_back(0);
    sampling.negatives.insert(sampling.negatives.end(), negatives.data(), negatives.data() + extent(negatives, 0));
    return sampling;
}

BatchStep step_of(const PyAttention<float>& given, const Tree& tree, const Array2<std::int32_t>& histories,
                  const Array2<std::int32_t>& targets, const std::optional<Array3<float>>& weights,
                  const std::optional<Array2<float>>& layer_offsets, const Sampling& sampling, const Dropout& dropout, index_t first_level) {
    const Attention<float>& attention = fitting(given, tree);
    require_histories(attention.net, tree, histories);
    const index_t instances = extent(histories, 0), targets_each = extent(targets, 1);
    require(instances > 0, "histories: expected at least one instance");
    require(extent(targets, 0) == instances, "targets: expected a row for every history");
    require_range(targets, -1, tree.items, "targets");
    require_offsets(attention.net, layer_offsets, instances);
    require(!weights || has_shape(*weights, {instances, targets_each, tree.height}),
            "weights: expected (instances, targets, levels below the root)");
    require(static_cast<index_t>(sampling.negatives.size()) == tree.height + 1,
            "negatives: expected one count for each level below the root");
    require(first_level >= 1 && first_level <= tree.height, "first_level: expected a level below the root");
    require(first_level == 1 || sampling.sampler == Sampler::uniform || sampling.start != PathStart::root,
            "first_level: paths from the root need scores on all levels, expected start level or every");
    const Batch batch{histories.data(),
                      targets.data(),
                      weights ? weights->data() : nullptr,
                      layer_offsets ? layer_offsets->data() : nullptr,
                      instances,
                      targets_each};
    return BatchStep{attention, tree, batch, sampling, dropout, first_level};
}

nb::tuple batch_step(const PyAttention<float>& attention, const PyTree& tree, const Array2<std::int32_t>& histories,
                     const Array2<std::int32_t>& targets, const std::optional<Array3<float>>& weights,
                     const std::optional<Array2<float>>& layer_offsets, const Sampling& sampling, const Dropout& dropout,
                     index_t first_level) {
    const BatchStep step =
        step_of(attention, tree.tree, histories, targets, weights, layer_offsets, sampling, dropout, first_level);
    StepResult<float> result;
    {
        nb::gil_scoped_release release;
        result = step_on_batch(step);
    }
    return unpack_step(step.attention.net, std::move(result));
}

// node_rows, log_correction: (instances * levels, columns) as the step would draw them, -1 where a column is absent.
nb::tuple draw(const PyAttention<float>& attention, const PyTree& tree, const Array2<std::int32_t>& histories,
               const Array2<std::int32_t>& targets, const std::optional<Array2<float>>& layer_offsets,
               const Sampling& sampling, const Dropout& dropout, index_t first_level) {
    const BatchStep step =
        step_of(attention, tree.tree, histories, targets, std::nullopt, layer_offsets, sampling, dropout, first_level);
    std::vector<DrawnRow> drawn;
    {
        nb::gil_scoped_release release;
        drawn = draw_batch(step);
    }
    index_t columns = 1;
    for (const DrawnRow& row : drawn) columns = std::max(columns, static_cast<index_t>(row.node_rows.size()));
    const index_t rows = step.batch.instances * step.tree.height;
    auto node_rows = values_for<std::int64_t>({rows, columns}, -1);
    auto correction = values_for<float>({rows, columns});
    for (const DrawnRow& row : drawn) {
        std::copy(row.node_rows.begin(), row.node_rows.end(), node_rows.begin() + row.row * columns);
        std::copy(row.correction.begin(), row.correction.end(), correction.begin() + row.row * columns);
    }
    return nb::make_tuple(to_numpy(std::move(node_rows), {rows, columns}), to_numpy(std::move(correction), {rows, columns}));
}

template <class T>
void bind_candidates_step(nb::module_& m) {
    m.def("candidates_step", &candidates_step<T>, "attention"_a, nb::kw_only(), "node_rows"_a, "log_correction"_a,
          "history_rows"_a, "weights"_a, "layer_offsets"_a.none(), "dropout"_a);
}

}  // namespace

void bind_training(nb::module_& m) {
    nb::class_<Dropout>(m, "Dropout")
        .def(
            "__init__", [](Dropout* self, float rate, std::uint64_t seed) { new (self) Dropout(dropout_of(rate, seed)); },
            "rate"_a, "seed"_a);
    nb::class_<Sampling>(m, "Sampling")
        .def(
            "__init__",
            [](Sampling* self, const std::string& sampler, const Array1<std::int64_t>& negatives, const std::string& start,
               bool correct_positive, bool with_dropout, std::uint64_t seed) {
                new (self) Sampling(sampling_of(sampler, negatives, start, correct_positive, with_dropout, seed));
            },
            nb::kw_only(), "sampler"_a, "negatives"_a, "start"_a, "correct_positive"_a, "with_dropout"_a, "seed"_a);
    m.def("dropout_factors", &dropout_factors, "dropout"_a, nb::kw_only(), "row"_a, "columns"_a, "units"_a);
    bind_candidates_step<float>(m);
    bind_candidates_step<double>(m);
    m.def("batch_step", &batch_step, "attention"_a, "tree"_a, nb::kw_only(), "histories"_a, "targets"_a,
          "weights"_a.none(), "layer_offsets"_a.none(), "sampling"_a, "dropout"_a, "first_level"_a);
    m.def("draw", &draw, "attention"_a, "tree"_a, nb::kw_only(), "histories"_a, "targets"_a, "layer_offsets"_a.none(),
          "sampling"_a, "dropout"_a, "first_level"_a);
}

}  // namespace beamtree
