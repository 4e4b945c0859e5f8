// The attention unit alone, forward and backward, over vectors given outright.
#include <numeric>

#include "backward.hpp"
#include "bindings.hpp"
#include "threads.hpp"
#include "weights.hpp"

namespace beamtree {
namespace {

template <class T>
void fill_history(History<T>& history, const Network<T>& net, const T* vectors, index_t count) {
    history.count = count;
    history.occurrences.clear();
    history.a.stride = row_stride<T>(net.dp);
    history.a.values.resize(count * history.a.stride + 2 * lanes<T>);
    for (index_t k = 0; k < count; ++k)
        for (index_t j = 0; j < net.dp; ++j) history.a.row(k)[j] = j < net.d ? vectors[k * net.d + j] : T(0);
}

// Vectors (batch, K, d) and nodes (batch, n, d); one task is a stretch of one history's nodes.
template <class T>
struct AttentionBatch {
    const T *vectors, *nodes;
    index_t batch, length, count, width;
    index_t pieces;  // tasks per history

    AttentionBatch(const Network<T>& net, const Array3<T>& vector_array, const Array3<T>& node_array)
        : vectors(vector_array.data()), nodes(node_array.data()), batch(extent(vector_array, 0)),
          length(extent(vector_array, 1)), count(extent(node_array, 1)), width(net.d) {
        require(extent(node_array, 0) == batch, "vectors, nodes: expected the same number of histories");
        require(extent(vector_array, 2) == width && extent(node_array, 2) == width,
                "vectors, nodes: expected rows of the network's width");
        constexpr index_t nodes_per_piece = 64;
        pieces = batch > 1 ? 1 : std::clamp<index_t>(count / nodes_per_piece, 1, 8);
    }

    // The nodes first .. end - 1 of one history.
    struct Task {
        index_t number, history, first, end;

        std::size_t bytes() const { return static_cast<std::size_t>(end - first) * sizeof(T); }
    };

    // Where position k of a task begins in an array (batch, K, n).
    index_t place(const Task& task, index_t k) const { return (task.history * length + k) * count + task.first; }

    // Prepares the history and the nodes of every task and calls body(task, history, block).
    template <class Body>
    void run(const Network<T>& net, Body&& body) const {
        ThreadPool::shared().run(batch * pieces, [&](index_t number, int) {
            static thread_local History<T> history;
            static thread_local NodeBlock<T> block;
            static thread_local std::vector<index_t> rows;
            const index_t index = number / pieces, piece = number % pieces;
            const Task task{number, index, count * piece / pieces, count * (piece + 1) / pieces};
            rows.resize(static_cast<std::size_t>(task.end - task.first));
            std::iota(rows.begin(), rows.end(), task.first);
            const Table table{nodes + index * count * width, count, width,
                              sizeof(T) == 4 ? Storage::float32 : Storage::float64};
            fill_history(history, net, vectors + index * length * width, length);
            history.prepare_attention(net);
            block.gather(net, table, rows.data(), task.end - task.first);
            body(task, history, block);
        });
    }
};

// Attention weights (batch, K, n).
template <class T>
void attention_forward(const Network<T>& net, const Array3<T>& vectors, const Array3<T>& nodes, Writable3<T> out) {
    const AttentionBatch<T> at(net, vectors, nodes);
    require(has_shape(out, {at.batch, at.length, at.count}), "out: expected (batch, history, nodes)");
    T* weights = out.data();
    nb::gil_scoped_release release;
    at.run(net, [&](const auto& task, const History<T>& history, NodeBlock<T>& block) {
        attend<false>(net, history, block, WeightsOut<T>{weights + at.place(task, 0), at.count});
    });
}

// What a backward pass finds: gradients of the vectors (batch, K, d), the nodes (batch, n, d) and the attention unit.
template <class T>
struct AttentionGradients {
    std::vector<T> vectors, nodes;
    Gradients<T> weights;
};

// Every task has its own sums, and they are added in order: the result does not depend on the number of threads.
template <class T>
void run_backward(const Network<T>& net, const AttentionBatch<T>& at, const T* d_weights, AttentionGradients<T>& total) {
    const std::size_t tasks = static_cast<std::size_t>(at.batch * at.pieces);
    std::vector<std::unique_ptr<Gradients<T>>> sums(tasks);
    std::vector<std::vector<T>> d_history(tasks);
    at.run(net, [&](const auto& task, const History<T>& history, NodeBlock<T>& block) {
        static thread_local Backward<T> backward;
        static thread_local Buffer<T> incoming;
        const std::size_t number = static_cast<std::size_t>(task.number);
        sums[number] = std::make_unique<Gradients<T>>(net);
        attend<true>(net, history, block);
        incoming.zeroed(at.length * block.stride);
        for (index_t k = 0; k < at.length; ++k)
            std::memcpy(incoming.data() + k * block.stride, d_weights + at.place(task, k), task.bytes());
        backward.run_attention(net, history, block, incoming.data(), *sums[number]);
        for (index_t n = task.first; n < task.end; ++n)
            std::copy_n(backward.d_node(n - task.first), at.width,
                        total.nodes.data() + (task.history * at.count + n) * at.width);
        for (index_t k = 0; k < at.length; ++k)
            d_history[number].insert(d_history[number].end(), backward.d_history(k),
                                     backward.d_history(k) + at.width);
    });
    for (std::size_t task = 0; task < tasks; ++task) {
        total.weights.add(*sums[task]);
        T* sum = total.vectors.data() + static_cast<index_t>(task) / at.pieces * at.length * at.width;
        for (std::size_t i = 0; i < d_history[task].size(); ++i) sum[i] += d_history[task][i];
    }
}

// Gradients of sum(d_weights * weights): of the vectors (batch, K, d), the nodes (batch, n, d) and the attention unit.
template <class T>
nb::tuple attention_backward(const Network<T>& net, const Array3<T>& vectors, const Array3<T>& nodes,
                             const Array3<T>& d_weights) {
    const AttentionBatch<T> at(net, vectors, nodes);
    require(has_shape(d_weights, {at.batch, at.length, at.count}), "d_weights: expected (batch, history, nodes)");
    AttentionGradients<T> found{values_for<T>({at.batch, at.length, at.width}), values_for<T>({at.batch, at.count, at.width}),
                                Gradients<T>(net)};
    {
        nb::gil_scoped_release release;
        run_backward(net, at, d_weights.data(), found);
    }
    return nb::make_tuple(to_numpy(std::move(found.vectors), {at.batch, at.length, at.width}),
                          to_numpy(std::move(found.nodes), {at.batch, at.count, at.width}), unpack(net, found.weights));
}

template <class T>
void bind(nb::module_& m) {
    m.def("attention_forward", &attention_forward<T>);
    m.def("attention_backward", &attention_backward<T>);
}

}  // namespace

void bind_attention(nb::module_& m) {
    bind<float>(m);
    bind<double>(m);
}

}  // namespace beamtree
