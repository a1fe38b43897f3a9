#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "src/event/string_table.h"
#include "src/session/window.h"

namespace marey::session {
namespace {

using detail::ArgSlot;
using detail::ArgType;
using detail::EventClass;
using detail::SequenceSlot;
using detail::Slot;
using detail::SlotKind;

/// Notes what a window writes, one line a call: "1 +forward@10", "1 -@20", "1 -@30!" (open at end), "1 .mark@12".
class NotingWriter final : public trace::WindowWriter {
 public:
  trace::TrackId add_thread_track(const trace::ThreadInfo&) override { return ++tracks_; }
  trace::TrackId add_track(std::string_view name, int) override {
    lines.push_back(fmt::format("track {} {}", ++tracks_, name));
    return tracks_;
  }
  void begin(trace::TrackId track, std::int64_t ts_ns, std::uint32_t name, const trace::BeginExtras& extras) override {
    std::string text = fmt::format("{} +{}@{}", track, name_of(name), ts_ns);
    for (const trace::Arg& arg : extras.args) {
      const std::string key = event::names().entry(arg.key).name;
      switch (arg.type) {
        case trace::Arg::Type::kInt:
          text += fmt::format(" {}={}", key, arg.int_value);
          break;
        case trace::Arg::Type::kDouble:
          text += fmt::format(" {}={}", key, arg.double_value);
          break;
        case trace::Arg::Type::kBool:
          text += fmt::format(" {}={}", key, arg.int_value != 0);
          break;
        case trace::Arg::Type::kString:
          text += fmt::format(" {}='{}'", key, arg.string_value);
          break;
      }
    }
    if (extras.flow_id != 0) flows.push_back({name_of(name), extras.flow_id});
    if (extras.terminating_flow_id != 0) flows.push_back({name_of(name), extras.terminating_flow_id});
    lines.push_back(text);
    ++events_;
  }
  void begin(trace::TrackId track, std::int64_t ts_ns, std::uint32_t name) override { begin(track, ts_ns, name, {}); }
  void end(trace::TrackId track, std::int64_t ts_ns, bool open_at_end) override {
    lines.push_back(fmt::format("{} -@{}{}", track, ts_ns, open_at_end ? "!" : ""));
  }
  void mark(trace::TrackId track, std::int64_t ts_ns, std::uint32_t name, std::span<const trace::Arg>) override {
    lines.push_back(fmt::format("{} .{}@{}", track, name_of(name), ts_ns));
    ++events_;
  }
  Status flush() override { return Status::ok(); }
  Status seal(const trace::TraceInfo&, const trace::ClockSample&) override { return Status::ok(); }
  Status discard() override { return Status::ok(); }
  [[nodiscard]] const std::string& path() const override { return path_; }
  [[nodiscard]] std::uint64_t events() const override { return events_; }
  [[nodiscard]] std::uint64_t bytes() const override { return 0; }
  [[nodiscard]] const Status& error() const override { return error_; }

  struct Flow {
    std::string name;
    std::uint64_t id;
  };
  std::vector<std::string> lines;
  std::vector<Flow> flows;

 private:
  static std::string name_of(std::uint32_t name) {
    const event::NameEntry& entry = event::names().entry(name);
    return entry.category == "user" ? entry.name : fmt::format("{}:{}", entry.category, entry.name);
  }
  trace::TrackId tracks_ = 0;
  std::uint64_t events_ = 0;
  std::string path_;
  Status error_;
};

class WindowTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kAll = 0xf;

  void open(std::uint64_t begin_ticks, std::uint32_t mask = kAll) {
    recorder::ClockAnchor base;  // one tick is one nanosecond
    window_ = std::make_unique<Window>(Window::Options{1, begin_ticks, mask, recorder::TickMap(base, 1.0)},
                                       [this](Window&) { return &writer_; });
  }
  void feed(std::vector<Slot> slots) { window_->on_slots(lane_, slots.data(), slots.data() + slots.size()); }

  static std::uint32_t id(std::string_view name, std::string_view category = "user") {
    return event::names().intern(name, category);
  }
  static Slot begin(std::uint64_t ticks, std::string_view name, EventClass c = EventClass::kUser) {
    return {ticks, id(name), SlotKind::kBegin, c, 0, 0};
  }
  static Slot end(std::uint64_t ticks, std::string_view name, EventClass c = EventClass::kUser) {
    return {ticks, id(name), SlotKind::kEnd, c, 0, 0};
  }
  template <typename Payload>
  static Slot raw(const Payload& payload) {
    Slot slot;
    static_assert(sizeof payload == sizeof slot);
    std::memcpy(&slot, &payload, sizeof slot);
    return slot;
  }

  NotingWriter writer_;
  recorder::Lane lane_;
  std::unique_ptr<Window> window_;
  using Lines = std::vector<std::string>;

  void SetUp() override { lane_.id = 1; }
};

TEST_F(WindowTest, KeepsWhatBeginsInsideAndNothingElse) {
  open(100);
  window_->set_end(200);
  feed({begin(50, "before"), begin(99, "edge"), begin(100, "first"), end(120, "first"), end(130, "edge"),
        end(140, "before"), begin(199, "last"), begin(200, "after"), end(210, "after"), end(220, "last")});
  window_->close_open_ranges();
  EXPECT_EQ(writer_.lines, (Lines{"1 +first@100", "1 -@120", "1 +last@199", "1 -@200!"}));
}

TEST_F(WindowTest, MakesNoFileForAWindowWithoutEvents) {
  open(100);
  feed({begin(50, "before"), end(150, "before")});
  EXPECT_FALSE(window_->opened());
  EXPECT_EQ(window_->detail_events(), 0U);
}

TEST_F(WindowTest, RepairsLostEndsByName) {
  open(0);
  feed({begin(1, "a"), begin(2, "b"), begin(3, "c"), end(5, "a"), begin(6, "d"), end(7, "stranger"), end(8, "d")});
  EXPECT_EQ(writer_.lines, (Lines{"1 +a@1", "1 +b@2", "1 +c@3", "1 -@5!", "1 -@5!", "1 -@5", "1 +d@6", "1 -@8"}));
}

TEST_F(WindowTest, NeverLetsTimeOnALaneGoBack) {
  open(0);
  feed({begin(10, "a"), begin(9, "b"), end(8, "b"), end(7, "a")});
  EXPECT_EQ(writer_.lines, (Lines{"1 +a@10", "1 +b@10", "1 -@10", "1 -@10"}));
}

TEST_F(WindowTest, LeavesOutClassesThatItsContentsDoNotName) {
  open(0, class_bit(EventClass::kUser));
  feed({begin(1, "user"), begin(2, "aten::mul", EventClass::kOperator), end(3, "aten::mul", EventClass::kOperator),
        end(4, "user")});
  EXPECT_EQ(writer_.lines, (Lines{"1 +user@1", "1 -@4"}));
}

TEST_F(WindowTest, KeepsWordsOfSourcesOutOfUsersReach) {
  open(0);
  feed({{1, id("mine", "operator"), SlotKind::kMark, EventClass::kUser, 0, 0},
        {2, id("aten::mul", "operator"), SlotKind::kMark, EventClass::kOperator, 0, 0}});
  EXPECT_EQ(writer_.lines, (Lines{"1 .user.operator:mine@1", "1 .operator:aten::mul@2"}));
}

TEST_F(WindowTest, DecodesArgumentsOfEveryType) {
  open(0);
  const auto arg = [](std::string_view key, ArgType type, std::uint64_t value, std::uint16_t size = 0) {
    return raw(ArgSlot{id(key, "arg"), type, 0, size, value});
  };
  Slot text{};
  std::memcpy(&text, "hello", 5);
  Slot slot = begin(1, "args");
  slot.extra = 5;
  feed({slot, arg("i", ArgType::kInt, static_cast<std::uint64_t>(-3)),
        arg("d", ArgType::kDouble, std::bit_cast<std::uint64_t>(1.5)), arg("b", ArgType::kBool, 1),
        arg("s", ArgType::kString, 0, 5), text, end(2, "args")});
  EXPECT_EQ(writer_.lines, (Lines{"1 +args@1 i=-3 d=1.5 b=true s='hello'", "1 -@2"}));
}

TEST_F(WindowTest, LinksTheLastForwardOperatorOfASequenceToItsBackward) {
  open(0);
  const auto op = [](std::uint64_t ticks, std::string_view name, EventClass c) {
    Slot slot = begin(ticks, name, c);
    slot.extra = 1;
    slot.flags = detail::kFlagSequence;
    return slot;
  };
  const auto sequence = [](std::int64_t number) { return raw(SequenceSlot{number, 1}); };
  feed({op(1, "linear", EventClass::kOperator), sequence(5), op(2, "addmm", EventClass::kOperator), sequence(5),
        end(3, "addmm", EventClass::kOperator), end(4, "linear", EventClass::kOperator),
        op(5, "relu", EventClass::kOperator), sequence(6), end(6, "relu", EventClass::kOperator),
        op(7, "AddmmBackward0", EventClass::kBackward), sequence(5), end(8, "AddmmBackward0", EventClass::kBackward)});
  ASSERT_EQ(writer_.flows.size(), 3U);
  EXPECT_EQ(writer_.flows[0].name, "addmm");
  EXPECT_EQ(writer_.flows[1].name, "relu");
  EXPECT_EQ(writer_.flows[2].name, "AddmmBackward0");
  EXPECT_EQ(writer_.flows[0].id, writer_.flows[2].id);
  EXPECT_NE(writer_.flows[1].id, writer_.flows[2].id);
}

TEST_F(WindowTest, GivesCrossingRangesTracksOfTheirOwn) {
  open(0);
  const auto async = [](std::uint64_t ticks, std::string_view name, SlotKind kind) {
    return Slot{ticks, id(name), kind, EventClass::kUser, 1, 0};
  };
  const auto key = [](std::uint64_t value) { return raw(ArgSlot{0, ArgType::kId, 0, 0, value}); };
  feed({async(1, "a", SlotKind::kAsyncBegin), key(1), async(2, "b", SlotKind::kAsyncBegin), key(2),
        async(3, "a", SlotKind::kAsyncEnd), key(1), async(4, "b", SlotKind::kAsyncEnd), key(2),
        async(5, "c", SlotKind::kAsyncBegin), key(3)});
  window_->set_end(9);
  window_->close_open_ranges();
  EXPECT_EQ(writer_.lines, (Lines{"track 1 async ranges", "1 +a@1", "track 2 async ranges", "2 +b@2", "1 -@3", "2 -@4",
                                  "1 +c@5", "1 -@9!"}));
}

TEST_F(WindowTest, JoinsAnAsyncEndThatIsDrainedBeforeItsBegin) {
  open(0);
  feed({Slot{5, id("a"), SlotKind::kAsyncEnd, EventClass::kUser, 1, 0}, raw(ArgSlot{0, ArgType::kId, 0, 0, 7})});
  lane_.id = 2;
  feed({Slot{1, id("a"), SlotKind::kAsyncBegin, EventClass::kUser, 1, 0}, raw(ArgSlot{0, ArgType::kId, 0, 0, 7})});
  EXPECT_EQ(writer_.lines, (Lines{"track 1 async ranges", "1 +a@1", "1 -@5"}));
}

TEST_F(WindowTest, CountsDropsThatLieInsideIt) {
  open(100);
  window_->set_end(200);
  window_->on_dropped(lane_, 5, 10, 50);  // before
  window_->on_dropped(lane_, 3, 90, 150);
  window_->on_dropped(lane_, 4, 150, 180);
  window_->on_dropped(lane_, 9, 210, 250);  // after
  const auto losses = window_->losses();
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].reason, "lane_full");
  EXPECT_EQ(losses[0].count, 7U);
  EXPECT_EQ(losses[0].begin_ns, 100);
  EXPECT_EQ(losses[0].end_ns, 180);
}

TEST_F(WindowTest, BoundsTheDepthOfATrackAndCountsWhatItLeavesOut) {
  open(0);
  std::vector<Slot> slots;
  for (std::uint64_t i = 1; i <= 1000; ++i) slots.push_back(begin(i, "deep"));
  for (std::uint64_t i = 1; i <= 1000; ++i) slots.push_back(end(1000 + i, "deep"));
  feed(slots);
  const auto losses = window_->losses();
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].reason, "too_deep");
  EXPECT_EQ(window_->detail_events() + losses[0].count, 1000U);
  EXPECT_EQ(writer_.lines.size(), 2 * window_->detail_events());
}

}  // namespace
}  // namespace marey::session
