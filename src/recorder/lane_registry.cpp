#include "src/recorder/lane_registry.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <iterator>
#include <vector>

#include "marey/detail/clock.h"
#include "src/base/log.h"

namespace marey::detail {

std::atomic<std::uint32_t> g_gate{0};
thread_local constinit Slot* t_cursor __attribute__((tls_model("initial-exec"))) = nullptr;

Slot* reserve_slow(std::uint32_t count) noexcept { return recorder::LaneRegistry::get().reserve_slow(count); }

}  // namespace marey::detail

namespace marey::recorder {
namespace {

/// This thread's lane; the destructor is what tells the drain that the thread is gone.
struct ThreadLane {
  Lane* lane = nullptr;
  bool gone = false;  // set by the destructor: later events of this thread (other TLS destructors) are dropped
  ~ThreadLane() {
    gone = true;
    if (lane == nullptr) return;
    detail::t_cursor = nullptr;
    LaneRegistry::get().retire(lane);
    lane = nullptr;
  }
};
thread_local ThreadLane t_lane;

detail::Slot* first_slot(detail::ChunkHeader* chunk) {
  return reinterpret_cast<detail::Slot*>(reinterpret_cast<std::byte*>(chunk) + sizeof(detail::ChunkHeader));
}

detail::Slot* chunk_end(detail::ChunkHeader* chunk) {
  return reinterpret_cast<detail::Slot*>(reinterpret_cast<std::byte*>(chunk) + detail::kChunkBytes);
}

std::string thread_name_of(std::int64_t tid) {
  const std::string path = fmt::format("/proc/self/task/{}/comm", tid);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char text[64];
  const ssize_t size = ::read(fd, text, sizeof text);
  ::close(fd);
  if (size <= 0) return {};
  std::string name(text, static_cast<std::size_t>(size));
  while (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

}  // namespace

void Lane::refresh_name() {
  if (std::string current = thread_name_of(tid); !current.empty()) name = std::move(current);
}

std::size_t memory_cap_from_environment() {
  constexpr std::size_t kDefaultMib = 256;
  const char* text = std::getenv("MAREY_MEMORY_MIB");
  if (text == nullptr || *text == '\0') return kDefaultMib << 20;
  char* end = nullptr;
  const unsigned long long mib = std::strtoull(text, &end, 10);
  if (end == nullptr || *end != '\0' || mib < 1 || mib > (1ULL << 20)) {
    base::log_once("MAREY_MEMORY_MIB", fmt::format("MAREY_MEMORY_MIB='{}' is not a number of MiB from 1 to 1048576; using {}",
                                                   text, kDefaultMib));
    return kDefaultMib << 20;
  }
  return static_cast<std::size_t>(mib) << 20;
}

LaneRegistry::LaneRegistry() : pool_(std::make_unique<ChunkPool>(memory_cap_from_environment())) {}

LaneRegistry& LaneRegistry::get() {
  static auto* instance = new LaneRegistry;
  return *instance;
}

Lane* LaneRegistry::register_thread() {
  auto lane = std::make_unique<Lane>();
  lane->tid = static_cast<std::int64_t>(::syscall(SYS_gettid));
  lane->name = thread_name_of(lane->tid);
  Lane* raw = lane.get();
  const std::lock_guard lock(mutex_);
  lane->id = next_id_++;
  lanes_.push_back(std::move(lane));
  return raw;
}

detail::Slot* LaneRegistry::reserve_slow(std::uint32_t count) noexcept {
  ThreadLane& mine = t_lane;
  if (mine.gone) return nullptr;
  if (mine.lane == nullptr) mine.lane = register_thread();
  Lane& lane = *mine.lane;

  detail::ChunkHeader* chunk = pool_->take();
  if (chunk == nullptr) {
    // Statistics that only this thread writes and the drain reads: no order needed.
    lane.dropped.store(lane.dropped.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    lane.last_drop_ticks.store(detail::ticks(detail::g_gate.load(std::memory_order_relaxed)), std::memory_order_relaxed);
    return nullptr;
  }
  detail::Slot* cursor = detail::t_cursor;
  if (lane.write_chunk == nullptr) {
    lane.first_chunk.store(chunk, std::memory_order_release);  // the drain must see the chunk's header
  } else {
    if (cursor != chunk_end(lane.write_chunk)) {
      // A record with payload did not fit: the rest of the chunk is skipped.
      *cursor = detail::Slot{0, 0, detail::SlotKind::kPad, detail::EventClass::kUser, 0, 0};
      detail::commit(cursor, 1);
    }
    // Release: a drain that sees `next` sees the final `committed` of the chunk before it.
    lane.write_chunk->next.store(chunk, std::memory_order_release);
  }
  lane.write_chunk = chunk;
  detail::t_cursor = first_slot(chunk);
  if (sizeof(detail::ChunkHeader) + count * sizeof(detail::Slot) > detail::kChunkBytes) return nullptr;
  return detail::t_cursor;
}

void LaneRegistry::retire(Lane* lane) noexcept {
  lane->retired.store(true, std::memory_order_release);  // the drain must see the last committed slots
}

bool LaneRegistry::drain_lane(Lane& lane, LaneConsumer& consumer, std::size_t* slots) {
  // Read before the slots: when it is true, everything the thread ever wrote is visible below.
  const bool retired = lane.retired.load(std::memory_order_acquire);
  if (lane.read_chunk == nullptr) {
    lane.read_chunk = lane.first_chunk.load(std::memory_order_acquire);
    if (lane.read_chunk != nullptr) lane.read_cursor = first_slot(lane.read_chunk);
  }
  while (lane.read_chunk != nullptr) {
    // `next` before `committed`: a non-null `next` makes `committed` final.
    detail::ChunkHeader* next = lane.read_chunk->next.load(std::memory_order_acquire);
    detail::Slot* committed = lane.read_chunk->committed.load(std::memory_order_acquire);
    if (committed != lane.read_cursor) {
      const detail::Slot* left = consumer.on_slots(lane, lane.read_cursor, committed);
      *slots += static_cast<std::size_t>(left - lane.read_cursor);
      lane.read_cursor += left - lane.read_cursor;
      if (left != committed) return false;
    }
    if (next == nullptr) break;
    detail::ChunkHeader* done = lane.read_chunk;
    lane.read_chunk = next;
    lane.read_cursor = first_slot(next);
    pool_->give(done);
    // Threads that are ahead of the drain write into pages that exist already.
    if ((detail::g_gate.load(std::memory_order_relaxed) & detail::kGateUser) != 0) pool_->prefault(kWarmChunks);
  }
  const std::uint64_t dropped = lane.dropped.load(std::memory_order_relaxed);
  if (dropped != lane.dropped_seen) {
    consumer.on_dropped(lane, dropped - lane.dropped_seen, lane.last_drop_ticks.load(std::memory_order_relaxed));
    lane.dropped_seen = dropped;
  }
  if (!retired) return false;
  consumer.on_retired(lane);
  if (lane.read_chunk != nullptr) pool_->give(lane.read_chunk);
  return true;
}

std::size_t LaneRegistry::drain(LaneConsumer& consumer) {
  std::vector<Lane*> lanes;
  {
    const std::lock_guard lock(mutex_);
    lanes.reserve(lanes_.size());
    for (const auto& lane : lanes_) lanes.push_back(lane.get());
  }
  std::size_t slots = 0;
  for (Lane* lane : lanes) {
    if (!drain_lane(*lane, consumer, &slots)) continue;
    const std::lock_guard lock(mutex_);
    std::erase_if(lanes_, [lane](const auto& each) { return each.get() == lane; });
  }
  return slots;
}

std::size_t LaneRegistry::lane_count() const {
  const std::lock_guard lock(mutex_);
  return lanes_.size();
}

void LaneRegistry::reset_after_fork() {
  // The parent's lanes and pool are copies of its memory: leaked on purpose, another thread may have held the mutex.
  auto* fresh = new LaneRegistry;
  for (auto& lane : lanes_) (void)lane.release();
  (void)pool_.release();
  new (&mutex_) std::mutex;
  lanes_.clear();
  pool_ = std::move(fresh->pool_);
  delete fresh;
  next_id_ = 1;
  t_lane.lane = nullptr;
  detail::t_cursor = nullptr;
}

}  // namespace marey::recorder
