#include "src/session/source_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "marey/detail/lane.h"
#include "src/base/log.h"

namespace marey::session {

SourceSet& SourceSet::get() {
  static auto* instance = new SourceSet;
  return *instance;
}

Status SourceSet::add(const marey_source* source) {
  if (source == nullptr || source->size < sizeof(marey_source) || source->name == nullptr || source->arm == nullptr) {
    return Status::invalid_argument(
        "marey_register_source: the struct is null, too small or has no name or arm function");
  }
  std::unique_lock lock(mutex_);
  for (Entry& entry : entries_) {
    if (entry.name != source->name) continue;
    if (entry.source != nullptr) {
      return Status::invalid_argument(fmt::format("source '{}' is registered already", source->name));
    }
    entry = Entry{source, source->name, "idle", "", {}};
    apply(lock);
    return Status::ok();
  }
  entries_.push_back(Entry{source, source->name, "idle", "", {}});
  apply(lock);  // a window may be waiting for it
  return Status::ok();
}

void SourceSet::set_unavailable(const std::string& name, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) {
    if (entry.name != name) continue;
    if (entry.source == nullptr) entry.reason = reason;
    return;
  }
  entries_.push_back(Entry{nullptr, name, "unavailable", reason, {}});
}

SourceSet::Wish SourceSet::united() const {
  Wish all;
  for (const auto& [owner, wish] : wishes_) {
    all.class_mask |= wish.class_mask;
    all.shapes = all.shapes || wish.shapes;
  }
  return all;
}

void SourceSet::want(const void* owner, const Wish& wish) {
  std::unique_lock lock(mutex_);
  const auto found = wishes_.find(owner);
  if (found == wishes_.end() ? wish.class_mask == 0 : found->second == wish) return;
  if (wish.class_mask == 0) {
    wishes_.erase(found);
  } else {
    wishes_[owner] = wish;
  }
  apply(lock);
}

void SourceSet::apply(std::unique_lock<std::mutex>& lock) {
  // One thread at a time calls into sources; the others wait until their wish was taken into account.
  applied_.wait(lock, [this] { return !applying_; });
  applying_ = true;
  // Relaxed: sources only use the bit to do nothing in a forked child.
  if (united().class_mask != 0) detail::g_gate.fetch_or(detail::kGateSources, std::memory_order_relaxed);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Wish wish = united();
    const marey_source* source = entries_[i].source;
    if (source == nullptr || entries_[i].state == "failed" || entries_[i].applied == wish) continue;
    char reason[256] = "";
    lock.unlock();  // a source may take its library's locks
    const int code = source->arm(source->user, wish.class_mask, wish.shapes ? 1 : 0, reason, sizeof reason);
    lock.lock();
    reason[sizeof reason - 1] = '\0';
    Entry& entry = entries_[i];
    entry.applied = wish;
    if (code == 0) {
      entry.state = wish.class_mask == 0 ? "idle" : "armed";
    } else {
      entry.state = "failed";
      entry.reason = reason;
      const std::string line = fmt::format("source '{}' failed and is left out: {}", entry.name, entry.reason);
      lock.unlock();
      base::log_once("source " + entry.name, line);
      lock.lock();
    }
    // Wishes may have changed meanwhile, and a source may have been added: their owners wait for their own turn.
  }
  if (united().class_mask == 0)
    detail::g_gate.fetch_and(~std::uint32_t{detail::kGateSources}, std::memory_order_relaxed);
  applying_ = false;
  applied_.notify_all();
}

std::vector<trace::SourceState> SourceSet::states() const {
  std::vector<trace::SourceState> states;
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) states.push_back({entry.name, entry.state, entry.reason});
  return states;
}

void SourceSet::reset_after_fork() {
  new (&mutex_) std::mutex;
  new (&applied_) std::condition_variable;
  wishes_.clear();
  applying_ = false;
}

}  // namespace marey::session
