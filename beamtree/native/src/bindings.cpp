// What Python sees: arrays in, arrays out. Each part checks what it is given, once, so that the kernels may trust their
// indices.
#include "bindings.hpp"

#include "threads.hpp"

// The build names the module after its instruction set; the extra macro lets the name be expanded.
#define BEAMTREE_KERNELS(name, m) NB_MODULE(name, m)

BEAMTREE_KERNELS(BEAMTREE_MODULE, m) {
    using namespace beamtree;
    m.def("threads", [] { return ThreadPool::shared().size(); });
    m.def("set_threads", [](int count) { ThreadPool::shared().resize(count); });
    bind_network(m);
    bind_attention(m);
    bind_search(m);
    bind_tower(m);
    bind_score(m);
    bind_counting(m);
    bind_training(m);
    bind_adam(m);
    bind_relearn(m);
}
