#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/// Adds `range` and `mark` to the module; false with a Python error set on failure. Plain CPython API: entering and
/// leaving a range is the one thing that Python programs do millions of times.
[[nodiscard]] bool add_range_type(PyObject* module);

/// Adds `UnitIterator` to the module; false with a Python error set on failure.
[[nodiscard]] bool add_unit_iterator_type(PyObject* module);
