// A small trace, cut at every byte and damaged at every byte.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "src/event/string_table.h"
#include "src/trace/reader.h"
#include "src/trace/writer.h"
#include "tests/unit/trace_memory_files.h"

namespace marey::trace {
namespace {

namespace fs = std::filesystem;

TraceInfo sample_info() {
  TraceInfo info;
  info.marey_version = "0.1.0";
  info.host = "host";
  info.pid = 7;
  info.role = "actor";
  info.id = "abc123";
  info.unit = schedule::Unit::kMiniBatch;
  info.first_unit = 2;
  info.last_unit = 3;
  info.planned_units = 2;
  info.schedule.active = 2;
  info.begin_ns = 1000;
  return info;
}

/// Writes `ranges` nested pairs in batches of a few packets; returns the bytes of the sealed file.
std::vector<char> sample_bytes(int ranges, std::size_t batch_bytes) {
  std::random_device random;
  const fs::path folder = fs::temp_directory_path() / fmt::format("marey-cut-{:08x}", random());
  fs::create_directories(folder);
  TraceInfo info = sample_info();
  auto created = WindowWriter::create({folder, &base::real_file_system(), &event::names(), batch_bytes}, info, {1000, 5000, 0, 0});
  EXPECT_TRUE(created.is_ok()) << created.status().message();
  WindowWriter& writer = *created.value();
  const TrackId track = writer.add_thread_track({7, 8, "main"});
  for (int i = 0; i < ranges; ++i) {
    const std::uint32_t name = event::names().intern(fmt::format("range {}", i % 5), "user");
    writer.begin(track, 1000 + i * 10, name);
    writer.begin(track, 1000 + i * 10, name);
    writer.end(track, 1000 + i * 10 + 10, false);
    writer.end(track, 1000 + i * 10 + 10, false);
    EXPECT_TRUE(writer.flush().is_ok());
  }
  info.end_ns = 1000 + ranges * 10;
  info.events = writer.events();
  info.complete = true;
  EXPECT_TRUE(writer.seal(info, {info.end_ns, 6000, 0, 0}).is_ok());
  std::ifstream file(writer.path(), std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  fs::remove_all(folder);
  return bytes;
}

/// Ends of the whole top-level packets of the bytes.
std::vector<std::size_t> packet_ends(const std::vector<char>& bytes) {
  std::vector<std::size_t> ends;
  for (std::size_t at = 0; at < bytes.size();) {
    std::size_t length = 0;
    unsigned shift = 0;
    ++at;
    while (true) {
      const auto byte = static_cast<unsigned char>(bytes[at++]);
      length |= static_cast<std::size_t>(byte & 0x7FU) << shift;
      shift += 7;
      if ((byte & 0x80U) == 0) break;
    }
    at += length;
    ends.push_back(at);
  }
  return ends;
}

TEST(TraceCut, KeepsEveryWholePacketAtEveryCut) {
  const std::vector<char> bytes = sample_bytes(40, 150);
  const std::vector<std::size_t> ends = packet_ends(bytes);
  ASSERT_GT(ends.size(), 8U);
  // Events that are whole after each packet, by reading the packets up to it.
  std::vector<std::size_t> events_after;
  for (const std::size_t end : ends) {
    const auto read = read_trace_bytes({bytes.data(), end}, "whole packets");
    events_after.push_back(read.is_ok() ? read.value().events.size() : 0);
  }
  EXPECT_EQ(events_after.back(), 80U);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    std::size_t whole = 0;
    while (whole < ends.size() && ends[whole] <= cut) ++whole;
    const auto read = read_trace_bytes({bytes.data(), cut}, "cut");
    if (!read.is_ok()) {
      ASSERT_LT(whole, 3U) << "the metadata is among the first packets";
      continue;
    }
    ASSERT_EQ(read.value().state, TraceState::kPartial) << cut;
    ASSERT_EQ(read.value().events.size(), whole == 0 ? 0 : events_after[whole - 1]) << cut;
    ASSERT_EQ(read.value().info.role, "actor");
  }
  const auto read = read_trace_bytes(bytes, "whole");
  ASSERT_TRUE(read.is_ok());
  EXPECT_EQ(read.value().state, TraceState::kSealed);
}

TEST(TraceCut, SurvivesEveryDamagedByteAndNeverCallsAWholeFileCut) {
  const std::vector<char> whole = sample_bytes(12, 150);
  int damaged = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const int flip : {0x01, 0x80, 0xFF}) {
      std::vector<char> bytes = whole;
      bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ flip);
      const auto read = read_trace_bytes(bytes, "flipped");
      if (!read.is_ok() || read.value().state == TraceState::kDamaged) ++damaged;
      if (!read.is_ok()) continue;
      for (const Event& event : read.value().events) {
        ASSERT_GE(event.duration_ns, 0);
        ASSERT_LT(event.track, read.value().tracks.size());
        ASSERT_TRUE(event.parent == kNoParent || event.parent < read.value().events.size());
      }
    }
  }
  // The rest of the flips land in text and numbers, which stay what they are: text and numbers.
  EXPECT_GT(damaged, static_cast<int>(whole.size()));
}

/// The same, flushed but neither compressed nor sealed: every byte is a packet's own.
std::vector<char> raw_bytes(int ranges) {
  MemoryFileSystem files;
  auto created = WindowWriter::create({"out", &files, &event::names()}, sample_info(), {1000, 5000, 1, 2});
  EXPECT_TRUE(created.is_ok()) << created.status().message();
  WindowWriter& writer = *created.value();
  const TrackId track = writer.add_thread_track({7, 8, "main"});
  const Arg args[] = {{event::names().intern("flag", "arg"), Arg::Type::kBool, 1, 0, {}},
                      {event::names().intern("value", "arg"), Arg::Type::kDouble, 0, 0.5, {}},
                      {event::names().intern("text", "arg"), Arg::Type::kString, 0, 0, "text"}};
  for (int i = 0; i < ranges; ++i) {
    const std::uint32_t name = event::names().intern(fmt::format("range {}", i % 5), "user");
    BeginExtras extras;
    extras.args = args;
    extras.flow_id = static_cast<std::uint64_t>(i) + 1;
    writer.begin(track, 1000 + i * 10, name, extras);
    writer.begin(track, 1000 + i * 10, name);
    writer.mark(track, 1001 + i * 10, name, args);
    writer.end(track, 1010 + i * 10, false);
    writer.end(track, 1010 + i * 10, i + 1 == ranges);
  }
  EXPECT_TRUE(writer.flush().is_ok());
  return files.files.at(writer.path());
}

void expect_consistent(const Trace& trace) {
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const Event& event = trace.events[i];
    ASSERT_GE(event.duration_ns, 0);
    ASSERT_LT(event.track, trace.tracks.size());
    ASSERT_TRUE(event.parent == kNoParent || event.parent < i);
    ASSERT_LE(event.first_arg + event.arg_count, trace.args.size());
    ASSERT_FALSE(event.name.empty());
  }
}

TEST(TraceCut, KeepsEveryWholeUncompressedPacketAtEveryCut) {
  const std::vector<char> bytes = raw_bytes(6);
  const std::vector<std::size_t> ends = packet_ends(bytes);
  std::size_t events = 0;
  std::size_t whole = 0;
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    const bool at_end = whole < ends.size() && ends[whole] == cut;
    whole += at_end ? 1 : 0;
    const auto read = read_trace_bytes({bytes.data(), cut}, "cut");
    if (!read.is_ok()) {
      ASSERT_LT(whole, 3U);
      continue;
    }
    ASSERT_EQ(read.value().state, TraceState::kPartial) << cut << ": " << read.value().state_reason;
    if (at_end) {
      ASSERT_GE(read.value().events.size(), events);
      events = read.value().events.size();
    }
    ASSERT_EQ(read.value().events.size(), events) << cut;
    expect_consistent(read.value());
  }
  EXPECT_EQ(events, 18U);
}

TEST(TraceCut, SurvivesEveryDamagedUncompressedByte) {
  const std::vector<char> whole = raw_bytes(4);
  const std::size_t set_up = packet_ends(whole)[4];  // head, then the track's two packets
  std::size_t worst = 12;
  int damaged = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int flip = 1; flip < 256; flip += flip < 8 ? 1 : 31) {
      std::vector<char> bytes = whole;
      bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ flip);
      const auto read = read_trace_bytes(bytes, "flipped");
      if (!read.is_ok()) continue;  // the packet that says whose trace it is
      ASSERT_NE(read.value().state, TraceState::kSealed);
      damaged += read.value().state == TraceState::kDamaged ? 1 : 0;
      expect_consistent(read.value());
      // A byte of its set-up may cost the whole track; a length may swallow the packets behind it.
      if (at >= set_up) worst = std::min(worst, read.value().events.size());
    }
  }
  EXPECT_GT(damaged, static_cast<int>(whole.size()));
  EXPECT_GE(worst, 3U);
}

TEST(TraceCut, GoesOnBehindADamagedPacketHead) {
  const std::vector<char> whole = raw_bytes(20);
  const std::vector<std::size_t> ends = packet_ends(whole);
  const std::size_t head = ends[ends.size() / 2];
  for (const int value : {0x00, 0x7F, 0xFF}) {
    for (const std::size_t at : {head, head + 1}) {
      std::vector<char> bytes = whole;
      bytes[at] = static_cast<char>(value);
      const auto read = read_trace_bytes(bytes, "damaged");
      ASSERT_TRUE(read.is_ok());
      EXPECT_EQ(read.value().state, TraceState::kDamaged) << value;
      EXPECT_NE(read.value().state_reason.find(fmt::format("byte {}", head)), std::string::npos) << read.value().state_reason;
      EXPECT_GE(read.value().events.size(), 55U) << value;  // of 60
    }
  }
}

TEST(TraceCut, MissesAWholeBatch) {
  MemoryFileSystem files;
  TraceInfo info = sample_info();
  auto created = WindowWriter::create({"out", &files, &event::names(), 600}, info, {1000, 5000, 1, 2});
  ASSERT_TRUE(created.is_ok());
  const TrackId track = created.value()->add_thread_track({7, 8, "main"});
  for (int i = 0; i < 400; ++i) created.value()->mark(track, 1000 + i, event::names().intern("mark", "user"), {});
  info.end_ns = 2000;
  ASSERT_TRUE(created.value()->seal(info, {2000, 6000, 1, 2}).is_ok());
  std::vector<char> bytes = files.files.at(created.value()->path());
  const std::vector<std::size_t> ends = packet_ends(bytes);
  const std::size_t middle = ends.size() / 2;
  bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(ends[middle - 1]), bytes.begin() + static_cast<std::ptrdiff_t>(ends[middle]));
  for (const bool info_only : {false, true}) {
    ReadOptions options;
    options.info_only = info_only;
    const auto read = read_trace_bytes(bytes, "gap", options);
    ASSERT_TRUE(read.is_ok());
    EXPECT_EQ(read.value().state, TraceState::kDamaged);
    EXPECT_NE(read.value().state_reason.find("the trace says that it holds 400 events"), std::string::npos) << read.value().state_reason;
    if (info_only) continue;
    EXPECT_LT(read.value().events.size(), 400U);
    EXPECT_GT(read.value().events.size(), 300U);
  }
}

TEST(TraceCut, HoldsNoMoreThanItIsAllowedTo) {
  const std::vector<char> bytes = sample_bytes(2000, 64 * 1024);
  ReadOptions options;
  options.max_uncompressed_bytes = 1000;
  const auto read = read_trace_bytes(bytes, "large", options);
  ASSERT_TRUE(read.is_ok());
  EXPECT_EQ(read.value().state, TraceState::kDamaged);
  EXPECT_NE(read.value().state_reason.find("allowed to hold"), std::string::npos);
}

TEST(TraceCut, FarInternedIdsCostNoMemory) {
  std::vector<char> bytes = raw_bytes(1);
  for (int sequence = 2; sequence < 100; ++sequence) {
    // packet {sequence, flag 1, interned {name {iid 2^21 - 1}}}
    for (const int byte : {0x0A, 0x0E, 0x50, sequence, 0x68, 0x01, 0x62, 0x08, 0x12, 0x06, 0x08, 0xFF, 0xFF, 0x7F, 0x12, 0x00}) {
      bytes.push_back(static_cast<char>(byte));
    }
  }
  const auto read = read_trace_bytes(bytes, "hostile");
  ASSERT_TRUE(read.is_ok());
  EXPECT_EQ(read.value().state, TraceState::kDamaged);
  EXPECT_NE(read.value().state_reason.find("interned id"), std::string::npos) << read.value().state_reason;
}

TEST(TraceCut, InfoOnlyLeavesEventsAndSaysTheSame) {
  const std::vector<char> bytes = sample_bytes(40, 150);
  ReadOptions options;
  options.info_only = true;
  const auto read = read_trace_bytes(bytes, "info", options);
  ASSERT_TRUE(read.is_ok());
  EXPECT_EQ(read.value().state, TraceState::kSealed) << read.value().state_reason;
  EXPECT_EQ(read.value().info.events, 80U);
  EXPECT_TRUE(read.value().events.empty());
}

TEST(FindTraces, FindsSealedAndPartialFilesInFoldersSorted) {
  std::random_device random;
  const fs::path folder = fs::temp_directory_path() / fmt::format("marey-find-{:08x}", random());
  fs::create_directories(folder / "b");
  for (const char* name : {"b/z.pftrace.partial", "a.pftrace", "b/y.pftrace", "c.json", "d.pftrace.txt"}) std::ofstream(folder / name) << "x";
  const auto found = find_traces(folder);
  ASSERT_TRUE(found.is_ok());
  EXPECT_EQ(found.value(), (std::vector<std::string>{folder / "a.pftrace", folder / "b/y.pftrace", folder / "b/z.pftrace.partial"}));
  EXPECT_EQ(find_traces(folder / "c.json").value(), std::vector<std::string>{folder / "c.json"});
  EXPECT_EQ(find_traces(folder / "nothing").status().code(), Code::kNotFound);
  EXPECT_EQ(read_trace(folder / "nothing").status().code(), Code::kNotFound);
  EXPECT_EQ(read_trace(folder).status().code(), Code::kInvalidArgument);
  fs::remove_all(folder);
}

TEST(TraceCut, SaysWhatIsNotATrace) {
  for (const std::string text : {"", "{\"traceEvents\": []}", "\x0a", "\x1f\x8b garbage", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"}) {
    const auto read = read_trace_bytes(std::span<const char>(text.data(), text.size()), "other.json");
    ASSERT_FALSE(read.is_ok());
    EXPECT_EQ(read.status().code(), Code::kDamaged);
    EXPECT_NE(read.status().message().find("'other.json' is not a trace of Marey's"), std::string::npos);
  }
}

TEST(TraceCut, KeepsMetadataOfEveryKind) {
  std::random_device random;
  const fs::path folder = fs::temp_directory_path() / fmt::format("marey-cut-{:08x}", random());
  fs::create_directories(folder);
  TraceInfo info = sample_info();
  info.job = "job 1";
  info.rank = 3;
  info.world_size = 8;
  info.parallel = "tp1-dp2";
  info.stage = "actor_update";
  info.train_step = 0;
  info.recorded_units = 1;
  info.end_reason = "exception";
  info.contents = {"cpu", "shapes"};
  info.sources = {{"host", "armed", ""}, {"torch", "unavailable", "no PyTorch"}};
  info.losses = {{"lane_full", 5, "host", 10, 20}};
  info.events = 9;
  info.end_ns = 2000;
  info.begin_unix_ns = 1'700'000'000'123'456'789;
  info.ticks_per_ns = 2.5961;
  info.clock_residual_ns = -7;
  info.event_cost_ns = 21.25;
  auto created = WindowWriter::create({folder, &base::real_file_system(), &event::names()}, info, {1000, 5000, 0, 0});
  ASSERT_TRUE(created.is_ok());
  ASSERT_TRUE(created.value()->seal(info, {2000, 6000, 0, 0}).is_ok());
  const auto read = read_trace(created.value()->path());
  ASSERT_TRUE(read.is_ok());
  const TraceInfo& got = read.value().info;
  EXPECT_EQ(got.job, info.job);
  EXPECT_EQ(got.rank, 3);
  EXPECT_EQ(got.world_size, 8);
  EXPECT_EQ(got.parallel, info.parallel);
  EXPECT_EQ(got.stage, info.stage);
  EXPECT_EQ(got.train_step, 0);
  EXPECT_EQ(got.recorded_units, 1);
  EXPECT_FALSE(got.complete);
  EXPECT_EQ(got.end_reason, "exception");
  EXPECT_EQ(got.contents, info.contents);
  ASSERT_EQ(got.sources.size(), 2U);
  EXPECT_EQ(got.sources[1].reason, "no PyTorch");
  ASSERT_EQ(got.losses.size(), 1U);
  EXPECT_EQ(got.losses[0].count, 5U);
  EXPECT_EQ(got.losses[0].end_ns, 20);
  EXPECT_EQ(got.begin_unix_ns, info.begin_unix_ns);
  EXPECT_EQ(got.ticks_per_ns, info.ticks_per_ns);
  EXPECT_EQ(got.clock_residual_ns, -7);
  EXPECT_EQ(got.event_cost_ns, 21.25);
  EXPECT_EQ(got.schedule, info.schedule);
  EXPECT_NE(read.value().path.find("/actor_step0_mini-batch2-3_rank3-of-8_tp1-dp2_host_pid7_"), std::string::npos) << read.value().path;
  fs::remove_all(folder);
}

}  // namespace
}  // namespace marey::trace
