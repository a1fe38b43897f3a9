#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/schedule/schedule.h"
#include "src/trace/trace_info.h"

namespace marey::session {

class Lease;

/// What a training thread tells the drain, stamped under the session's mutex, so that the order of the queue is the
/// order of the stamps. Everything a lease's files hold besides detail events comes through here. Small, since each
/// step() of a running profiler makes a few.
struct Control {
  enum class Kind : std::uint8_t {
    kLeaseBegin,  ///< from now on there is a skeleton trace
    kLeaseEnd,    ///< seal it
    kStageBegin,  ///< name
    kStageEnd,    ///< name
    kUnitBegin,   ///< unit, number: it begins if something happens in it (see Skeleton)
    kUnitEnd,     ///< unit, number
    kUnitCancel,  ///< unit: the one that began last never existed, nor did those below it
    kWindowBegin,
    kWindowEnd,
  };
  /// What only leases and windows need.
  struct Extra {
    std::shared_ptr<Lease> lease;  ///< kLeaseBegin: the session keeps it until it is finished
    std::uint64_t window_id = 0;
    std::int64_t planned = 0;   ///< kWindowBegin
    std::int64_t recorded = 0;  ///< kWindowEnd: whole units
    bool complete = false;
    /// The unit in flight counts as whole when it holds events (a loop of one unit that never called step()).
    bool count_unit_in_flight = false;
    /// Drop the window when it holds no whole unit: its unit never existed.
    bool discard_if_no_unit = false;
    std::string text;     ///< kWindowBegin: scheduled stage; kWindowEnd, kLeaseEnd: reason
    std::string nothing;  ///< kLeaseEnd: what to tell when the lease recorded no window
    std::optional<std::int64_t> train_step;
    std::vector<trace::SourceState> sources;  ///< kLeaseBegin, kWindowBegin: as they are at that moment
  };

  Kind kind = Kind::kUnitEnd;
  schedule::Unit unit = schedule::Unit::kTrainStep;
  bool tentative = false;  ///< kUnitBegin: see Skeleton::unit_begin
  std::uint32_t name = 0;
  std::int64_t number = 0;
  std::uint64_t ticks = 0;
  Lease* lease = nullptr;  ///< alive: nothing is posted for a lease after its kLeaseEnd
  std::unique_ptr<Extra> extra;
};

/// The controls of one moment, on the caller's stack; room that is not used costs nothing.
class ControlBatch {
 public:
  static constexpr std::size_t kMax =
      12;  ///< a transition posts at most: end, cancel, stage, 3 units, window end and begin

  ControlBatch() {}  // NOLINT(modernize-use-equals-default): a defaulted one would clear the storage
  ControlBatch(ControlBatch&& other) noexcept { add(std::move(other)); }
  ControlBatch& operator=(ControlBatch&&) = delete;
  ~ControlBatch() { std::destroy_n(begin(), count_); }

  void add(Control control) { std::construct_at(begin() + count_++, std::move(control)); }
  void add(ControlBatch&& other) {
    for (Control& control : other) add(std::move(control));
    std::destroy_n(other.begin(), other.count_);
    other.count_ = 0;
  }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] Control* begin() { return reinterpret_cast<Control*>(storage_); }
  [[nodiscard]] Control* end() { return begin() + count_; }

 private:
  std::size_t count_ = 0;
  alignas(Control) std::byte storage_[kMax * sizeof(Control)];
};

}  // namespace marey::session
