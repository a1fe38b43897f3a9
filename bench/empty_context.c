/* A context manager that does nothing, in plain C: the least that `with` costs in this Python. bench/python_range.py
 * builds it and holds marey.range against it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyObject* enter(PyObject* self, PyObject* unused) {
  (void)unused;
  Py_INCREF(self);
  return self;
}

static PyObject* leave(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  (void)self;
  (void)args;
  (void)count;
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"__enter__", enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))leave, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "empty_context.Empty",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_methods = methods,
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "empty_context", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_empty_context(void) {
  PyObject* self = PyModule_Create(&module);
  if (self == NULL || PyModule_AddType(self, &type) < 0) return NULL;
  return self;
}
