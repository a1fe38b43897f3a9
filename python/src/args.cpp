#include "args.h"

namespace {

constexpr Py_ssize_t kMaxReprCharacters = 256;
constexpr Py_ssize_t kMaxCachedNames = 65536;

bool utf8_of(PyObject* text, std::string* out) {
  Py_ssize_t size = 0;
  if (const char* bytes = PyUnicode_AsUTF8AndSize(text, &size)) {
    out->assign(bytes, static_cast<std::size_t>(size));
    return true;
  }
  PyErr_Clear();  // lone surrogates do not encode; they become question marks
  PyObject* encoded = PyUnicode_AsEncodedString(text, "utf-8", "replace");
  if (encoded == nullptr) return false;
  out->assign(PyBytes_AS_STRING(encoded), static_cast<std::size_t>(PyBytes_GET_SIZE(encoded)));
  Py_DECREF(encoded);
  return true;
}

/// A __repr__ that raises is the value's fault, not the program's: the argument says so and training goes on.
bool repr_of(PyObject* value, std::string* out) {
  PyObject* text = PyObject_Repr(value);
  if (text == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) return false;
    PyErr_Clear();
    *out = std::string("<repr of ") + Py_TYPE(value)->tp_name + " failed>";
    return true;
  }
  if (PyUnicode_GET_LENGTH(text) > kMaxReprCharacters) {
    PyObject* cut = PyUnicode_Substring(text, 0, kMaxReprCharacters);
    Py_DECREF(text);
    if (cut == nullptr) return false;
    text = cut;
  }
  const bool ok = utf8_of(text, out);
  Py_DECREF(text);
  return ok;
}

/// numbers.Integral and numbers.Real, under which other libraries register their scalars. Tensors are not: reading one
/// would wait for its device.
PyObject* abstract_number(const char* name) {
  PyObject* module = PyImport_ImportModule("numbers");
  if (module == nullptr) return nullptr;
  PyObject* type = PyObject_GetAttrString(module, name);
  Py_DECREF(module);
  return type;
}

bool is_a(PyObject* value, PyObject* type) {
  const int is = type == nullptr ? 0 : PyObject_IsInstance(value, type);
  if (is < 0 || type == nullptr) PyErr_Clear();
  return is == 1;
}

/// A new reference to an int or float that stands for `value`, or null without an error.
PyObject* as_plain_number(PyObject* value) {
  static PyObject* integral = abstract_number("Integral");
  static PyObject* real = abstract_number("Real");
  PyObject* plain = nullptr;
  if (is_a(value, integral)) {
    plain = PyNumber_Index(value);
  } else if (is_a(value, real)) {
    plain = PyNumber_Float(value);
  }
  if (plain == nullptr) PyErr_Clear();
  return plain;
}

/// True when `value` is a number that fits; the argument is complete then.
bool set_number(PyObject* value, marey_arg* arg) {
  if (PyBool_Check(value)) {
    arg->type = MAREY_ARG_BOOL;
    arg->value.i = value == Py_True ? 1 : 0;
    return true;
  }
  if (PyLong_Check(value)) {
    int overflow = 0;
    arg->type = MAREY_ARG_INT;
    arg->value.i = PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow == 0;
  }
  if (PyFloat_Check(value)) {
    arg->type = MAREY_ARG_DOUBLE;
    arg->value.d = PyFloat_AS_DOUBLE(value);
    return true;
  }
  return false;
}

}  // namespace

std::uint32_t name_id(PyObject* name) {
  static PyObject* ids = PyDict_New();
  if (ids == nullptr) return 0;
  if (PyObject* known = PyDict_GetItemWithError(ids, name))
    return static_cast<std::uint32_t>(PyLong_AsUnsignedLong(known));
  if (PyErr_Occurred() != nullptr) return 0;
  std::string text;
  if (!utf8_of(name, &text)) return 0;
  const std::uint32_t id = marey_intern(text.data(), text.size(), nullptr);
  PyObject* number = PyLong_FromUnsignedLong(id);
  if (number == nullptr) return 0;
  // Names made at run time ("step 17") must not fill the memory.
  if (PyDict_GET_SIZE(ids) >= kMaxCachedNames) PyDict_Clear(ids);
  const int stored = PyDict_SetItem(ids, name, number);
  Py_DECREF(number);
  return stored == 0 ? id : 0;
}

bool Args::add(PyObject* key, PyObject* value) {
  std::string key_text;
  if (!utf8_of(key, &key_text)) return false;
  marey_arg arg{};
  arg.key = marey_intern(key_text.data(), key_text.size(), "arg");
  std::string text;
  bool done = set_number(value, &arg);
  if (!done && PyUnicode_Check(value)) {
    if (!utf8_of(value, &text)) return false;
  } else if (!done) {
    PyObject* number = PyLong_Check(value) ? nullptr : as_plain_number(value);
    done = number != nullptr && set_number(number, &arg);
    Py_XDECREF(number);
    if (!done && !repr_of(value, &text)) return false;  // integers beyond 64 bits come here too: as text, never wrapped
  }
  if (!done) arg.type = MAREY_ARG_STRING;
  list_.push_back(arg);
  texts_.push_back(std::move(text));
  return true;
}

bool Args::add_all(PyObject* kwargs) {
  if (kwargs == nullptr) return true;
  list_.reserve(static_cast<std::size_t>(PyDict_GET_SIZE(kwargs)));
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(kwargs, &position, &key, &value) != 0) {
    if (!add(key, value)) return false;
  }
  return true;
}

const marey_arg* Args::data() {
  for (std::size_t i = 0; i < list_.size(); ++i) {
    if (list_[i].type != MAREY_ARG_STRING) continue;
    list_[i].value.s = texts_[i].data();
    list_[i].string_size = texts_[i].size();
  }
  return list_.data();
}
