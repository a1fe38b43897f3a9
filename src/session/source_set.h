#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "marey/marey.h"
#include "src/base/status.h"
#include "src/trace/trace_info.h"

namespace marey::session {

/// Which detail is wanted by whom, and the sources that give it. Sources are called without any lock of Marey's held,
/// one call at a time; a caller of want() returns when what it asked for is in force.
class SourceSet {
 public:
  struct Wish {
    std::uint32_t class_mask = 0;
    bool shapes = false;
    bool operator==(const Wish&) const = default;
  };

  /// The process's sources; never destroyed.
  static SourceSet& get();

  Status add(const marey_source* source);
  void set_unavailable(const std::string& name, const std::string& reason);

  /// Replaces the wish of `owner` (0 mask: none) and arms or disarms sources to the union of all wishes. A source that
  /// fails is marked and told once; recording goes on without it.
  void want(const void* owner, const Wish& wish);
  [[nodiscard]] std::vector<trace::SourceState> states() const;
  /// In a fork's child: nobody wants anything any more. Observers that were armed are copies that stay registered,
  /// since taking them out could wait for a lock whose owner is not there; with kGateSources clear they do nothing.
  void reset_after_fork();

 private:
  struct Entry {
    const marey_source* source = nullptr;
    std::string name;
    std::string state;  ///< "idle", "armed", "failed", "unavailable"
    std::string reason;
    Wish applied;
  };
  [[nodiscard]] Wish united() const;
  void apply(std::unique_lock<std::mutex>& lock);

  mutable std::mutex mutex_;
  std::condition_variable applied_;
  std::vector<Entry> entries_;
  std::map<const void*, Wish> wishes_;
  bool applying_ = false;
};

}  // namespace marey::session
