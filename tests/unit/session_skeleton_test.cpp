#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/session/skeleton.h"

namespace marey::session {
namespace {

using schedule::Unit;

/// Writes events as "+mini_batch 0@5" and "-stage 7@9!" (! = open at end).
class Script {
 public:
  explicit Script(Unit own_unit) : skeleton(own_unit, [this](const Skeleton::Event& e) { log.push_back(text(e)); }) {}

  static std::string text(const Skeleton::Event& event) {
    const std::string what = event.is_stage ? fmt::format("stage {}", event.name)
                                            : fmt::format("{} {}", schedule::unit_name(event.unit), event.number);
    return fmt::format("{}{}@{}{}", event.is_begin ? '+' : '-', what, event.ticks, event.open_at_end ? "!" : "");
  }

  std::vector<std::string> replay() const {
    std::vector<std::string> events;
    skeleton.replay([&events](const Skeleton::Event& event) { events.push_back(text(event)); });
    return events;
  }

  std::vector<std::string> log;
  Skeleton skeleton;
};

using Lines = std::vector<std::string>;

TEST(Skeleton, WritesAUnitOnlyOnceSomethingHappensInIt) {
  Script script(Unit::kMiniBatch);
  script.skeleton.unit_begin(1, Unit::kMiniBatch, 0, false);
  EXPECT_EQ(script.log, Lines{});
  script.skeleton.touch(3);
  EXPECT_EQ(script.log, Lines{"+mini_batch 0@1"});
  script.skeleton.unit_end(5, Unit::kMiniBatch);
  script.skeleton.unit_begin(5, Unit::kMiniBatch, 1, false);
  script.skeleton.unit_cancel(8, Unit::kMiniBatch);  // the loop was over: unit 1 never was
  script.skeleton.finish(9);
  EXPECT_EQ(script.log, (Lines{"+mini_batch 0@1", "-mini_batch 0@5"}));
}

TEST(Skeleton, LetsLowerUnitsBeginRetroactivelyAtTheirFirstTick) {
  Script script(Unit::kMiniBatch);
  script.skeleton.unit_begin(1, Unit::kMiniBatch, 0, false);
  script.skeleton.unit_begin(1, Unit::kMicroBatch, 0, false);
  script.skeleton.unit_end(4, Unit::kMicroBatch);
  EXPECT_EQ(script.log, (Lines{"+mini_batch 0@1", "+micro_batch 0@1", "-micro_batch 0@4"}));
}

TEST(Skeleton, NeverShowsTrainStepsThatNobodyTicks) {
  Script script(Unit::kMiniBatch);
  script.skeleton.unit_begin(1, Unit::kTrainStep, 0, true);
  script.skeleton.unit_begin(2, Unit::kMiniBatch, 0, false);
  script.skeleton.unit_end(5, Unit::kMiniBatch);
  script.skeleton.finish(9);
  EXPECT_EQ(script.log, (Lines{"+mini_batch 0@2", "-mini_batch 0@5"}));
}

TEST(Skeleton, ShowsATrainStepFromItsFirstTickOn) {
  Script script(Unit::kMiniBatch);
  script.skeleton.unit_begin(1, Unit::kTrainStep, 0, true);
  script.skeleton.unit_end(9, Unit::kTrainStep);
  EXPECT_EQ(script.log, (Lines{"+train_step 0@1", "-train_step 0@9"}));
}

TEST(Skeleton, ClosesWhatIsOpenInsideAStageThatEnds) {
  Script script(Unit::kMiniBatch);
  script.skeleton.stage_begin(1, 7);
  script.skeleton.unit_begin(1, Unit::kMiniBatch, 0, false);
  script.skeleton.touch(2);
  script.skeleton.stage_end(5, 7);
  EXPECT_EQ(script.log, (Lines{"+stage 7@1", "+mini_batch 0@1", "-mini_batch 0@5!", "-stage 7@5"}));
}

TEST(Skeleton, ReplaysTheCurrentTrainStepParentsFirst) {
  Script script(Unit::kMiniBatch);
  script.skeleton.unit_begin(1, Unit::kTrainStep, 3, false);
  script.skeleton.stage_begin(1, 7);
  script.skeleton.stage_end(4, 7);
  script.skeleton.unit_end(5, Unit::kTrainStep);
  script.skeleton.unit_begin(5, Unit::kTrainStep, 4, false);
  script.skeleton.stage_begin(6, 7);
  script.skeleton.unit_begin(6, Unit::kMiniBatch, 0, false);
  script.skeleton.unit_begin(6, Unit::kMicroBatch, 0, false);
  script.skeleton.unit_end(8, Unit::kMicroBatch);
  script.skeleton.unit_end(9, Unit::kMiniBatch);
  EXPECT_EQ(script.replay(), (Lines{"+train_step 4@5", "+stage 7@6", "+mini_batch 0@6", "+micro_batch 0@6",
                                    "-micro_batch 0@8", "-mini_batch 0@9"}));
}

TEST(Skeleton, MarksWhatIsOpenWhenTheLeaseEnds) {
  Script script(Unit::kTrainStep);
  script.skeleton.unit_begin(1, Unit::kTrainStep, 0, false);
  script.skeleton.stage_begin(2, 7);
  script.skeleton.finish(9);
  EXPECT_EQ(script.log, (Lines{"+train_step 0@1", "+stage 7@2", "-stage 7@9!", "-train_step 0@9!"}));
}

TEST(Skeleton, KeepsItsMemoryFlatOverManyUnits) {
  Script script(Unit::kMiniBatch);
  for (std::uint64_t i = 0; i < 50'000; ++i) {
    script.skeleton.unit_begin(i, Unit::kMiniBatch, static_cast<std::int64_t>(i), false);
    script.skeleton.unit_end(i + 1, Unit::kMiniBatch);
  }
  EXPECT_LT(script.replay().size(), 20'000U);
  EXPECT_GT(script.skeleton.trimmed(), 0U);
}

}  // namespace
}  // namespace marey::session
