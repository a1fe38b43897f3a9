#include <gtest/gtest.h>

#include <map>
#include <thread>
#include <vector>

#include "src/recorder/chunk_pool.h"
#include "src/recorder/lane_registry.h"

namespace marey::recorder {
namespace {

using detail::EventClass;
using detail::Slot;
using detail::SlotKind;

/// Collects the tick values per lane and checks what every consumer may rely on.
class Collector final : public LaneConsumer {
 public:
  const Slot* on_slots(Lane& lane, const Slot* begin, const Slot* end) override {
    for (const Slot* slot = begin; slot < end; slot += 1 + slot->extra) {
      if (slot->kind != SlotKind::kPad) ticks[lane.id].push_back(slot->ticks);
    }
    return end;
  }
  void on_dropped(Lane&, std::uint64_t count, std::uint64_t) override { dropped += count; }
  void on_retired(Lane&) override { ++retired; }

  std::map<std::uint64_t, std::vector<std::uint64_t>> ticks;
  std::uint64_t dropped = 0;
  int retired = 0;
};

TEST(ChunkPool, NeverExceedsItsCapAndReusesWhatCameBack) {
  ChunkPool pool(4 * detail::kChunkBytes);
  std::vector<detail::ChunkHeader*> chunks;
  while (auto* chunk = pool.take()) chunks.push_back(chunk);
  ASSERT_EQ(chunks.size(), 4U);
  for (auto* chunk : chunks) EXPECT_EQ(reinterpret_cast<std::uintptr_t>(chunk) % detail::kChunkBytes, 0U);
  pool.give(chunks[2]);
  EXPECT_EQ(pool.take(), chunks[2]);
  EXPECT_EQ(pool.take(), nullptr);
}

TEST(ChunkPool, SurvivesManyThreadsTakingAndGiving) {
  ChunkPool pool(64 * detail::kChunkBytes);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 20'000; ++i) {
        auto* chunk = pool.take();
        if (chunk == nullptr) continue;
        auto* first = reinterpret_cast<std::uint64_t*>(chunk + 1);
        *first = static_cast<std::uint64_t>(t);
        ASSERT_EQ(*first, static_cast<std::uint64_t>(t));  // nobody else owns it
        pool.give(chunk);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  std::size_t count = 0;
  while (pool.take() != nullptr) ++count;
  EXPECT_EQ(count, 64U);
}

TEST(LaneRegistry, KeepsEveryRecordOfThreadsThatAreBornAndDieInOrder) {
  Collector collector;
  LaneRegistry::get().drain(collector);  // what other tests left
  collector.ticks.clear();
  collector.retired = 0;

  constexpr std::uint64_t kRecords = 100'000;
  std::vector<std::thread> threads;
  std::atomic<int> running{3};
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&running] {
      for (std::uint64_t i = 1; i <= kRecords; ++i) {
        if (i % 7 == 0) {  // records with payload, so that pads occur at chunk ends
          Slot* slot = detail::reserve(3);
          ASSERT_NE(slot, nullptr);
          slot[0] = Slot{i, 1, SlotKind::kBegin, EventClass::kUser, 2, 0};
          slot[1] = Slot{};
          slot[2] = Slot{};
          detail::commit(slot, 3);
        } else {
          ASSERT_TRUE(detail::append(i, SlotKind::kMark, 1, EventClass::kUser));
        }
      }
      --running;
    });
  }
  while (running > 0) LaneRegistry::get().drain(collector);
  for (auto& thread : threads) thread.join();
  LaneRegistry::get().drain(collector);

  EXPECT_EQ(collector.retired, 3);
  EXPECT_EQ(collector.dropped, 0U);
  ASSERT_EQ(collector.ticks.size(), 3U);
  for (const auto& [lane, ticks] : collector.ticks) {
    ASSERT_EQ(ticks.size(), kRecords);
    for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_EQ(ticks[i], i + 1);
  }
}

TEST(LaneRegistry, DropsAndCountsWhenTheMemoryCapIsReached) {
  Collector collector;
  LaneRegistry::get().drain(collector);
  const std::size_t cap_slots = LaneRegistry::get().memory_cap_bytes() / sizeof(Slot);
  std::uint64_t kept = 0;
  std::uint64_t dropped = 0;
  std::thread([&] {
    for (std::size_t i = 0; i < cap_slots + 1000; ++i) {
      (detail::append(i, SlotKind::kMark, 1, EventClass::kUser) ? kept : dropped) += 1;
    }
  }).join();
  Collector result;
  LaneRegistry::get().drain(result);
  EXPECT_GT(dropped, 0U);
  EXPECT_EQ(result.dropped, dropped);
  std::uint64_t read = 0;
  for (const auto& [lane, ticks] : result.ticks) read += ticks.size();
  EXPECT_EQ(read, kept);
  LaneRegistry::get().trim();
}

}  // namespace
}  // namespace marey::recorder
