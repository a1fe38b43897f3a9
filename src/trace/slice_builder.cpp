#include "src/trace/slice_builder.h"

#include <algorithm>
#include <protozero/pbf_reader.hpp>

#include "src/event/categories.h"
#include "src/trace/encoder.h"
#include "src/trace/fields.h"
#include "src/trace/metadata.h"

namespace marey::trace {
namespace {

using protozero::pbf_reader;

/// Interned ids are given by count: one that leaps ahead follows a gap of lost bytes, or is damage. What gaps may make us
/// allocate over the whole trace is a constant and a multiple of the entries that are really there.
constexpr std::uint64_t kFreeGapSlots = 1U << 20;
constexpr std::uint64_t kGapSlotsPerEntry = 8;
constexpr std::size_t kMaxArgs = 65'000;
constexpr std::uint64_t kMaxSequence = 1U << 24;

std::string_view view_of(const protozero::data_view& view) { return {view.data(), view.size()}; }

// pbf_reader only asserts that a field has the type that is asked for, and get_bool() reads a byte that may not be there.
std::uint64_t varint(pbf_reader& field) {
  if (!field.has_wire_type(protozero::pbf_wire_type::varint)) throw protozero::unknown_pbf_wire_type_exception{};
  return field.get_uint64();
}
double float64(pbf_reader& field) {
  if (!field.has_wire_type(protozero::pbf_wire_type::fixed64)) throw protozero::unknown_pbf_wire_type_exception{};
  return field.get_double();
}
std::string_view bytes_of(pbf_reader& field) {
  if (!field.has_wire_type(protozero::pbf_wire_type::length_delimited)) throw protozero::unknown_pbf_wire_type_exception{};
  return view_of(field.get_view());
}
std::string text_of(pbf_reader& field) { return std::string(bytes_of(field)); }
pbf_reader message_of(pbf_reader& field) {
  const std::string_view bytes = bytes_of(field);
  return {bytes.data(), bytes.size()};
}

std::string_view get(const std::vector<std::string_view>& table, std::uint64_t iid) {
  return iid < table.size() ? table[iid] : std::string_view();
}

}  // namespace

struct SliceBuilder::PacketView {
  bool has_timestamp = false;
  std::uint64_t timestamp = 0;
  std::uint64_t sequence = 0;
  std::uint32_t flags = 0;
  std::uint32_t clock = 0;
  bool has_event = false;
  std::string_view event;
  std::string_view interned;
  std::string_view defaults;
  std::string_view clock_snapshot;
  std::string_view descriptor;
  std::string_view chrome_events;
  std::string_view compressed;
};

const char* SliceBuilder::decode(std::span<const char> body, PacketView* view) {
  pbf_reader packet(body.data(), body.size());
  while (packet.next()) {
    switch (packet.tag_and_type()) {
      case protozero::tag_and_type(field::packet::kTimestamp, protozero::pbf_wire_type::varint):
        view->timestamp = packet.get_uint64();
        view->has_timestamp = true;
        break;
      case protozero::tag_and_type(field::packet::kSequenceId, protozero::pbf_wire_type::varint): view->sequence = packet.get_uint64(); break;
      case protozero::tag_and_type(field::packet::kSequenceFlags, protozero::pbf_wire_type::varint): view->flags = packet.get_uint32(); break;
      case protozero::tag_and_type(field::packet::kTimestampClockId, protozero::pbf_wire_type::varint): view->clock = packet.get_uint32(); break;
      case protozero::tag_and_type(field::packet::kTrackEvent, protozero::pbf_wire_type::length_delimited):
        view->event = view_of(packet.get_view());
        view->has_event = true;
        break;
      case protozero::tag_and_type(field::packet::kInternedData, protozero::pbf_wire_type::length_delimited): view->interned = view_of(packet.get_view()); break;
      case protozero::tag_and_type(field::packet::kDefaults, protozero::pbf_wire_type::length_delimited): view->defaults = view_of(packet.get_view()); break;
      case protozero::tag_and_type(field::packet::kClockSnapshot, protozero::pbf_wire_type::length_delimited): view->clock_snapshot = view_of(packet.get_view()); break;
      case protozero::tag_and_type(field::packet::kTrackDescriptor, protozero::pbf_wire_type::length_delimited): view->descriptor = view_of(packet.get_view()); break;
      case protozero::tag_and_type(field::packet::kChromeEvents, protozero::pbf_wire_type::length_delimited): view->chrome_events = view_of(packet.get_view()); break;
      case protozero::tag_and_type(field::packet::kCompressedPackets, protozero::pbf_wire_type::length_delimited): view->compressed = view_of(packet.get_view()); break;
      default: packet.skip(); return "a packet holds a field that Marey does not write";
    }
  }
  return nullptr;
}

const char* SliceBuilder::packet(std::span<const char> body, std::span<const char>* compressed) {
  const char* hot_problem = nullptr;
  if (hot_packet(body, &hot_problem)) return hot_problem;
  try {
    PacketView view;
    const char* problem = decode(body, &view);
    if (!view.compressed.empty()) {
      *compressed = std::span<const char>(view.compressed.data(), view.compressed.size());
      return problem;
    }
    const auto note = [&problem](const char* found) {
      if (problem == nullptr) problem = found;
    };
    if (!view.descriptor.empty()) note(track_descriptor(view.descriptor));
    if (!view.chrome_events.empty()) note(metadata(view.chrome_events));
    if (view.sequence == 0 || view.sequence > kMaxSequence) return problem != nullptr ? problem : "a packet belongs to no sequence";
    if (cached_ == nullptr || cached_id_ != view.sequence) {
      cached_ = &sequences_[view.sequence];
      cached_id_ = view.sequence;
    }
    Sequence& sequence = *cached_;
    if ((view.flags & field::kFlagStateCleared) != 0) {
      if (view.has_event) {
        note("an event resets its track");  // only a track's first packet does: the rest of the track stays readable
      } else {
        sequence = Sequence();
        sequence.valid = true;
      }
    }
    if (!view.descriptor.empty() || view.chrome_events.empty()) {
      if (!view.clock_snapshot.empty()) note(clock_snapshot(view.clock_snapshot, &sequence));
      if (!view.defaults.empty()) note(defaults(view.defaults, &sequence));
      if (!view.interned.empty()) note(intern(view.interned, &sequence));
      if (view.has_event) note(track_event(view, sequence));
    }
    return problem;
  } catch (const protozero::exception&) {
    return "a packet does not decode";
  }
}

const char* SliceBuilder::clock_snapshot(std::string_view bytes, Sequence* sequence) {
  pbf_reader snapshot(bytes.data(), bytes.size());
  while (snapshot.next(field::clock_snapshot::kClocks)) {
    pbf_reader clock = message_of(snapshot);
    std::uint32_t id = 0;
    std::uint64_t ns = 0;
    while (clock.next()) {
      switch (clock.tag()) {
        case field::clock::kId: id = static_cast<std::uint32_t>(varint(clock)); break;
        case field::clock::kTimestamp: ns = varint(clock); break;
        default: clock.skip();
      }
    }
    if (id == field::kClockLane) {
      if (ns > INT64_MAX) return "a clock is out of range";
      sequence->clock_ns = static_cast<std::int64_t>(ns);
      sequence->has_clock = true;
    }
  }
  return nullptr;
}

const char* SliceBuilder::defaults(std::string_view bytes, Sequence* sequence) {
  pbf_reader message(bytes.data(), bytes.size());
  while (message.next()) {
    if (message.tag() != field::defaults::kTrackEventDefaults) {
      message.skip();
      continue;
    }
    pbf_reader event = message_of(message);
    while (event.next()) {
      if (event.tag() == field::track_event::kTrackUuid) {
        sequence->track = track_of(varint(event));
      } else {
        event.skip();
      }
    }
  }
  return nullptr;
}

const char* SliceBuilder::intern(std::string_view bytes, Sequence* sequence) {
  pbf_reader data(bytes.data(), bytes.size());
  const char* problem = nullptr;
  while (data.next()) {
    std::vector<std::string_view>* table = nullptr;
    switch (data.tag()) {
      case field::interned::kEventNames: table = &sequence->names; break;
      case field::interned::kCategories: table = &sequence->categories; break;
      case field::interned::kAnnotationNames: table = &sequence->keys; break;
      default: break;
    }
    if (table == nullptr) {
      data.skip();
      problem = "interned data of an unknown kind";
      continue;
    }
    pbf_reader entry = message_of(data);
    std::uint64_t iid = 0;
    std::string_view text;
    while (entry.next()) {
      switch (entry.tag()) {
        case field::interned::kEntryIid: iid = varint(entry); break;
        case field::interned::kEntryName: text = bytes_of(entry); break;
        default: entry.skip();
      }
    }
    if (!put(table, iid, text)) problem = "an interned id is out of order";
  }
  return problem;
}

bool SliceBuilder::put(std::vector<std::string_view>* table, std::uint64_t iid, std::string_view text) {
  if (iid == 0) return false;
  if (iid >= table->size()) {
    const std::uint64_t gap = iid - std::max<std::uint64_t>(table->size(), 1);
    if (gap > kFreeGapSlots || gap_slots_ + gap > kFreeGapSlots + kGapSlotsPerEntry * entries_) return false;
    gap_slots_ += gap;
    table->resize(iid + 1);
  }
  ++entries_;
  refers_ = true;
  (*table)[iid] = text;
  return true;
}

std::uint32_t SliceBuilder::track_of(std::uint64_t uuid) {
  const auto [found, fresh] = tracks_.try_emplace(uuid, static_cast<std::uint32_t>(trace_->tracks.size()));
  if (fresh) {
    Track track;
    track.uuid = uuid;
    track.name = "?";
    trace_->tracks.push_back(std::move(track));
    states_.emplace_back();
  }
  return found->second;
}

const char* SliceBuilder::track_descriptor(std::string_view bytes) {
  pbf_reader message(bytes.data(), bytes.size());
  Track track;
  bool is_process = false;
  while (message.next()) {
    switch (message.tag()) {
      case field::track_descriptor::kUuid: track.uuid = varint(message); break;
      case field::track_descriptor::kName: track.name = text_of(message); break;
      case field::track_descriptor::kProcess:
        is_process = true;
        message.skip();
        break;
      case field::track_descriptor::kThread: {
        track.is_thread = true;
        pbf_reader thread = message_of(message);
        while (thread.next()) {
          switch (thread.tag()) {
            case field::thread::kPid: track.pid = static_cast<std::int32_t>(varint(thread)); break;
            case field::thread::kTid: track.tid = static_cast<std::int64_t>(varint(thread)); break;
            case field::thread::kName: track.name = text_of(thread); break;
            default: thread.skip();
          }
        }
        break;
      }
      default: message.skip();
    }
  }
  if (track.uuid == 0) return "a track has no id";
  if (is_process) return nullptr;
  trace_->tracks[track_of(track.uuid)] = std::move(track);
  return nullptr;
}

const char* SliceBuilder::metadata(std::string_view bytes) {
  pbf_reader events(bytes.data(), bytes.size());
  bool sealed = false;
  bool any = false;
  TraceInfo info;
  while (events.next()) {
    if (events.tag() != field::chrome_events::kMetadata) {
      events.skip();
      continue;
    }
    pbf_reader item = message_of(events);
    MetadataEntry entry;
    while (item.next()) {
      switch (item.tag()) {
        case field::chrome_metadata::kName: entry.name = text_of(item); break;
        case field::chrome_metadata::kString: entry.string_value = text_of(item); break;
        case field::chrome_metadata::kBool: entry.int_value = varint(item) != 0 ? 1 : 0; break;
        case field::chrome_metadata::kInt: entry.int_value = static_cast<std::int64_t>(varint(item)); break;
        default: item.skip();
      }
    }
    any = any || entry.name.starts_with("marey.");
    apply_metadata(entry, &info, &sealed);
  }
  if (!any) return "metadata that is not Marey's";
  trace_->info = std::move(info);
  sealed_ = sealed_ || sealed;
  metadata_seen_ = true;
  return nullptr;
}

const char* SliceBuilder::annotations(std::span<const std::string_view> list, const Sequence& sequence, bool is_end, Event* event) {
  const char* problem = nullptr;
  for (const std::string_view bytes : list) {
    pbf_reader annotation(bytes.data(), bytes.size());
    ArgValue arg;
    while (annotation.next()) {
      switch (annotation.tag()) {
        case field::annotation::kNameIid: arg.key = get(sequence.keys, varint(annotation)); break;
        case field::annotation::kBool:
          arg.type = ArgValue::Type::kBool;
          arg.int_value = varint(annotation) != 0 ? 1 : 0;
          break;
        case field::annotation::kInt: arg.int_value = static_cast<std::int64_t>(varint(annotation)); break;
        case field::annotation::kDouble:
          arg.type = ArgValue::Type::kDouble;
          arg.double_value = float64(annotation);
          break;
        case field::annotation::kString:
          arg.type = ArgValue::Type::kString;
          arg.string_value = bytes_of(annotation);
          refers_ = true;
          break;
        default: annotation.skip();
      }
    }
    if (arg.key.empty()) {
      problem = "an argument has no name";
    } else if (is_end) {
      if (arg.key == "open_at_end") event->truncated = true;
    } else if (event->arg_count < kMaxArgs) {
      if (event->arg_count == 0) event->first_arg = static_cast<std::uint32_t>(trace_->args.size());
      trace_->args.push_back(arg);
      ++event->arg_count;
    }
  }
  return problem;
}

/// The two packets that make up nearly all of a trace, as the writer's fast path lays them out. Anything else is left to
/// decode(). Changes nothing when it returns false.
bool SliceBuilder::hot_packet(std::span<const char> body, const char** problem) {
  const auto* at = reinterpret_cast<const unsigned char*>(body.data());
  const unsigned char* const end = at + body.size();
  const auto expect = [&](unsigned char byte) { return at < end && *at++ == byte; };
  const auto number = [&](std::uint64_t* value) {
    *value = 0;
    for (unsigned shift = 0; shift < 63 && at < end; shift += 7) {
      const unsigned char byte = *at++;
      *value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  };
  constexpr auto varint_tag = [](std::uint32_t field) { return static_cast<unsigned char>(tag(field, 0)); };
  std::uint64_t delta = 0;
  std::uint64_t sequence_id = 0;
  if (!expect(varint_tag(field::packet::kTimestamp)) || !number(&delta)) return false;
  if (!expect(varint_tag(field::packet::kSequenceId)) || !number(&sequence_id)) return false;
  if (cached_ == nullptr || cached_id_ != sequence_id) return false;  // decode() checks and finds it
  if (at < end && *at == varint_tag(field::packet::kSequenceFlags)) {
    ++at;
    if (!expect(field::kFlagNeedsState)) return false;
  }
  if (!expect(tag(field::packet::kTrackEvent, 2)) || at >= end || *at != end - at - 1) return false;
  ++at;
  EventFields fields;
  if (!expect(varint_tag(field::track_event::kType)) || at >= end) return false;
  fields.type = *at++;
  if (fields.type == field::kSliceBegin) {
    if (!expect(varint_tag(field::track_event::kCategoryIids)) || !number(&fields.category)) return false;
    if (!expect(varint_tag(field::track_event::kNameIid)) || !number(&fields.name)) return false;
  }
  if (at != end || fields.type > field::kSliceEnd) return false;
  Sequence& sequence = *cached_;
  std::int64_t ts_ns = 0;
  if (!sequence.ready() || __builtin_add_overflow(sequence.clock_ns, static_cast<std::int64_t>(delta), &ts_ns)) return false;
  sequence.clock_ns = ts_ns;
  *problem = add_event(ts_ns, fields, sequence);
  return true;
}

const char* SliceBuilder::track_event(const PacketView& view, Sequence& sequence) {
  if (!sequence.ready()) return "an event comes before its track is set up";
  if (!view.has_timestamp) return "an event has no time";
  std::int64_t ts_ns = 0;
  const auto value = static_cast<std::int64_t>(view.timestamp);
  if (view.clock == 0 || view.clock == field::kClockLane) {
    if (value < 0 || __builtin_add_overflow(sequence.clock_ns, value, &ts_ns)) return "time runs backwards or overflows";
    sequence.clock_ns = ts_ns;
  } else if (view.clock == field::kClockMonotonic) {
    if (value < 0) return "an event's time is out of range";
    ts_ns = value;
  } else {
    return "an event uses an unknown clock";
  }

  EventFields fields;
  annotations_.clear();
  const char* problem = nullptr;
  pbf_reader message(view.event.data(), view.event.size());
  while (message.next()) {
    switch (message.tag_and_type()) {
      case protozero::tag_and_type(field::track_event::kType, protozero::pbf_wire_type::varint): fields.type = message.get_uint32(); break;
      case protozero::tag_and_type(field::track_event::kNameIid, protozero::pbf_wire_type::varint): fields.name = message.get_uint64(); break;
      case protozero::tag_and_type(field::track_event::kCategoryIids, protozero::pbf_wire_type::varint): fields.category = message.get_uint64(); break;
      case protozero::tag_and_type(field::track_event::kDebugAnnotations, protozero::pbf_wire_type::length_delimited):
        annotations_.push_back(view_of(message.get_view()));
        break;
      case protozero::tag_and_type(field::track_event::kFlowIds, protozero::pbf_wire_type::fixed64): fields.flow_id = message.get_fixed64(); break;
      case protozero::tag_and_type(field::track_event::kTerminatingFlowIds, protozero::pbf_wire_type::fixed64):
        fields.terminating_flow_id = message.get_fixed64();
        break;
      default:
        message.skip();
        problem = "an event holds a field that Marey does not write";
    }
  }
  fields.annotations = annotations_;
  if (const char* wrong = add_event(ts_ns, fields, sequence)) problem = wrong;
  return problem;
}

const char* SliceBuilder::add_event(std::int64_t ts_ns, const EventFields& fields, const Sequence& sequence) {
  last_ns_ = std::max(last_ns_, ts_ns);
  TrackState& state = states_[sequence.track];
  const char* problem = nullptr;
  if (fields.type == field::kSliceEnd) {
    if (options_.info_only) return nullptr;
    if (state.open.empty()) return "a range ends that never began";
    Event& open = trace_->events[state.open.back()];
    state.open.pop_back();
    open.duration_ns = std::max<std::int64_t>(0, ts_ns - open.begin_ns);
    if (!fields.annotations.empty()) problem = annotations(fields.annotations, sequence, true, &open);
    return ts_ns < open.begin_ns ? "a range ends before it begins" : problem;
  }
  if (fields.type != field::kSliceBegin && fields.type != field::kInstant) return "an event of an unknown type";
  ++counted_;
  if (options_.info_only) {
    return get(sequence.names, fields.name).empty() ? "an event's name is missing" : nullptr;
  }
  Event& event = trace_->events.emplace_back();
  event.name = get(sequence.names, fields.name);
  event.category = get(sequence.categories, fields.category);
  if (event.name.empty()) {
    event.name = "?";
    problem = "an event's name is missing";
  }
  if (event.category.empty()) problem = "an event's category is missing";
  event.begin_ns = ts_ns;
  event.track = sequence.track;
  event.flow_id = fields.flow_id;
  event.terminating_flow_id = fields.terminating_flow_id;
  event.kind = fields.type == field::kInstant ? EventKind::kMark : EventKind::kRange;
  event.tier = event.category == event::kUnitCategory || event.category == event::kStageCategory ? Tier::kSkeleton : Tier::kDetail;
  if (ts_ns < state.last_ns) state.renest = true;
  state.last_ns = std::max(state.last_ns, ts_ns);
  event.depth = static_cast<std::uint16_t>(std::min<std::size_t>(state.open.size(), UINT16_MAX));
  event.parent = state.open.empty() ? kNoParent : state.open.back();
  if (event.kind == EventKind::kRange) state.open.push_back(static_cast<std::uint32_t>(trace_->events.size() - 1));
  if (!fields.annotations.empty()) {
    if (const char* wrong = annotations(fields.annotations, sequence, false, &event)) problem = wrong;
  }
  return problem;
}

void SliceBuilder::renest() {
  std::vector<std::vector<std::uint32_t>> late(states_.size());
  std::vector<Event>& events = trace_->events;
  for (std::uint32_t i = 0; i < events.size(); ++i) {
    if (states_[events[i].track].renest) late[events[i].track].push_back(i);
  }
  const auto end_of = [&events](std::uint32_t i) { return events[i].begin_ns + events[i].duration_ns; };
  std::vector<std::uint32_t> stack;
  for (std::vector<std::uint32_t>& order : late) {
    // Outer ranges first; with equal times the one that was written earlier is the outer one.
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return events[a].begin_ns != events[b].begin_ns ? events[a].begin_ns < events[b].begin_ns : end_of(a) > end_of(b);
    });
    stack.clear();
    for (const std::uint32_t i : order) {
      while (!stack.empty() && end_of(stack.back()) <= events[i].begin_ns) stack.pop_back();
      events[i].depth = static_cast<std::uint16_t>(std::min<std::size_t>(stack.size(), UINT16_MAX));
      events[i].parent = stack.empty() ? kNoParent : stack.back();
      if (events[i].kind == EventKind::kRange) stack.push_back(i);
    }
  }
}

void SliceBuilder::sort_events() {
  struct Key {
    std::int64_t begin_ns;
    std::uint16_t depth;  ///< a parent begins no later than its children and lies less deep
    std::uint32_t index;
    bool operator<(const Key& other) const {
      if (begin_ns != other.begin_ns) return begin_ns < other.begin_ns;
      return depth != other.depth ? depth < other.depth : index < other.index;
    }
  };
  std::vector<Event>& events = trace_->events;
  std::vector<Key> order;
  order.reserve(events.size());
  for (std::uint32_t i = 0; i < events.size(); ++i) order.push_back({events[i].begin_ns, events[i].depth, i});
  if (std::is_sorted(order.begin(), order.end())) return;
  std::sort(order.begin(), order.end());
  std::vector<std::uint32_t> where(events.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) where[order[i].index] = i;
  std::vector<Event> sorted;
  sorted.reserve(events.size());
  for (const Key& key : order) {
    sorted.push_back(events[key.index]);
    if (sorted.back().parent != kNoParent) sorted.back().parent = where[sorted.back().parent];
  }
  events.swap(sorted);
}

void SliceBuilder::finish() {
  std::vector<Event>& events = trace_->events;
  TraceInfo& info = trace_->info;
  const std::int64_t end_ns = std::max(info.end_ns, last_ns_ == INT64_MIN ? info.begin_ns : last_ns_);
  bool any_late = false;
  for (const TrackState& state : states_) {
    for (const std::uint32_t index : state.open) {
      events[index].duration_ns = std::max<std::int64_t>(0, end_ns - events[index].begin_ns);
      events[index].truncated = true;
    }
    any_late = any_late || state.renest;
  }
  if (any_late) renest();
  if (!sealed_) info.events = counted_;
  if (info.end_ns == 0) info.end_ns = end_ns;
  sort_events();
}

}  // namespace marey::trace
