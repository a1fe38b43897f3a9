#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "src/base/file_output.h"
#include "src/base/status.h"
#include "src/event/string_table.h"
#include "src/trace/trace_info.h"

namespace marey::trace {

using TrackId = std::uint32_t;

struct ThreadInfo {
  std::int64_t pid = 0;
  std::int64_t tid = 0;
  std::string name;
};

/// Clocks sampled at one moment, written as Perfetto clock snapshots. monotonic_ns is the trace clock.
struct ClockSample {
  std::int64_t monotonic_ns = 0;
  std::int64_t realtime_ns = 0;
  std::int64_t monotonic_raw_ns = 0;
  std::int64_t boottime_ns = 0;
};

/// One argument of an event. Borrowed: valid during the call.
struct Arg {
  enum class Type { kInt, kDouble, kBool, kString };
  std::uint32_t key = 0;  ///< id in the string table
  Type type = Type::kInt;
  std::int64_t int_value = 0;  ///< also kBool
  double double_value = 0;
  std::string_view string_value;
};

/// What may go with a begin besides name and time.
struct BeginExtras {
  std::span<const Arg> args;
  std::uint64_t flow_id = 0;              ///< 0: none; starts or continues a flow
  std::uint64_t terminating_flow_id = 0;  ///< 0: none
};

/// Writes one trace as a Perfetto file, packet by packet, into "<final name>.partial". One thread (the drain). Events
/// of one track must come in time order and nest; tracks are independent. Memory: one batch (< 512 KiB) and per-track
/// state. Crash safety: after flush() everything written so far is on its way to the file as whole packets.
class WindowWriter {
 public:
  struct Options {
    std::string folder;
    base::FileSystem* files = nullptr;
    event::StringTable* names = nullptr;
    std::size_t batch_bytes = 256 * 1024;  ///< uncompressed; tests make it small
  };

  /// Creates the file exclusively and writes clock snapshot, process descriptor and first metadata.
  static Result<std::unique_ptr<WindowWriter>> create(const Options& options, const TraceInfo& info,
                                                      const ClockSample& clock);
  virtual ~WindowWriter() = default;

  /// A thread's own track. Named by the thread.
  virtual TrackId add_thread_track(const ThreadInfo& thread) = 0;
  /// A named track under the process; tracks of the same name are drawn as one when they do not overlap. `order` sorts.
  virtual TrackId add_track(std::string_view name, int order) = 0;

  virtual void begin(TrackId track, std::int64_t ts_ns, std::uint32_t name, const BeginExtras& extras) = 0;
  virtual void begin(TrackId track, std::int64_t ts_ns, std::uint32_t name) = 0;
  /// open_at_end: the range was still open when the window closed, so its end is the window's.
  virtual void end(TrackId track, std::int64_t ts_ns, bool open_at_end) = 0;
  virtual void mark(TrackId track, std::int64_t ts_ns, std::uint32_t name, std::span<const Arg> args) = 0;

  /// Pushes what is buffered to the file, uncompressed as far as the batch is not full. The next full batch replaces
  /// that tail. Cheap when nothing is buffered. The first I/O error is kept (error()) and later calls do nothing.
  virtual Status flush() = 0;
  /// Writes the trailer (clock snapshot, final metadata with losses), syncs, closes and renames to final_path(). The
  /// final name is made from `info` (it may differ from the name at creation: units, step). On failure the partial file
  /// stays.
  virtual Status seal(const TraceInfo& info, const ClockSample& clock) = 0;
  /// Closes and deletes the partial file: the window held no unit.
  virtual Status discard() = 0;

  [[nodiscard]] virtual const std::string& path() const = 0;  ///< where the file is now
  [[nodiscard]] virtual std::uint64_t events() const = 0;     ///< begins and marks written
  [[nodiscard]] virtual std::uint64_t bytes() const = 0;
  [[nodiscard]] virtual const Status& error() const = 0;
};

}  // namespace marey::trace
