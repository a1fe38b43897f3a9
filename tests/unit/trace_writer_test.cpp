// What the writer puts into a file comes back from the reader as it was given.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "src/event/string_table.h"
#include "src/trace/reader.h"
#include "src/trace/writer.h"
#include "tests/unit/trace_memory_files.h"

namespace marey::trace {
namespace {

std::uint32_t name_id(std::string_view name, std::string_view category = "user") { return event::names().intern(name, category); }

TraceInfo plain_info() {
  TraceInfo info;
  info.host = "host";
  info.pid = 7;
  info.role = "actor";
  info.id = "abc123";
  info.begin_ns = 1000;
  return info;
}

/// A writer into memory, and its file read back.
class TraceWriter : public ::testing::Test {
 protected:
  WindowWriter& open(std::size_t batch_bytes = 256 * 1024) {
    auto created = WindowWriter::create({"out", &files_, &event::names(), batch_bytes}, info_, {1000, 5000, 1, 2});
    EXPECT_TRUE(created.is_ok()) << created.status().message();
    writer_ = std::move(created).value();
    return *writer_;
  }
  Trace sealed(std::int64_t end_ns = 1'000'000'000) {
    info_.end_ns = end_ns;
    const Status status = writer_->seal(info_, {end_ns, 6000, 3, 4});
    EXPECT_TRUE(status.is_ok()) << status.message();
    return now();
  }
  /// The file as it is at this moment.
  Trace now() {
    auto read = read_trace_bytes(files_.files.at(writer_->path()), writer_->path());
    EXPECT_TRUE(read.is_ok()) << read.status().message();
    return std::move(read).value();
  }

  MemoryFileSystem files_;
  TraceInfo info_ = plain_info();
  std::unique_ptr<WindowWriter> writer_;
};

using Shape = std::tuple<std::string, std::int64_t, std::int64_t, int>;  // name, begin, duration, depth
std::vector<Shape> shapes(const Trace& trace) {
  std::vector<Shape> list;
  for (const Event& event : trace.events) list.emplace_back(event.name, event.begin_ns, event.duration_ns, event.depth);
  return list;
}

TEST_F(TraceWriter, KeepsNamesTimesTracksAndNesting) {
  WindowWriter& writer = open();
  const TrackId main = writer.add_thread_track({7, 8, "main"});
  const TrackId other = writer.add_thread_track({7, 9, ""});
  const TrackId units = writer.add_track("units", 1);
  writer.begin(main, 1000, name_id("outer"));
  writer.begin(main, 1100, name_id("inner", "phase"));
  writer.begin(other, 1150, name_id("elsewhere"));
  writer.mark(main, 1160, name_id("here"), {});
  writer.end(main, 1200, false);
  writer.begin(units, 1000, name_id("mini_batch 0", "unit"));
  writer.end(main, 1300, false);
  writer.end(units, 1400, false);
  writer.end(other, 1500, false);
  EXPECT_EQ(writer.events(), 5U);
  const Trace trace = sealed();
  EXPECT_EQ(trace.state, TraceState::kSealed) << trace.state_reason;
  EXPECT_EQ(trace.info.events, 5U);
  EXPECT_EQ(shapes(trace), (std::vector<Shape>{{"outer", 1000, 300, 0},
                                               {"mini_batch 0", 1000, 400, 0},
                                               {"inner", 1100, 100, 1},
                                               {"elsewhere", 1150, 350, 0},
                                               {"here", 1160, 0, 2}}));
  ASSERT_EQ(trace.tracks.size(), 3U);
  EXPECT_EQ(trace.tracks[0].name, "main");
  EXPECT_EQ(trace.tracks[0].tid, 8);
  EXPECT_TRUE(trace.tracks[0].is_thread);
  EXPECT_EQ(trace.tracks[1].name, "thread 9");
  EXPECT_EQ(trace.tracks[2].name, "units");
  EXPECT_FALSE(trace.tracks[2].is_thread);
  EXPECT_EQ(trace.events[1].tier, Tier::kSkeleton);
  EXPECT_EQ(trace.events[2].category, "phase");
  EXPECT_EQ(trace.events[2].tier, Tier::kDetail);
  EXPECT_EQ(trace.events[2].parent, 0U);
  EXPECT_EQ(trace.events[4].parent, 2U);
  EXPECT_EQ(trace.events[4].kind, EventKind::kMark);
  EXPECT_EQ(trace.events[3].parent, kNoParent);
}

TEST_F(TraceWriter, KeepsArgumentsOfEveryTypeAndFlows) {
  WindowWriter& writer = open();
  const TrackId track = writer.add_thread_track({7, 8, "main"});
  const std::string long_text(5000, 'x');
  const std::vector<Arg> args = {
      {name_id("min", "arg"), Arg::Type::kInt, std::numeric_limits<std::int64_t>::min(), 0, {}},
      {name_id("max", "arg"), Arg::Type::kInt, std::numeric_limits<std::int64_t>::max(), 0, {}},
      {name_id("nan", "arg"), Arg::Type::kDouble, 0, std::nan(""), {}},
      {name_id("inf", "arg"), Arg::Type::kDouble, 0, -std::numeric_limits<double>::infinity(), {}},
      {name_id("tiny", "arg"), Arg::Type::kDouble, 0, 5e-324, {}},
      {name_id("yes", "arg"), Arg::Type::kBool, 1, 0, {}},
      {name_id("no", "arg"), Arg::Type::kBool, 0, 0, {}},
      {name_id("text", "arg"), Arg::Type::kString, 0, 0, "a \"b\" \n\xF0\x9F\x8E\x9E"},
      {name_id("bad", "arg"), Arg::Type::kString, 0, 0, std::string_view("x\xff\0y", 4)},
      {name_id("empty", "arg"), Arg::Type::kString, 0, 0, ""},
      {name_id("long", "arg"), Arg::Type::kString, 0, 0, long_text},
      {name_id("open_at_end", "arg"), Arg::Type::kBool, 1, 0, {}},  // a user's key like the writer's own
  };
  BeginExtras extras;
  extras.args = args;
  extras.flow_id = 0xFFFFFFFFFFFFFFFFULL;
  extras.terminating_flow_id = 3;
  writer.begin(track, 1000, name_id("with"), extras);
  writer.mark(track, 1001, name_id("mark"), std::span(args).first(1));
  writer.end(track, 1002, false);
  const Trace trace = sealed();
  ASSERT_EQ(trace.events.size(), 2U);
  const Event& event = trace.events[0];
  EXPECT_EQ(event.flow_id, 0xFFFFFFFFFFFFFFFFULL);
  EXPECT_EQ(event.terminating_flow_id, 3U);
  EXPECT_FALSE(event.truncated);
  const auto got = trace.args_of(event);
  ASSERT_EQ(got.size(), args.size());
  for (std::size_t i = 0; i < args.size(); ++i) {
    EXPECT_EQ(got[i].key, event::names().entry(args[i].key).name);
    EXPECT_EQ(static_cast<int>(got[i].type), static_cast<int>(args[i].type)) << got[i].key;
    EXPECT_EQ(got[i].int_value, args[i].int_value) << got[i].key;
  }
  EXPECT_TRUE(std::isnan(got[2].double_value));
  EXPECT_EQ(got[3].double_value, args[3].double_value);
  EXPECT_EQ(got[4].double_value, 5e-324);
  EXPECT_EQ(got[7].string_value, args[7].string_value);
  EXPECT_EQ(got[8].string_value, "x\xEF\xBF\xBD\xEF\xBF\xBDy");
  EXPECT_EQ(got[9].string_value, "");
  EXPECT_EQ(got[10].string_value, long_text.substr(0, 4096));
  ASSERT_EQ(trace.args_of(trace.events[1]).size(), 1U);
}

TEST_F(TraceWriter, KeepsNastyNames) {
  WindowWriter& writer = open();
  const TrackId track = writer.add_thread_track({7, 8, "bad \xff thread"});
  const std::vector<std::string> names = {"quote\"backslash\\newline\n", std::string("nul\0inside", 10), "bad\xff\xfeutf8", "\xED\xA0\x80 surrogate",
                                          std::string(9000, 'n'), "", "\x0a\x02\x50\x01"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    writer.begin(track, 1000 + static_cast<std::int64_t>(i), name_id(names[i], i == 2 ? "" : "user"));
    writer.end(track, 1000 + static_cast<std::int64_t>(i), false);
  }
  const Trace trace = sealed();
  EXPECT_EQ(trace.state, TraceState::kSealed) << trace.state_reason;
  ASSERT_EQ(trace.events.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(trace.events[i].name, event::names().entry(name_id(names[i])).name) << i;
    EXPECT_EQ(trace.events[i].category, "user") << i;
  }
  EXPECT_EQ(trace.tracks[0].name, "bad \xEF\xBF\xBD thread");
}

TEST_F(TraceWriter, EndsBeforeBeginsAtTheSameTime) {
  WindowWriter& writer = open();
  const TrackId track = writer.add_thread_track({7, 8, "main"});
  for (int i = 0; i < 3; ++i) {
    writer.begin(track, 1000 + i * 10, name_id(fmt::format("{}", i)));
    writer.begin(track, 1000 + i * 10, name_id("child"));  // begins and ends with its parent
    writer.end(track, 1010 + i * 10, false);
    writer.end(track, 1010 + i * 10, false);
  }
  writer.begin(track, 1030, name_id("zero"));
  writer.end(track, 1030, false);
  const Trace trace = sealed();
  EXPECT_EQ(shapes(trace), (std::vector<Shape>{{"0", 1000, 10, 0},
                                               {"child", 1000, 10, 1},
                                               {"1", 1010, 10, 0},
                                               {"child", 1010, 10, 1},
                                               {"2", 1020, 10, 0},
                                               {"child", 1020, 10, 1},
                                               {"zero", 1030, 0, 0}}));
}

TEST_F(TraceWriter, TakesEventsThatComeLate) {
  WindowWriter& writer = open();
  const TrackId track = writer.add_track("units", 0);
  writer.begin(track, 5000, name_id("second", "unit"));
  writer.end(track, 6000, false);
  writer.begin(track, 500, name_id("step", "unit"));  // before the window, and before the track's clock
  writer.begin(track, 600, name_id("first", "unit"));
  writer.end(track, 700, false);
  writer.begin(track, 7000, name_id("third", "unit"));  // the clock goes on where it was
  writer.end(track, 8000, false);
  writer.end(track, 9000, false);
  const Trace trace = sealed();
  EXPECT_EQ(trace.state, TraceState::kSealed) << trace.state_reason;
  EXPECT_EQ(shapes(trace), (std::vector<Shape>{{"step", 500, 8500, 0}, {"first", 600, 100, 1}, {"second", 5000, 1000, 1}, {"third", 7000, 1000, 1}}));
  EXPECT_EQ(trace.events[2].parent, 0U);
}

TEST_F(TraceWriter, MarksRangesThatAreOpenAtTheEnd) {
  WindowWriter& writer = open();
  const TrackId track = writer.add_thread_track({7, 8, "main"});
  writer.begin(track, 1000, name_id("outer"));
  writer.begin(track, 1100, name_id("inner"));
  writer.end(track, 1200, false);
  writer.end(track, 2000, true);
  const Trace trace = sealed(2000);
  ASSERT_EQ(trace.events.size(), 2U);
  EXPECT_TRUE(trace.events[0].truncated);
  EXPECT_EQ(trace.events[0].duration_ns, 1000);
  EXPECT_FALSE(trace.events[1].truncated);
}

TEST_F(TraceWriter, WhatWasFlushedIsReadableWhileTheFileGrows) {
  WindowWriter& writer = open(400);
  const TrackId track = writer.add_thread_track({7, 8, "main"});
  std::size_t begun = 0;
  for (int i = 0; i < 300; ++i) {
    writer.begin(track, 1000 + i, name_id(fmt::format("range {}", i % 7)));
    ++begun;
    if (i % 3 == 2) writer.end(track, 1000 + i, false);
    if (i % 5 != 0) continue;
    ASSERT_TRUE(writer.flush().is_ok());
    const Trace trace = now();
    ASSERT_EQ(trace.state, TraceState::kPartial) << trace.state_reason;
    ASSERT_EQ(trace.events.size(), begun);
    ASSERT_EQ(trace.info.events, begun);
    ASSERT_TRUE(trace.events[0].truncated);
    ASSERT_EQ(trace.events[0].duration_ns, i);
  }
}

TEST_F(TraceWriter, BatchSizeDoesNotShowInWhatIsRead) {
  std::vector<Shape> first;
  for (const std::size_t batch_bytes : {1, 64, 1000, 4096, 1 << 20}) {
    info_.id = fmt::format("b{}", batch_bytes);
    WindowWriter& writer = open(batch_bytes);
    const TrackId a = writer.add_thread_track({7, 8, "a"});
    const TrackId b = writer.add_thread_track({7, 9, "b"});
    for (int i = 0; i < 200; ++i) {
      writer.begin(a, 1000 + i * 100, name_id(fmt::format("name {}", i % 50)));
      writer.begin(b, 1001 + i * 100, name_id(fmt::format("name {}", i % 50)));
      writer.end(b, 1050 + i * 100, false);
      writer.end(a, 1060 + i * 100, false);
      const Status flushed = i % 13 == 0 ? writer.flush() : Status::ok();
      ASSERT_TRUE(flushed.is_ok());
    }
    const Trace trace = sealed();
    EXPECT_EQ(trace.state, TraceState::kSealed) << batch_bytes << trace.state_reason;
    if (first.empty()) first = shapes(trace);
    ASSERT_EQ(first.size(), 400U);
    EXPECT_EQ(shapes(trace), first) << batch_bytes;
  }
}

TEST_F(TraceWriter, SealingNeverRewritesCompressedBatches) {
  WindowWriter& writer = open(2000);
  const TrackId track = writer.add_thread_track({7, 8, "main"});
  for (int i = 0; i < 2000; ++i) {
    writer.begin(track, 1000 + i, name_id("range"));
    writer.end(track, 1000 + i, false);
  }
  const std::vector<char> before = files_.files.at(writer.path());  // nothing flushed: batches alone
  ASSERT_GT(before.size(), 1000U);
  sealed();
  const std::vector<char>& after = files_.files.at(writer.path());
  ASSERT_GT(after.size(), before.size());
  EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin()));
}

TEST_F(TraceWriter, SeventyThousandEventsComeBack) {
  WindowWriter& writer = open();
  std::vector<TrackId> tracks;
  for (int i = 0; i < 4; ++i) tracks.push_back(writer.add_thread_track({7, 8 + i, fmt::format("worker {}", i)}));
  std::int64_t total_ns = 0;
  for (int i = 0; i < 70'000; ++i) {
    const TrackId track = tracks[static_cast<std::size_t>(i) % 4];
    const std::int64_t length_ns = i % 97;
    writer.begin(track, 1000 + i * 100, name_id(fmt::format("op {}", i % 300)));
    writer.end(track, 1000 + i * 100 + length_ns, false);
    total_ns += length_ns;
  }
  const Trace trace = sealed();
  EXPECT_EQ(trace.state, TraceState::kSealed) << trace.state_reason;
  ASSERT_EQ(trace.events.size(), 70'000U);
  EXPECT_EQ(trace.info.events, 70'000U);
  std::map<std::uint32_t, int> by_track;
  for (const Event& event : trace.events) {
    total_ns -= event.duration_ns;
    ++by_track[event.track];
  }
  EXPECT_EQ(total_ns, 0);
  EXPECT_EQ(by_track, (std::map<std::uint32_t, int>{{0, 17'500}, {1, 17'500}, {2, 17'500}, {3, 17'500}}));
  EXPECT_LT(writer.bytes(), 70'000U * 10);
}

TEST_F(TraceWriter, NameAtTheEndSaysWhatTheWindowHolds) {
  info_.unit = schedule::Unit::kMiniBatch;
  info_.first_unit = 2;
  info_.last_unit = 9;
  info_.train_step = 5;
  WindowWriter& writer = open();
  EXPECT_TRUE(writer.path().ends_with(".pftrace.partial"));
  EXPECT_NE(writer.path().find("out/actor_step5_mini-batch2-9_rank0-of-1_host_pid7_"), std::string::npos) << writer.path();
  info_.last_unit = 3;
  sealed();
  EXPECT_NE(writer.path().find("out/actor_step5_mini-batch2-3_rank0-of-1_host_pid7_"), std::string::npos) << writer.path();
  EXPECT_TRUE(writer.path().ends_with("_abc123.pftrace"));
  EXPECT_EQ(files_.files.size(), 1U);
}

TEST_F(TraceWriter, TakenNameGetsAnotherIdAndReplacesNothing) {
  WindowWriter& writer = open();
  const std::string taken = "out/" + file_name(info_);
  files_.files[taken] = {'x'};
  sealed();
  EXPECT_NE(writer.path(), taken);
  EXPECT_EQ(files_.files.at(taken), std::vector<char>{'x'});
  EXPECT_TRUE(writer.error().is_ok());
}

TEST_F(TraceWriter, DiscardLeavesNothing) {
  WindowWriter& writer = open();
  ASSERT_TRUE(writer.discard().is_ok());
  EXPECT_TRUE(files_.files.empty());
}

// --- Faults of the disk ---------------------------------------------------------------------------------------------

TEST_F(TraceWriter, CreateFailureNamesTheFile) {
  files_.failing = "create";
  const auto created = WindowWriter::create({"out", &files_, &event::names()}, info_, {1000, 5000, 0, 0});
  ASSERT_FALSE(created.is_ok());
  EXPECT_EQ(created.status().code(), Code::kIo);
  EXPECT_NE(created.status().message().find("out/actor_"), std::string::npos);
}

class TraceWriterFault : public TraceWriter, public ::testing::WithParamInterface<std::pair<const char*, int>> {};

TEST_P(TraceWriterFault, KeepsTheFirstErrorAndWhatWasWritten) {
  const auto [call, calls_before] = GetParam();
  files_.calls_before = calls_before;
  files_.failing = call;
  WindowWriter& writer = open(600);
  const std::string partial = writer.path();
  const TrackId track = writer.add_thread_track({7, 8, "main"});
  for (int i = 0; i < 400; ++i) {
    writer.begin(track, 1000 + i, name_id("range"));
    writer.end(track, 1000 + i, false);
    if (i % 10 == 0) (void)writer.flush();
  }
  info_.end_ns = 5000;
  const Status status = writer.seal(info_, {5000, 6000, 0, 0});
  ASSERT_FALSE(status.is_ok());
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_NE(status.message().find("out/actor_"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("free space"), std::string::npos);
  EXPECT_EQ(writer.error().message(), status.message());
  EXPECT_EQ(writer.path(), partial);
  ASSERT_EQ(files_.files.size(), 1U);
  // Later calls do nothing and say the same.
  const std::vector<char> left = files_.files.at(partial);
  files_.failing.clear();
  writer.begin(track, 9000, name_id("range"));
  EXPECT_EQ(writer.flush().message(), status.message());
  EXPECT_EQ(writer.seal(info_, {5000, 6000, 0, 0}).message(), status.message());
  EXPECT_EQ(files_.files.at(partial), left);
  const Trace trace = now();
  EXPECT_NE(trace.state, TraceState::kDamaged) << trace.state_reason;
  EXPECT_EQ(trace.info.role, "actor");
}

INSTANTIATE_TEST_SUITE_P(Calls, TraceWriterFault,
                         ::testing::Values(std::pair{"append", 1}, std::pair{"append", 2}, std::pair{"append", 9}, std::pair{"append", 30},
                                           std::pair{"truncate", 0}, std::pair{"truncate", 3}, std::pair{"sync", 0}, std::pair{"close", 0},
                                           std::pair{"rename", 0}),
                         [](const auto& each) { return fmt::format("{}{}", each.param.first, each.param.second); });

// --- Names of files -------------------------------------------------------------------------------------------------

TEST(TraceFileName, LeavesOutWhatIsUnknown) {
  TraceInfo info = plain_info();
  info.begin_unix_ns = 1'700'000'000'123'456'789;
  const std::string plain = file_name(info);
  EXPECT_EQ(plain.find("actor_rank0-of-1_host_pid7_"), 0U) << plain;
  EXPECT_NE(plain.find(".123_abc123.pftrace"), std::string::npos) << plain;
  info.role.clear();
  EXPECT_EQ(file_name(info).find("rank0-of-1_host_"), 0U);
  info.kind = TraceKind::kSkeleton;
  info.role = "critic";
  info.unit = schedule::Unit::kMiniBatch;
  info.first_unit = 1;
  EXPECT_EQ(file_name(info).find("critic_skeleton_rank0-of-1_"), 0U);
}

TEST(TraceFileName, HoldsSafeCharactersAndFitsEveryFileSystem) {
  TraceInfo info = plain_info();
  info.role = "../\xE6\xBC\x94\xE5\x91\x98/a_b c";
  info.host = "-.h*o?st.";
  info.parallel = std::string(300, 'p');
  std::string name = file_name(info);
  EXPECT_EQ(name.find("a-b-c_rank0-of-1_ppp"), 0U) << name;
  EXPECT_NE(name.find("_h-o-st_pid7_"), std::string::npos) << name;
  info.role = std::string(300, 'r');
  info.host = std::string(300, 'h');
  info.id = std::string(300, 'i');
  info.unit = schedule::Unit::kMicroBatch;
  info.train_step = info.first_unit = info.pid = info.rank = std::numeric_limits<std::int64_t>::max() - 1;
  info.last_unit = info.world_size = std::numeric_limits<std::int64_t>::max();
  name = file_name(info);
  EXPECT_LT((name + ".partial").size(), 240U) << name;
  for (const char c : name) EXPECT_TRUE(std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view("._=+-").find(c) != std::string_view::npos) << name;
}

}  // namespace
}  // namespace marey::trace
