#include "range_type.h"

#include <cstring>
#include <string>
#include <vector>

#include "marey/detail/lane.h"
#include "marey/marey.h"

namespace {

using marey::detail::EventClass;
using marey::detail::g_gate;
using marey::detail::kGateUser;
using marey::detail::SlotKind;

constexpr std::size_t kMaxReprChars = 256;

/// Arguments in the form of the C ABI, with the strings that they point to.
struct Args {
  std::vector<marey_arg> list;
  std::vector<std::string> strings;
};

bool utf8_of(PyObject* text, std::string* out) {
  Py_ssize_t size = 0;
  const char* bytes = PyUnicode_AsUTF8AndSize(text, &size);
  if (bytes != nullptr) {
    out->assign(bytes, static_cast<std::size_t>(size));
    return true;
  }
  // Lone surrogates do not encode; they are replaced like any other byte that is not UTF-8.
  PyErr_Clear();
  PyObject* encoded = PyUnicode_AsEncodedString(text, "utf-8", "replace");
  if (encoded == nullptr) return false;
  out->assign(PyBytes_AS_STRING(encoded), static_cast<std::size_t>(PyBytes_GET_SIZE(encoded)));
  Py_DECREF(encoded);
  return true;
}

bool text_of(PyObject* value, std::string* out) {
  if (PyUnicode_Check(value)) return utf8_of(value, out);
  PyObject* text = PyObject_Repr(value);
  if (text == nullptr) return false;
  if (PyUnicode_GET_LENGTH(text) > static_cast<Py_ssize_t>(kMaxReprChars)) {
    PyObject* cut = PyUnicode_Substring(text, 0, kMaxReprChars);
    Py_DECREF(text);
    text = cut;
    if (text == nullptr) return false;
  }
  const bool ok = utf8_of(text, out);
  Py_DECREF(text);
  return ok;
}

bool convert_arg(PyObject* key, PyObject* value, Args* args) {
  std::string name;
  if (!utf8_of(key, &name)) return false;
  marey_arg arg{};
  arg.key = marey_intern(name.data(), name.size(), "arg");
  if (PyBool_Check(value)) {
    arg.type = MAREY_ARG_BOOL;
    arg.value.i = value == Py_True ? 1 : 0;
  } else if (PyLong_Check(value)) {
    int overflow = 0;
    arg.type = MAREY_ARG_INT;
    arg.value.i = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow != 0) {
      arg.type = MAREY_ARG_STRING;  // larger than 64 bits: as text, never wrapped
    } else if (arg.value.i == -1 && PyErr_Occurred() != nullptr) {
      return false;
    }
  } else if (PyFloat_Check(value)) {
    arg.type = MAREY_ARG_DOUBLE;
    arg.value.d = PyFloat_AS_DOUBLE(value);
  } else {
    arg.type = MAREY_ARG_STRING;
  }
  args->strings.emplace_back();
  if (arg.type == MAREY_ARG_STRING && !text_of(value, &args->strings.back())) return false;
  args->list.push_back(arg);
  return true;
}

bool convert_args(PyObject* kwargs, Args* args) {
  if (kwargs == nullptr) return true;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(kwargs, &position, &key, &value) != 0) {
    if (!convert_arg(key, value, args)) return false;
  }
  for (std::size_t i = 0; i < args->list.size(); ++i) {  // only now do the strings stay where they are
    if (args->list[i].type != MAREY_ARG_STRING) continue;
    args->list[i].value.s = args->strings[i].data();
    args->list[i].string_size = args->strings[i].size();
  }
  return true;
}

bool name_and_kwargs(const char* what, PyObject* positional, PyObject** name) {
  if (PyTuple_GET_SIZE(positional) != 1 || !PyUnicode_Check(PyTuple_GET_ITEM(positional, 0))) {
    PyErr_Format(PyExc_TypeError, "marey.%s takes a name (str) and arguments by keyword, e.g. marey.%s(\"forward\", layer=3)", what, what);
    return false;
  }
  *name = PyTuple_GET_ITEM(positional, 0);
  return true;
}

/// One entry into a range that has not been left: by which thread, and what was recorded for it.
struct Entry {
  unsigned long thread;
  std::uint32_t token;
  std::uint64_t async_id;
};

struct RangeObject {
  PyObject_HEAD
  PyObject* name;
  std::uint32_t id;
  std::uint32_t depth;
  Entry entry;                ///< the first entry, which is nearly always the only one
  std::vector<Entry>* more;   ///< further ones: the object is nested in itself or used by several threads
  Args* args;
};

/// True when an asyncio loop runs in this thread: then other coroutines' ranges may cross this one.
bool loop_runs() {
  static PyObject* get_running_loop = nullptr;
  if (get_running_loop == nullptr) {
    static PyObject* key = PyUnicode_InternFromString("asyncio");
    PyObject* module = PyDict_GetItemWithError(PyImport_GetModuleDict(), key);
    if (module == nullptr) {
      PyErr_Clear();
      return false;
    }
    get_running_loop = PyObject_GetAttrString(module, "_get_running_loop");
    if (get_running_loop == nullptr) {
      PyErr_Clear();
      return false;
    }
  }
  PyObject* loop = PyObject_CallNoArgs(get_running_loop);
  if (loop == nullptr) {
    PyErr_Clear();
    return false;
  }
  const bool runs = loop != Py_None;
  Py_DECREF(loop);
  return runs;
}

void push(RangeObject* self, const Entry& entry) {
  if (self->depth++ == 0) {
    self->entry = entry;
    return;
  }
  if (self->more == nullptr) self->more = new std::vector<Entry>;
  self->more->push_back(entry);
}

/// Takes out the latest entry of this thread (any entry when it has none: left on another thread).
Entry pop(RangeObject* self) {
  if (self->depth == 0) return Entry{0, 0, 0};
  --self->depth;
  if (self->more == nullptr || self->more->empty()) return self->entry;
  const unsigned long thread = PyThread_get_thread_ident();
  for (std::size_t i = self->more->size(); i-- > 0;) {
    if ((*self->more)[i].thread != thread) continue;
    const Entry found = (*self->more)[i];
    self->more->erase(self->more->begin() + static_cast<std::ptrdiff_t>(i));
    return found;
  }
  if (self->entry.thread == thread) {
    const Entry found = self->entry;
    self->entry = self->more->front();
    self->more->erase(self->more->begin());
    return found;
  }
  const Entry found = self->more->back();
  self->more->pop_back();
  return found;
}

PyObject* range_enter(PyObject* object, PyObject*) {
  auto* self = reinterpret_cast<RangeObject*>(object);
  Entry entry{0, 0, 0};
  // Relaxed: see g_gate.
  const std::uint32_t gate = g_gate.load(std::memory_order_relaxed);
  if (self->depth != 0 || (gate & kGateUser) != 0) entry.thread = PyThread_get_thread_ident();
  if ((gate & kGateUser) != 0) {
    if (loop_runs()) {
      entry.async_id = marey_async_begin(self->id, self->args->list.data(), self->args->list.size());
    } else if (!self->args->list.empty()) {
      entry.token = marey_range_begin(self->id, self->args->list.data(), self->args->list.size());
    } else if (marey::detail::append(marey::detail::ticks(gate), SlotKind::kBegin, self->id, EventClass::kUser)) {
      entry.token = self->id;
    }
  }
  push(self, entry);
  Py_INCREF(object);
  return object;
}

PyObject* range_exit(PyObject* object, PyObject* const*, Py_ssize_t) {
  auto* self = reinterpret_cast<RangeObject*>(object);
  // Stamped first: what follows is not part of the range.
  const std::uint32_t gate = g_gate.load(std::memory_order_relaxed);
  if (self->depth == 1 && self->entry.token == 0 && self->entry.async_id == 0) {
    self->depth = 0;
    Py_RETURN_FALSE;
  }
  const std::uint64_t now = marey::detail::ticks(gate);
  const Entry entry = pop(self);
  if (entry.token != 0) {
    (void)marey::detail::append(now, SlotKind::kEnd, entry.token, EventClass::kUser);
  } else if (entry.async_id != 0) {
    marey_async_end(entry.async_id, self->id);
  }
  Py_RETURN_FALSE;
}

/// For wrappers of generators and coroutines, whose lives cross other ranges.
PyObject* range_begin_async(PyObject* object, PyObject*) {
  auto* self = reinterpret_cast<RangeObject*>(object);
  return PyLong_FromUnsignedLongLong(marey_async_begin(self->id, self->args->list.data(), self->args->list.size()));
}

PyObject* range_end_async(PyObject* object, PyObject* id) {
  const unsigned long long value = PyLong_AsUnsignedLongLong(id);
  if (value == static_cast<unsigned long long>(-1) && PyErr_Occurred() != nullptr) return nullptr;
  marey_async_end(value, reinterpret_cast<RangeObject*>(object)->id);
  Py_RETURN_NONE;
}

PyObject* range_new(PyTypeObject* type, PyObject* positional, PyObject* kwargs) {
  PyObject* name = nullptr;
  if (!name_and_kwargs("range", positional, &name)) return nullptr;
  auto* self = reinterpret_cast<RangeObject*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->name = Py_NewRef(name);
  self->depth = 0;
  self->more = nullptr;
  self->args = new Args;
  std::string text;
  if (!utf8_of(name, &text) || !convert_args(kwargs, self->args)) {
    Py_DECREF(reinterpret_cast<PyObject*>(self));
    return nullptr;
  }
  self->id = marey_intern(text.data(), text.size(), nullptr);
  return reinterpret_cast<PyObject*>(self);
}

int range_init(PyObject*, PyObject*, PyObject*) { return 0; }  // all is done by tp_new; arguments are taken there

void range_dealloc(PyObject* object) {
  auto* self = reinterpret_cast<RangeObject*>(object);
  PyTypeObject* type = Py_TYPE(object);
  Py_CLEAR(self->name);
  delete self->more;
  delete self->args;
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* range_repr(PyObject* object) { return PyUnicode_FromFormat("marey.range(%R)", reinterpret_cast<RangeObject*>(object)->name); }
PyObject* range_name(PyObject* object, void*) { return Py_NewRef(reinterpret_cast<RangeObject*>(object)->name); }

PyObject* mark(PyObject*, PyObject* positional, PyObject* kwargs) {
  PyObject* name = nullptr;
  if (!name_and_kwargs("mark", positional, &name)) return nullptr;
  if ((g_gate.load(std::memory_order_relaxed) & kGateUser) == 0) Py_RETURN_NONE;
  std::string text;
  Args args;
  if (!utf8_of(name, &text) || !convert_args(kwargs, &args)) return nullptr;
  marey_mark(marey_intern(text.data(), text.size(), nullptr), args.list.data(), args.list.size());
  Py_RETURN_NONE;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wcast-function-type"  // CPython's own convention for methods with other signatures
PyMethodDef range_methods[] = {
    {"__enter__", range_enter, METH_NOARGS, "Begin the range on this thread."},
    {"__exit__", reinterpret_cast<PyCFunction>(range_exit), METH_FASTCALL, "End the range; exceptions pass."},
    {"_begin_async", range_begin_async, METH_NOARGS, "Begin a range that may cross others; returns its id."},
    {"_end_async", range_end_async, METH_O, "End the range of this id."},
    {nullptr, nullptr, 0, nullptr}};

PyMethodDef mark_method = {"mark", reinterpret_cast<PyCFunction>(mark), METH_VARARGS | METH_KEYWORDS,
                           "mark(name, **args): record an instant on this thread."};
#pragma GCC diagnostic pop

PyGetSetDef range_getset[] = {{"name", range_name, nullptr, "The range's name.", nullptr}, {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot range_slots[] = {{Py_tp_doc, const_cast<char*>("A named stretch of time on one thread.")},
                             {Py_tp_new, reinterpret_cast<void*>(range_new)},
                             {Py_tp_init, reinterpret_cast<void*>(range_init)},
                             {Py_tp_dealloc, reinterpret_cast<void*>(range_dealloc)},
                             {Py_tp_repr, reinterpret_cast<void*>(range_repr)},
                             {Py_tp_methods, range_methods},
                             {Py_tp_getset, range_getset},
                             {0, nullptr}};

PyType_Spec range_spec = {"marey._core.Range", sizeof(RangeObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, range_slots};

}  // namespace

bool add_range_type(PyObject* module) {
  PyObject* type = PyType_FromSpec(&range_spec);
  if (type == nullptr || PyModule_AddObject(module, "Range", type) != 0) return false;
  PyObject* function = PyCFunction_New(&mark_method, nullptr);
  return function != nullptr && PyModule_AddObject(module, "mark", function) == 0;
}
