// Adam on the rows of a table that a step touched, and on no others.
#pragma once

#include <cmath>

#include "simd.hpp"
#include "threads.hpp"

namespace beamtree {

struct AdamSettings {
    double learning_rate, beta1, beta2, epsilon, weight_decay;
    bool decoupled;      // decay shrinks the row itself (AdamW) instead of joining the gradient
    std::int64_t step;   // counts from 1
};

// table, first, second: (table rows, width); rows: (count,) distinct; gradients: (count, width).
template <class T>
void adam_rows(T* table, T* first, T* second, const std::int64_t* rows, const T* gradients, index_t count, index_t width,
               const AdamSettings& settings) {
    const T rate = static_cast<T>(settings.learning_rate / (1 - std::pow(settings.beta1, static_cast<double>(settings.step))));
    const T spread = static_cast<T>(1 / (1 - std::pow(settings.beta2, static_cast<double>(settings.step))));
    const T keep1 = static_cast<T>(settings.beta1), keep2 = static_cast<T>(settings.beta2);
    const T take1 = static_cast<T>(1 - settings.beta1), take2 = static_cast<T>(1 - settings.beta2);
    const T shrink = static_cast<T>(settings.decoupled ? 1 - settings.learning_rate * settings.weight_decay : 1);
    const T pull = static_cast<T>(settings.decoupled ? 0 : settings.weight_decay);
    const T epsilon = static_cast<T>(settings.epsilon);
    constexpr index_t share = 1024, ahead = 6;
    ThreadPool::shared().run((count + share - 1) / share, [&](index_t task, int) {
        const index_t end = std::min(count, (task + 1) * share);
        for (index_t i = task * share; i < end; ++i) {
            if (i + ahead < end)
                for (index_t j = 0; j < width; j += 64 / static_cast<index_t>(sizeof(T))) {
                    const index_t next = rows[i + ahead] * width + j;
                    __builtin_prefetch(table + next, 1);
                    __builtin_prefetch(first + next, 1);
                    __builtin_prefetch(second + next, 1);
                }
            T *x = table + rows[i] * width, *m = first + rows[i] * width, *v = second + rows[i] * width;
            const T* gradient = gradients + i * width;
            for (index_t j = 0; j < width; ++j) {
                const T g = gradient[j] + pull * x[j];
                m[j] = keep1 * m[j] + take1 * g;
                v[j] = keep2 * v[j] + take2 * g * g;
                x[j] = shrink * x[j] - rate * m[j] / (std::sqrt(v[j] * spread) + epsilon);
            }
        }
    });
}

}  // namespace beamtree
