#include "src/session/window.h"

#include <unistd.h>

#include <algorithm>
#include <bit>

#include "src/event/categories.h"
#include "src/event/string_table.h"

namespace marey::session {
namespace {

using detail::ArgSlot;
using detail::ArgType;
using detail::EventClass;
using detail::SequenceSlot;
using detail::Slot;
using detail::SlotKind;

/// Perfetto's reader gives up at 512 slices on one track.
constexpr std::size_t kMaxDepth = 480;
/// How far ahead to look for another forward operator of the same sequence number.
constexpr int kFlowLookahead = 256;

std::uint64_t mix(std::uint64_t x) {  // splitmix64's finaliser: spreads small numbers over 64 bits
  x ^= x >> 30U;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27U;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

/// Flow ids are global in a trace and must differ over merged processes.
std::uint64_t flow_id(const SequenceSlot& sequence) {
  static const std::uint64_t salt =
      mix(static_cast<std::uint64_t>(::getpid()) ^ (static_cast<std::uint64_t>(::gethostid()) << 32U));
  const std::uint64_t id = mix(salt ^ mix(sequence.forward_thread * 0x9e3779b97f4a7c15ULL +
                                          static_cast<std::uint64_t>(sequence.sequence_number)));
  return id == 0 ? 1 : id;
}

const SequenceSlot* sequence_of(const Slot* slot) {
  return (slot->flags & detail::kFlagSequence) != 0 && slot->extra > 0 ? reinterpret_cast<const SequenceSlot*>(slot + 1)
                                                                       : nullptr;
}

/// Several forward operators can carry one sequence number; the last is the one whose node the backward runs.
bool is_last_of_its_sequence(const Slot* slot, const Slot* end) {
  const std::int64_t number = sequence_of(slot)->sequence_number;
  const Slot* next = slot + 1 + slot->extra;
  for (int i = 0; i < kFlowLookahead && next < end; ++i, next += 1 + next->extra) {
    if (next->kind != SlotKind::kBegin || next->event_class != EventClass::kOperator) continue;
    const SequenceSlot* sequence = sequence_of(next);
    if (sequence == nullptr || sequence->sequence_number < 0) continue;
    return sequence->sequence_number != number;
  }
  return true;
}

std::uint32_t key_id(std::string_view key) {
  return event::names().intern(key, "arg");
}

}  // namespace

bool Window::open() {
  if (writer_ == nullptr && !failed_) {
    writer_ = opener_(*this);
    failed_ = writer_ == nullptr;
  }
  return writer_ != nullptr;
}

Window::LaneState& Window::state_of(recorder::Lane& lane) {
  if (cached_lane_ == lane.id) return *cached_state_;
  auto [found, fresh] = lanes_.try_emplace(lane.id);
  if (fresh) {
    lane.refresh_name();
    found->second.track = writer_->add_thread_track({::getpid(), lane.tid, lane.name});
  }
  cached_lane_ = lane.id;
  cached_state_ = &found->second;  // elements of an unordered_map do not move
  return found->second;
}

std::uint32_t Window::stored_name(const Slot& slot) {
  // Words that belong to a source are not a user's to take: the reader tells the source by them.
  if (slot.event_class != EventClass::kUser) return slot.name;
  if (slot.name >= stored_names_.size())
    stored_names_.resize(std::max<std::size_t>(slot.name + 1, 2 * stored_names_.size()));
  std::uint32_t& stored = stored_names_[slot.name];
  if (stored == 0) {
    const event::NameEntry& entry = event::names().entry(slot.name);
    stored = event::source_of(entry.category) == "host" ? slot.name
                                                        : event::names().intern(entry.name, "user." + entry.category);
  }
  return stored;
}

void Window::on_slots(recorder::Lane& lane, const Slot* begin, const Slot* end) {
  const std::uint64_t begin_ticks = options_.begin_ticks;
  const std::uint64_t width = end_ticks_ - begin_ticks;
  for (const Slot* slot = begin; slot < end; slot += 1 + slot->extra) {
    // One unsigned comparison for both bounds.
    if (slot->ticks - begin_ticks >= width || slot->kind == SlotKind::kPad) continue;
    if ((options_.class_mask & class_bit(slot->event_class)) == 0) continue;
    switch (slot->kind) {
      case SlotKind::kBegin:
        if (!open()) return;
        on_begin(state_of(lane), slot, end);
        break;
      case SlotKind::kEnd:
        if (writer_ == nullptr) break;  // its begin lies before the window
        on_end(state_of(lane), slot);
        break;
      case SlotKind::kMark: {
        if (!open()) return;
        LaneState& state = state_of(lane);
        state.last_ns = std::max(state.last_ns, time_of(slot->ticks));
        writer_->mark(state.track, state.last_ns, stored_name(*slot), decode(slot, end).args);
        ++detail_events_;
        last_event_ticks_ = std::max(last_event_ticks_, slot->ticks);
        break;
      }
      case SlotKind::kAsyncBegin:
        if (!open()) return;
        on_async_begin(slot);
        break;
      case SlotKind::kAsyncEnd:
        on_async_end(slot);
        break;
      case SlotKind::kPad:
        break;
    }
  }
}

void Window::on_begin(LaneState& state, const Slot* slot, const Slot* end) {
  if (state.open.size() >= kMaxDepth) {
    state.open.push_back({slot->name, false});
    count_loss("too_deep", 1, slot->ticks, slot->ticks);
    return;
  }
  // Counters of different cores may differ by a few ticks when a thread moves: time on a lane never goes back.
  state.last_ns = std::max(state.last_ns, time_of(slot->ticks));
  if (slot->extra == 0) {
    writer_->begin(state.track, state.last_ns, stored_name(*slot));
  } else {
    writer_->begin(state.track, state.last_ns, stored_name(*slot), decode(slot, end));
  }
  state.open.push_back({slot->name, true});
  ++detail_events_;
  last_event_ticks_ = std::max(last_event_ticks_, slot->ticks);
}

void Window::on_end(LaneState& state, const Slot* slot) {
  if (state.open.empty()) return;  // its begin lies before the window, or was dropped
  const std::int64_t now_ns = std::max(state.last_ns, time_of(slot->ticks));
  if (state.open.back().name != slot->name) {
    const auto match = std::find_if(state.open.rbegin(), state.open.rend(),
                                    [slot](const OpenRange& range) { return range.name == slot->name; });
    if (match == state.open.rend()) return;
    // The ends of the ranges above were dropped (a full lane counts them): they end no later than this one.
    while (state.open.back().name != slot->name) {
      if (state.open.back().written) writer_->end(state.track, now_ns, true);
      state.open.pop_back();
    }
  }
  if (state.open.back().written) writer_->end(state.track, now_ns, false);
  state.open.pop_back();
  state.last_ns = now_ns;
}

void Window::on_async_begin(const Slot* slot) {
  if (slot->extra < 1) return;
  const std::uint64_t id = reinterpret_cast<const ArgSlot*>(slot + 1)->value;
  const std::int64_t begin_ns = time_of(slot->ticks);
  // Overlapping slices may not share a track: take one that is free since before this begin.
  std::size_t track = 0;
  while (track < async_tracks_.size() && (async_tracks_[track].busy || async_tracks_[track].last_ns > begin_ns))
    ++track;
  if (track == async_tracks_.size()) async_tracks_.push_back({writer_->add_track("async ranges", 10), begin_ns, false});
  async_tracks_[track].busy = true;
  async_tracks_[track].last_ns = begin_ns;
  trace::BeginExtras extras = decode(slot, slot + 1 + slot->extra);
  extras.args = extras.args.subspan(1);  // the id is ours
  writer_->begin(async_tracks_[track].track, begin_ns, stored_name(*slot), extras);
  async_open_[id] = {track, begin_ns};
  ++detail_events_;
  last_event_ticks_ = std::max(last_event_ticks_, slot->ticks);
  if (const auto early = async_early_ends_.find(id); early != async_early_ends_.end()) {
    const std::int64_t end_ns = early->second;
    async_early_ends_.erase(early);
    finish_async(id, end_ns, false);
  }
}

void Window::on_async_end(const Slot* slot) {
  if (slot->extra < 1) return;
  const std::uint64_t id = reinterpret_cast<const ArgSlot*>(slot + 1)->value;
  if (async_open_.contains(id)) {
    finish_async(id, time_of(slot->ticks), false);
  } else if (async_early_ends_.size() < 4096) {  // most are ends of ranges that began before the window
    async_early_ends_.emplace(id, time_of(slot->ticks));
  }
}

void Window::finish_async(std::uint64_t id, std::int64_t end_ns, bool open_at_end) {
  const auto found = async_open_.find(id);
  AsyncTrack& track = async_tracks_[found->second.track];
  track.last_ns = std::max(end_ns, found->second.begin_ns);
  track.busy = false;
  writer_->end(track.track, track.last_ns, open_at_end);
  async_open_.erase(found);
}

trace::BeginExtras Window::decode(const Slot* slot, const Slot* end) {
  trace::BeginExtras extras;
  args_.clear();
  const Slot* payload = slot + 1;
  const Slot* payload_end = std::min(payload + slot->extra, end);
  if (const SequenceSlot* sequence = sequence_of(slot); sequence != nullptr) {
    static const std::uint32_t sequence_key = key_id("Sequence number");
    static const std::uint32_t thread_key = key_id("Fwd thread id");
    args_.push_back({sequence_key, trace::Arg::Type::kInt, sequence->sequence_number, 0, {}});
    args_.push_back({thread_key, trace::Arg::Type::kInt, static_cast<std::int64_t>(sequence->forward_thread), 0, {}});
    if (sequence->sequence_number >= 0) {
      if (slot->event_class == EventClass::kBackward) {
        extras.terminating_flow_id = flow_id(*sequence);
      } else if (is_last_of_its_sequence(slot, end)) {
        extras.flow_id = flow_id(*sequence);
      }
    }
    ++payload;
  }
  while (payload < payload_end) {
    const auto* arg = reinterpret_cast<const ArgSlot*>(payload);
    trace::Arg value;
    value.key = arg->key;
    ++payload;
    switch (arg->type) {
      case ArgType::kInt:
      case ArgType::kId:
        value.int_value = static_cast<std::int64_t>(arg->value);
        break;
      case ArgType::kDouble:
        value.type = trace::Arg::Type::kDouble;
        value.double_value = std::bit_cast<double>(arg->value);
        break;
      case ArgType::kBool:
        value.type = trace::Arg::Type::kBool;
        value.int_value = arg->value != 0 ? 1 : 0;
        break;
      case ArgType::kString: {
        const std::size_t slots = (std::size_t{arg->size} + sizeof(Slot) - 1) / sizeof(Slot);
        const auto room = static_cast<std::size_t>(payload_end - payload) * sizeof(Slot);
        value.type = trace::Arg::Type::kString;
        value.string_value = {reinterpret_cast<const char*>(payload), std::min<std::size_t>(arg->size, room)};
        payload += slots;
        break;
      }
    }
    args_.push_back(value);
  }
  if ((slot->flags & detail::kFlagTruncated) != 0) {
    static const std::uint32_t key = key_id("args_truncated");
    args_.push_back({key, trace::Arg::Type::kBool, 1, 0, {}});
  }
  extras.args = args_;
  return extras;
}

void Window::close_open_ranges() {
  if (writer_ == nullptr) return;
  const std::int64_t end_ns = time_of(end_ticks_);
  for (auto& [id, state] : lanes_) {
    while (!state.open.empty()) {
      if (state.open.back().written) writer_->end(state.track, std::max(end_ns, state.last_ns), true);
      state.open.pop_back();
    }
  }
  while (!async_open_.empty()) finish_async(async_open_.begin()->first, end_ns, true);
}

void Window::on_dropped(recorder::Lane&, std::uint64_t count, std::uint64_t since_ticks, std::uint64_t last_ticks) {
  const std::uint64_t begin = std::max(since_ticks, options_.begin_ticks);
  const std::uint64_t end = std::min(last_ticks, end_ticks_);
  if (begin > end) return;  // before or after the window
  count_loss("lane_full", count, begin, end);
}

void Window::count_loss(const char* reason, std::uint64_t count, std::uint64_t begin_ticks, std::uint64_t end_ticks) {
  LossRange& loss = losses_[reason];
  loss.begin_ticks = loss.count == 0 ? begin_ticks : std::min(loss.begin_ticks, begin_ticks);
  loss.end_ticks = std::max(loss.end_ticks, end_ticks);
  loss.count += count;
}

std::vector<trace::Loss> Window::losses() const {
  std::vector<trace::Loss> list;
  for (const auto& [reason, loss] : losses_) {
    list.push_back({reason, loss.count, "", time_of(loss.begin_ticks), time_of(loss.end_ticks)});
  }
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.reason < b.reason; });
  return list;
}

}  // namespace marey::session
