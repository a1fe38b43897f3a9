#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <string>
#include <vector>

#include "marey/marey.h"

/// Id of a name, looked up once per distinct string. 0 with a Python error set on failure.
[[nodiscard]] std::uint32_t name_id(PyObject* name);

/// Arguments of a range or mark in the form of the C ABI, with the text that they point to.
class Args {
 public:
  /// int, float, bool and str (and numbers of other libraries) as what they are; anything else as its repr, cut. False
  /// with a Python error set: only for what must not be swallowed, e.g. KeyboardInterrupt in a __repr__.
  [[nodiscard]] bool add(PyObject* key, PyObject* value);
  [[nodiscard]] bool add_all(PyObject* kwargs);
  /// Valid until the next add().
  [[nodiscard]] const marey_arg* data();
  [[nodiscard]] std::size_t size() const { return list_.size(); }

 private:
  std::vector<marey_arg> list_;
  std::vector<std::string> texts_;  ///< one per argument; empty for those that are no strings
};
