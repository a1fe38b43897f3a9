#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/schedule/schedule.h"
#include "src/trace/trace_info.h"

namespace marey::session {

class Lease;

/// What a training thread tells the drain, stamped under the session's mutex, so that the order of the queue is the order
/// of the stamps. Everything a lease's files hold besides detail events comes through here.
struct Control {
  enum class Kind {
    kLeaseBegin,    ///< from now on there is a skeleton trace
    kLeaseEnd,      ///< seal it
    kStageBegin,    ///< name
    kStageEnd,      ///< name
    kUnitBegin,     ///< unit, number: it begins if something happens in it (see Lease)
    kUnitEnd,       ///< unit, number
    kUnitCancel,    ///< unit: the one that began last never existed, nor did those below it
    kWindowBegin,   ///< window_id, number (first unit), planned
    kWindowEnd,     ///< window_id, recorded, complete, reason
  };
  Kind kind;
  std::uint64_t ticks = 0;
  std::shared_ptr<Lease> lease;
  std::uint32_t name = 0;
  schedule::Unit unit = schedule::Unit::kTrainStep;
  std::int64_t number = 0;
  std::uint64_t window_id = 0;
  std::int64_t planned = 0;
  std::int64_t recorded = 0;
  bool complete = false;
  bool tentative = false;  ///< kUnitBegin: see Skeleton::unit_begin
  /// The unit in flight counts as whole when it holds events (a loop of one unit that never called step()).
  bool count_unit_in_flight = false;
  /// Drop the window when it holds no whole unit: its unit never existed.
  bool discard_if_no_unit = false;
  std::string text;  ///< kWindowBegin: scheduled stage; kWindowEnd, kLeaseEnd: reason
  std::string nothing;  ///< kLeaseEnd: what to tell when the lease recorded no window
  std::optional<std::int64_t> train_step;
  std::vector<trace::SourceState> sources;  ///< kLeaseBegin, kWindowBegin: as they are at that moment
};

}  // namespace marey::session
