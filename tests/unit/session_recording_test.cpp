// Profilers, drain, writer and reader together, on a clock that the test moves and a drain that the test runs.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "marey/detail/lane.h"
#include "src/event/string_table.h"
#include "src/session/profiler.h"
#include "src/session/session.h"
#include "src/trace/reader.h"

namespace marey::session {
namespace {

namespace fs = std::filesystem;
using detail::EventClass;
using detail::SlotKind;
using schedule::Schedule;
using schedule::Unit;

/// One tick is one nanosecond; every look at it moves it on, so that no two stamps are equal.
class ManualClock final : public recorder::Clock {
 public:
  [[nodiscard]] std::uint64_t ticks() const override { return now_.fetch_add(10) + 10; }
  [[nodiscard]] recorder::ClockAnchor sample() const override {
    recorder::ClockAnchor anchor;
    anchor.ticks = now_;
    anchor.clocks.monotonic_ns = static_cast<std::int64_t>(anchor.ticks);
    anchor.clocks.realtime_ns = 1'700'000'000'000'000'000 + anchor.clocks.monotonic_ns;
    return anchor;
  }

 private:
  mutable std::atomic<std::uint64_t> now_{1'000'000'000};
};

class RecordingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::random_device random;
    folder_ = fs::temp_directory_path() / fmt::format("marey-test-{:08x}", random());
    session_ = std::make_unique<Session>(Session::Options{&base::real_file_system(), &clock_, false});
  }
  void TearDown() override {
    session_->drain_now();
    session_.reset();
    fs::remove_all(folder_);
  }

  std::unique_ptr<Profiler> make(Profiler::Options options) {
    options.out = folder_;
    options.quiet = true;
    auto created = Profiler::create(*session_, std::move(options));
    EXPECT_TRUE(created.is_ok()) << created.status().message();
    return std::move(created).value();
  }
  std::unique_ptr<Profiler> make(const char* schedule, Unit unit = Unit::kMiniBatch) {
    Profiler::Options options;
    options.schedule = schedule::parse(schedule).value();
    options.unit = unit;
    options.role = "actor";
    return make(std::move(options));
  }

  /// A whole range, recorded only while the shutter is open, as a program's would be.
  void work(const std::string& name) {
    if ((detail::g_gate.load() & detail::kGateUser) == 0) return;
    const std::uint32_t id = event::names().intern(name, "user");
    detail::append(clock_.ticks(), SlotKind::kBegin, id, EventClass::kUser);
    detail::append(clock_.ticks(), SlotKind::kEnd, id, EventClass::kUser);
  }
  void work_always(const std::string& name) {
    const std::uint32_t id = event::names().intern(name, "user");
    detail::append(clock_.ticks(), SlotKind::kBegin, id, EventClass::kUser);
    detail::append(clock_.ticks(), SlotKind::kEnd, id, EventClass::kUser);
  }

  std::vector<trace::Trace> traces(trace::TraceKind kind = trace::TraceKind::kWindow) {
    session_->drain_now();
    std::vector<trace::Trace> found;
    if (!fs::exists(folder_)) return found;
    for (const std::string& path : trace::find_traces(folder_).value()) {
      auto read = trace::read_trace(path);
      EXPECT_TRUE(read.is_ok()) << read.status().message();
      if (read.value().info.kind == kind) found.push_back(std::move(read).value());
    }
    std::sort(found.begin(), found.end(),
              [](const auto& a, const auto& b) { return a.info.begin_ns < b.info.begin_ns; });
    return found;
  }
  static std::vector<std::string> details(const trace::Trace& trace) {
    std::vector<std::string> names;
    for (const trace::Event& event : trace.events) {
      if (event.tier == trace::Tier::kDetail) names.emplace_back(event.name);
    }
    return names;
  }
  static std::vector<std::string> skeleton(const trace::Trace& trace) {
    std::vector<std::string> names;
    for (const trace::Event& event : trace.events) {
      if (event.tier == trace::Tier::kSkeleton) {
        names.push_back(fmt::format("{:{}}{}{}", "", event.depth, event.name, event.truncated ? "!" : ""));
      }
    }
    return names;
  }
  static std::string summary(const trace::Trace& trace) {
    const trace::TraceInfo& info = trace.info;
    return fmt::format("{} {}-{} {}/{} {}", trace::state_name(trace.state), info.first_unit.value_or(-1),
                       info.last_unit.value_or(-1), info.recorded_units, info.planned_units,
                       info.complete ? "complete" : info.end_reason);
  }
  using Lines = std::vector<std::string>;

  ManualClock clock_;
  fs::path folder_;
  std::unique_ptr<Session> session_;
};

TEST_F(RecordingTest, RecordsExactlyTheUnitsOfTheSchedule) {
  auto profiler = make("skip_first=1,wait=0,warmup=1,active=2,repeat=1");
  profiler->start(7);
  for (int i = 0; i < 6; ++i) {
    work_always(fmt::format("op{}", i));
    if (i % 2 == 0) session_->drain_now();
    profiler->step();
  }
  profiler->stop("stop");
  const auto windows = traces();
  ASSERT_EQ(windows.size(), 1U);
  EXPECT_EQ(summary(windows[0]), "sealed 2-3 2/2 complete");
  EXPECT_EQ(details(windows[0]), (Lines{"op2", "op3"}));
  EXPECT_EQ(skeleton(windows[0]),
            (Lines{"train_step 7!", " mini_batch 0", " mini_batch 1", " mini_batch 2", " mini_batch 3"}));
  const auto skeletons = traces(trace::TraceKind::kSkeleton);
  ASSERT_EQ(skeletons.size(), 1U);
  EXPECT_EQ(skeletons[0].state, trace::TraceState::kSealed);
  EXPECT_EQ(skeleton(skeletons[0]).size(), 7U);
}

TEST_F(RecordingTest, GivesEachWindowOfBackToBackUnitsItsOwnFile) {
  auto profiler = make("active=1");
  profiler->start({});
  for (int i = 0; i < 4; ++i) {
    work(fmt::format("op{}", i));
    profiler->step();
  }
  profiler->stop("stop");
  const auto windows = traces();
  ASSERT_EQ(windows.size(), 4U);  // no empty trailing one
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(summary(windows[i]), fmt::format("sealed {0}-{0} 1/1 complete", i));
    EXPECT_EQ(details(windows[i]), Lines{fmt::format("op{}", i)});
  }
}

TEST_F(RecordingTest, MarksALoopThatIsShorterThanTheSchedule) {
  auto profiler = make("wait=1,active=3,repeat=1");
  profiler->start({});
  for (int i = 0; i < 3; ++i) {
    work(fmt::format("op{}", i));
    profiler->step();
  }
  profiler->stop("stop");
  const auto windows = traces();
  ASSERT_EQ(windows.size(), 1U);
  EXPECT_EQ(summary(windows[0]), "sealed 1-2 2/3 stop");
  EXPECT_EQ(details(windows[0]), (Lines{"op1", "op2"}));
}

TEST_F(RecordingTest, MarksAUnitThatAnExceptionCut) {
  auto profiler = make("active=2,repeat=1");
  profiler->start({});
  work("op0");
  profiler->step();
  work("op1");
  profiler->stop("exception");
  const auto windows = traces();
  ASSERT_EQ(windows.size(), 1U);
  EXPECT_EQ(summary(windows[0]), "sealed 0-1 1/2 exception");
  EXPECT_EQ(details(windows[0]), (Lines{"op0", "op1"}));
}

TEST_F(RecordingTest, CountsTheOnlyUnitOfALoopWithoutAStep) {
  auto profiler = make("active=1,repeat=1");
  profiler->start({});
  work("op0");
  profiler->stop("stop");
  const auto windows = traces();
  ASSERT_EQ(windows.size(), 1U);
  EXPECT_EQ(summary(windows[0]), "sealed 0-0 1/1 complete");
}

TEST_F(RecordingTest, SaysWhyNothingWasRecorded) {
  auto profiler = make("skip_first=5,active=1");
  profiler->start({});
  profiler->stop("stop");
  session_->drain_now();
  EXPECT_NE(profiler->snapshot().message.find("nothing was recorded because step() was never called"),
            std::string::npos)
      << profiler->snapshot().message;
  profiler->start({});
  profiler->step();
  profiler->stop("stop");
  session_->drain_now();
  EXPECT_NE(profiler->snapshot().message.find("1 mini_batch unit(s) seen, and the first to record is mini_batch 5"),
            std::string::npos)
      << profiler->snapshot().message;
  EXPECT_TRUE(traces().empty());
  EXPECT_EQ(traces(trace::TraceKind::kSkeleton).size(), 2U);
}

TEST_F(RecordingTest, CountsUnitsInScheduledStagesOfTheChosenTrainSteps) {
  Profiler::Options options;
  options.schedule = schedule::parse("skip_first=1,active=2,repeat=1").value();
  options.steps = {2};
  auto profiler = make(std::move(options));
  profiler->start(1);
  for (int step = 1; step <= 3; ++step) {
    profiler->stage_begin("rollout", false);
    work(fmt::format("rollout{}", step));
    profiler->stage_end("rollout");
    profiler->stage_begin("actor_update", true);
    for (int mini = 0; mini < 5; ++mini) {
      for (int micro = 0; micro < 2; ++micro) {
        work(fmt::format("s{}m{}u{}", step, mini, micro));
        profiler->tick(Unit::kMicroBatch);
      }
      profiler->step();
    }
    profiler->stage_end("actor_update");
    profiler->tick(Unit::kTrainStep);
    session_->drain_now();
  }
  profiler->stop("stop");
  const auto windows = traces();
  ASSERT_EQ(windows.size(), 1U);
  EXPECT_EQ(summary(windows[0]), "sealed 1-2 2/2 complete");
  EXPECT_EQ(windows[0].info.stage, "actor_update");
  EXPECT_EQ(windows[0].info.train_step, 2);
  EXPECT_EQ(details(windows[0]), (Lines{"s2m1u0", "s2m1u1", "s2m2u0", "s2m2u1"}));
  EXPECT_EQ(skeleton(windows[0]),
            (Lines{"train_step 2!", " rollout", " actor_update!", "  mini_batch 0", "   micro_batch 0",
                   "   micro_batch 1", "  mini_batch 1", "   micro_batch 0", "   micro_batch 1", "  mini_batch 2",
                   "   micro_batch 0", "   micro_batch 1"}));
  const auto skeletons = traces(trace::TraceKind::kSkeleton);
  ASSERT_EQ(skeletons.size(), 1U);
  EXPECT_EQ(skeleton(skeletons[0]).size(), 3U * (1 + 1 + 1 + 5 + 10));
}

TEST_F(RecordingTest, LeavesNoWindowOfAUnitThatNeverWas) {
  auto profiler = make("active=2");
  profiler->start({});
  profiler->stage_begin("rollout", false);
  work("rollout");  // units count here as long as no stage was scheduled
  profiler->stage_end("rollout");
  profiler->stage_begin("actor_update", true);
  for (int i = 0; i < 2; ++i) {
    work(fmt::format("op{}", i));
    profiler->step();
  }
  work("after the loop");
  session_->drain_now();
  profiler->stage_end("actor_update");
  profiler->stop("stop");
  const auto windows = traces();
  ASSERT_EQ(windows.size(), 1U);
  EXPECT_EQ(summary(windows[0]), "sealed 0-1 2/2 complete");
  EXPECT_EQ(details(windows[0]), (Lines{"op0", "op1"}));
}

TEST_F(RecordingTest, KeepsTwoRolesApart) {
  Profiler::Options options;
  options.schedule = schedule::parse("wait=1,active=1,repeat=1").value();
  options.role = "actor";
  auto actor = make(options);
  options.schedule = schedule::parse("active=2,repeat=1").value();
  options.role = "critic";
  auto critic = make(options);
  actor->start({});
  critic->start({});
  for (int i = 0; i < 3; ++i) {
    work(fmt::format("op{}", i));
    critic->step();
    work(fmt::format("between{}", i));
    actor->step();
  }
  actor->stop("stop");
  critic->stop("stop");
  std::map<std::string, std::vector<std::string>> by_role;
  for (const auto& window : traces()) {
    by_role[window.info.role] = details(window);
    by_role[window.info.role].push_back(summary(window));
  }
  EXPECT_EQ(by_role["actor"], (Lines{"op1", "between1", "sealed 1-1 1/1 complete"}));
  EXPECT_EQ(by_role["critic"], (Lines{"op0", "between0", "op1", "sealed 0-1 2/2 complete"}));
}

TEST_F(RecordingTest, RecordsEverythingFromStartToStopWithoutASchedule) {
  Profiler::Options options;
  auto profiler = make(std::move(options));
  work("before");
  profiler->start({});
  work("inside");
  profiler->step();
  work("more");
  profiler->stop("stop");
  work("after");
  const auto windows = traces();
  ASSERT_EQ(windows.size(), 1U);
  EXPECT_EQ(details(windows[0]), (Lines{"inside", "more"}));
  EXPECT_TRUE(windows[0].info.complete);
  EXPECT_FALSE(windows[0].info.unit.has_value());
}

TEST_F(RecordingTest, TakesCallsInAnyOrder) {
  auto profiler = make("active=1,repeat=1");
  profiler->step();
  profiler->stop("stop");
  profiler->tick(Unit::kTrainStep);
  profiler->stage_end("never begun");
  profiler->start({});
  profiler->start({});
  profiler->stage_end("never begun");
  work("op0");
  profiler->step();
  profiler->stop("stop");
  profiler->stop("stop");
  profiler->step();
  EXPECT_EQ(traces().size(), 1U);
  EXPECT_EQ(profiler->snapshot().starts_ignored, 1U);
  profiler->start({});
  work("again");
  profiler->step();
  profiler->stop("stop");
  EXPECT_EQ(traces().size(), 2U);
}

TEST_F(RecordingTest, CountsStepsThatPassQuietly) {
  Profiler::Options options;
  options.schedule = schedule::parse("skip_first=1000,active=2,repeat=1").value();
  options.skeleton = false;
  auto profiler = make(std::move(options));
  profiler->start({});
  for (int i = 0; i < 1010; ++i) {
    work(fmt::format("op{}", i));
    profiler->step();
  }
  EXPECT_EQ(profiler->snapshot().units_seen, 1010U);
  profiler->stop("stop");
  const auto windows = traces();
  ASSERT_EQ(windows.size(), 1U);
  EXPECT_EQ(details(windows[0]), (Lines{"op1000", "op1001"}));
  EXPECT_TRUE(traces(trace::TraceKind::kSkeleton).empty());
}

TEST_F(RecordingTest, LeavesAReadablePartialFileWhileAWindowIsOpen) {
  auto profiler = make("active=5,repeat=1");
  profiler->start({});
  work("op0");
  profiler->step();
  work("op1");
  session_->drain_now();  // what kill -9 would leave
  const auto windows = traces();
  ASSERT_EQ(windows.size(), 1U);
  EXPECT_EQ(windows[0].state, trace::TraceState::kPartial);
  EXPECT_TRUE(windows[0].path.ends_with(".pftrace.partial"));
  EXPECT_EQ(details(windows[0]), (Lines{"op0", "op1"}));
  EXPECT_EQ(windows[0].info.planned_units, 5);
  EXPECT_EQ(windows[0].info.recorded_units, 1);
  EXPECT_EQ(windows[0].info.last_unit, 1);
  trace::ReadOptions info_only;
  info_only.info_only = true;
  const auto info = trace::read_trace(windows[0].path, info_only);
  ASSERT_TRUE(info.is_ok());
  EXPECT_EQ(info.value().info.recorded_units, 1);
  EXPECT_GT(info.value().info.events, 2U);
  profiler->stop("stop");
}

TEST_F(RecordingTest, GoesOnWhenTheFolderIsRemovedAndTriesTheNextWindow) {
  auto profiler = make("active=1");
  profiler->start({});
  session_->drain_now();
  fs::remove_all(folder_);
  work("lost");
  profiler->step();
  session_->drain_now();
  Profiler::Snapshot snapshot = profiler->snapshot();
  EXPECT_EQ(snapshot.counts.failed, 1U);
  EXPECT_NE(snapshot.message.find(folder_.string()), std::string::npos) << snapshot.message;
  EXPECT_NE(snapshot.message.find("the folder was removed"), std::string::npos) << snapshot.message;
  fs::create_directories(folder_);
  work("kept");
  profiler->step();
  profiler->stop("stop");
  const auto windows = traces();
  ASSERT_EQ(windows.size(), 1U);
  EXPECT_EQ(details(windows[0]), Lines{"kept"});
  EXPECT_EQ(summary(windows[0]), "sealed 1-1 1/1 complete");
}

TEST_F(RecordingTest, RefusesNonsenseByName) {
  const auto error = [this](Profiler::Options options) {
    options.out = folder_;
    return Profiler::create(*session_, std::move(options)).status().message();
  };
  Profiler::Options options;
  options.contents = {"kernels"};
  EXPECT_NE(error(options).find("contents 'kernels' is not known"), std::string::npos);
  options = {};
  options.schedule = Schedule{};
  options.schedule->active = -1;
  EXPECT_NE(error(options).find("active=-1"), std::string::npos);
  options = {};
  options.rank = 3;
  options.world_size = 2;
  EXPECT_NE(error(options).find("rank 3 of world_size 2"), std::string::npos);
  options = {};
  options.out = "/proc/nowhere";
  EXPECT_NE(Profiler::create(*session_, options).status().message().find("/proc/nowhere"), std::string::npos);
}

TEST(RecordingThreads, KeepsWindowsWholeUnderThreadsThatRecordAllTheTime) {
  std::random_device random;
  const fs::path folder = fs::temp_directory_path() / fmt::format("marey-test-{:08x}", random());
  constexpr int kUnits = 60;
  {
    Session session(Session::Options{});
    Profiler::Options options;
    options.schedule = schedule::parse("wait=1,active=2").value();
    options.out = folder;
    options.quiet = true;
    auto profiler = Profiler::create(session, options).value();
    std::atomic<bool> running{true};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&running] {
        const std::uint32_t name = event::names().intern("busy", "user");
        while (running) {
          if ((detail::g_gate.load(std::memory_order_relaxed) & detail::kGateUser) == 0) continue;
          detail::append(recorder::real_clock().ticks(), SlotKind::kBegin, name, EventClass::kUser);
          detail::append(recorder::real_clock().ticks(), SlotKind::kEnd, name, EventClass::kUser);
        }
      });
    }
    profiler->start({});
    for (int i = 0; i < kUnits; ++i) {
      const std::uint32_t name = event::names().intern(fmt::format("unit{}", i), "user");
      for (int k = 0; k < 50; ++k) {
        if ((detail::g_gate.load() & detail::kGateUser) == 0) continue;
        detail::append(recorder::real_clock().ticks(), SlotKind::kBegin, name, EventClass::kUser);
        detail::append(recorder::real_clock().ticks(), SlotKind::kEnd, name, EventClass::kUser);
      }
      profiler->step();
    }
    profiler->stop("stop");
    running = false;
    for (auto& thread : threads) thread.join();
    ASSERT_TRUE(profiler->results().wait(30));
  }
  int windows = 0;
  for (const std::string& path : trace::find_traces(folder).value()) {
    const auto read = trace::read_trace(path);
    ASSERT_TRUE(read.is_ok());
    const trace::Trace& trace = read.value();
    ASSERT_EQ(trace.state, trace::TraceState::kSealed) << trace.state_reason;
    if (trace.info.kind != trace::TraceKind::kWindow) continue;
    ++windows;
    std::map<std::string, int> counts;
    for (const trace::Event& event : trace.events) {
      if (event.name.starts_with("unit")) ++counts[std::string(event.name)];
      ASSERT_GE(event.duration_ns, 0);
    }
    const std::int64_t first = *trace.info.first_unit;
    EXPECT_EQ(counts,
              (std::map<std::string, int>{{fmt::format("unit{}", first), 50}, {fmt::format("unit{}", first + 1), 50}}));
  }
  EXPECT_EQ(windows, kUnits / 3);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace marey::session
