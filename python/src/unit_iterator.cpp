// The iterator of Profiler.mini_batches(): gives the items of another iterator and ticks after each body of the loop.
// A generator in Python could not tell a `break` from an exception: both drop it. Here the error indicator tells.

#include "hot_types.h"

namespace {

struct UnitIterator {
  PyObject_HEAD PyObject* items;
  PyObject* on_end_of_unit;
  PyObject* on_end_of_loop;
  bool in_body;
};

PyTypeObject g_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

UnitIterator* as_iterator(PyObject* object) {
  return reinterpret_cast<UnitIterator*>(object);
}

bool call(PyObject* function) {
  PyObject* result = PyObject_CallNoArgs(function);
  Py_XDECREF(result);
  return result != nullptr;
}

PyObject* iterator_new(PyTypeObject* type, PyObject* positional, PyObject* keywords) {
  static const char* const names[] = {"items", "on_end_of_unit", "on_end_of_loop", nullptr};
  PyObject* items = nullptr;
  PyObject* on_end_of_unit = nullptr;
  PyObject* on_end_of_loop = nullptr;
  if (PyArg_ParseTupleAndKeywords(positional, keywords, "OOO", const_cast<char**>(names), &items, &on_end_of_unit,
                                  &on_end_of_loop) == 0) {
    return nullptr;
  }
  PyObject* iterator = PyObject_GetIter(items);
  if (iterator == nullptr) return nullptr;
  PyObject* object = type->tp_alloc(type, 0);
  if (object == nullptr) {
    Py_DECREF(iterator);
    return nullptr;
  }
  as_iterator(object)->items = iterator;
  as_iterator(object)->on_end_of_unit = Py_NewRef(on_end_of_unit);
  as_iterator(object)->on_end_of_loop = Py_NewRef(on_end_of_loop);
  as_iterator(object)->in_body = false;
  return object;
}

PyObject* iterator_next(PyObject* object) {
  UnitIterator* self = as_iterator(object);
  if (self->items == nullptr) return nullptr;
  if (self->in_body) {
    self->in_body = false;
    if (!call(self->on_end_of_unit)) return nullptr;
  }
  PyObject* item = PyIter_Next(self->items);
  if (item != nullptr) {
    self->in_body = true;
    return item;
  }
  if (PyErr_Occurred() != nullptr) return nullptr;
  Py_CLEAR(self->items);
  (void)call(self->on_end_of_loop);  // its error, if any, is passed on; without one this is the end of the iteration
  return nullptr;
}

int iterator_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(as_iterator(object)->items);
  Py_VISIT(as_iterator(object)->on_end_of_unit);
  Py_VISIT(as_iterator(object)->on_end_of_loop);
  return 0;
}

int iterator_clear(PyObject* object) {
  as_iterator(object)->in_body = false;
  Py_CLEAR(as_iterator(object)->items);
  Py_CLEAR(as_iterator(object)->on_end_of_unit);
  Py_CLEAR(as_iterator(object)->on_end_of_loop);
  return 0;
}

void iterator_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  UnitIterator* self = as_iterator(object);
  // Left by `break` or `return`: the body that ran is a whole unit and the last one. Left by an exception: the unit in
  // flight stays open, for whoever handles the exception or stops the profiler.
  if (self->in_body && PyErr_Occurred() == nullptr && (!call(self->on_end_of_unit) || !call(self->on_end_of_loop))) {
    PyErr_WriteUnraisable(self->on_end_of_unit);
  }
  (void)iterator_clear(object);
  Py_TYPE(object)->tp_free(object);
}

}  // namespace

bool add_unit_iterator_type(PyObject* module) {
  g_type.tp_name = "marey._core.UnitIterator";
  g_type.tp_doc =
      "UnitIterator(items, on_end_of_unit, on_end_of_loop)\n--\n\nItems of another iterable; reports the end of each "
      "loop body.";
  g_type.tp_basicsize = sizeof(UnitIterator);
  g_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  g_type.tp_new = iterator_new;
  g_type.tp_dealloc = iterator_dealloc;
  g_type.tp_traverse = iterator_traverse;
  g_type.tp_clear = iterator_clear;
  g_type.tp_iter = PyObject_SelfIter;
  g_type.tp_iternext = iterator_next;
  if (PyType_Ready(&g_type) != 0) return false;
  return PyModule_AddObjectRef(module, "UnitIterator", reinterpret_cast<PyObject*>(&g_type)) == 0;
}
