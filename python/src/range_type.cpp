// `range` and `mark`. Closed shutter: a range loads the gate and its own depth, and nothing else.

#include <cstddef>
#include <cstdint>

#include "args.h"
#include "caller.h"
#include "hot_types.h"
#include "marey/detail/lane.h"
#include "marey/marey.h"

namespace {

using marey::detail::EventClass;
using marey::detail::g_gate;
using marey::detail::kGateUser;
using marey::detail::Slot;
using marey::detail::SlotKind;

enum class EntryKind : std::uint8_t {
  kDropped,  ///< no room in the lane: there is nothing to end
  kNested,   ///< ends on the thread it began on, in order
  kAsync,    ///< may cross others; belongs to a frame
};

/// One entry into a range that was recorded and has not been left.
struct Entry {
  const void* owner;  ///< kAsync: the frame, or null for an ordinary one; else the thread
  std::uint64_t async_id;
  EntryKind kind;
};

struct RangeObject {
  PyObject_HEAD PyObject* name;
  PyObject* args;  ///< dict of the keyword arguments, or null
  Entry* entries;  ///< `first`, or memory of our own when the object is nested in itself or shared by threads
  std::uint32_t depth;
  std::uint32_t capacity;
  std::uint32_t id;  ///< 0: not interned yet
  Entry first;
};

PyTypeObject g_range_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

RangeObject* as_range(PyObject* object) {
  return reinterpret_cast<RangeObject*>(object);
}

/// Identity of this thread, for as long as it runs.
const void* this_thread() {
  return &marey::detail::t_cursor;
}

[[gnu::noinline]] bool grow(RangeObject* self) {
  const std::uint32_t capacity = self->capacity * 2 + 2;
  auto* grown = static_cast<Entry*>(PyMem_Malloc(capacity * sizeof(Entry)));
  if (grown == nullptr) return false;
  for (std::uint32_t i = 0; i < self->depth; ++i) grown[i] = self->entries[i];
  if (self->entries != &self->first) PyMem_Free(self->entries);
  self->entries = grown;
  self->capacity = capacity;
  return true;
}

/// Takes out the latest entry that this thread or frame made; false when it made none, i.e. the shutter was closed
/// then.
bool pop(RangeObject* self, Entry* out) {
  const void* frame = nullptr;
  bool frame_known = false;
  for (std::uint32_t i = self->depth; i-- > 0;) {
    const Entry& entry = self->entries[i];
    if (entry.kind != EntryKind::kAsync) {
      if (entry.owner != this_thread()) continue;
    } else {
      if (!frame_known) {
        frame = current_caller().frame;
        frame_known = true;
      }
      if (entry.owner != frame) continue;
    }
    *out = entry;
    --self->depth;
    for (std::uint32_t j = i; j < self->depth; ++j) self->entries[j] = self->entries[j + 1];
    return true;
  }
  return false;
}

/// Begins the range, whatever it is; false with a Python error set for what must not be swallowed.
[[gnu::noinline]] bool begin(RangeObject* self, bool always_async) {
  if (self->id == 0) {
    self->id = name_id(self->name);
    if (self->id == 0) return false;
  }
  Args args;
  if (!args.add_all(self->args)) return false;
  const Caller caller = current_caller();
  if (self->depth == self->capacity && !grow(self)) return true;  // no memory: this one is not recorded
  Entry entry{this_thread(), 0, EntryKind::kDropped};
  if (always_async || caller.may_cross) {
    entry.async_id = marey_async_begin(self->id, args.data(), args.size());
    if (entry.async_id != 0) {
      entry.kind = EntryKind::kAsync;
      entry.owner = caller.frame;
    }
  } else if (marey_range_begin(self->id, args.data(), args.size()) != 0) {
    entry.kind = EntryKind::kNested;
  }
  self->entries[self->depth++] = entry;
  return true;
}

/// Ends it, whatever it is. `now` was taken first: what happens here is not part of the range.
[[gnu::noinline]] void end(RangeObject* self, std::uint64_t now) {
  Entry entry;
  if (!pop(self, &entry)) return;
  if (entry.kind == EntryKind::kNested) (void)marey::detail::append(now, SlotKind::kEnd, self->id, EventClass::kUser);
  if (entry.kind == EntryKind::kAsync) marey_async_end(entry.async_id, self->id);
}

PyObject* range_enter(PyObject* object, PyObject*) {
  RangeObject* self = as_range(object);
  const std::uint32_t gate = g_gate.load(std::memory_order_relaxed);
  Py_INCREF(object);
  if ((gate & kGateUser) == 0) return object;
  // Nearly always: no arguments, not nested in itself, an ordinary function.
  if (self->id != 0 && self->args == nullptr && self->depth == 0 && caller_is_ordinary()) [[likely]] {
    if (Slot* slot = marey::detail::reserve(1)) [[likely]] {
      self->entries[0] = {this_thread(), 0, EntryKind::kNested};
      self->depth = 1;
      *slot = Slot{marey::detail::ticks(gate), self->id, SlotKind::kBegin, EventClass::kUser, 0, 0};
      marey::detail::commit(slot, 1);
      return object;
    }
  }
  if (begin(self, false)) return object;
  Py_DECREF(object);
  return nullptr;
}

PyObject* range_exit(PyObject* object, PyObject* const*, Py_ssize_t) {
  RangeObject* self = as_range(object);
  if (self->depth != 0) {
    // Relaxed: see g_gate. Recorded even when the shutter closed meanwhile: the window's own end decides.
    const std::uint64_t now = marey::detail::ticks(g_gate.load(std::memory_order_relaxed));
    const Entry& entry = self->entries[0];
    if (self->depth == 1 && entry.owner == this_thread() && entry.kind == EntryKind::kNested) [[likely]] {
      self->depth = 0;
      (void)marey::detail::append(now, SlotKind::kEnd, self->id, EventClass::kUser);
    } else {
      end(self, now);
    }
  }
  Py_RETURN_NONE;
}

// ---- async with: what is awaited is there at once ----

struct ReadyObject {
  PyObject_HEAD PyObject* value;
};

PyTypeObject g_ready_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyAsyncMethods g_ready_async{};

PyObject* make_ready(PyObject* value) {
  auto* ready = PyObject_New(ReadyObject, &g_ready_type);
  if (ready != nullptr) ready->value = Py_NewRef(value);
  return reinterpret_cast<PyObject*>(ready);
}

void ready_dealloc(PyObject* object) {
  Py_CLEAR(reinterpret_cast<ReadyObject*>(object)->value);
  PyObject_Free(object);
}

PyObject* ready_next(PyObject* object) {
  // A StopIteration's value is what `await` gives. Ranges and None are no tuples and no exceptions, so they go as they
  // are.
  PyErr_SetObject(PyExc_StopIteration, reinterpret_cast<ReadyObject*>(object)->value);
  return nullptr;
}

PyObject* range_aenter(PyObject* object, PyObject*) {
  if ((g_gate.load(std::memory_order_relaxed) & kGateUser) != 0 && !begin(as_range(object), true)) return nullptr;
  return make_ready(object);
}

PyObject* range_aexit(PyObject* object, PyObject* const*, Py_ssize_t) {
  if (as_range(object)->depth != 0) end(as_range(object), marey::detail::ticks(g_gate.load(std::memory_order_relaxed)));
  return make_ready(Py_None);
}

// ---- making one ----

bool check_name(const char* what, PyObject* const* values, Py_ssize_t count) {
  if (count == 1 && PyUnicode_Check(values[0])) return true;
  if (count == 1) {
    PyErr_Format(PyExc_TypeError, "marey.%s(): the name must be a str, not %.100s; write marey.%s(\"forward\")", what,
                 Py_TYPE(values[0])->tp_name, what);
  } else {
    PyErr_Format(PyExc_TypeError,
                 "marey.%s() takes a name (str) and arguments by keyword, e.g. marey.%s(\"forward\", layer=3)", what,
                 what);
  }
  return false;
}

void set_up(RangeObject* self, PyObject* name, PyObject* args) {
  self->name = Py_NewRef(name);
  self->args = args;
  self->entries = &self->first;
  self->depth = 0;
  self->capacity = 1;
  self->id = 0;
}

/// range("name", layer=3) without the detour over a tuple and tp_new.
PyObject* range_vectorcall(PyObject*, PyObject* const* values, std::size_t count_and_flag, PyObject* keywords) {
  const Py_ssize_t count = PyVectorcall_NARGS(count_and_flag);
  if (!check_name("range", values, count)) return nullptr;
  PyObject* args = nullptr;
  if (keywords != nullptr && PyTuple_GET_SIZE(keywords) > 0) {
    args = PyDict_New();
    if (args == nullptr) return nullptr;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keywords); ++i) {
      if (PyDict_SetItem(args, PyTuple_GET_ITEM(keywords, i), values[count + i]) != 0) {
        Py_DECREF(args);
        return nullptr;
      }
    }
  }
  RangeObject* self = PyObject_GC_New(RangeObject, &g_range_type);
  if (self == nullptr) {
    Py_XDECREF(args);
    return nullptr;
  }
  set_up(self, values[0], args);
  if (args != nullptr) PyObject_GC_Track(self);  // a name alone can be in no cycle
  return reinterpret_cast<PyObject*>(self);
}

PyObject* range_new(PyTypeObject* type, PyObject* positional, PyObject* keywords) {
  PyObject* const* values = &PyTuple_GET_ITEM(positional, 0);
  if (!check_name("range", values, PyTuple_GET_SIZE(positional))) return nullptr;
  PyObject* args = nullptr;
  if (keywords != nullptr && PyDict_GET_SIZE(keywords) > 0) {
    args = PyDict_Copy(keywords);
    if (args == nullptr) return nullptr;
  }
  PyObject* object = type->tp_alloc(type, 0);
  if (object == nullptr) {
    Py_XDECREF(args);
    return nullptr;
  }
  set_up(as_range(object), values[0], args);
  return object;
}

int range_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(as_range(object)->args);
  return 0;
}

int range_clear(PyObject* object) {
  Py_CLEAR(as_range(object)->args);
  return 0;
}

void range_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  RangeObject* self = as_range(object);
  Py_CLEAR(self->name);
  Py_CLEAR(self->args);
  if (self->entries != &self->first) PyMem_Free(self->entries);
  Py_TYPE(object)->tp_free(object);
}

PyObject* range_repr(PyObject* object) {
  return PyUnicode_FromFormat("marey.range(%R)", as_range(object)->name);
}
PyObject* range_name(PyObject* object, void*) {
  return Py_NewRef(as_range(object)->name);
}

/// Copies and pickles are made from the name and the arguments; entries stay behind.
PyObject* range_getnewargs_ex(PyObject* object, PyObject*) {
  PyObject* args = as_range(object)->args == nullptr ? PyDict_New() : PyDict_Copy(as_range(object)->args);
  if (args == nullptr) return nullptr;
  return Py_BuildValue("(O)N", as_range(object)->name, args);
}

/// @range("name"): what is wrapped, and how, is decided in Python.
PyObject* range_call(PyObject* object, PyObject* positional, PyObject* keywords) {
  static PyObject* decorate = nullptr;
  if (decorate == nullptr) {
    PyObject* module = PyImport_ImportModule("marey._decorate");
    if (module == nullptr) return nullptr;
    decorate = PyObject_GetAttrString(module, "decorate");
    Py_DECREF(module);
    if (decorate == nullptr) return nullptr;
  }
  if (PyTuple_GET_SIZE(positional) != 1 || (keywords != nullptr && PyDict_GET_SIZE(keywords) != 0)) {
    PyErr_SetString(PyExc_TypeError, "a marey.range is called with the one function that it decorates");
    return nullptr;
  }
  return PyObject_CallFunctionObjArgs(decorate, object, PyTuple_GET_ITEM(positional, 0), nullptr);
}

PyObject* mark(PyObject*, PyObject* const* values, Py_ssize_t count, PyObject* keywords) {
  if (!check_name("mark", values, count)) return nullptr;
  if ((g_gate.load(std::memory_order_relaxed) & kGateUser) == 0) Py_RETURN_NONE;
  const std::uint32_t id = name_id(values[0]);
  if (id == 0) return nullptr;
  Args args;
  for (Py_ssize_t i = 0; keywords != nullptr && i < PyTuple_GET_SIZE(keywords); ++i) {
    if (!args.add(PyTuple_GET_ITEM(keywords, i), values[count + i])) return nullptr;
  }
  marey_mark(id, args.data(), args.size());
  Py_RETURN_NONE;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wcast-function-type"  // CPython's own convention for methods with other signatures
PyMethodDef range_methods[] = {
    {"__enter__", range_enter, METH_NOARGS, "Begin the range on this thread."},
    {"__exit__", reinterpret_cast<PyCFunction>(range_exit), METH_FASTCALL, "End the range; exceptions pass."},
    {"__aenter__", range_aenter, METH_NOARGS, "Begin a range that may cross others."},
    {"__aexit__", reinterpret_cast<PyCFunction>(range_aexit), METH_FASTCALL, "End it; exceptions pass."},
    {"__getnewargs_ex__", range_getnewargs_ex, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyMethodDef mark_method = {"mark", reinterpret_cast<PyCFunction>(mark), METH_FASTCALL | METH_KEYWORDS,
                           "mark(name, **args)\n--\n\nRecord an instant on this thread."};
#pragma GCC diagnostic pop

PyGetSetDef range_getset[] = {{"name", range_name, nullptr, "The range's name.", nullptr},
                              {nullptr, nullptr, nullptr, nullptr, nullptr}};

bool ready_types() {
  g_ready_async.am_await = [](PyObject* object) { return Py_NewRef(object); };
  PyTypeObject& ready = g_ready_type;
  ready.tp_name = "marey._core.Ready";
  ready.tp_basicsize = sizeof(ReadyObject);
  ready.tp_flags = Py_TPFLAGS_DEFAULT;
  ready.tp_dealloc = ready_dealloc;
  ready.tp_as_async = &g_ready_async;
  ready.tp_iter = PyObject_SelfIter;
  ready.tp_iternext = ready_next;
  if (PyType_Ready(&ready) != 0) return false;

  // A static type: only these can have a tp_vectorcall before Python 3.14.
  PyTypeObject& range = g_range_type;
  range.tp_name = "marey._core.range";
  range.tp_doc =
      "range(name, /, **args)\n--\n\nA named stretch of time: a context manager, an async one and a decorator.";
  range.tp_basicsize = sizeof(RangeObject);
  range.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC;
  range.tp_new = range_new;
  range.tp_vectorcall = range_vectorcall;
  range.tp_free = PyObject_GC_Del;
  range.tp_dealloc = range_dealloc;
  range.tp_traverse = range_traverse;
  range.tp_clear = range_clear;
  range.tp_call = range_call;
  range.tp_repr = range_repr;
  range.tp_methods = range_methods;
  range.tp_getset = range_getset;
  return PyType_Ready(&range) == 0;
}

}  // namespace

bool add_range_type(PyObject* module) {
  if (!prepare_caller() || !ready_types()) return false;
  if (PyModule_AddObjectRef(module, "range", reinterpret_cast<PyObject*>(&g_range_type)) != 0) return false;
  PyObject* function = PyCFunction_New(&mark_method, nullptr);
  if (function == nullptr) return false;
  const int added = PyModule_AddObjectRef(module, "mark", function);
  Py_DECREF(function);
  return added == 0;
}
