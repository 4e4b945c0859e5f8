// Prints what the smallest operations give on fixed numbers, one line each: those that are written twice, with and without
// the instructions that only some CPUs have, and the functions that they are the parts of.
#include <cstdio>

#include "../../beamtree/native/src/select.hpp"
#include "../../beamtree/native/src/vector_math.hpp"

using namespace beamtree;

namespace {

template <class T>
void print(const char* name, Vec<T> values) {
    std::printf("%s", name);
    for (index_t i = 0; i < lanes<T>; ++i) std::printf(" %.9g", static_cast<double>(values[i]));
    std::printf("\n");
}

template <class T>
void print_all(const char* type, const T* numbers) {
    const Vec<T> x = load(numbers), zero = fresh_zero<T>();
    Vec<T> sum = x;
    multiply_add(sum, x, x + T(1));
    std::printf("%s\n", type);
    print<T>("multiply_add", sum);
    print<T>("positive_part", positive_part<T>(x, zero));
    print<T>("keep", keep<T>(x, positive_bits<T>(x, zero)));
    print<T>("leaky", leaky<T>(x, splat(T(0.25))));
    std::printf("positive_bits %d\n", positive_bits<T>(x, zero));
    std::printf("horizontal_sum %.9g\n", static_cast<double>(horizontal_sum<T>(x)));
}

}  // namespace

int main() {
    const float floats[] = {-3.5f, -0.75f, -0.0f, 0.0f, 1e-3f, 0.5f, 2.25f, 80.0f};
    const double doubles[] = {-3.5, -0.0, 1e-3, 80.0};
    print_all("float", floats);
    print_all("double", doubles);
    std::printf("functions\n");
    print<float>("exponential", exponential(load(floats)));
    print<float>("error_function", error_function(load(floats)));
    print<float>("gelu", gelu(load(floats)));
    const _Float16 halves[] = {_Float16(0.1f), _Float16(-2.5f), _Float16(6e-8f)};
    std::printf("halves");
    for (const _Float16 half : halves) std::printf(" %.9g", static_cast<double>(static_cast<float>(half)));
    std::printf("\nextract_bits %llu\n",
                static_cast<unsigned long long>(extract_bits(0xF0F0'1234'5678'9ABCull, 0x8421'00FF'1100'0FF1ull)));
}
