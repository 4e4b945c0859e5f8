// Training steps: on candidates given by the caller, or on negatives drawn from histories and targets.
#include <nanobind/stl/string.h>

#include "bindings.hpp"
#include "model_arrays.hpp"
#include "sampling.hpp"
#include "weights.hpp"

namespace beamtree {
namespace {

Dropout dropout_of(float rate, std::uint64_t seed) {
    require(rate >= 0 && rate < 1, "dropout: expected a rate in [0, 1)");
    return Dropout{rate, seed};
}

// Factors (columns, units) by which dropout multiplies one row's activations.
nb::object dropout_factors(std::uint64_t seed, index_t row, index_t columns, index_t units, float rate) {
    const DropoutMask mask(seed, row, dropout_of(rate, seed).rate);
    std::vector<float> factors;
    for (index_t column = 0; column < columns; ++column)
        for (index_t unit = 0; unit < units; ++unit) factors.push_back(mask.factor(column, unit));
    return to_numpy(std::move(factors), {columns, units});
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
                          to_numpy(std::move(result.items.values), {items, net.d}), work);
}

template <class T>
nb::tuple candidates_step(const Network<T>& net, const AnyTable& node_table, const std::optional<AnyTable>& item_table,
                          const Array2<std::int64_t>& node_rows, const Array2<T>& correction,
                          const Array2<std::int64_t>& history_rows, const Array1<T>& weights, float dropout,
                          std::uint64_t seed) {
    const Tables tables = tables_of(node_table, item_table, net.d);
    const index_t rows = extent(node_rows, 0), columns = extent(node_rows, 1);
    require(rows > 0 && columns > 0, "node_rows: expected at least one row and one column");
    require(has_shape(correction, {rows, columns}), "log_correction: expected the shape of node_rows");
    require(has_shape(history_rows, {rows, net.sizes.history()}), "history_rows: expected (rows, history)");
    require(has_shape(weights, {rows}), "weights: expected one per row");
    require_range(node_rows, -1, tables.nodes.rows, "node_rows");
    require_range(history_rows, -1, tables.history().rows, "history_rows");
    const Dropout drop = dropout_of(dropout, seed);
    StepResult<T> result;
    {
        nb::gil_scoped_release release;
        result = step_on_candidates(net, tables, node_rows.data(), correction.data(), history_rows.data(), weights.data(),
                                    rows, columns, drop);
    }
    return unpack_step(net, std::move(result));
}

Sampling sampling_of(const std::string& sampler, const Tree& tree, const Array1<std::int64_t>& negatives,
                     const std::string& start, bool correct_positive, bool with_dropout, std::uint64_t seed) {
    require(sampler == "uniform" || sampler == "top_down", "sampler: expected uniform or top_down, got " + sampler);
    require(start == "level" || start == "root" || start == "every", "start: expected level, root or every, got " + start);
    require(has_shape(negatives, {tree.height}), "negatives: expected one count for each level below the root");
    require_range(negatives, 1, std::numeric_limits<std::int32_t>::max(), "negatives");
    Sampling sampling;
    sampling.sampler = sampler == "uniform" ? Sampler::uniform : Sampler::top_down;
    sampling.start = start == "level" ? PathStart::level : start == "root" ? PathStart::root : PathStart::every;
    sampling.correct_positive = correct_positive;
    sampling.with_dropout = with_dropout;
    sampling.seed = seed;
    sampling.negatives.push_back(0);
    sampling.negatives.insert(sampling.negatives.end(), negatives.data(), negatives.data() + tree.height);
    return sampling;
}

Batch batch_of(const Network<float>& net, const PyTree& tree, const Array2<std::int32_t>& histories,
               const Array2<std::int32_t>& targets, const std::optional<Array3<float>>& weights) {
    require_histories(net, tree, histories);
    const index_t instances = extent(histories, 0), targets_each = extent(targets, 1);
    require(instances > 0, "histories: expected at least one instance");
    require(extent(targets, 0) == instances, "targets: expected a row for every history");
    require_range(targets, -1, tree.tree.items, "targets");
    require(!weights || has_shape(*weights, {instances, targets_each, tree.tree.height}),
            "weights: expected (instances, targets, levels below the root)");
    return Batch{histories.data(), targets.data(), weights ? weights->data() : nullptr, instances, targets_each};
}

nb::tuple batch_step(const Network<float>& net, const PyTree& tree, const AnyTable& node_table,
                     const std::optional<AnyTable>& item_table, const Array2<std::int32_t>& histories,
                     const Array2<std::int32_t>& targets, const std::optional<Array3<float>>& weights,
                     const std::string& sampler, const Array1<std::int64_t>& negatives, const std::string& start,
                     bool correct_positive, bool with_dropout, std::uint64_t seed, float dropout,
                     std::uint64_t dropout_seed) {
    const Tables tables = tables_of(node_table, item_table, net.d, tree.tree);
    const Batch batch = batch_of(net, tree, histories, targets, weights);
    const Sampling sampling = sampling_of(sampler, tree.tree, negatives, start, correct_positive, with_dropout, seed);
    const Dropout drop = dropout_of(dropout, dropout_seed);
    StepResult<float> result;
    {
        nb::gil_scoped_release release;
        result = step_on_batch(net, tables, tree.tree, batch, sampling, drop);
    }
    return unpack_step(net, std::move(result));
}

// node_rows, log_correction: (instances * levels, columns) as the step would draw them, -1 where a column is absent.
nb::tuple draw(const Network<float>& net, const PyTree& tree, const AnyTable& node_table,
               const std::optional<AnyTable>& item_table, const Array2<std::int32_t>& histories,
               const Array2<std::int32_t>& targets, const std::string& sampler, const Array1<std::int64_t>& negatives,
               const std::string& start, bool correct_positive, bool with_dropout, std::uint64_t seed, float dropout,
               std::uint64_t dropout_seed) {
    const Tables tables = tables_of(node_table, item_table, net.d, tree.tree);
    const Batch batch = batch_of(net, tree, histories, targets, std::nullopt);
    const Sampling sampling = sampling_of(sampler, tree.tree, negatives, start, correct_positive, with_dropout, seed);
    const Dropout drop = dropout_of(dropout, dropout_seed);
    std::vector<DrawnRow> drawn;
    {
        nb::gil_scoped_release release;
        drawn = draw_batch(net, tables, tree.tree, batch, sampling, drop);
    }
    index_t columns = 1;
    for (const DrawnRow& row : drawn) columns = std::max(columns, static_cast<index_t>(row.node_rows.size()));
    const index_t rows = batch.instances * tree.tree.height;
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
    m.def("candidates_step", &candidates_step<T>, "network"_a, "node_table"_a, "item_table"_a.none(), "node_rows"_a,
          "log_correction"_a, "history_rows"_a, "weights"_a, "dropout"_a, "seed"_a);
}

}  // namespace

void bind_training(nb::module_& m) {
    m.def("dropout_factors", &dropout_factors);
    bind_candidates_step<float>(m);
    bind_candidates_step<double>(m);
    m.def("batch_step", &batch_step, "network"_a, "tree"_a, "node_table"_a, "item_table"_a.none(), "histories"_a,
          "targets"_a, "weights"_a.none(), "sampler"_a, "negatives"_a, "start"_a, "correct_positive"_a,
          "with_dropout"_a, "seed"_a, "dropout"_a, "dropout_seed"_a);
    m.def("draw", &draw, "network"_a, "tree"_a, "node_table"_a, "item_table"_a.none(), "histories"_a, "targets"_a,
          "sampler"_a, "negatives"_a, "start"_a, "correct_positive"_a, "with_dropout"_a, "seed"_a, "dropout"_a,
          "dropout_seed"_a);
}

}  // namespace beamtree
