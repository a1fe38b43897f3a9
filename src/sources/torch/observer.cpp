// Marey's PyTorch source: at::RecordFunction callbacks that exist only while a profiler warms up or records. Built as a
// library of its own against the PyTorch that is installed, always with NDEBUG (record_function.h has one more member
// without it, and PyTorch's wheels are built with it).
//
// A callback stamps the counter and writes slots of this thread's lane; it allocates nothing, takes no lock, and keeps its
// state in the thread. Names are looked up by pointer first, and by content where the pointer was seen with another text.

#ifndef NDEBUG
#error "build this file with -DNDEBUG: PyTorch's headers change their layout without it"
#endif

#include <ATen/record_function.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "marey/detail/lane.h"
#include "marey/marey.h"

namespace {

using marey::detail::ArgSlot;
using marey::detail::ArgType;
using marey::detail::EventClass;
using marey::detail::g_gate;
using marey::detail::kGateSources;
using marey::detail::SequenceSlot;
using marey::detail::Slot;
using marey::detail::SlotKind;

constexpr std::size_t kUsualNesting = 256;   // of operators on one thread; deeper ones make the list of open ones grow
constexpr std::size_t kNameCache = 1024;     // direct-mapped, per thread
constexpr std::size_t kMaxNameBytes = 200;   // longer names skip the cache
constexpr std::size_t kMaxScalarList = 30;    // torch.profiler's bound
constexpr std::size_t kMaxShapeBytes = 1000;  // of one argument

/// Text of one interned name, kept beside its id so that a reused pointer is noticed.
struct CachedName {
  const char* pointer;
  std::uint32_t id;
  std::uint8_t event_class;
  char text[kMaxNameBytes];  ///< with its terminating zero
};

/// A function that began on this thread and was recorded. It is known by its address: a record_function of Python's may end
/// before one that it encloses, or on another thread.
struct Open {
  const at::RecordFunction* function;
  std::uint32_t name;
  std::uint8_t generation;
};

/// What a thread remembers between the begin and the end of operators. Allocated at the thread's first operator in a
/// window and kept until the thread ends.
struct ThreadState {
  ThreadState() { open.reserve(kUsualNesting); }
  std::array<CachedName, kNameCache> names{};
  std::vector<Open> open;  ///< innermost last
};
/// A bare pointer in the static TLS reserve, as the lane's cursor: one instruction to reach.
thread_local constinit ThreadState* t_state __attribute__((tls_model("initial-exec"))) = nullptr;

[[gnu::noinline]] void make_thread_state() {
  struct Owner {
    std::unique_ptr<ThreadState> state = std::make_unique<ThreadState>();
    ~Owner() { t_state = nullptr; }
  };
  thread_local const Owner owner;
  t_state = owner.state.get();
}

std::atomic<std::uint32_t> g_class_mask{0};
std::atomic<std::uint64_t> g_next_async{1};
at::CallbackHandle g_handle = at::INVALID_CALLBACK_HANDLE;
std::uint32_t g_dims_key = 0;
std::uint32_t g_types_key = 0;
unsigned g_generation = 0;  // of g_handle's callback: 0 or 1, in turn

constexpr std::array<const char*, 4> kCategories = {"user", "operator", "backward", "user_scope"};

EventClass class_of(at::RecordScope scope) {
  switch (scope) {
    case at::RecordScope::BACKWARD_FUNCTION: return EventClass::kBackward;
    case at::RecordScope::USER_SCOPE: return EventClass::kUserScope;
    default: return EventClass::kOperator;
  }
}

std::uint32_t name_id(ThreadState& state, const char* name, EventClass event_class) {
  const auto kind = static_cast<std::uint8_t>(event_class);
  const auto address = reinterpret_cast<std::uintptr_t>(name);
  CachedName& cached = state.names[(address >> 3U ^ address >> 13U ^ kind) % kNameCache];
  if (cached.pointer == name && cached.event_class == kind && std::strcmp(cached.text, name) == 0) [[likely]] return cached.id;
  const std::size_t size = std::strlen(name);
  if (size >= kMaxNameBytes) return marey_intern(name, size, kCategories[kind]);
  cached.pointer = name;
  cached.event_class = kind;
  std::memcpy(cached.text, name, size + 1);
  cached.id = marey_intern(name, size, kCategories[kind]);
  return cached.id;
}

/// Text on the stack with a bound; what does not fit is left out and remembered.
class Text {
 public:
  void add(std::string_view text) {
    if (size_ + text.size() > kMaxShapeBytes) {
      cut_ = true;
      return;
    }
    std::memcpy(data_ + size_, text.data(), text.size());
    size_ += text.size();
  }
  void add(std::int64_t number) {
    if (number >= 0 && number < 10) {
      const char digit = static_cast<char>('0' + number);
      return add(std::string_view(&digit, 1));
    }
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    add(std::string_view(digits, static_cast<std::size_t>(end - digits)));
  }
  [[nodiscard]] std::string_view view() const { return {data_, size_}; }
  [[nodiscard]] bool cut() const { return cut_; }

 private:
  char data_[kMaxShapeBytes + sizeof(Slot)];
  std::size_t size_ = 0;
  bool cut_ = false;
};

void add_tensor(const at::Tensor& tensor, Text* dims, Text* types) {
  dims->add("[");
  if (tensor.defined() && !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides() && !tensor.is_nested()) {
    const auto sizes = tensor.sizes();
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (i > 0) dims->add(", ");
      dims->add(sizes[i]);
    }
  }
  dims->add("]");
  if (types != nullptr) {
    types->add("\"");
    if (tensor.defined()) types->add(tensor.dtype().name());
    types->add("\"");
  }
}

/// As torch.profiler sees it: a long list counts as none.
bool is_scalar_list(const c10::IValue& value) {
  if (!value.isList()) return false;
  const auto list = value.toListRef();
  return list.empty() || (list[0].isScalar() && list.size() <= kMaxScalarList);
}

void add_value(const c10::IValue& value, Text* dims, Text* types) {
  if (value.isTensor()) {
    add_tensor(value.toTensor(), dims, types);
  } else if (value.isScalar()) {
    dims->add("[]");
    types->add("\"Scalar\"");
  } else if (value.isNone()) {
    dims->add("[]");
    types->add("\"\"");
  } else if (value.isTensorList()) {
    dims->add("[");
    std::size_t i = 0;
    // The list's elements are read in place: toTensorVector() would allocate.
    for (const c10::IValue& each : value.toListRef()) {
      if (i++ > 0) dims->add(", ");
      if (each.isTensor()) add_tensor(each.toTensor(), dims, nullptr);
    }
    dims->add("]");
    types->add("\"TensorList\"");
  } else {
    dims->add("[]");
    types->add(is_scalar_list(value) ? "\"ScalarList\"" : "\"\"");
  }
}

Slot* add_text(Slot* at, std::uint32_t key, std::string_view text) {
  const ArgSlot arg{key, ArgType::kString, 0, static_cast<std::uint16_t>(text.size()), 0};
  std::memcpy(at, &arg, sizeof arg);
  ++at;
  // Whole slots at a time. What comes after the text is padding that Text has too, and nobody reads it.
  for (std::size_t done = 0; done < text.size(); done += sizeof(Slot), ++at) std::memcpy(at, text.data() + done, sizeof(Slot));
  return at;
}

std::uint32_t slots_of(std::string_view text) { return 1 + static_cast<std::uint32_t>((text.size() + sizeof(Slot) - 1) / sizeof(Slot)); }

/// Writes a begin: `lead` slots (sequence number, or the id of an async range), then shapes.
template <bool kShapes>
bool write_begin(const at::RecordFunction& fn, std::uint32_t id, EventClass event_class, SlotKind kind, std::uint64_t async_id) {
  std::uint8_t flags = 0;
  std::uint32_t payload = 0;
  SequenceSlot sequence{fn.seqNr(), 0};
  if (kind == SlotKind::kBegin && sequence.sequence_number >= 0) {
    sequence.forward_thread = event_class == EventClass::kBackward ? fn.forwardThreadId() : at::RecordFunction::currentThreadId();
    flags = marey::detail::kFlagSequence;
    payload = 1;
  } else if (kind == SlotKind::kAsyncBegin) {
    payload = 1;
  }
  [[maybe_unused]] Text dims;
  [[maybe_unused]] Text types;
  if constexpr (kShapes) {
    dims.add("[");
    types.add("[");
    bool first = true;
    for (const c10::IValue& input : fn.inputs()) {
      if (!first) {
        dims.add(", ");
        types.add(", ");
      }
      first = false;
      add_value(input, &dims, &types);
    }
    dims.add("]");
    types.add("]");
    if (!first) payload += slots_of(dims.view()) + slots_of(types.view());
    if (dims.cut() || types.cut()) flags |= marey::detail::kFlagTruncated;
  }
  Slot* slot = marey::detail::reserve(1 + payload);
  if (slot == nullptr) return false;
  Slot* at = slot + 1;
  if ((flags & marey::detail::kFlagSequence) != 0) {
    std::memcpy(at++, &sequence, sizeof sequence);
  } else if (kind == SlotKind::kAsyncBegin) {
    const ArgSlot arg{0, ArgType::kId, 0, 0, async_id};
    std::memcpy(at++, &arg, sizeof arg);
  }
  if constexpr (kShapes) {
    if (payload > static_cast<std::uint32_t>(at - slot - 1)) {
      at = add_text(at, g_dims_key, dims.view());
      at = add_text(at, g_types_key, types.view());
    }
  }
  // Stamped last: what was done above is not the operator's time.
  *slot = Slot{marey::detail::ticks(g_gate.load(std::memory_order_relaxed)), id, kind, event_class, static_cast<std::uint8_t>(payload), flags};
  marey::detail::commit(slot, 1 + payload);
  return true;
}

/// Only asynchronous functions, which may end on another thread, carry one: PyTorch gives it to the end callback.
struct AsyncContext final : at::ObserverContext {
  std::uint64_t id = 0;
  std::uint32_t name = 0;
};

/// kGeneration: while one callback replaces another both exist, so that nothing is missed between them; a function that met
/// both is recorded once.
template <bool kShapes, unsigned kGeneration>
std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& fn) {
  const EventClass event_class = class_of(fn.scope());
  // Relaxed: a stale mask lets through or leaves out events that lie outside every window anyway.
  if ((g_gate.load(std::memory_order_relaxed) & kGateSources) == 0 ||
      (g_class_mask.load(std::memory_order_relaxed) & class_bit(event_class)) == 0) {
    return nullptr;
  }
  if (t_state == nullptr) [[unlikely]] {
    make_thread_state();
    if (t_state == nullptr) return nullptr;  // the thread ends
  }
  ThreadState& state = *t_state;
  if (!state.open.empty() && state.open.back().function == &fn && state.open.back().generation != kGeneration) {
    state.open.back().generation = kGeneration;
    return nullptr;
  }
  const std::uint32_t id = name_id(state, fn.name(), event_class);
  if (fn.isAsync()) {
    auto context = std::make_unique<AsyncContext>();
    context->id = g_next_async.fetch_add(1, std::memory_order_relaxed) | std::uint64_t{1} << 63;  // apart from host ranges' ids
    context->name = id;
    if (!write_begin<kShapes>(fn, id, event_class, SlotKind::kAsyncBegin, context->id)) return nullptr;
    return context;
  }
  // In the list before the begin is stamped: what is done here is not the operator's time.
  state.open.push_back({&fn, id, kGeneration});
  if (!write_begin<kShapes>(fn, id, event_class, SlotKind::kBegin, 0)) state.open.pop_back();
  return nullptr;
}

void on_end(const at::RecordFunction& fn, at::ObserverContext* context) {
  const std::uint64_t now = marey::detail::ticks(g_gate.load(std::memory_order_relaxed));
  const EventClass event_class = class_of(fn.scope());
  if (context != nullptr) {
    const auto* mine = static_cast<AsyncContext*>(context);
    Slot* slot = marey::detail::reserve(2);
    if (slot == nullptr) return;
    const ArgSlot arg{0, ArgType::kId, 0, 0, mine->id};
    slot[0] = Slot{now, mine->name, SlotKind::kAsyncEnd, event_class, 1, 0};
    std::memcpy(slot + 1, &arg, sizeof arg);
    marey::detail::commit(slot, 2);
    return;
  }
  // PyTorch keeps the callbacks with the function: each recorded begin gets its end, be the observer removed meanwhile.
  if (t_state == nullptr) return;
  std::vector<Open>& open = t_state->open;
  for (std::size_t i = open.size(); i-- > 0;) {
    if (open[i].function != &fn) continue;
    (void)marey::detail::append(now, SlotKind::kEnd, open[i].name, event_class);
    if (i + 1 == open.size()) {
      open.pop_back();
    } else {
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return;
  }
}

template <bool kShapes>
at::RecordFunctionCallback callback_of(unsigned generation) {
  return generation == 0 ? at::RecordFunctionCallback(&on_start<kShapes, 0>, &on_end) : at::RecordFunctionCallback(&on_start<kShapes, 1>, &on_end);
}

int arm(void*, uint32_t class_mask, int shapes, char* reason, size_t reason_size) {
  try {
    const std::uint32_t mine = class_mask & (class_bit(EventClass::kOperator) | class_bit(EventClass::kBackward) | class_bit(EventClass::kUserScope));
    at::CallbackHandle fresh = at::INVALID_CALLBACK_HANDLE;
    if (mine != 0) {
      std::unordered_set<at::RecordScope, std::hash<at::RecordScope>> scopes;
      if ((mine & class_bit(EventClass::kBackward)) != 0) scopes.insert(at::RecordScope::BACKWARD_FUNCTION);
      if ((mine & class_bit(EventClass::kUserScope)) != 0) scopes.insert(at::RecordScope::USER_SCOPE);
      if ((mine & class_bit(EventClass::kOperator)) != 0) {
        for (const auto scope : {at::RecordScope::FUNCTION, at::RecordScope::TORCHSCRIPT_FUNCTION, at::RecordScope::CUSTOM_CLASS}) scopes.insert(scope);
      }
      g_generation ^= 1U;
      at::RecordFunctionCallback callback = shapes != 0 ? callback_of<true>(g_generation) : callback_of<false>(g_generation);
      fresh = at::addGlobalCallback(std::move(callback.needsInputs(shapes != 0).scopes(scopes)));
    }
    g_class_mask.store(mine, std::memory_order_relaxed);
    if (g_handle != at::INVALID_CALLBACK_HANDLE) at::removeCallback(g_handle);
    g_handle = fresh;
    return MAREY_OK;
  } catch (const std::exception& error) {
    const std::size_t size = std::min(std::strlen(error.what()), reason_size - 1);
    std::memcpy(reason, error.what(), size);
    reason[size] = '\0';
    return MAREY_INTERNAL;
  }
}

const marey_source kSource = {sizeof(marey_source), "torch", nullptr, &arm};

}  // namespace

extern "C" {

/// The PyTorch that this library was built against, e.g. "2.13.0+cpu"; to be compared before marey_source_init() is called.
MAREY_API const char* marey_torch_built_for(void) { return TORCH_VERSION; }

MAREY_API int marey_source_init(void) {
  constexpr std::string_view kDims = "Input Dims", kTypes = "Input type";
  g_dims_key = marey_intern(kDims.data(), kDims.size(), "arg");
  g_types_key = marey_intern(kTypes.data(), kTypes.size(), "arg");
  return marey_register_source(&kSource);
}

}  // extern "C"
