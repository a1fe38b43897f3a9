#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "src/schedule/schedule.h"

namespace marey::schedule {
namespace {

std::string actions(const Schedule& schedule, std::int64_t units) {
  std::string text;
  for (std::int64_t n = 0; n < units; ++n) text += "NWRS"[static_cast<int>(action_of(schedule, n))];
  return text;
}

TEST(Schedule, GivesTheActionsOfTheReference) {
  EXPECT_EQ(actions({1, 2, 1, 2, 2, 1}, 13), "NWRSNNWRSNNNN");
  EXPECT_EQ(actions({1, 0, 1, 2, 1, 0}, 8), "NWRSNNNN");
  EXPECT_EQ(actions({0, 0, 0, 1, 0, 0}, 4), "SSSS");
  EXPECT_EQ(actions({0, 0, 0, 0, 0, 0}, 3), "RRR");
  EXPECT_EQ(actions({2, 2, 2, 2, 0, 0}, 15), "NNNNWWRSNNWWRSN");
}

TEST(Schedule, KnowsTheNextChangeOfEveryUnit) {
  for (std::int64_t code = 0; code < 4 * 3 * 3 * 4 * 3 * 2; ++code) {
    std::int64_t rest = code;
    const auto take = [&rest](std::int64_t base) {
      const std::int64_t digit = rest % base;
      rest /= base;
      return digit;
    };
    const Schedule s{take(4), take(3), take(3), take(4), take(3), take(2)};
    for (std::int64_t n = -1; n < 30; ++n) {
      std::optional<std::int64_t> expected;
      for (std::int64_t m = n + 1; m < 60 && !expected; ++m) {
        if (action_of(s, m) != action_of(s, n)) expected = m;
      }
      ASSERT_EQ(next_change(s, n), expected) << to_string(s) << " at " << n;
    }
  }
}

TEST(Schedule, SurvivesTheLargestNumbers) {
  constexpr std::int64_t kMax = std::int64_t{1} << 40;
  const Schedule s{kMax, kMax, kMax, kMax, kMax, 1};
  ASSERT_TRUE(validate(s).is_ok());
  EXPECT_EQ(action_of(s, INT64_MAX), action_of(s, INT64_MAX));
  EXPECT_EQ(first_recorded(s), 2 * kMax);
  EXPECT_TRUE(next_change(s, 0).has_value());
}

TEST(Schedule, DoesNotOverflowWhereTheLastCycleEndsJustBelowTheLargestNumber) {
  constexpr std::int64_t kMax = std::int64_t{1} << 40;
  const Schedule s{kMax, 0, 0, (std::int64_t{1} << 23) - 1, kMax, 0};
  ASSERT_TRUE(validate(s).is_ok());
  EXPECT_EQ(action_of(s, kMax - 1), Action::kNone);
  EXPECT_EQ(action_of(s, kMax), Action::kRecord);
  EXPECT_EQ(next_change(s, 0), kMax);
}

TEST(Schedule, GivesTheStepsThatTheReferenceNames) {
  // skip 2, wait 2, warmup 2, active 2.
  const auto at = [](std::int64_t repeat, std::int64_t number) { return action_of({2, 2, 2, 2, repeat, 0}, number); };
  for (const std::int64_t none : {0, 1, 3}) EXPECT_EQ(at(0, none), Action::kNone);
  EXPECT_EQ(at(0, 5), Action::kWarmup);
  EXPECT_EQ(at(0, 6), Action::kRecord);
  EXPECT_EQ(at(0, 7), Action::kRecordAndSave);
  EXPECT_EQ(at(0, 13), Action::kRecordAndSave);
  EXPECT_EQ(at(4, 13), Action::kRecordAndSave);
  EXPECT_EQ(at(1, 13), Action::kNone);
  EXPECT_EQ(at(4, 25), Action::kRecordAndSave);
  EXPECT_EQ(at(4, 30), Action::kNone);
}

TEST(Schedule, PlansTheWindowsThatItsActionsRecord) {
  for (std::int64_t code = 0; code < 3 * 3 * 3 * 3 * 3 * 2; ++code) {
    const Schedule s{code % 3, code / 3 % 3, code / 9 % 3, 1 + code / 27 % 3, code / 81 % 3, code / 243};
    constexpr std::int64_t kUnits = 17;
    std::vector<std::int64_t> planned;
    for (const PlannedWindow& window : plan(s, kUnits)) {
      EXPECT_EQ(window.complete, window.last < kUnits) << to_string(s);
      EXPECT_EQ(window.last - window.first + 1, s.active);
      EXPECT_EQ(action_of(s, window.last), Action::kRecordAndSave);
      for (std::int64_t n = window.first; n <= std::min(window.last, kUnits - 1); ++n) planned.push_back(n);
    }
    std::vector<std::int64_t> recorded;
    for (std::int64_t n = 0; n < kUnits; ++n) {
      if (action_of(s, n) >= Action::kRecord) recorded.push_back(n);
    }
    EXPECT_EQ(planned, recorded) << to_string(s);
    const auto first = first_recorded(s);
    ASSERT_TRUE(first.has_value());
    if (!recorded.empty()) {
      EXPECT_EQ(*first, recorded.front());
    }
  }
}

TEST(Schedule, NamesTheFieldAndTheValueOfBadInput) {
  EXPECT_EQ(parse("active=-1").status().message(), "schedule: active=-1 is negative; use a number from 0");
  EXPECT_EQ(parse("active=-99999999999999999999").status().message(),
            "schedule: active=-99999999999999999999 is negative; use a number from 0");
  EXPECT_EQ(parse("active=1.5").status().message(), "schedule: active=1.5 is not a whole number");
  EXPECT_EQ(parse("wait=True").status().message(), "schedule: wait=True is not a whole number");
  EXPECT_EQ(parse("active=1,active=2").status().message(), "schedule: active is given twice");
  EXPECT_NE(parse("activ=1").status().message().find("'activ' is not a field"), std::string::npos);
  EXPECT_NE(parse("active").status().message().find("'active' is not field=number"), std::string::npos);
  EXPECT_FALSE(parse("repeat=99999999999999999999").is_ok());
  EXPECT_EQ(to_string(parse("skip_first=1, active=2").value()), "skip_first=1,wait=0,warmup=0,active=2,repeat=0,skip_first_wait=0");
}

TEST(Schedule, HasAnEntryForEveryTransition) {
  for (int current = 0; current < 4; ++current) {
    for (int next = 0; next < 5; ++next) {
      const auto from = static_cast<Action>(current);
      const Transition t = transition(from, static_cast<Next>(next));
      const bool recording = from == Action::kRecord || from == Action::kRecordAndSave;
      EXPECT_FALSE(t.arm && t.disarm);
      EXPECT_TRUE(!t.close_window || recording);
      if (next == static_cast<int>(Next::kStop)) {
        EXPECT_EQ(t.close_window, recording);
        EXPECT_EQ(t.disarm, from != Action::kNone);
        EXPECT_FALSE(t.open_window);
      }
    }
  }
}

}  // namespace
}  // namespace marey::schedule
