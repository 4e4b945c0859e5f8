// GRU4Rec's encoder: from the vectors of a history to the one of what comes next.
//
// A state that each item changes through gates, layer upon layer; the latest item plus a projection of the last state. What
// the gates take from the items is one product of matrices for all positions. What they take from the state is a product of a
// row with a matrix at each of them, which reads the whole matrix from the second-level cache: that is the cost, and it is
// halved where all its numbers are of 16 bits (bfloat16, the upper half of a float), as they are in models that a fit saves.
#pragma once

#include <cstring>
#include <vector>

#include "linear.hpp"

namespace beamtree {

// The weights as they arrive: row-major, output by input; outputs are the gates reset, update and new state.
struct RawRecurrentLayer {
    RawLinear from_input;  // (3 hidden, inputs)
    RawLinear from_state;  // (3 hidden, hidden)
};

struct RecurrentSizes {
    index_t width;           // of vectors
    index_t hidden;          // of a state
    index_t history_length;  // number of latest items that are read
};

// What it writes to on its way; kept, because it would cost to allocate.
struct RecurrentScratch {
    Matrix<float> inputs;     // (positions, width or hidden): what a layer reads, and the states that it leaves
    Matrix<float> projected;  // (positions, 3 hidden)
    Matrix<float> state;      // (1, hidden)
    Matrix<float> latest;     // (1, width): the latest item, then what comes after it
    Buffer<float> gates;      // (3 hidden,)

    static RecurrentScratch& of_this_thread() {
        static thread_local RecurrentScratch scratch;
        return scratch;
    }
};

class RecurrentLayer {
   public:
    RecurrentLayer(const RawRecurrentLayer& raw, index_t inputs, index_t hidden)
        : inputs_(inputs), hidden_(hidden), padded_(round_up(hidden, lanes<float>)),
          columns_(round_up(3 * padded_, columns_of_block)) {
        from_input_.allocate(inputs, 3 * padded_);
        Matrix<float> from_state;  // (hidden, 3 hidden), each gate up to whole vectors, all up to whole blocks
        from_state.allocate(hidden, columns_);
        input_bias_.zeroed(3 * padded_);
        state_bias_.zeroed(padded_);
        for (index_t gate = 0; gate < 3; ++gate) {
            const index_t column = gate * padded_, row = gate * hidden;
            transpose(from_input_.row(0) + column, from_input_.stride, raw.from_input.weight + row * inputs, inputs, hidden,
                      inputs);
            transpose(from_state.row(0) + column, from_state.stride, raw.from_state.weight + row * hidden, hidden, hidden,
                      hidden);
            for (index_t i = 0; i < hidden; ++i) {
                input_bias_[column + i] = raw.from_input.bias[row + i];
                // The reset gate multiplies what the new state takes from the old one, its bias included.
                if (gate < 2) input_bias_[column + i] += raw.from_state.bias[row + i];
                else state_bias_[i] = raw.from_state.bias[row + i];
            }
        }
        if (std::all_of(raw.from_state.weight, raw.from_state.weight + 3 * hidden * hidden, is_half))
            pack<std::uint32_t>(from_state, halves_);
        else
            pack<float>(from_state, floats_);
    }

    // The states after each of the inputs take their places; that after the last one stays in `state`.
    void apply(RecurrentScratch& at, index_t positions) const {
        at.projected.reserve(positions, 3 * padded_);
        multiply<Layout::by_rows, Start::column_bias>(at.projected.row(0), at.projected.stride, at.inputs.row(0),
                                                      at.inputs.stride, from_input_.row(0), from_input_.stride, positions,
                                                      inputs_, 3 * padded_, input_bias_.data());
        at.state.reserve(1, padded_);
        at.gates.resize(columns_);
        float* state = at.state.row(0);
        std::fill(state, state + padded_, 0.0f);
        for (index_t i = 0; i < positions; ++i) {
            if (i == 0) std::fill_n(at.gates.data(), columns_, 0.0f);
            else if (halves_.data() != nullptr) add_up(halves_.data(), state, i % 2 == 0, at.gates.data());
            else add_up(floats_.data(), state, i % 2 == 0, at.gates.data());
            advance(at.projected.row(i), at.gates.data(), state);
            std::copy_n(state, padded_, at.inputs.row(i));
        }
    }

   private:
    // Pairs of vectors of columns whose sums fit the registers, beside a number of the state.
    static constexpr int pairs = 6;
    static constexpr index_t columns_of_block = 2 * pairs * lanes<float>;

    // Whether a number is the upper half of a float.
    static bool is_half(float number) {
        std::uint32_t bits;
        std::memcpy(&bits, &number, sizeof bits);
        return (bits & 0xffff) == 0;
    }

    // How many of the stored numbers a row of a block has: of 16 bits two lie in one of 32, a column and that a vector further.
    template <class Stored>
    static constexpr index_t row_of_block = columns_of_block * (std::is_same_v<Stored, float> ? 2 : 1) / 2;

    // A block of columns after the other, each row by row, so that a step reads from end to end.
    template <class Stored>
    void pack(const Matrix<float>& from_state, Buffer<Stored>& packed) const {
        packed.resize(hidden_ * columns_ / columns_of_block * row_of_block<Stored>);
        Stored* to = packed.data();
        for (index_t column = 0; column < columns_; column += columns_of_block)
            for (index_t j = 0; j < hidden_; ++j, to += row_of_block<Stored>) {
                const float* row = from_state.row(j) + column;
                if constexpr (std::is_same_v<Stored, float>) std::copy_n(row, columns_of_block, to);
                else
                    for (index_t i = 0; i < row_of_block<Stored>; ++i) {
                        const index_t first = i / lanes<float> * 2 * lanes<float> + i % lanes<float>;
                        std::uint32_t low, high;
                        std::memcpy(&low, row + first, sizeof low);
                        std::memcpy(&high, row + first + lanes<float>, sizeof high);
                        to[i] = low >> 16 | high;
                    }
            }
    }

    static BEAMTREE_INLINE void load_pair(const float* row, int pair, Floats& first, Floats& second) {
        first = load(row + 2 * pair * lanes<float>);
        second = load(row + (2 * pair + 1) * lanes<float>);
    }

    static BEAMTREE_INLINE void load_pair(const std::uint32_t* row, int pair, Floats& first, Floats& second) {
        Mask<float> both;
        std::memcpy(&both, row + pair * lanes<float>, sizeof both);
        first = reinterpret_cast<Floats>(both << 16);
        second = reinterpret_cast<Floats>(both & static_cast<std::int32_t>(0xffff0000));
    }

    // gates (3 hidden,) = state (hidden,) times from_state. Every other time backwards: what was read last is still in cache.
    template <class Stored>
    void add_up(const Stored* weights, const float* state, bool backwards, float* gates) const {
        const index_t blocks = columns_ / columns_of_block;
        for (index_t number = 0; number < blocks; ++number) {
            const index_t block = backwards ? blocks - 1 - number : number;
            const Stored* rows = weights + block * hidden_ * row_of_block<Stored>;
            Floats sum[2 * pairs]{};
            for (index_t i = 0; i < hidden_; ++i) {
                const index_t j = backwards ? hidden_ - 1 - i : i;
                const Floats value = splat(state[j]);
#pragma GCC unroll 6
                for (int pair = 0; pair < pairs; ++pair) {
                    Floats first, second;
                    load_pair(rows + j * row_of_block<Stored>, pair, first, second);
                    multiply_add(sum[2 * pair], value, first);
                    multiply_add(sum[2 * pair + 1], value, second);
                }
            }
#pragma GCC unroll 12
            for (int v = 0; v < 2 * pairs; ++v) store(gates + block * columns_of_block + v * lanes<float>, sum[v]);
        }
    }

    // projected: what the gates take from an item; gates: what they take from the state before it.
    void advance(const float* projected, const float* gates, float* state) const {
        for (index_t j = 0; j < padded_; j += lanes<float>) {
            const Floats reset = logistic(load(projected + j) + load(gates + j));
            const Floats update = logistic(load(projected + padded_ + j) + load(gates + padded_ + j));
            const Floats from_state = load(gates + 2 * padded_ + j) + load(state_bias_.data() + j);
            const Floats proposed = hyperbolic_tangent(load(projected + 2 * padded_ + j) + reset * from_state);
            store(state + j, proposed + update * (load(state + j) - proposed));
        }
    }

    index_t inputs_, hidden_, padded_;
    index_t columns_;           // of all gates, up to whole blocks
    Matrix<float> from_input_;  // (inputs, 3 hidden), each gate up to whole vectors
    Buffer<float> floats_;           // from the state, (hidden, 3 hidden) in blocks; empty where there are
    Buffer<std::uint32_t> halves_;   // the same in 16 bits
    Buffer<float> input_bias_;  // (3 hidden,), likewise
    Buffer<float> state_bias_;  // (hidden,)
};

struct Recurrent {
    index_t width = 0;
    index_t history_length = 0;  // number of latest items that are read
    LayerNorm input_norm;
    std::vector<RecurrentLayer> layers;
    Linear project;
    LayerNorm final_norm;

    Recurrent(const RecurrentSizes& sizes, const RawNorm& raw_input_norm, const std::vector<RawRecurrentLayer>& raw_layers,
              const RawLinear& raw_project, const RawNorm& raw_final_norm)
        : width(sizes.width), history_length(sizes.history_length), input_norm(raw_input_norm, sizes.width),
          project(raw_project, sizes.hidden, sizes.width), final_norm(raw_final_norm, sizes.width), hidden_(sizes.hidden) {
        for (const RawRecurrentLayer& layer : raw_layers)
            layers.emplace_back(layer, layers.empty() ? sizes.width : sizes.hidden, sizes.hidden);
    }

    // As SelfAttention::encode; no items leave the state at zero, and there is no latest one.
    template <class CopyRow>
    void encode(index_t items, CopyRow&& copy_row, float* out) const {
        RecurrentScratch& at = RecurrentScratch::of_this_thread();
        at.inputs.reserve(std::max<index_t>(items, 1), round_up(std::max(width, hidden_), lanes<float>));
        at.state.allocate(1, hidden_);
        at.latest.allocate(1, width);
        float* latest = at.latest.row(0);
        for (index_t i = 0; i < items; ++i) {
            copy_row(i, latest);
            input_norm.apply(latest, at.inputs.row(i));
        }
        if (items > 0)
            for (const RecurrentLayer& layer : layers) layer.apply(at, items);
        project.apply<Start::add_and_column_bias>(at.state, 0, at.latest, 0, 1);
        final_norm.apply(latest, out);
    }

   private:
    index_t hidden_;
};

}  // namespace beamtree
