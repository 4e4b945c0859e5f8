// The module beamtree.native._cpu: which compiled kernels the CPU and the operating system can run. It is compiled without
// any instruction-set option and uses nothing of the kernels' headers.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace {

// Names of the kernels beyond the baseline that run here, best first.
PyObject* instruction_sets(PyObject*, PyObject*) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v3")) return Py_BuildValue("(s)", "x86-64-v3");
#endif
    return PyTuple_New(0);
}

PyMethodDef methods[] = {
    {"instruction_sets", instruction_sets, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_cpu", nullptr, 0, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__cpu() { return PyModuleDef_Init(&definition); }
