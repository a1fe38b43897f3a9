#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/// Adds the type `Range` and the function `mark` to the module; false with a Python error set on failure. Plain CPython API:
/// entering and leaving a range is the one thing that Python programs do millions of times.
bool add_range_type(PyObject* module);
