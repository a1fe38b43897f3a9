#include <atomic>
#include <stdexcept>
#include <thread>

#include "cpp_api_fixture.h"

namespace marey::test {
namespace {

using Names = std::vector<std::string>;

TEST_F(CppApiTest, CreateSaysWhatIsWrongAndWhatToDo) {
  const auto message_of = [](const Options& options) {
    auto created = Profiler::create(options);
    EXPECT_FALSE(created);
    EXPECT_FALSE(created.has_value());
    EXPECT_EQ(created.error().code, ErrorCode::kInvalidArgument);
    return created.error().message;
  };
  EXPECT_NE(message_of(options({.active = -1})).find("active=-1"), std::string::npos);
  Options unknown = options();
  unknown.contents = {"cpu", "everything"};
  EXPECT_NE(message_of(unknown).find("'everything'"), std::string::npos);
  Options rank = options();
  rank.rank = 4;
  rank.world_size = 2;
  EXPECT_NE(message_of(rank).find("rank 4 of world_size 2"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(CppApiTest, AFolderThatCannotBeIsAnErrorAtCreation) {
  Options nowhere = options();
  nowhere.out = "/dev/null/traces";
  auto created = Profiler::create(nowhere);
  ASSERT_FALSE(created);
  EXPECT_EQ(created.error().code, ErrorCode::kIo);
  EXPECT_NE(created.error().message.find("/dev/null/traces"), std::string::npos);
}

TEST_F(CppApiTest, AnExpectedHoldsItsValue) {
  auto created = Profiler::create(options({.active = 1}));
  ASSERT_TRUE(created);
  EXPECT_EQ(created.error().code, ErrorCode::kOk);
  EXPECT_TRUE(created->on());
  const Profiler taken = std::move(created).value();
  EXPECT_TRUE(taken.on());
  EXPECT_FALSE(Profiler::create(options({.active = -1})).value_or({}).on());
}

TEST_F(CppApiTest, AProfilerThatIsOffDoesNothing) {
  Profiler off;
  EXPECT_FALSE(off.on());
  const Lease lease(off);
  const Stage stage(off, "actor_update", Counting::kScheduled);
  int turns = 0;
  for ([[maybe_unused]] const std::int64_t i : mini_batches(off, 3)) ++turns;
  EXPECT_EQ(turns, 3);
  off.step();
  EXPECT_FALSE(off.start());
  EXPECT_FALSE(off.stop());
  EXPECT_FALSE(off.wait());
  EXPECT_FALSE(off.status().running);
  EXPECT_TRUE(off.windows().empty());
  EXPECT_EQ(off.next_window().error().code, ErrorCode::kNotFound);
}

TEST(CppSchedule, TellsActionsAndFaults) {
  const Schedule schedule{.skip_first = 1, .wait = 1, .warmup = 1, .active = 2, .repeat = 1};
  std::vector<Action> actions;
  for (int i = 0; i < 7; ++i) actions.push_back(schedule.action(i));
  EXPECT_EQ(actions, (std::vector<Action>{Action::kNone, Action::kNone, Action::kWarmup, Action::kRecord,
                                          Action::kRecordAndSave, Action::kNone, Action::kNone}));
  EXPECT_FALSE(schedule.validate());
  const Error error = Schedule{.wait = -3}.validate();
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_NE(error.message.find("wait=-3"), std::string::npos);
}

TEST_F(CppApiTest, AWindowHoldsExactlyItsMiniBatches) {
  Profiler profiler = make({.wait = 1, .warmup = 1, .active = 2, .repeat = 2});
  {
    const Lease lease(profiler, 7);
    for (const std::int64_t i : mini_batches(profiler, 9)) {
      const Range range("batch_" + std::to_string(i));
    }
  }
  const std::vector<Window> windows = sealed(profiler);
  ASSERT_EQ(windows.size(), 2U);
  EXPECT_EQ(names(read(windows[0])), (Names{"batch_2", "batch_3"}));
  EXPECT_EQ(names(read(windows[1])), (Names{"batch_6", "batch_7"}));
  EXPECT_EQ(windows[0].train_step, 7);
  EXPECT_EQ(windows[0].unit, Unit::kMiniBatch);
  EXPECT_EQ(windows[1].first_unit, 6);
  EXPECT_EQ(windows[1].last_unit, 7);
  EXPECT_EQ(windows[1].recorded_units, 2);
  EXPECT_EQ(windows[1].planned_units, 2);
  EXPECT_TRUE(windows[1].complete);
  EXPECT_EQ(windows[1].events, 4U);  // two mini-batches and a range in each
  EXPECT_EQ(windows[1].lost, 0U);
  EXPECT_EQ(windows[1].bytes, std::filesystem::file_size(windows[1].path));
  EXPECT_EQ(profiler.next_window(windows[1].sequence).error().code, ErrorCode::kNotFound);
}

TEST_F(CppApiTest, WaitReturnsWhileTheLeaseGoesOn) {
  Profiler profiler = make(Schedule{.wait = 1, .active = 1});
  const Lease lease(profiler);
  for (int window = 1; window <= 2; ++window) {
    profiler.step();  // the unit that waits
    { const Range range("forward"); }
    profiler.step();
    const Error error = profiler.wait(30);
    ASSERT_FALSE(error) << error.message;
    EXPECT_EQ(profiler.windows().size(), static_cast<std::size_t>(window));
  }
}

TEST_F(CppApiTest, ALoopOverAContainerTicksOncePerElement) {
  Profiler profiler = make({.active = 1});
  const std::vector<std::string> batches{"a", "b", "c"};
  {
    const Lease lease(profiler);
    for (const std::string& batch : mini_batches(profiler, batches)) const Range range(batch);
    EXPECT_EQ(profiler.status().units_seen, 3U);
    for (const std::string& batch : mini_batches(profiler, std::vector<std::string>{"d"})) const Range range(batch);
    EXPECT_EQ(profiler.status().units_seen, 4U);
    for ([[maybe_unused]] const std::string& batch : mini_batches(profiler, std::vector<std::string>{})) ADD_FAILURE();
  }
  const std::vector<Window> windows = sealed(profiler);
  ASSERT_EQ(windows.size(), 4U);  // and none for a fifth unit, which never was
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(names(read(windows[i])), Names{std::string(1, static_cast<char>('a' + i))});
    EXPECT_TRUE(windows[i].complete);
  }
}

TEST_F(CppApiTest, MicroBatchesCountWithinTheirMiniBatch) {
  Options counted = options({.skip_first = 1, .active = 1, .repeat = 1});
  counted.unit = Unit::kMicroBatch;
  Profiler profiler = make(counted);
  {
    const Lease lease(profiler);
    for (const std::int64_t mini : mini_batches(profiler, 2)) {
      for (const std::int64_t micro : units(profiler, Unit::kMicroBatch, 3)) {
        const Range range(std::to_string(mini) + "." + std::to_string(micro));
      }
    }
  }
  const std::vector<Window> windows = sealed(profiler);
  ASSERT_EQ(windows.size(), 2U);
  EXPECT_EQ(names(read(windows[0])), Names{"0.1"});
  EXPECT_EQ(names(read(windows[1])), Names{"1.1"});
}

TEST_F(CppApiTest, ScheduledStagesAreWhereUnitsAreCounted) {
  Profiler profiler = make({.skip_first = 1, .active = 1, .repeat = 1});
  {
    const Lease lease(profiler);
    {
      const Stage stage(profiler, "rollout");
      EXPECT_EQ(profiler.status().stage, "rollout");
    }
    for (const char* update : {"critic_update", "actor_update"}) {
      const Stage stage(profiler, update, Counting::kScheduled);
      for (const std::int64_t i : mini_batches(profiler, 3)) const Range range(update + std::to_string(i));
    }
    EXPECT_EQ(profiler.status().stage, "");
  }
  const std::vector<Window> windows = sealed(profiler);
  ASSERT_EQ(windows.size(), 2U);
  EXPECT_EQ(windows[0].stage, "critic_update");
  EXPECT_EQ(names(read(windows[0])), Names{"critic_update1"});
  EXPECT_EQ(windows[1].stage, "actor_update");
  EXPECT_EQ(names(read(windows[1])), Names{"actor_update1"});
}

TEST_F(CppApiTest, AnExceptionThatLeavesTheLoopLeavesAPartialWindow) {
  Profiler profiler = make({.active = 3, .repeat = 1});
  EXPECT_THROW(
      {
        const Lease lease(profiler);
        for (const std::int64_t i : mini_batches(profiler, 3)) {
          const Range range("batch_" + std::to_string(i));
          if (i == 1) throw std::runtime_error("out of memory");
        }
      },
      std::runtime_error);
  const std::vector<Window> windows = sealed(profiler);
  ASSERT_EQ(windows.size(), 1U);
  EXPECT_FALSE(windows[0].complete);
  EXPECT_EQ(windows[0].recorded_units, 1);
  EXPECT_EQ(windows[0].planned_units, 3);
  const trace::Trace trace = read(windows[0]);
  EXPECT_EQ(trace.info.end_reason, "exception");
  EXPECT_EQ(names(trace), (Names{"batch_0", "batch_1"}));
}

TEST_F(CppApiTest, AProfilerThatAnExceptionDestroysSaysSo) {
  EXPECT_THROW(
      {
        Profiler profiler = make();
        ASSERT_FALSE(profiler.start());
        MAREY_RANGE("last");
        throw std::runtime_error("diverged");
      },
      std::runtime_error);
  auto files = trace::find_traces(folder_);
  ASSERT_TRUE(files.is_ok());
  ASSERT_EQ(files.value().size(), 1U);
  auto trace = trace::read_trace(files.value().front());
  ASSERT_TRUE(trace.is_ok());
  EXPECT_EQ(trace.value().info.end_reason, "exception");
  EXPECT_EQ(names(trace.value()), Names{"last"});
}

TEST_F(CppApiTest, AnExceptionCaughtInsideIsNoFailure) {
  Profiler profiler = make();
  struct Cleanup {
    Profiler& profiler;
    ~Cleanup() {  // runs while an exception is on its way, and does its own complete profiling
      const Lease lease(profiler);
      MAREY_RANGE("cleanup");
    }
  };
  try {
    const Cleanup cleanup{profiler};
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(only_trace(profiler).info.end_reason, "stop");
}

TEST_F(CppApiTest, ALeaseEndsOnlyWhatItBegan) {
  Profiler profiler = make();
  ASSERT_FALSE(profiler.start());
  { const Lease inner(profiler); }
  EXPECT_TRUE(profiler.status().running);
  EXPECT_FALSE(profiler.start());
  EXPECT_EQ(profiler.status().starts_ignored, 1U);
  EXPECT_FALSE(profiler.stop());
  EXPECT_FALSE(profiler.stop());
  EXPECT_FALSE(profiler.status().running);
}

TEST_F(CppApiTest, AMovedProfilerGoesOn) {
  Profiler first = make({.active = 2, .repeat = 1});
  ASSERT_FALSE(first.start());
  first.step();
  Profiler second = std::move(first);
  EXPECT_FALSE(first.on());  // NOLINT(bugprone-use-after-move): that it is off is the point
  EXPECT_EQ(second.status().unit_number, 1);
  { MAREY_RANGE("after_the_move"); }
  second.step();
  ASSERT_FALSE(second.stop());
  EXPECT_EQ(names(only_trace(second)), Names{"after_the_move"});
  second = make();  // frees the old one
  EXPECT_FALSE(second.status().running);
}

TEST_F(CppApiTest, StatusTellsWhereTheLoopIsAndWhyNothingCame) {
  Profiler profiler = make({.skip_first = 5, .active = 1});
  ASSERT_FALSE(profiler.start(3));
  profiler.step();
  profiler.step();
  const ProfilerStatus running = profiler.status();
  EXPECT_TRUE(running.running);
  EXPECT_EQ(running.action, Action::kNone);
  EXPECT_EQ(running.train_step, 3);
  EXPECT_EQ(running.unit_number, 2);
  EXPECT_EQ(running.units_seen, 2U);
  EXPECT_EQ(running.first_planned_unit, 5);
  ASSERT_FALSE(profiler.stop());
  ASSERT_FALSE(profiler.wait(30));
  const ProfilerStatus stopped = profiler.status();
  EXPECT_FALSE(stopped.running);
  EXPECT_NE(stopped.message.find("2 mini_batch"), std::string::npos) << stopped.message;
  EXPECT_TRUE(profiler.windows().empty());
}

TEST_F(CppApiTest, WaitIsForWhatIsClosedNotForTheLeaseThatRuns) {
  Profiler profiler = make({.active = 1});
  ASSERT_FALSE(profiler.start());
  { MAREY_RANGE("first"); }
  profiler.step();
  { MAREY_RANGE("second"); }  // its window is open
  EXPECT_EQ(sealed(profiler).size(), 1U);
  EXPECT_EQ(profiler.next_window(1).error().code, ErrorCode::kExhausted);
  ASSERT_FALSE(profiler.stop());
  EXPECT_EQ(sealed(profiler).size(), 2U);
}

TEST_F(CppApiTest, OneThreadMayWaitForWindowsWhileAnotherStartsAndStops) {
  Profiler profiler = make({.active = 1});
  std::atomic<bool> over{false};
  std::thread callbacks([&] {
    std::uint64_t seen = 0;
    while (!over.load()) {
      if (auto window = profiler.next_window(seen, 0.001)) seen = window->sequence;
    }
  });
  for (int step = 0; step < 100; ++step) {
    const Lease lease(profiler, step);
    { MAREY_RANGE("work"); }
    profiler.step();
  }
  over.store(true);
  callbacks.join();
  EXPECT_EQ(sealed(profiler).size(), 100U);
}

TEST_F(CppApiTest, ProfilersOnTwoThreadsDoNotDisturbEachOther) {
  Profiler actor = make(options({.active = 50, .repeat = 1}, "actor"));
  Profiler critic = make(options({.skip_first = 10, .active = 20, .repeat = 1}, "critic"));
  const auto loop = [](Profiler& profiler, const char* name) {
    const Lease lease(profiler);
    for ([[maybe_unused]] const std::int64_t i : mini_batches(profiler, 60)) const Range range(name);
  };
  std::thread other([&] { loop(critic, "critic_range"); });
  loop(actor, "actor_range");
  other.join();
  const auto count = [](const Names& all, const std::string& name) { return std::count(all.begin(), all.end(), name); };
  EXPECT_EQ(count(names(only_trace(actor)), "actor_range"), 50);
  EXPECT_EQ(count(names(only_trace(critic)), "critic_range"), 20);
}

TEST_F(CppApiTest, StopOnAnotherThreadAtAnyMomentLeavesAValidFile) {
  for (int round = 0; round < 50; ++round) {
    Profiler profiler = make();
    ASSERT_FALSE(profiler.start());
    std::atomic<bool> go{false};
    std::thread watchdog([&] {
      while (!go.load()) std::this_thread::yield();
      EXPECT_FALSE(profiler.stop());
    });
    std::int64_t begun = 0;
    for (int i = 0; i < 2000; ++i) {
      if (i == round * 40) go.store(true);
      MAREY_RANGE("hot", arg<"i">(i));
      ++begun;
    }
    watchdog.join();
    const trace::Trace trace = only_trace(profiler);
    EXPECT_TRUE(trace.info.losses.empty());
    // A prefix of what ran, without a gap.
    std::int64_t next = 0;
    for (const trace::Event& event : trace.events) ASSERT_EQ(trace.args_of(event)[0].int_value, next++);
    EXPECT_LE(next, begun);
    EXPECT_GE(next, round * 40);
  }
}

}  // namespace
}  // namespace marey::test
