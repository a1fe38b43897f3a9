#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "marey/detail/lane.h"
#include "src/recorder/chunk_pool.h"

namespace marey::recorder {

/// The buffer of one thread: a chain of chunks. The thread writes, the drain reads; neither waits for the other.
struct Lane {
  std::uint64_t id = 0;  ///< 1, 2, ... in order of birth; never reused, so that a reused tid is a lane of its own
  std::int64_t tid = 0;
  std::string name;  ///< thread name at registration; refreshed by refresh_name()

  // Written by the owner.
  detail::ChunkHeader* write_chunk = nullptr;
  std::atomic<detail::ChunkHeader*> first_chunk{nullptr};
  std::atomic<std::uint64_t> dropped{0};
  std::atomic<std::uint64_t> last_drop_ticks{0};
  std::atomic<bool> retired{false};  ///< the thread is gone and will not write again

  // Owned by the drain.
  detail::ChunkHeader* read_chunk = nullptr;
  detail::Slot* read_cursor = nullptr;
  std::uint64_t dropped_seen = 0;

  /// Reads the thread's current name from the system (a thread may be named after its first event). Drain only.
  void refresh_name();
};

/// Called by drain() for each run of whole records of one lane: [begin, end), payload slots included.
class LaneConsumer {
 public:
  virtual ~LaneConsumer() = default;
  /// Returns the first record that it leaves for the next drain(), or `end`.
  virtual const detail::Slot* on_slots(Lane& lane, const detail::Slot* begin, const detail::Slot* end) = 0;
  /// `count` records of this lane were dropped since the last call, the last at `last_ticks`.
  virtual void on_dropped(Lane& lane, std::uint64_t count, std::uint64_t last_ticks) = 0;
  /// The thread is gone and everything of it was consumed; the lane is freed after this call.
  virtual void on_retired(Lane& lane) = 0;
};

/// Every lane of the process. One instance, never destroyed, since threads may outlive main().
class LaneRegistry {
 public:
  static LaneRegistry& get();

  /// Consumes what every lane holds now. One thread at a time (the drain). Returns the number of slots.
  std::size_t drain(LaneConsumer& consumer);

  /// Room and pages for what is about to come.
  void prefault() { pool_->prefault(kWarmChunks); }
  void trim() { pool_->trim(kWarmChunks); }
  [[nodiscard]] std::size_t memory_cap_bytes() const { return pool_->cap_bytes(); }
  [[nodiscard]] std::size_t lane_count() const;

  /// In a fork's child: forgets all lanes (they belong to the parent's threads) and starts with an empty pool.
  void reset_after_fork();

  /// The slow path of detail::reserve().
  detail::Slot* reserve_slow(std::uint32_t count) noexcept;
  void retire(Lane* lane) noexcept;

 private:
  static constexpr std::size_t kWarmChunks = 256;  // 16 MiB

  LaneRegistry();
  Lane* register_thread();
  bool drain_lane(Lane& lane, LaneConsumer& consumer, std::size_t* slots);

  std::unique_ptr<ChunkPool> pool_;
  mutable std::mutex mutex_;  ///< guards lanes_; taken at a thread's first event and by the drain, never per event
  std::list<std::unique_ptr<Lane>> lanes_;
  std::uint64_t next_id_ = 1;
};

/// Bytes that lanes may take: MAREY_MEMORY_MIB, else 256 MiB.
std::size_t memory_cap_from_environment();

}  // namespace marey::recorder
