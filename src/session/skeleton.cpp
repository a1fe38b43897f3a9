#include "src/session/skeleton.h"

#include <algorithm>

namespace marey::session {

using schedule::Unit;

void Skeleton::begin_slice(const Event& event) {
  emit_(event);
  open_.push_back({event, 0, false, false});
}

void Skeleton::end_slice(std::size_t index, std::uint64_t ticks, bool open_at_end) {
  Slice slice = open_[index];
  open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(index));
  slice.closed = true;
  slice.end_ticks = std::max(ticks, slice.begin.ticks);
  slice.open_at_end = open_at_end;
  Event end = slice.begin;
  end.is_begin = false;
  end.ticks = slice.end_ticks;
  end.open_at_end = open_at_end;
  emit_(end);
  history_.push_back(slice);
  while (history_.size() > kMaxHistory) {
    history_.pop_front();
    ++trimmed_;
  }
  if (!slice.begin.is_stage && slice.begin.unit == Unit::kTrainStep) history_.clear();
}

std::optional<std::size_t> Skeleton::open_unit(Unit unit) const {
  for (std::size_t i = open_.size(); i-- > 0;) {
    if (!open_[i].begin.is_stage && open_[i].begin.unit == unit) return i;
  }
  return std::nullopt;
}

void Skeleton::close_above(std::size_t index, std::uint64_t ticks) {
  while (open_.size() > index + 1) end_slice(open_.size() - 1, ticks, true);
}

void Skeleton::write_pending(Unit down_to) {
  for (int u = 0; u <= static_cast<int>(down_to); ++u) {
    auto& pending = pending_[static_cast<std::size_t>(u)];
    if (!pending || pending->written || pending->tentative) continue;
    pending->written = true;
    Event event;
    event.ticks = pending->ticks;
    event.unit = static_cast<Unit>(u);
    event.number = pending->number;
    begin_slice(event);
  }
}

void Skeleton::stage_begin(std::uint64_t ticks, std::uint32_t name) {
  // Not the units below: the first scheduled stage may show that they were never counted out here.
  write_pending(Unit::kTrainStep);
  Event event;
  event.ticks = ticks;
  event.is_stage = true;
  event.name = name;
  begin_slice(event);
}

void Skeleton::stage_end(std::uint64_t ticks, std::uint32_t name) {
  for (std::size_t i = open_.size(); i-- > 0;) {
    if (!open_[i].begin.is_stage || open_[i].begin.name != name) continue;
    close_above(i, ticks);
    end_slice(i, ticks, false);
    return;
  }
}

void Skeleton::unit_begin(std::uint64_t ticks, Unit unit, std::int64_t number, bool tentative) {
  pending_[static_cast<std::size_t>(unit)] = PendingUnit{number, ticks, false, tentative};
}

void Skeleton::unit_end(std::uint64_t ticks, Unit unit) {
  if (unit != Unit::kMicroBatch) unit_cancel(ticks, static_cast<Unit>(static_cast<int>(unit) + 1));
  if (auto& pending = pending_[static_cast<std::size_t>(unit)]) pending->tentative = false;
  write_pending(unit);
  pending_[static_cast<std::size_t>(unit)].reset();
  if (const auto index = open_unit(unit)) {
    close_above(*index, ticks);
    end_slice(*index, ticks, false);
  }
}

void Skeleton::unit_cancel(std::uint64_t ticks, Unit unit) {
  for (int u = 2; u >= static_cast<int>(unit); --u) {
    pending_[static_cast<std::size_t>(u)].reset();
    if (const auto index = open_unit(static_cast<Unit>(u))) {
      close_above(*index, ticks);
      end_slice(*index, ticks, true);
    }
  }
}

void Skeleton::touch(std::uint64_t ticks) {
  for (int u = static_cast<int>(own_unit_); u >= 0; --u) {
    const auto& pending = pending_[static_cast<std::size_t>(u)];
    if (pending && pending->ticks <= ticks) {
      write_pending(static_cast<Unit>(u));
      return;
    }
  }
}

void Skeleton::finish(std::uint64_t ticks) {
  for (auto& pending : pending_) pending.reset();
  while (!open_.empty()) end_slice(open_.size() - 1, ticks, true);
}

std::vector<Skeleton::Event> Skeleton::open_ranges() const {
  std::vector<Event> events;
  events.reserve(open_.size());
  for (const Slice& slice : open_) events.push_back(slice.begin);
  return events;
}

void Skeleton::replay(const Emit& emit) const {
  std::vector<Slice> slices(history_.begin(), history_.end());
  slices.insert(slices.end(), open_.begin(), open_.end());
  const auto end_of = [](const Slice& slice) { return slice.closed ? slice.end_ticks : UINT64_MAX; };
  // Children were closed before their parents: with equal times the one that was written later is the outer one.
  std::vector<std::size_t> order(slices.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (slices[a].begin.ticks != slices[b].begin.ticks) return slices[a].begin.ticks < slices[b].begin.ticks;
    if (end_of(slices[a]) != end_of(slices[b])) return end_of(slices[a]) > end_of(slices[b]);
    const bool both_open = !slices[a].closed && !slices[b].closed;
    return both_open ? a < b : a > b;
  });
  std::vector<const Slice*> stack;
  const auto close_until = [&](std::uint64_t ticks) {
    while (!stack.empty() && stack.back()->closed && stack.back()->end_ticks <= ticks) {
      Event end = stack.back()->begin;
      end.is_begin = false;
      end.ticks = stack.back()->end_ticks;
      end.open_at_end = stack.back()->open_at_end;
      emit(end);
      stack.pop_back();
    }
  };
  for (const std::size_t index : order) {
    close_until(slices[index].begin.ticks);
    emit(slices[index].begin);
    stack.push_back(&slices[index]);
  }
  close_until(UINT64_MAX - 1);
}

}  // namespace marey::session
