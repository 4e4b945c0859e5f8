// The parts of the compiled module. Each puts its functions and types into it.
#pragma once

#include <nanobind/nanobind.h>

namespace beamtree {

void bind_network(nanobind::module_& m);
void bind_attention(nanobind::module_& m);
void bind_tower(nanobind::module_& m);
void bind_score(nanobind::module_& m);
void bind_counting(nanobind::module_& m);
void bind_search(nanobind::module_& m);
void bind_training(nanobind::module_& m);
void bind_adam(nanobind::module_& m);
void bind_relearn(nanobind::module_& m);

}  // namespace beamtree
