// What Python sees: arrays in, arrays out. Each part checks what it is given, once, so that the kernels may trust their
// indices.
#include "bindings.hpp"

#include "threads.hpp"

NB_MODULE(_kernels, m) {
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
