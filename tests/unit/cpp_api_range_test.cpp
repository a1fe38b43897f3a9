#include <set>
#include <thread>

#include "cpp_api_fixture.h"

namespace marey::test {
namespace {

class CppRangeTest : public CppApiTest {
 protected:
  using Names = std::vector<std::string>;

  void SetUp() override {
    CppApiTest::SetUp();
    profiler_ = make();
    ASSERT_FALSE(profiler_.start());
  }
  trace::Trace stop() {
    EXPECT_FALSE(profiler_.stop());
    return only_trace(profiler_);
  }
  /// Arguments as text, "key=value", of the event of that name.
  static Names args_of(const trace::Trace& trace, std::string_view name) {
    Names args;
    for (const trace::Event& event : trace.events) {
      if (event.name != name) continue;
      for (const trace::ArgValue& arg : trace.args_of(event)) {
        const std::string key = std::string(arg.key) + "=";
        switch (arg.type) {
          case trace::ArgValue::Type::kInt:
            args.push_back(key + std::to_string(arg.int_value));
            break;
          case trace::ArgValue::Type::kDouble:
            args.push_back(key + std::to_string(arg.double_value));
            break;
          case trace::ArgValue::Type::kBool:
            args.push_back(key + (arg.int_value != 0 ? "true" : "false"));
            break;
          case trace::ArgValue::Type::kString:
            args.push_back(key + "'" + std::string(arg.string_value) + "'");
            break;
        }
      }
    }
    return args;
  }

  Profiler profiler_;
};

TEST_F(CppRangeTest, RangesNestAsTheirScopesDo) {
  {
    MAREY_RANGE("outer");
    { MAREY_RANGE("first"); }
    { MAREY_RANGE("second"); }
  }
  { MAREY_RANGE("after"); }
  const trace::Trace trace = stop();
  ASSERT_EQ(names(trace), (Names{"outer", "first", "second", "after"}));
  EXPECT_EQ(trace.events[1].parent, 0U);
  EXPECT_EQ(trace.events[2].parent, 0U);
  EXPECT_EQ(trace.events[3].parent, trace::kNoParent);
  EXPECT_EQ(trace.events[0].category, "user");
  const auto end = [](const trace::Event& event) { return event.begin_ns + event.duration_ns; };
  EXPECT_LE(end(trace.events[1]), trace.events[2].begin_ns);
  EXPECT_LE(end(trace.events[2]), end(trace.events[0]));
}

TEST_F(CppRangeTest, ArgumentsKeepTheirTypes) {
  enum class Phase { kPrefill = 3 };
  const std::string text = "héllo";
  {
    MAREY_RANGE("typed", arg("int", -7), arg("unsigned", std::size_t{9}), arg("double", 0.5), arg("float", 0.25F),
                arg("yes", true), arg("enum", Phase::kPrefill), arg("literal", "abc"), arg("string", text),
                arg<"static">(11), arg<"word">("x"));
  }
  EXPECT_EQ(args_of(stop(), "typed"), (Names{"int=-7", "unsigned=9", "double=0.500000", "float=0.250000", "yes=true",
                                             "enum=3", "literal='abc'", "string='héllo'", "static=11", "word='x'"}));
}

TEST_F(CppRangeTest, NamesMadeAtRunTimeSitesAndCategories) {
  static constinit Site site{"by_site", "io"};
  const Name name("by_name", "io");
  { const Range range(site); }
  { const Range range(name, arg("k", 1)); }
  { const Range range("by_text"); }
  { const Range range(std::string("by_") + "string", arg("k", 2)); }
  const trace::Trace trace = stop();
  EXPECT_EQ(names(trace), (Names{"by_site", "by_name", "by_text", "by_string"}));
  EXPECT_EQ(trace.events[0].category, "io");
  EXPECT_EQ(trace.events[1].category, "io");
  EXPECT_EQ(trace.events[2].category, "user");
  EXPECT_EQ(args_of(trace, "by_string"), Names{"k=2"});
}

TEST_F(CppRangeTest, AReservedCategoryIsKeptApartFromItsSource) {
  static constinit Site site{"mine", "operator"};
  { const Range range(site); }
  EXPECT_EQ(stop().events.at(0).category, "user.operator");
}

TEST_F(CppRangeTest, EndEndsOnceAndBeforeItsScope) {
  {
    static constinit Site site{"early"};
    Range range(site);
    EXPECT_TRUE(range.recorded());
    range.end();
    EXPECT_FALSE(range.recorded());
    range.end();
    MAREY_RANGE("later");
  }
  const trace::Trace trace = stop();
  EXPECT_EQ(names(trace), (Names{"early", "later"}));
  EXPECT_EQ(trace.events.at(1).parent, trace::kNoParent);
}

TEST_F(CppRangeTest, ExceptionsEndTheRangesThatTheyLeave) {
  try {
    MAREY_RANGE("thrown_from");
    throw 1;
  } catch (int) {
    MAREY_RANGE("caught");
  }
  const trace::Trace trace = stop();
  EXPECT_EQ(names(trace), (Names{"thrown_from", "caught"}));
  EXPECT_EQ(trace.events.at(1).parent, trace::kNoParent);
}

TEST_F(CppRangeTest, MarksAreInstantsWithArguments) {
  static constinit Site site{"reached"};
  mark(site);
  mark("text", arg("loss", 1.5));
  mark(Name("named"), arg("n", 3));
  const trace::Trace trace = stop();
  EXPECT_EQ(names(trace), (Names{"reached", "text", "named"}));
  for (const trace::Event& event : trace.events) EXPECT_EQ(event.kind, trace::EventKind::kMark);
  EXPECT_EQ(args_of(trace, "text"), Names{"loss=1.500000"});
  EXPECT_EQ(args_of(trace, "named"), Names{"n=3"});
}

TEST_F(CppRangeTest, AsyncRangesCrossAndEndOnAnotherThread) {
  static constinit Site site{"request"};
  AsyncRange first(site, arg("id", 1));
  AsyncRange second("request", arg("id", 2));
  std::thread([moved = std::move(first)]() mutable { moved.end(); }).join();
  EXPECT_FALSE(first.recorded());  // NOLINT(bugprone-use-after-move): that it is empty is the point
  EXPECT_TRUE(second.recorded());
  AsyncRange third(Name("other"));
  third = std::move(second);  // ends "other"
  third.end();
  third.end();
  const trace::Trace trace = stop();
  EXPECT_EQ(names(trace), (Names{"request", "request", "other"}));
  EXPECT_EQ(args_of(trace, "request"), (Names{"id=1", "id=2"}));
}

TEST_F(CppRangeTest, EveryThreadsRangesAreWhole) {
  constexpr int kThreads = 4;
  constexpr int kRanges = 20'000;  // more than one chunk each
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < kRanges; ++i) {
        MAREY_RANGE("outer");
        MAREY_RANGE("inner", arg<"i">(i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const trace::Trace trace = stop();
  EXPECT_TRUE(trace.info.losses.empty());
  std::map<std::uint32_t, std::int64_t> next;  // by track: the argument that comes next
  for (const trace::Event& event : trace.events) {
    if (event.name == "outer") {
      EXPECT_EQ(event.parent, trace::kNoParent);
    } else {
      EXPECT_EQ(trace.events[event.parent].name, "outer");
      ASSERT_EQ(trace.args_of(event)[0].int_value, next[event.track]++);
    }
  }
  EXPECT_EQ(next.size(), static_cast<std::size_t>(kThreads));
  for (const auto& [track, count] : next) EXPECT_EQ(count, kRanges);
}

TEST_F(CppRangeTest, ARangeOpenAtTheEndIsMarkedAndItsLateEndHurtsNothing) {
  static constinit Site site{"open"};
  trace::Trace first;
  {
    const Range range(site);
    first = stop();
  }
  EXPECT_EQ(names(first), Names{"open!"});
  ASSERT_FALSE(profiler_.start());
  { MAREY_RANGE("next"); }
  ASSERT_FALSE(profiler_.stop());
  const std::vector<Window> windows = sealed(profiler_);
  ASSERT_EQ(windows.size(), 2U);
  EXPECT_EQ(names(read(windows[1])), Names{"next"});
}

TEST_F(CppApiTest, WhileNothingIsRecordedRangesLeaveNothing) {
  Profiler profiler = make();
  EXPECT_FALSE(enabled());
  static constinit Site site{"before"};
  {
    const Range before(site);
    EXPECT_FALSE(before.recorded());
    const AsyncRange async("before");
    EXPECT_FALSE(async.recorded());
    mark("before");
    ASSERT_FALSE(profiler.start());
    EXPECT_TRUE(enabled());
    MAREY_RANGE("inside");
  }  // `before` ends while the window is open and records no end
  ASSERT_FALSE(profiler.stop());
  EXPECT_FALSE(enabled());
  EXPECT_EQ(names(only_trace(profiler)), std::vector<std::string>{"inside"});
}

TEST(CppSite, HasOneIdOnAllThreads) {
  static constinit Site site{"shared_site"};
  std::vector<std::uint32_t> ids(8);
  std::vector<std::thread> threads;
  for (std::uint32_t& id : ids) threads.emplace_back([&id] { id = site.id(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<std::uint32_t>(ids.begin(), ids.end()).size(), 1U);
  EXPECT_EQ(ids.front(), Name("shared_site").id());
  EXPECT_NE(ids.front(), Name("shared_site", "other").id());
}

}  // namespace
}  // namespace marey::test
