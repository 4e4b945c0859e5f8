// Arrays as they come from Python and go back, and the words in which a wrong one is refused.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "table.hpp"

namespace beamtree {

namespace nb = nanobind;
using namespace nb::literals;

template <class T>
using Array1 = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Array2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Array3 = nb::ndarray<const T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
template <class T>
using Writable2 = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Writable3 = nb::ndarray<T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using AnyTable = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

[[noreturn]] inline void refuse(std::string_view message) { throw nb::value_error(std::string(message).c_str()); }

inline void require(bool holds, std::string_view message) {
    if (!holds) refuse(message);
}

template <class Array>
index_t extent(const Array& array, std::size_t axis) {
    return static_cast<index_t>(array.shape(axis));
}

template <class Array>
bool has_shape(const Array& array, std::initializer_list<index_t> shape) {
    std::size_t axis = 0;
    for (index_t size : shape)
        if (extent(array, axis++) != size) return false;
    return axis == array.ndim();
}

// Every value of the array lies in low .. high - 1.
template <class Array>
void require_range(const Array& array, index_t low, index_t high, const char* name) {
    const auto* values = array.data();
    for (std::size_t i = 0; i < array.size(); ++i)
        if (static_cast<index_t>(values[i]) < low || static_cast<index_t>(values[i]) >= high)
            refuse(std::string(name) + ": expected values in " + std::to_string(low) + " .. " + std::to_string(high - 1) +
                   ", got " + std::to_string(values[i]) + " at position " + std::to_string(i));
}

// The kernels read numbers where they lie: each has to begin where numbers of its size begin.
template <class Array>
void require_aligned(const Array& array, std::string_view name) {
    const std::size_t bytes = (array.dtype().bits + 7u) / 8u;
    if (reinterpret_cast<std::uintptr_t>(array.data()) % bytes != 0)
        refuse(std::string(name) + ": expected an array that is aligned in memory, got one that is not. Copy it");
}

inline Table table_of(const AnyTable& array, index_t width, const char* name) {
    require_aligned(array, name);
    Table table;
    table.data = array.data();
    table.rows = extent(array, 0);
    table.width = extent(array, 1);
    if (array.dtype() == nb::dtype<float>())
        table.storage = Storage::float32;
    else if (array.dtype() == nb::dtype<double>())
        table.storage = Storage::float64;
    else if (array.dtype().code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float) && array.dtype().bits == 16)
        table.storage = Storage::float16;
    else
        refuse(std::string(name) + ": expected float16, float32 or float64");
    require(table.width == width, std::string(name) + ": expected rows of " + std::to_string(width) + " values, got " +
                                      std::to_string(table.width));
    return table;
}

// Hands a vector over to NumPy without copying it: its values stay where they are.
template <class T>
nb::object to_numpy(std::vector<T>&& values, std::initializer_list<index_t> shape) {
    const std::vector<std::size_t> sizes(shape.begin(), shape.end());
    auto owner = std::make_unique<std::vector<T>>(std::move(values));
    nb::capsule guard(owner.get(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    T* data = owner.release()->data();
    return nb::cast(nb::ndarray<nb::numpy, T>(data, sizes.size(), sizes.data(), guard), nb::rv_policy::reference);
}

// As many values as an array of this shape holds, in 64 bits; more than an array can hold are refused.
template <class T>
std::vector<T> values_for(std::initializer_list<index_t> shape, T value = T{}) {
    index_t count = 1, bytes = 0;
    for (index_t size : shape)
        require(size >= 0 && !__builtin_mul_overflow(count, size, &count), "sizes: expected an array that memory can hold");
    require(!__builtin_mul_overflow(count, static_cast<index_t>(sizeof(T)), &bytes), "sizes: expected an array that memory can hold");
    return std::vector<T>(static_cast<std::size_t>(count), value);
}

}  // namespace beamtree
