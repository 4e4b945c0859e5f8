// Linear layers and layer norms of the sequence encoders.
#pragma once

#include <algorithm>
#include <cmath>

#include "matmul.hpp"
#include "matrix.hpp"
#include "vector_math.hpp"

namespace beamtree {

// The weights as they arrive: row-major, output by input.
struct RawLinear {
    const float* weight;  // (outputs, inputs)
    const float* bias;    // (outputs,)
};

struct RawNorm {
    const float* weight;  // (width,)
    const float* bias;    // (width,)
};

// out = in W^T + b, with W kept transposed; columns behind the outputs are zero.
struct Linear {
    index_t inputs = 0, outputs = 0;
    Matrix<float> weight;  // (inputs, outputs)
    Buffer<float> bias;    // (outputs,)

    Linear(const RawLinear& raw, index_t inputs_, index_t outputs_, float scale = 1) : inputs(inputs_), outputs(outputs_) {
        weight.allocate(inputs, padded());
        bias.zeroed(padded());
        transpose(weight.row(0), weight.stride, raw.weight, inputs, outputs, inputs);
        std::copy(raw.bias, raw.bias + outputs, bias.data());
        for (index_t i = 0; i < inputs * weight.stride; ++i) weight.values[i] *= scale;
        for (index_t i = 0; i < outputs; ++i) bias[i] *= scale;
    }

    index_t padded() const { return round_up(outputs, lanes<float>); }

    // rows of out from as many rows of in; Start::add_and_column_bias adds to what is there.
    template <Start start = Start::column_bias>
    void apply(const Matrix<float>& in, index_t first_in, Matrix<float>& out, index_t first_out, index_t rows) const {
        multiply<Layout::by_rows, start>(out.row(first_out), out.stride, in.row(first_in), in.stride, weight.row(0),
                                         weight.stride, rows, inputs, padded(), bias.data());
    }
};

// Rows brought to mean 0 and variance 1, then scaled and moved; columns behind the width become zero.
struct LayerNorm {
    static constexpr float epsilon = 1e-5f;

    index_t width = 0;
    Buffer<float> weight, bias;  // (width,)

    LayerNorm(const RawNorm& raw, index_t width_) : width(width_) {
        weight.zeroed(round_up(width, lanes<float>));
        bias.zeroed(round_up(width, lanes<float>));
        std::copy(raw.weight, raw.weight + width, weight.data());
        std::copy(raw.bias, raw.bias + width, bias.data());
    }

    void apply(const float* in, float* out) const {
        constexpr index_t step = lanes<float>;
        const index_t whole = width / step * step;
        const auto tail = static_cast<std::uint8_t>((1 << (width - whole)) - 1);
        Floats sum{};
        for (index_t j = 0; j < whole; j += step) sum += load(in + j);
        if (whole < width) sum += keep<float>(load(in + whole), tail);
        const float mean = horizontal_sum<float>(sum) / static_cast<float>(width);
        Floats squares{};
        for (index_t j = 0; j < whole; j += step) {
            const Floats centred = load(in + j) - mean;
            squares += centred * centred;
        }
        if (whole < width) {
            const Floats centred = keep<float>(load(in + whole) - mean, tail);
            squares += centred * centred;
        }
        const float variance = horizontal_sum<float>(squares) / static_cast<float>(width);
        const float inverse = 1 / std::sqrt(variance + epsilon);
        for (index_t j = 0; j < width; j += step)
            store(out + j, (load(in + j) - mean) * inverse * load(weight.data() + j) + load(bias.data() + j));
    }

    void apply(const Matrix<float>& in, index_t first_in, Matrix<float>& out, index_t first_out, index_t rows) const {
        for (index_t i = 0; i < rows; ++i) apply(in.row(first_in + i), out.row(first_out + i));
    }
};

}  // namespace beamtree
